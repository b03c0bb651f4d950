"""Rounds that follow from those before, without a schedule that changes."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from pvi.schedules.protocol import Event

State = TypeVar("State")
Played = tuple[tuple[Event, ...], State]


class Replay(Generic[State]):
    """Plays the rounds from the first to the one asked for.

    The states before and after the last round asked for are remembered, so that a run pays for each round once. What
    is remembered changes the time taken, never the answer.
    """

    def __init__(self) -> None:
        self._states: dict[Hashable, dict[int, State]] = {}

    def events(
        self, key: Hashable, initial: State, play: Callable[[State, int], Played[State]], round_index: int
    ) -> tuple[Event, ...]:
        """The events of a round; ``key`` holds everything that ``play`` depends on besides the schedule's fields."""
        states = self._states.get(key, {})
        known = max((index for index in states if index <= round_index), default=0)
        state = states.get(known, initial)
        for earlier in range(known, round_index):
            _, state = play(state, earlier)
        events, after = play(state, round_index)
        self._states = {key: {round_index: state, round_index + 1: after}}
        return events
