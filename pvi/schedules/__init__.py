"""In which order clients are visited, one schedule a file."""

from collections.abc import Callable
from functools import partial

from pvi.schedules.asynchronous import Asynchronous
from pvi.schedules.attendance import Attendance, Interruptible
from pvi.schedules.dropouts import Dropouts
from pvi.schedules.latency import Latency
from pvi.schedules.protocol import Collect, Dispatch, Event, Limited, Schedule, is_synchronous, rounds_limit
from pvi.schedules.random_subset import RandomSubset
from pvi.schedules.sequential import Sequential
from pvi.schedules.single_pass import SinglePass
from pvi.schedules.subset_after_training import SubsetAfterTraining
from pvi.schedules.synchronous import Synchronous

SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "synchronous": Synchronous,
    "sequential": Sequential,
    "shuffled": partial(Sequential, order="shuffled"),
    "asynchronous": Asynchronous,
    "single-pass": SinglePass,
}
"""Schedules that need no options; a random subset needs its size, dropouts their intervals."""


def resolve_schedule(schedule: Schedule | str) -> Schedule:
    """A schedule by name with its default options, or the object itself; ``ValueError`` for an unknown name."""
    if not isinstance(schedule, str):
        return schedule
    if schedule not in SCHEDULES:
        known = ", ".join(SCHEDULES)
        raise ValueError(f"unknown schedule {schedule!r}; there are {known}, or an object such as RandomSubset(size=5)")
    return SCHEDULES[schedule]()


__all__ = [
    "SCHEDULES",
    "Asynchronous",
    "Attendance",
    "Collect",
    "Dispatch",
    "Dropouts",
    "Event",
    "Interruptible",
    "Latency",
    "Limited",
    "RandomSubset",
    "Schedule",
    "Sequential",
    "SinglePass",
    "SubsetAfterTraining",
    "Synchronous",
    "is_synchronous",
    "resolve_schedule",
    "rounds_limit",
]
