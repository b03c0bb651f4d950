"""Adult, ten clients, exact local solves on one thread: seconds, Newton steps and the ELBO gap to exact global VI.

Run from the repository root: ``PVI_DATA=... python benchmarks/adult.py [--rounds 20] [--splits AB] [--no-gap]``. Both
files of Adult, shuffled; four fifths of the rows; numeric columns standardised, categorical ones one-hot: 108 features
and an intercept. Splits A and B are those of the PVI paper. The exact ELBO comes from the tests' oracle, which shares
no code with the library and takes longer than the runs.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import pvi
from pvi.data import SPLIT_A, SPLIT_B, small_large
from pvi.data.uci import adult
from pvi.models import logistic_regression

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from datasets import one_hot
from oracles import global_vi

SPLITS = {"A": SPLIT_A, "B": SPLIT_B}
RUNS: dict[str, dict[str, Any]] = {
    "ρ = 0.2": {"damping": 0.2},
    "Anderson, ρ = 0.5": {"damping": 0.5, "acceleration": pvi.Anderson(memory=5)},
}


def rows() -> tuple[Tensor, Tensor]:
    """Features ``[39074, 108]`` and outcomes of the training rows."""
    data = adult()
    frame = data.frame.iloc[np.random.RandomState(0).permutation(len(data.frame))]
    split = len(frame) - len(frame) // 5
    numbers = frame[list(data.numeric)].to_numpy(dtype=float)
    numbers = (numbers - numbers[:split].mean(0)) / numbers[:split].std(0)
    design = np.hstack([numbers, *[one_hot(frame[column]) for column in data.categorical]])
    y = (frame[data.target] == data.positive).to_numpy(dtype=float)
    return torch.as_tensor(design[:split]), torch.as_tensor(y[:split])


def optimum(clients: list[tuple[Tensor, Tensor]]) -> float:
    """The exact ELBO of global VI on the rows that the split deals out."""
    pooled, outcomes = (torch.cat(parts) for parts in zip(*clients, strict=True))
    design = torch.cat([pooled, torch.ones(len(pooled), 1, dtype=pooled.dtype)], 1)
    return global_vi(design.numpy(), outcomes.numpy()).elbo


def line(split: str, name: str, clients: list[tuple[Tensor, Tensor]], rounds: int, best: float | None) -> str:
    """One run: a row of the table."""
    began, processor = time.perf_counter(), time.process_time()
    result = pvi.fit(logistic_regression.model, clients, rounds=rounds, **RUNS[name])
    total, processor = time.perf_counter() - began, time.process_time() - processor
    seconds = np.array([played.seconds for played in result.history])
    steps = [
        np.mean([info.solver.steps for info in played.clients.values() if info.solver is not None])
        for played in result.history
    ]
    missing = "not asked for" if best is None else f"{best - result.elbo:.3f}"
    return (
        f"| {split} | {name} | {total - seconds.sum():.2f} | {seconds[0]:.2f} | {np.median(seconds[1:]):.2f} | "
        f"{total:.2f} | {processor:.2f} | {steps[0]:.1f} | {np.mean(steps[1:]):.1f} | {result.elbo:.3f} | {missing} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--splits", default="AB")
    parser.add_argument("--no-gap", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    x, y = rows()
    # The first use of a solver imports half of torch: not a cost of any method.
    pvi.fit(logistic_regression.model, [(torch.ones(2, 1), torch.tensor([0.0, 1.0]))], rounds=1)
    print(
        f"| split | run | set-up s | first round s | later rounds s (median) | {options.rounds} rounds s | of the "
        "processor | Newton steps a visit, first round | later | ELBO | gap, nats |"
    )
    print("| --- " * 11 + "|")
    for split in options.splits:
        clients = [(x[part], y[part]) for part in small_large(y.tolist(), num_clients=10, **SPLITS[split])]
        best = None if options.no_gap else optimum(clients)
        for name in RUNS:
            print(line(split, name, clients, options.rounds, best), flush=True)


if __name__ == "__main__":
    main()
