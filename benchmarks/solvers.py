"""The stochastic solvers against the exact one: the second table of docs/benchmarks.md.

Run from the repository root: ``python benchmarks/solvers.py``. Breast cancer (scikit-learn, first five features) at two
clients by k-means, mean field, four synchronous rounds with damping 0.7, four seeds a solver.
"""

import sys
import time
from pathlib import Path

import torch

import pvi
from pvi.models import logistic_regression

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from datasets import breast_cancer

SEEDS = range(4)
SOLVERS: dict[str, pvi.solvers.Solver] = {
    "Newton": pvi.solvers.Newton(),
    "SVI, 1,000 steps": pvi.solvers.SVI(steps=1000),
    "SVI, default": pvi.solvers.SVI(),
    "PyroSVI, 700 steps": pvi.solvers.PyroSVI(steps=700),
    "PyroSVI, default": pvi.solvers.PyroSVI(),
}


def main() -> None:
    """One line a solver."""
    clients = {
        name: (torch.as_tensor(x), torch.as_tensor(y))
        for name, (x, y) in breast_cancer(features=5, clients=2, intercept=False).items()
    }
    exact = pvi.fit(logistic_regression.model, clients, damping=0.7, rounds=4)
    family, natural = exact.posterior.family, exact.posterior.natural
    print("| solver | s a run | ELBO below exact, nats | largest offset of the mean over seeds, posterior sd | in SE |")
    print("| --- | --- | --- | --- | --- |")
    for name, solver in SOLVERS.items():
        began = time.perf_counter()
        runs = [
            pvi.fit(logistic_regression.model, clients, damping=0.7, rounds=4, solver=solver, seed=seed)
            for seed in SEEDS
        ]
        seconds = (time.perf_counter() - began) / len(runs)
        offsets = torch.stack([family.free(run.posterior.natural) - family.free(natural) for run in runs])
        offsets = offsets / family.free_scale(natural)
        mean, error = offsets.mean(0).abs(), offsets.std(0) / len(runs) ** 0.5
        gaps = torch.tensor([exact.elbo - run.elbo for run in runs])
        worst = (mean / error.clamp(min=1e-12)).max() if error.max() > 1e-9 else torch.tensor(0.0)
        print(
            f"| {name} | {seconds:.1f} | {gaps.mean():.4f} ± {gaps.std() / 2:.4f} | {mean.max():.3f} | {worst:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
