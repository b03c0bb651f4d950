"""When a stochastic ascent is over: its free energy no longer rises beyond its noise, at any learning rate.

A plain one has no such criterion: it keeps its learning rate and takes all its steps.
"""

from typing import NamedTuple

from torch import Tensor

from pvi.solvers.protocol import SolverInfo

MAX_CUTS = 3
"""Learning-rate cuts before a plateau of F_m counts as the end."""
MAX_NOISE = 1.0
"""Nats, or per cent of the free energy: a mean that is known no better shows no plateau."""
PATIENCE = 2
"""Windows in a row without a visible rise that make a plateau: one alone is often noise."""


class Course(NamedTuple):
    """The learning rate and its cuts so far, the windows without a rise, and the last window's estimates of F_m.

    ``plain``: the rate stays, and nothing ends the ascent.
    """

    rate: float
    cuts: int = 0
    still: int = 0
    previous: Tensor | None = None
    plain: bool = False

    @property
    def over(self) -> bool:
        """Whether another plateau followed the last cut."""
        return self.cuts > MAX_CUTS


def judge(course: Course, values: Tensor, rises: Tensor | None) -> Course:
    """The course after a window with the estimates of F_m ``values [w]``.

    With ``rises [w]``, the gradients along the steps before them, these say whether it still goes up.
    """
    if course.plain:
        return course._replace(previous=values)
    plateau = _plateau(course.previous, values) if rises is None else _lost(rises)
    still = course.still + 1 if plateau else 0
    if still == PATIENCE:
        return Course(course.rate / 3, course.cuts + 1, 0, values)
    return course._replace(still=still, previous=values)


def report(course: Course, taken: int) -> SolverInfo:
    """What the solver says at its end. A plain ascent did what it was asked to, and claims nothing beyond that."""
    assert course.previous is not None
    values = course.previous
    value, noise = values.mean().item(), (values.var(unbiased=False) / len(values)).sqrt().item()
    if course.plain:
        return SolverInfo(taken, value, True, "")
    message = "" if course.over else f"the free energy still rose after {taken} steps"
    if not message and not noise <= max(MAX_NOISE, MAX_NOISE / 100 * abs(value)):
        message = f"the free energy is too noisy to tell ({value:.3g} ± {noise:.2g} nats over {len(values)} steps)"
    return SolverInfo(taken, value, not message, message)


def _plateau(previous: Tensor | None, current: Tensor) -> bool:
    """Whether the mean rose by less than the standard error of the difference."""
    if previous is None:
        return False
    noise = previous.var() / len(previous) + current.var(unbiased=len(current) > 1) / len(current)
    return bool(current.mean() - previous.mean() < noise.sqrt())


def _lost(rises: Tensor) -> bool:
    """Whether gradients point along the steps before them by less than the standard error of that."""
    return len(rises) > 1 and bool(rises.mean() < rises.std() / len(rises) ** 0.5)
