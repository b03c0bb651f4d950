"""How long a client takes to answer, in simulated seconds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from numbers import Real

Latency = Sequence[float] | Mapping[str, float] | float | None
"""Per client, in the order of the clients or by name; one number for all; ``None``: a second each."""


def seconds(number: float) -> Fraction:
    """The decimal as written, so that ten times 0.1 is 1 and arrivals meant to be simultaneous are."""
    return Fraction(repr(float(number)))


def frozen(latency: Latency) -> Latency:
    """A checked copy; raises ``TypeError`` and ``ValueError`` for anything but positive finite numbers."""
    if latency is None:
        return None
    if isinstance(latency, Mapping):
        return {name: _checked(f"latency of client {name!r}", value) for name, value in latency.items()}
    if isinstance(latency, Iterable) and not isinstance(latency, str):
        return tuple(_checked(f"latency of client {index} (from 0)", value) for index, value in enumerate(latency))
    return _checked("latency", latency)


def by_name(latency: Latency, clients: Sequence[str]) -> dict[str, Fraction]:
    """Each client's latency; raises ``ValueError`` where the latencies do not fit the clients."""
    if isinstance(latency, Mapping):
        unknown = [name for name in latency if name not in clients]
        if unknown:
            raise ValueError(f"latency: no clients {unknown}; there are {list(clients)}")
        missing = [name for name in clients if name not in latency]
        if missing:
            raise ValueError(f"latency: none for clients {missing}; give every client its seconds")
        return {name: seconds(latency[name]) for name in clients}
    if isinstance(latency, Sequence):
        if len(latency) != len(clients):
            raise ValueError(f"latency: {len(latency)} numbers for {len(clients)} clients; give one each, in order")
        return {name: seconds(value) for name, value in zip(clients, latency, strict=True)}
    return dict.fromkeys(clients, seconds(1.0 if latency is None else latency))


def _checked(what: str, value: object) -> float:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{what} must be a number of seconds, got {value!r}")
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{what} must be positive and finite, got {value!r}")
    return number
