"""Executors: the same algorithm, run differently."""

from collections.abc import Callable

from pvi.executors.auto import Auto
from pvi.executors.loop import Answer, Executor, Loop, Task
from pvi.executors.vectorised import Vectorised

EXECUTORS: dict[str, Callable[[], Executor]] = {"auto": Auto, "loop": Loop, "vectorised": Vectorised}
"""What an executor can be called by: each with its default options."""


def resolve_executor(executor: Executor | str) -> Executor:
    """An executor by name, or the object itself.

    Raises ``ValueError`` for an unknown name and ``TypeError`` for what is neither.
    """
    if isinstance(executor, Executor) and not isinstance(executor, type):
        return executor
    if not isinstance(executor, str):
        raise TypeError(
            f"executor is a name or an Executor, got {executor!r}; an executor with options is called, as in "
            "pvi.executors.Vectorised(max_clients_at_once=100)"
        )
    if executor not in EXECUTORS:
        raise ValueError(f"unknown executor {executor!r}; there are {', '.join(EXECUTORS)}")
    return EXECUTORS[executor]()


__all__ = ["EXECUTORS", "Answer", "Auto", "Executor", "Loop", "Task", "Vectorised", "resolve_executor"]
