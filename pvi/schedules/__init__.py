"""In which order clients are visited, one schedule a file."""

from collections.abc import Callable

from pvi.schedules.protocol import Collect, Dispatch, Event, Limited, Schedule, rounds_limit
from pvi.schedules.sequential import Sequential
from pvi.schedules.synchronous import Synchronous

SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "synchronous": Synchronous,
    "sequential": Sequential,
}


def resolve_schedule(schedule: Schedule | str) -> Schedule:
    """A schedule by name with its default options, or the object itself; ``ValueError`` for an unknown name."""
    if not isinstance(schedule, str):
        return schedule
    if schedule not in SCHEDULES:
        raise ValueError(f"unknown schedule {schedule!r}; there are {', '.join(SCHEDULES)}")
    return SCHEDULES[schedule]()


__all__ = [
    "SCHEDULES",
    "Collect",
    "Dispatch",
    "Event",
    "Limited",
    "Schedule",
    "Sequential",
    "Synchronous",
    "resolve_schedule",
    "rounds_limit",
]
