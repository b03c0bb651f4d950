"""Files to frames: any separator, .gz, Parquet. Every cell of a text file stays text until its column is known."""

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pvi.data.cells import number, tidy
from pvi.data.errors import TableError, listed, place

TEXT = (".csv", ".tsv", ".tab", ".txt", ".data", ".test", ".dat")
PARQUET = (".parquet", ".pq")
BLANKS = " "


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file.

    `header`: the first row names the columns. `separator`: one character, " " for any run of blanks, None to
    infer it from the file. `na`: tokens that mean missing, besides empty cells. `names`: names for the columns
    of a file without a header (else "0", "1", ...). `skip`: lines to skip at the top.
    """

    header: bool = True
    separator: str | None = None
    na: tuple[str, ...] = ("",)
    names: tuple[str, ...] = ()
    skip: int = 0


def read_file(path: str | Path, options: ReadOptions | None = None, *, client: str | None = None) -> pd.DataFrame:
    """One file as a tidy frame (see `tidy`): columns named by text, rows numbered from 1, missing cells None.

    Raises `TableError` for a file that is not there, has an unsupported suffix, is empty, has a header only,
    or has rows of different lengths (with the line).
    """
    path, options = Path(path), options or ReadOptions()
    where = f"{place(client)}{path}: "
    if not path.exists():
        raise TableError(f"{where}file not found")
    if path.is_dir():
        raise TableError(f"{where}is a folder: name the files in it, one for each client")
    kind = path.with_suffix("").suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    if kind in PARQUET and path.suffix.lower() != ".gz":
        frame = _read_parquet(path, where)
    elif kind in TEXT:
        frame = _read_text(path, options, "\t" if kind == ".tsv" else None, where)
    else:
        raise TableError(
            f"{where}unsupported suffix {''.join(path.suffixes[-2:]) or '(none)'!r}: "
            f"supported are {', '.join(TEXT)} (each also with .gz) and {', '.join(PARQUET)}"
        )
    if frame.empty:
        raise TableError(f"{where}the file has a header but no rows")
    return tidy(frame, options.na, where=where)


def _read_parquet(path: Path, where: str) -> pd.DataFrame:
    try:
        return pd.read_parquet(path).reset_index(drop=True)
    except (OSError, ValueError) as error:
        raise TableError(f"{where}cannot be read as Parquet ({error})") from error


def _read_text(path: Path, options: ReadOptions, separator: str | None, where: str) -> pd.DataFrame:
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as stream:
            lines = stream.readlines()[options.skip :]
    except UnicodeDecodeError as error:
        raise TableError(f"{where}the text is not UTF-8: save it as UTF-8 ({error})") from error
    except (OSError, EOFError) as error:
        raise TableError(f"{where}cannot be read ({error})") from error
    if not any(line.strip() for line in lines):
        raise TableError(f"{where}the file is empty")
    separator = options.separator or separator or _infer_separator(lines, where)
    rows = list(_rows(lines, separator, options.skip, where))
    names = rows.pop(0)[1] if options.header else _names(options.names, len(rows[0][1]), where)
    if options.header and len(names) > 1 and all(number(name) == number(name) for name in names):
        raise TableError(f"{where}the first row has numbers only: if it is data, say header=False (--no-header)")
    for line, row in rows:
        if len(row) != len(names):
            raise TableError(
                f"{where}line {line} has {len(row)} cells, expected {len(names)} (separator {separator!r}): "
                "correct the line, or name the separator"
            )
    return pd.DataFrame([row for _, row in rows], columns=pd.Index(names, dtype=object), dtype=object)


def _rows(
    lines: Sequence[str], separator: str, skipped: int, where: str, strict: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with the number of the line it ends on."""
    blanks = separator in (BLANKS, r"\s+")
    if not blanks and len(separator) != 1:
        raise TableError(f"{where}the separator {separator!r} must be one character, or ' ' for blanks")
    # The csv module merges blanks after a separator, not tabs, nor blanks at the ends of a line.
    source = (" ".join(line.split("\t")).strip() for line in lines) if blanks else iter(lines)
    reader = csv.reader(source, delimiter=BLANKS if blanks else separator, skipinitialspace=True, strict=strict)
    try:
        for row in reader:
            if row and (len(row) > 1 or row[0].strip()):
                yield reader.line_num + skipped, row
    except csv.Error as error:
        raise TableError(f"{where}line {reader.line_num + skipped}: {error}") from error


def _infer_separator(lines: Sequence[str], where: str) -> str:
    """The separator that cuts the first lines into equally many cells, the most of them; blanks come last."""
    sample = [line for line in lines if line.strip()][:50]
    counts = {}
    for separator in (",", ";", "\t", BLANKS):
        # Not strict: the sample may end within a quoted cell, and quotes make no sense for a wrong separator.
        widths = [len(row) for _, row in _rows(sample, separator, 0, where, strict=False)]
        if widths and widths[0] > 1:
            counts[separator] = (sum(width == widths[0] for width in widths) / len(widths), widths[0])
    good = {key: width for key, (share, width) in counts.items() if share > 0.8 and key != BLANKS}
    if good:
        return max(good, key=lambda key: good[key])
    if counts:
        return max(counts, key=lambda key: counts[key][0])
    raise TableError(
        f"{where}no separator found (comma, semicolon, tab, blanks) in the first line: name it, or the file has "
        "one column only"
    )


def _names(names: Sequence[str], width: int, where: str) -> list[str]:
    if names and len(names) != width:
        raise TableError(f"{where}{len(names)} names were given for {width} columns: {listed(names)}")
    return list(names) or [str(position) for position in range(width)]


def client_names(paths: Sequence[Path]) -> list[str]:
    """A unique name for each file: its stem without the words that all stems share at the start or the end.

    "processed.cleveland.data", "processed.va.data" -> "cleveland", "va". Files of the same name are told apart
    by their folders. Raises `TableError` where a file is given twice.
    """
    stems = [_stem(path) for path in paths]
    if len(set(stems)) < len(stems):
        stems = [f"{path.absolute().parent.as_posix()}/{stem}" for path, stem in zip(paths, stems, strict=True)]
    twice = {str(path) for path, stem in zip(paths, stems, strict=True) if stems.count(stem) > 1}
    if twice:
        raise TableError(f"files given twice, or that differ in their suffix only: {listed(sorted(twice))}")
    # Words at the even places, the marks between them at the odd ones.
    parts = [re.split(r"([-_. /]+)", stem) for stem in stems]
    for first, cut in ((0, slice(2, None)), (-1, slice(None, -2))):
        while len(parts) > 1 and all(len(part) > 2 for part in parts) and len({part[first] for part in parts}) == 1:
            parts = [part[cut] for part in parts]
    return ["".join(part) for part in parts]


def _stem(path: Path) -> str:
    name = path.name[:-3] if path.suffix.lower() == ".gz" else path.name
    return name[: -len(Path(name).suffix)] if Path(name).suffix.lower() in (*TEXT, *PARQUET) else name
