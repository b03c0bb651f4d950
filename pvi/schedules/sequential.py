"""One client after the other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pvi.schedules.protocol import Collect, Dispatch, Event


@dataclass(frozen=True)
class Sequential:
    """One client after the other, each from the newest q; a round is one pass over all clients.

    >>> list(Sequential().events(("a", "b"), 0))[:2]
    [Dispatch(clients=('a',), time=0.0), Collect(clients=('a',), time=0.0)]
    """

    @property
    def name(self) -> str:
        """``sequential``."""
        return "sequential"

    def events(self, clients: Sequence[str], round_index: int) -> Iterator[Event]:
        """A dispatch and a collection a client."""
        for client in clients:
            yield Dispatch((client,))
            yield Collect((client,))
