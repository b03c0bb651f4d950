"""Options of an algorithm from the command line: ``--set zeta=1`` against the signature of its function."""

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pvi.algorithms import Algorithm

WORDS = {"none": None, "true": True, "false": False}
SAID = {bool: "true or false", int: "a whole number", float: "a number", str: "a word", types.NoneType: "none"}
"""Types that can be written on a command line, and what they are called there."""


def built(name: str, build: Callable[..., Algorithm], texts: Sequence[str], **more: Any) -> Algorithm:
    """The algorithm ``name`` with the options ``("zeta=1", ...)`` and ``more``; raises ``ValueError`` naming them."""
    given = read(name, build, texts)
    try:
        return build(**given, **more)
    except (TypeError, ValueError) as error:
        if not given:
            raise
        wrong = {option for option, value in given.items() if _refused(build, {option: value})} or set(given)
        said = " ".join(f"--set {text}" for option, text in named(texts).items() if option in wrong)
        raise ValueError(f"{said}: {error}") from error


def read(name: str, build: Callable[..., Algorithm], texts: Sequence[str]) -> dict[str, Any]:
    """The options by name, each of its own type; raises ``ValueError`` for unknown names and other types."""
    known = list(inspect.signature(build).parameters)
    hints = get_type_hints(build)
    found: dict[str, Any] = {}
    for text in texts:
        option, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not option:
            raise ValueError(f"--set {text!r}: write name=value, for example zeta=1")
        if option not in known:
            there = f"there are {', '.join(known)}; see pvi algorithms {name}" if known else "it has none"
            raise ValueError(f"--set {text!r}: algorithm {name!r} has no option {option!r}; {there}")
        if option in found:
            raise ValueError(f"--set: {option!r} is said twice")
        found[option] = _value(text, option, value, _choices(hints.get(option, str)))
    return found


def allowed(build: Callable[..., Algorithm], option: str) -> str:
    """What an option can be, in words: "a whole number or none"."""
    return _said(_choices(get_type_hints(build).get(option, str)))


def named(texts: Sequence[str]) -> dict[str, str]:
    """The texts by the option that they set, the last one of each."""
    return {text.partition("=")[0].strip(): text for text in texts}


def _choices(hint: Any) -> list[Any]:
    """What a type hint allows: types and, of ``Literal``, values; an alternative of ``|`` each."""
    if get_origin(hint) in (Union, types.UnionType):
        return [choice for part in get_args(hint) for choice in _choices(part)]
    return list(get_args(hint)) if get_origin(hint) is Literal else [hint]


def _value(text: str, option: str, value: str, choices: list[Any]) -> Any:
    """The value as the first of the choices that it can be; words before numbers, whole numbers before others."""
    literal = [choice for choice in choices if choice not in SAID and isinstance(choice, str | int)]
    for choice in literal:
        if value == str(choice):
            return choice
    word = value.lower()
    if word in WORDS and type(WORDS[word]) in choices:
        return WORDS[word]
    for kind in (int, float):
        if kind in choices:
            try:
                return kind(value)
            except ValueError:
                continue
    if str in choices and value:
        return value
    said = _said(choices)
    if not said:
        raise ValueError(f"--set {text!r}: {option} cannot be given on the command line; use Python")
    raise ValueError(f"--set {text!r}: {option} is {said}")


def _said(choices: list[Any]) -> str:
    """The choices in words, empty where none of them can be written on a command line."""
    literal = [repr(choice) for choice in choices if choice not in SAID and isinstance(choice, str | int)]
    return " or ".join(literal + [words for kind, words in SAID.items() if kind in choices])


def _refused(build: Callable[..., Algorithm], given: dict[str, Any]) -> bool:
    try:
        build(**given)
    except (TypeError, ValueError):
        return True
    return False
