"""The one error of this package: something is wrong with a table or with what was said about it."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class TableError(ValueError):
    """Bad input. The message names the client, the column and the row where known, and what to do."""


def place(client: str | None = None, column: str | None = None, row: int | None = None) -> str:
    """Where something went wrong, as the start of a message: "client 'va', column 'chol', row 12: "."""
    parts = [f"client {client!r}"] if client else []
    parts += [f"column {column!r}"] if column is not None else []
    parts += [f"row {row}"] if row is not None else []
    return f"{', '.join(parts)}: " if parts else ""


def listed(values: Iterable[object], most: int = 12) -> str:
    """Values separated by commas; a long list is cut and says how many more there are."""
    shown = [str(value) for value in values]
    rest = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {rest} more" if rest > 0 else "")


def resolve(name: str | int, columns: Sequence[str], what: str, headerless: bool) -> str:
    """The column meant by a name or a position (0 is the first).

    An int is always a position; text that is no name is read as a position in a table without a header.
    Raises `TableError` for a name that no column has, with the names that come close.
    """
    if isinstance(name, str) and name in columns:
        return name
    position = int(name) if isinstance(name, int) or (headerless and name.isdecimal()) else -1
    if 0 <= position < len(columns):
        return columns[position]
    close = get_close_matches(str(name), columns, n=3)
    hint = f" (did you mean {listed(map(repr, close))}?)" if close else ""
    raise TableError(f"{what}: there is no column {name!r}{hint}. The columns are {listed(columns, 40)}")
