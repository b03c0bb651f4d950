"""pFedBayes' generalisation error against the rows a client has, beside the minimax rate of the truths' smoothness.

Run from the repository root: ``python benchmarks/rate.py`` (options: ``--help``). The truths are known random functions
on [0, 1], a part common to the clients and a part of each one's own, both Lipschitz; so is the noise. Networks grow as
the theory says, T ∝ n^(d / (2β + d)). A binned mean with as many bins shows what the rate looks like where nothing is
optimised: its error is at most a constant times the minimax rate.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import pvi
from pvi.diagnostics.style import BLUE, DARK, DPI, GREY, GRID, SMALL, hide, new_figure
from pvi.executors import Vectorised
from pvi.models import bayesian_mlp
from pvi.theory import minimax_rate, network_size, num_weights

SMOOTHNESS, NOISE = 1.0, 0.5
LEVELS = 13
"""Scales of a truth's detail, 1 to 2^-12: below the distance between rows of every run."""
SHARE = 0.7
"""What the common and a client's own part are multiplied by; as they are, their standard deviations are 2/3."""
WEIGHTS, BINS = 9.0, 2.0
"""Constants of n^(1 / (2β + 1)): weights of a network, bins."""
FRESH, DRAWS = 2000, 200
"""Inputs and draws of θ at which the error is taken."""

Function = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Client(NamedTuple):
    """Rows, and the function they come from."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    truth: Function


class Errors(NamedTuple):
    """Averaged over clients: ∫ ‖f_θ - f‖² q(dθ), ‖E_q f_θ - f‖², and the binned mean's squared error."""

    posterior: float
    mean: float
    bins: float


def lipschitz(generator: np.random.Generator) -> Function:
    """Σ_j ± 2^-jβ triangle(2^j x + phase_j), with detail of a β-Hölder function's size on every scale; β = 1 here."""
    signs, phases = generator.choice([-1.0, 1.0], LEVELS), generator.uniform(size=LEVELS)
    powers = 2.0 ** np.arange(LEVELS)

    def function(x: NDArray[np.float64]) -> NDArray[np.float64]:
        waves = 4 * np.abs((powers * x[:, None] + phases) % 1 - 0.5) - 1
        return waves @ (signs * powers**-SMOOTHNESS)

    return function


def clients(rows: int, number: int, seed: int) -> dict[str, Client]:
    """Data by client; the same truths for every number of rows."""
    source = np.random.default_rng(seed)
    common, own = lipschitz(source), [lipschitz(source) for _ in range(number)]
    found = {}
    for index, part in enumerate(own):

        def truth(x: NDArray[np.float64], part: Function = part) -> NDArray[np.float64]:
            return SHARE * common(x) + SHARE * part(x)

        generator = np.random.default_rng([seed, rows, index])
        x = generator.uniform(size=rows)
        found[f"client {index}"] = Client(x, truth(x) + NOISE * generator.normal(size=rows), truth)
    return found


def width(rows: int) -> int:
    """Units of the one hidden layer that come closest to the theory's number of weights, 3 units + 1."""
    size = network_size(rows, smoothness=SMOOTHNESS, dimension=1, constant=WEIGHTS)
    return max(2, round((size - 1) / 3))


def features(x: NDArray[np.float64]) -> Tensor:
    """``[n, 1]``, mean 0 and variance 1."""
    return torch.as_tensor(math.sqrt(12) * (x - 0.5), dtype=torch.float32)[:, None]


def fit(data: dict[str, Client], units: int, rounds: int, average: str, seed: int) -> dict[str, pvi.Posterior]:
    """Every client's own posterior of the network's weights. Moments: then w is the optimum that the theorem is of."""
    program = partial(bayesian_mlp.model, hidden=units, noise_scale=NOISE)
    rows = {name: (features(one.x), torch.as_tensor(one.y, dtype=torch.float32)) for name, one in data.items()}
    algorithm = pvi.PFedBayes(
        zeta=1.0, num_particles=1, subset=len(data), average=average, initial_rho=-4.0, batch_size=None,
        learning_rate=0.01, global_learning_rate=0.01, local_reparameterisation=True,
    )  # fmt: skip
    result = pvi.fit(
        program, rows, bayesian_mlp.mean_field_guide(program, loc_range=1.0, seed=seed), algorithm, rounds=rounds,
        seed=seed, executor=Vectorised(compile=rounds > 50), elbo_samples=2,
    )  # fmt: skip
    return dict(result.personal)


