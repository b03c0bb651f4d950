"""One algorithm's options: names and defaults from its function's signature, the rest from its documentation."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from pvi.algorithms import ALGORITHMS
from pvi.cli import settings

BUILDERS: dict[str, Callable[..., Any]] = {build.__name__: build for build in ALGORITHMS.values()}
NAMES = {build.__name__: name for name, build in ALGORITHMS.items()}
"""Functions, and algorithms' names, by the functions' names, by which docstrings refer to each other."""
REFERENCE = re.compile(r"as in :func:`(?:pvi\.)?(\w+)`")
ENTRY = re.compile(r"(\w+(?:, \w+)*): (.*)")


@dataclass(frozen=True)
class Option:
    """``--set name=...``; ``default`` as it would be written there, ``what`` it is in a few words."""

    name: str
    default: str
    what: str


def options_of(name: str) -> list[Option]:
    """The options of an algorithm in the order of its function's signature; raises ``ValueError`` for another name."""
    build = _builder(name)
    return [
        Option(key, str(part.default).lower(), _spoken(_what(build, key)) or settings.allowed(build, key))
        for key, part in inspect.signature(build).parameters.items()
    ]


def description(name: str) -> str:
    """The first paragraph of an algorithm's documentation, all of it where it has no list of arguments."""
    text = inspect.getdoc(_builder(name)) or ""
    paragraphs = [_spoken(paragraph) for paragraph in text.split("\n\n") if not paragraph.startswith(">>>")]
    return paragraphs[0] if "\nArgs:\n" in text else " ".join(paragraphs)


def options_table(options: list[Option]) -> Table:
    """The options, one below the other, for narrow terminals too."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("--set", style="bold", no_wrap=True)
    shown.add_column("default", no_wrap=True)
    shown.add_column("what it is")
    for one in options:
        shown.add_row(one.name, escape(one.default), escape(one.what))
    return shown


def _builder(name: str) -> Callable[..., Any]:
    if name not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {name!r}; there are {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]


def _what(build: Callable[..., Any], option: str) -> str:
    """What the documentation says of an option, that of another function where it refers to one."""
    text = inspect.getdoc(build) or ""
    said = _arguments(text).get(option)
    refers = REFERENCE.search(text if said is None else said)
    if refers is not None and BUILDERS.get(refers[1], build) is not build:
        more = "" if said is None else said[refers.end() :].lstrip(". ")
        return f"{_what(BUILDERS[refers[1]], option)} {more}".strip()
    if said is not None:
        return said
    sentences = re.split(r"[.;]\s", " ".join(text.split()))
    return next((f"{sentence}." for sentence in sentences if f"``{option}``" in sentence), "")


def _arguments(text: str) -> dict[str, str]:
    """The entries of a docstring's ``Args:``, by name; those that several names share stand at each of them."""
    _, there, block = text.partition("\nArgs:\n")
    found: dict[str, str] = {}
    names: list[str] = []
    for line in block.split("\n") if there else ():
        if not line.startswith("    "):
            break
        entry = None if line.startswith("     ") else ENTRY.fullmatch(line.strip())
        if entry is not None:
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, entry[2])
        else:
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found


def _spoken(text: str) -> str:
    """Without the marks of documentation; other algorithms by the names that the command line has for them."""
    text = re.sub(r"; raises ``ValueError``[^.]*", "", " ".join(text.split()))
    named = re.sub(r":func:`(?:pvi\.)?(\w+)`", lambda found: NAMES.get(found[1], found[1]), text)
    return named.replace("``None``", "none").replace("``", "")
