"""Whether rounds of stochastic steps still lead anywhere, for algorithms whose local solver is their own."""

import inspect
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean, stdev

from pvi.algorithms import ALGORITHMS
from pvi.history import Round

WINDOW = 10
"""Rounds at most that are averaged, at the end and before that."""
FEWEST = 6
"""Rounds without which nothing can be told from noise."""
SETTLED = 0.1
"""A change over the window, nats, below which nobody would play on."""


def doubts(algorithm: str, name: str, rounds: Sequence[Round]) -> Iterator[str]:
    """What the rounds' free energy, called ``name``, says against the result of the algorithm of a name."""
    if len(rounds) < FEWEST:
        yield f"{len(rounds)} rounds of noisy steps are too few to say whether they converged; use more (--rounds)."
        return
    window = min(WINDOW, len(rounds) // 2)
    looked_at = [record.elbo for record in rounds[-2 * window :]]
    steps = step_options(algorithm)
    lost = sum(not math.isfinite(value) for value in looked_at)
    if lost:
        yield f"The {name} was not finite in {lost} of the last {len(looked_at)} rounds; use smaller steps{steps}."
        return
    rise, noise = trend(looked_at, window)
    if rise > max(SETTLED, noise):
        yield (
            f"Not converged yet: the {name}'s mean over the last {window} rounds is {rise:.2g} nats above that of the "
            f"{window} before; use more rounds (--rounds) or larger steps{steps}."
        )
    elif rise < -max(SETTLED, noise):
        yield (
            f"The {name}'s mean over the last {window} rounds is {-rise:.2g} nats below that of the {window} before: "
            f"rounds need not raise it, but smaller steps{steps} may help."
        )


def step_options(algorithm: str) -> str:
    """How the command line sets an algorithm's step sizes, in brackets, or "" where it has none."""
    sizes = [option for option in inspect.signature(ALGORITHMS[algorithm]).parameters if "learning_rate" in option]
    return f" ({', '.join(f'--set {option}=...' for option in sizes)})" if sizes else ""


def trend(values: Sequence[float], window: int) -> tuple[float, float]:
    """By how much the mean of the last values exceeds that of as many before, and three standard errors of that.

    Noise is what the differences of neighbours vary by, which leaves out a steady rise.
    """
    recent, before = values[-window:], values[-2 * window : -window]
    noise = stdev(after - one for one, after in pairwise(values[-2 * window :])) / 2**0.5
    return fmean(recent) - fmean(before), 3 * noise * (2 / window) ** 0.5
