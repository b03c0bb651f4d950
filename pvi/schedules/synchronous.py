"""All clients at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pvi.schedules.protocol import Collect, Dispatch, Event


@dataclass(frozen=True)
class Synchronous:
    """All clients at once from the same q; needs damping below 1 unless the model is conjugate.

    >>> list(Synchronous().events(("a", "b"), 0))
    [Dispatch(clients=('a', 'b'), time=0.0), Collect(clients=('a', 'b'), time=0.0)]
    """

    @property
    def name(self) -> str:
        """``synchronous``."""
        return "synchronous"

    def events(self, clients: Sequence[str], round_index: int) -> Iterator[Event]:
        """One dispatch, one collection."""
        yield Dispatch(tuple(clients))
        yield Collect(tuple(clients))
