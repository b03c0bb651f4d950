"""Nobody waits: each update is applied when it arrives, and its client starts again at once."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from pvi.schedules.attendance import Attendance
from pvi.schedules.draws import check_seed, lognormal
from pvi.schedules.latency import Latency, by_name, frozen, seconds
from pvi.schedules.protocol import Collect, Dispatch, Event
from pvi.schedules.replay import Played, Replay


class Flight(NamedTuple):
    """An update on its way, ordered by arrival; ``exact`` keeps rounding out of the sums."""

    arrival: float
    client: int
    exact: Fraction


class Sky(NamedTuple):
    """What is in flight at the start of a round (a heap), and how often each client was sent q."""

    now: Fraction
    flights: tuple[Flight, ...]
    visits: tuple[int, ...]


@dataclass(frozen=True)
class Asynchronous:
    """A simulation of clients that work at their own pace.

    All clients get q at time 0. Each answers its latency later, is collected, and is sent the newest q at that moment.
    A round is as many arrivals as there are clients, so that its messages compare with those of a synchronous round;
    a client that takes ten times as long arrives a tenth as often. Updates that arrive at the same time are collected
    together; where the round has room for some of them only, the others open the next one. What is in flight when
    the run ends stays there.

    ``latency``: each client's seconds, see :data:`~pvi.schedules.Latency`; with all the same, rounds are synchronous.
    ``jitter``: standard deviation of the logarithm of a factor of mean 1 on each latency, drawn from ``seed``, the
    client and the number of its visit.

    >>> list(Asynchronous(latency=[1.0, 3.0]).events(("a", "b"), 1))  # doctest: +NORMALIZE_WHITESPACE
    [Collect(clients=('a', 'b'), time=3.0), Dispatch(clients=('a', 'b'), time=3.0)]
    """

    latency: Latency = None
    jitter: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (isinstance(self.jitter, int | float) and math.isfinite(self.jitter) and self.jitter >= 0):
            raise ValueError(f"jitter must be finite and at least 0, got {self.jitter!r}")
        check_seed(self.seed)
        object.__setattr__(self, "latency", frozen(self.latency))

    @property
    def name(self) -> str:
        """``asynchronous``."""
        return "asynchronous"

    def events(self, clients: Sequence[str], round_index: int) -> Iterator[Event]:
        """A collection and a dispatch an arrival; in round 0 a dispatch to all before them."""
        return self.attended(Attendance(tuple(clients)), round_index)

    def attended(self, attendance: Attendance, round_index: int) -> Iterator[Event]:
        """The same with as many arrivals as clients are there; one that returns is sent the newest q first."""
        clients = attendance.clients
        latency = by_name(self.latency, clients)

        def play(sky: Sky, index: int) -> Played[Sky]:
            present = set(attendance.present(index))
            flights = [flight for flight in sky.flights if clients[flight.client] in present]
            heapify(flights)
            visits, events = list(sky.visits), list[Event]()

            def send(client: int, departure: Fraction) -> None:
                arrival = departure + self._duration(latency[clients[client]], client, visits[client])
                heappush(flights, Flight(float(arrival), client, arrival))
                visits[client] += 1

            underway = {flight.client for flight in flights}
            idle = [client for client, name in enumerate(clients) if name in present and client not in underway]
            for client in idle:
                send(client, sky.now)
            if idle:
                events.append(Dispatch(tuple(clients[client] for client in idle), float(sky.now)))
            now, left = sky.now, len(present)
            while left:
                arrived = [heappop(flights)]
                while flights and len(arrived) < left and flights[0].arrival == arrived[0].arrival:
                    arrived.append(heappop(flights))
                for flight in arrived:
                    send(flight.client, flight.exact)
                names = tuple(clients[flight.client] for flight in arrived)
                events += [Collect(names, arrived[0].arrival), Dispatch(names, arrived[0].arrival)]
                now, left = max(flight.exact for flight in arrived), left - len(arrived)
            return tuple(events), Sky(now, tuple(flights), tuple(visits))

        initial = Sky(Fraction(0), (), (0,) * len(clients))
        return iter(self._replay.events(attendance, initial, play, round_index))

    def _duration(self, latency: Fraction, client: int, visit: int) -> Fraction:
        if self.jitter == 0:
            return latency
        return seconds(float(latency) * lognormal(self.jitter, self.seed, client, visit))

    @cached_property
    def _replay(self) -> Replay[Sky]:
        return Replay()
