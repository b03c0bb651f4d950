"""How close PVI comes to pooling all rows: the tables of docs/benchmarks.md.

Run from the repository root: ``PVI_DATA=... python benchmarks/accuracy.py``. The exact ELBO comes from the tests'
oracle (NumPy and SciPy, quadrature, its own optimiser), which shares no code with the library.
"""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer

import pvi
from pvi.data import Tables, read_tables, tables_from_frames
from pvi.diagnostics import heldout_metrics
from pvi.models import logistic_regression

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracles import global_vi

METHODS: Mapping[str, dict[str, object]] = {
    "PVI synchronous, ρ = 0.5": {"schedule": "synchronous", "damping": 0.5, "rounds": 30},
    "PVI sequential, ρ = 1": {"schedule": "sequential", "damping": 1.0, "rounds": 15},
    "global VI": {"schedule": "sequential", "damping": 1.0, "rounds": 1},
}


def heart_disease() -> Tables:
    """Four hospitals, columns with missing values indicated."""
    folder = Path(os.environ["PVI_DATA"]) / "heart-disease"
    return read_tables(
        sorted(folder.glob("processed.*.data")),
        header=False,
        na="?",
        target=13,
        positive=">0",
        categorical=(2, 6, 10, 12),
        missing="indicator",
    )


def breast_cancer() -> Tables:
    """scikit-learn's data, dealt to five clients by k-means on the standardised inputs."""
    frame = load_breast_cancer(as_frame=True).frame
    inputs = frame.drop(columns="target")
    labels = KMeans(5, n_init=10, random_state=0).fit_predict(((inputs - inputs.mean()) / inputs.std()).to_numpy())
    return tables_from_frames({f"cluster {k}": frame[labels == k] for k in range(5)}, target="target")


def pooled(tables: Tables) -> tuple[torch.Tensor, torch.Tensor]:
    """All training rows, for global VI and the oracle."""
    return torch.cat([x for x, _ in tables.values()]), torch.cat([y for _, y in tables.values()])


def rows(name: str, tables: Tables, guide: str | None) -> list[str]:
    """One line of the table a method."""
    x, y = pooled(tables)
    design = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1).numpy()
    exact = global_vi(design, y.numpy(), covariance="diagonal" if guide is None else "full").elbo
    lines = []
    for method, options in METHODS.items():
        clients = {"all": (x, y)} if method == "global VI" else tables
        began = time.perf_counter()
        result = pvi.fit(logistic_regression.model, clients, guide=guide, **options)  # type: ignore[arg-type]
        seconds = time.perf_counter() - began
        heldout = heldout_metrics(result, tables.holdout, num_samples=4000).loc["all clients"]
        family = "mean field" if guide is None else "full"
        lines.append(
            f"| {name} | {family} | {method} | {options['rounds']} | {seconds:.1f} | "
            f"{result.elbo:.4f} | {exact:.4f} | {exact - result.elbo:.1e} | {heldout['log_density']:.4f} | "
            f"{heldout['accuracy']:.4f} |"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    # The first use of torch.func imports half of torch: not a cost of any method.
    pvi.fit(logistic_regression.model, [(torch.ones(2, 1), torch.tensor([0.0, 1.0]))], rounds=1)
    print("| data | guide | method | rounds | s | ELBO | exact | gap | held-out | accuracy |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, tables in (("breast cancer", breast_cancer()), ("heart disease", heart_disease())):
        for guide in (None, "full"):
            rows(name, tables, guide)


if __name__ == "__main__":
    main()