def outputs(posterior: pvi.Posterior, x: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """``[draws, n]`` of f_θ(x), θ ~ q."""
    q = posterior.sample(DRAWS, torch.Generator().manual_seed(seed))
    hidden = torch.relu(features(x) @ q["weights_1"].mT + q["bias_1"][:, None])
    return (hidden @ q["weights_2"].mT + q["bias_2"][:, None])[..., 0].double().numpy()


def binned(client: Client, bins: int, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean outcome of x's bin; of all rows where the bin is empty."""
    place, fresh = ((bins * inputs).astype(int) for inputs in (client.x, x))
    counts, sums = np.bincount(place, minlength=bins), np.bincount(place, client.y, minlength=bins)
    return np.where(counts > 0, sums / np.maximum(counts, 1), client.y.mean())[fresh]


def errors(rows: int, number: int, rounds: int, average: str, seed: int) -> Errors:
    """One run."""
    data = clients(rows, number, seed)
    personal = fit(data, width(rows), rounds, average, seed)
    bins = round(network_size(rows, smoothness=SMOOTHNESS, dimension=1, constant=BINS))
    x = np.random.default_rng([seed, rows, number]).uniform(size=FRESH)
    found = []
    for name, client in data.items():
        truth, draws = client.truth(x), outputs(personal[name], x, seed)
        guesses = (draws, draws.mean(0), binned(client, bins, x))
        found.append([float(((guess - truth) ** 2).mean()) for guess in guesses])
    return Errors(*np.mean(found, 0).tolist())


def slope(rows: Sequence[int], values: NDArray[np.float64]) -> tuple[float, float]:
    """Of log error ``[seeds, rows]`` against log n by least squares, a line a seed: mean and its standard error."""
    slopes = np.polyfit(np.log(rows), np.log(values).T, 1)[0]
    return slopes.mean(), slopes.std(ddof=1) / math.sqrt(len(slopes)) if len(slopes) > 1 else math.nan


def draw(rows: Sequence[int], found: NDArray[np.float64], path: Path) -> None:
    """Errors ``[seeds, rows, 3]`` on logarithmic axes, every seed a faint line, beside the minimax slope."""
    figure = new_figure(6.2, 4.2)
    axes = figure.subplots()
    styles = {"posterior draws, averaged": (BLUE, "o"), "posterior mean": (DARK, "s"), "binned means": (GREY, "^")}
    for index, (label, (colour, marker)) in enumerate(styles.items()):
        for line in found[..., index]:
            axes.loglog(rows, line, color=colour, lw=0.6, alpha=0.35)
        middle = np.exp(np.log(found[..., index]).mean(0))
        power = slope(rows, found[..., index])[0]
        axes.loglog(rows, middle, color=colour, marker=marker, ms=4.5, lw=1.8, label=f"{label}: {power:.2f}")
    rate = np.array([minimax_rate(n, smoothness=SMOOTHNESS, dimension=1) for n in rows])
    start = 1.25 * np.exp(np.log(found[:, 0]).mean(0)).max() / rate[0]
    exponent = -2 * SMOOTHNESS / (2 * SMOOTHNESS + 1)
    axes.loglog(rows, start * rate, color=DARK, ls="--", lw=1.2, label=f"minimax: {exponent:.2f}")
    axes.set_xlabel("rows of a client, n", fontsize=SMALL)
    axes.set_ylabel("squared error at fresh inputs", fontsize=SMALL)
    axes.set_xticks(rows, [str(n) for n in rows], fontsize=SMALL)
    axes.minorticks_off()
    axes.grid(color=GRID, lw=0.8)
    axes.legend(title="slope", fontsize=SMALL, title_fontsize=SMALL, frameon=False)
    hide(axes, ("top", "right"))
    figure.savefig(path, dpi=DPI)


def main() -> None:
    """Print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[50, 100, 200, 400, 800, 1600, 3200])
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--average", choices=("moments", "parameters"), default="moments")
    parser.add_argument("--out", type=Path, default=Path("docs/rate.png"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = np.zeros((options.seeds, len(options.rows), 3))
    print("\n| n | weights | posterior draws | posterior mean | binned means |\n| --- | --- | --- | --- | --- |")
    for place, n in enumerate(options.rows):
        for seed in range(options.seeds):
            found[seed, place] = errors(n, options.clients, options.rounds, options.average, seed)
        means = np.exp(np.log(found[:, place]).mean(0))
        print(
            f"| {n} | {num_weights([1, width(n), 1])} | " + " | ".join(f"{value:.4f}" for value in means) + " |",
            flush=True,
        )
    slopes = (slope(options.rows, found[..., index]) for index in range(3))
    print("| slope | | " + " | ".join(f"{mean:.2f} ± {error:.2f}" for mean, error in slopes) + " |")
    draw(options.rows, found, options.out)


if __name__ == "__main__":
    main()
