"""What the curvature adds to a client's step: seconds of FOLA's visits over those of FedAvg's, vectorised over clients.

Run from the repository root: ``python benchmarks/laplace_step.py`` (options: ``--help``). Twenty clients of made-up
images, a network 784-300-100-10, batches of 32, one thread, single precision, compiled.
Rounds of all methods alternate, so that what slows the machine slows all; a ratio is the median of ratios to FedAvg's
visit of the same turn. Seconds are those of the local steps: what the server does is not among them.
"""

import argparse
import statistics
from collections.abc import Iterator
from functools import partial

import torch

import pvi
from pvi.executors import Vectorised
from pvi.models import bayesian_mlp

PIXELS, CLASSES = 784, 10


def methods(epochs: int, batch: int) -> dict[str, pvi.Algorithm]:
    """FedAvg first: the others are measured against it."""
    common = {"epochs": epochs, "batch_size": batch, "learning_rate": 0.01}
    return {
        "FedAvg": pvi.FedAvg(**common),  # type: ignore[arg-type]
        "FOLA, squared mean gradient": pvi.FOLA(curvature="mean-gradient", **common),  # type: ignore[arg-type]
        "FOLA, Fisher of single rows": pvi.FOLA(curvature="empirical-fisher", **common),  # type: ignore[arg-type]
        "FOLA offline": pvi.FOLAOffline(**common),
        "FedCurv": pvi.FedCurv(**common),  # type: ignore[arg-type]
    }


def made_up(clients: int, rows: int) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Images of noise: their values do not matter here."""
    generator = torch.Generator().manual_seed(0)
    return {
        f"client {index + 1}": (
            torch.rand(rows, PIXELS, generator=generator),
            torch.randint(CLASSES, (rows,), generator=generator),
        )
        for index in range(clients)
    }


def visits(
    algorithm: pvi.Algorithm, data: dict[str, tuple[torch.Tensor, torch.Tensor]], hidden: tuple[int, ...], rounds: int
) -> Iterator[float]:
    """Seconds of all clients' local steps, round by round."""
    model = partial(bayesian_mlp.model, hidden=hidden, classes=CLASSES)
    guide = bayesian_mlp.mean_field_guide(model)
    executor = Vectorised(compile=True)
    for result in pvi.fit_rounds(
        model, data, guide, algorithm=algorithm, rounds=rounds, executor=executor, elbo_samples=2
    ):
        last = result.history[-1]
        assert {one.executor for one in last.visits} == {executor.name}, "some ran one by one"
        yield sum(one.seconds for one in last.visits)


def main() -> None:
    """Print seconds a step and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rows", type=int, default=480)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--hidden", type=int, nargs="+", default=[300, 100])
    given = parser.parse_args()
    torch.set_num_threads(1)
    data, hidden = made_up(given.clients, given.rows), tuple(given.hidden)
    chosen = methods(given.epochs, given.batch)
    running = {name: visits(one, data, hidden, given.turns + 1) for name, one in chosen.items()}
    taken: dict[str, list[float]] = {name: [] for name in running}
    for turn in range(given.turns + 1):
        for name, rounds in running.items():
            seconds = next(rounds)
            if turn:  # the first compiles
                taken[name].append(seconds)
    steps = given.epochs * max(1, given.rows // given.batch)
    base = taken["FedAvg"]
    for name, seconds in taken.items():
        ratio = statistics.median(own / other for own, other in zip(seconds, base, strict=True))
        each = 1e3 * statistics.median(seconds) / steps / given.clients
        print(f"{name:<30} {each:7.3f} ms a step of a client   {ratio:5.2f} times FedAvg's")


if __name__ == "__main__":
    main()
