"""Executors: the same algorithm, run differently."""

from pvi.executors.loop import Answer, Executor, Loop, Task

EXECUTORS: dict[str, type[Loop]] = {"loop": Loop}


def resolve_executor(executor: Executor | str) -> Executor:
    """An executor by name, or the object itself; raises ``ValueError`` for an unknown name."""
    if not isinstance(executor, str):
        return executor
    if executor not in EXECUTORS:
        raise ValueError(f"unknown executor {executor!r}; there are {', '.join(EXECUTORS)}")
    return EXECUTORS[executor]()


__all__ = ["EXECUTORS", "Answer", "Executor", "Loop", "Task", "resolve_executor"]
