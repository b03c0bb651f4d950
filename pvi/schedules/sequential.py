"""One client after the other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

from pvi.schedules.attendance import Attendance
from pvi.schedules.draws import check_seed, permuted
from pvi.schedules.latency import Latency, frozen
from pvi.schedules.protocol import Event
from pvi.schedules.replay import Replay
from pvi.schedules.waves import in_waves


@dataclass(frozen=True)
class Sequential:
    """One client after the other, each from the newest q; a round is one pass over all clients.

    ``order``: ``"cyclic"``, that of the clients, or ``"shuffled"``, a new random one in every round, from ``seed``.
    ``latency``: each client's seconds, see :data:`~pvi.schedules.Latency`; a round lasts as long as all together.

    >>> list(Sequential().events(("a", "b"), 0))[:2]
    [Dispatch(clients=('a',), time=0.0), Collect(clients=('a',), time=1.0)]
    """

    order: Literal["cyclic", "shuffled"] = "cyclic"
    seed: int = 0
    latency: Latency = None

    def __post_init__(self) -> None:
        if self.order not in ("cyclic", "shuffled"):
            raise ValueError(f"order must be 'cyclic' or 'shuffled', got {self.order!r}")
        check_seed(self.seed)
        object.__setattr__(self, "latency", frozen(self.latency))

    @property
    def name(self) -> str:
        """``sequential``, or ``shuffled``."""
        return "sequential" if self.order == "cyclic" else "shuffled"

    def events(self, clients: Sequence[str], round_index: int) -> Iterator[Event]:
        """A dispatch and a collection a client."""
        return self.attended(Attendance(tuple(clients)), round_index)

    def attended(self, attendance: Attendance, round_index: int) -> Iterator[Event]:
        """The same among the clients that are there, in the order that they would have had."""
        return in_waves(self._replay, self._one_by_one, self.latency, attendance, round_index)

    def _one_by_one(self, attendance: Attendance, round_index: int) -> list[tuple[str, ...]]:
        order = attendance.clients
        if self.order == "shuffled":
            order = permuted(order, self.seed, round_index)
        present = set(attendance.present(round_index))
        return [(client,) for client in order if client in present]

    @cached_property
    def _replay(self) -> Replay[Fraction]:
        return Replay()
