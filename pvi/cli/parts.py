"""From options to the parts of a run: algorithm, schedule, damping, acceleration, what is learned, how many rounds."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from pvi.acceleration import Anderson, resolve_acceleration
from pvi.algorithms import ALGORITHMS, Algorithm, resolve_algorithm
from pvi.cli import settings
from pvi.cli.options import FitOptions
from pvi.damping import Auto, Damping, Decay, check_damping
from pvi.schedules import SCHEDULES, Latency, RandomSubset, Schedule, rounds_limit

SUBSET = "random-subset"
NAMED: dict[str, Callable[..., Schedule]] = {**SCHEDULES, SUBSET: RandomSubset}
"""Every schedule that the command line can name."""
EVERYTHING, NOTHING = "all", "none"
"""Words in the place of hyperparameters' names."""


def algorithm(options: FitOptions) -> Algorithm:
    """The algorithm with its options, alpha among them; raises ``ValueError`` for those that it does not have."""
    if options.algorithm not in ALGORITHMS:
        return resolve_algorithm(options.algorithm)  # which says what there is
    build: Callable[..., Algorithm] = ALGORITHMS[options.algorithm]
    more: dict[str, Any] = {}
    if options.alpha is not None:
        with_alpha = [name for name, build in ALGORITHMS.items() if "alpha" in inspect.signature(build).parameters]
        if options.algorithm not in with_alpha:
            raise ValueError(f"--alpha is for --algorithm {' or '.join(with_alpha)}, not for {options.algorithm!r}")
        if "alpha" in settings.named(options.set):
            raise ValueError("--alpha and --set alpha=... say the same; leave one of them out")
        more["alpha"] = options.alpha
    return settings.built(options.algorithm, build, options.set, **more)


def schedule(options: FitOptions) -> Schedule | None:
    """The schedule with its options, ``None`` for the algorithm's own; raises ``ValueError``."""
    name = options.schedule
    if name is not None and name not in NAMED:
        raise ValueError(f"unknown schedule {name!r}; there are {', '.join(NAMED)}")
    if name == SUBSET and options.subset_size is None:
        raise ValueError(f"--schedule {SUBSET} needs --subset-size, the number of clients in a round")
    if name != SUBSET and options.subset_size is not None:
        raise ValueError(f"--subset-size is for --schedule {SUBSET}")
    if name is None:
        if options.latency:
            raise ValueError("--latency: name the --schedule that it is for, such as asynchronous")
        return None
    parameters = inspect.signature(NAMED[name]).parameters
    given = {"seed": options.seed, "size": options.subset_size, "latency": latency(options.latency)}
    return NAMED[name](**{key: value for key, value in given.items() if key in parameters})


def latency(texts: Sequence[str]) -> Latency:
    """Seconds in the clients' order (``1,1,10``) or by name (``north=1,south=10``); raises ``ValueError``."""
    if not texts:
        return None
    pairs = [text.rpartition("=") for text in texts]
    try:
        numbers = [float(number) for _, _, number in pairs]
    except ValueError as error:
        raise ValueError(f"--latency {','.join(texts)}: {error}; write 1,1,10 or north=1,south=10") from error
    named = [bool(equals) for _, equals, _ in pairs]
    if not any(named):
        return numbers
    names = [name.strip() for name, _, _ in pairs]
    if not all(named) or len(set(names)) < len(names):
        raise ValueError(f"--latency {','.join(texts)}: name every client once, or none (then in their order)")
    return dict(zip(names, numbers, strict=True))


def damping(options: FitOptions) -> Damping | float | None:
    """A number, a search, a decay; ``None`` for the algorithm's own; raises ``ValueError``."""
    said = options.damping
    if said is None:
        return None
    if not isinstance(said, str):
        return check_damping(said)
    kind, *numbers = said.split(":")
    if kind == "auto" and not numbers:
        return Auto()
    try:
        if kind == "decay" and 1 <= len(numbers) <= 3:
            return Decay(*map(float, numbers))
    except ValueError as error:
        raise ValueError(f"--damping {said!r}: {error}") from error
    raise ValueError(f"--damping {said!r}: a number in (0, 1], auto, or decay:INITIAL:RATE:POWER such as decay:0.5:0.1")


def acceleration(options: FitOptions) -> Anderson | None:
    """Anderson's with its memory; raises ``ValueError`` for a memory without it."""
    found = resolve_acceleration(options.acceleration)
    if options.memory is None:
        return found
    if found is None:
        raise ValueError("--memory is for --acceleration anderson")
    return Anderson(memory=options.memory)


def learn(options: FitOptions) -> list[str] | str | None:
    """The hyperparameters to learn as :func:`pvi.fit` takes them: names, "all", an empty list, or ``None``."""
    names = list(options.learn)
    if len(names) > 1 and {EVERYTHING, NOTHING} & set(names):
        raise ValueError(f"--learn {','.join(names)}: {EVERYTHING} and {NOTHING} stand alone")
    if names == [EVERYTHING]:
        return EVERYTHING
    return [] if names == [NOTHING] else names or None


def rounds(options: FitOptions) -> int:
    """The rounds asked for, else the algorithm's own, or as many as its schedule has."""
    if options.rounds is not None:
        return options.rounds
    order = schedule(options)
    limit = None if order is None else rounds_limit(order)
    own = algorithm(options).rounds
    return own if limit is None else min(own, limit)


def is_timed(options: FitOptions) -> bool:
    """Whether simulated seconds mean something: latencies are given, or clients work at their own pace."""
    return bool(options.latency) or options.schedule == "asynchronous"
