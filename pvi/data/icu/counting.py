"""Tell the user how many files have been read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Count = Callable[[int, int], object]
"""Called with the number of files read so far and the number of all."""


@contextmanager
def counting(progress: bool | Count, total: int, what: str) -> Iterator[Callable[[int], object]]:
    """A function to call with the number done: nothing, a progress bar, or the user's own with `total` besides."""
    if callable(progress):
        yield lambda done: progress(done, total)
    elif not progress:
        yield lambda done: None
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)
