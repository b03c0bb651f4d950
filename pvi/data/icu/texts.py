"""Thousands of small CSV files with one header, parsed together: one parse is much faster than one a file."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pvi.data.errors import TableError, listed


@dataclass(frozen=True, eq=False)
class Texts:
    """The rows of all files, one after the other: `frame` has a category of texts a column ("" for an empty cell).

    `files` names the files, `file` int64 [k] is the place of each row's file there, `row` int64 [k] its number in that
    file (the first after the header is 1).
    """

    frame: pd.DataFrame
    files: tuple[str, ...]
    file: NDArray[np.int64]
    row: NDArray[np.int64]

    def where(self, k: SupportsIndex, column: str) -> str:
        """The place of a cell, as the start of a message: "132539.txt, row 7, column 'Value': "."""
        return f"{self.files[self.file[k]]}, row {self.row[k]}, column {column!r}: "

    def texts(self, column: str) -> list[str]:
        """The cells of a column [k]."""
        return self.frame[column].astype(str).tolist()

    def numbers(self, column: str, words: Mapping[str, float] = {}, empty: bool = True) -> NDArray[np.float64]:
        """The cells of a column as numbers [k], those in `words` as said there, NaN for empty ones.

        Raises `TableError` for any other text, for infinity, and for an empty cell unless they may be `empty`.
        """
        cells = self.frame[column].cat
        labels, codes = cells.categories.tolist(), cells.codes.to_numpy()
        values = pd.to_numeric(pd.Series(labels, dtype=object), errors="coerce").to_numpy(dtype=np.float64)
        values = np.array(
            [words.get(label, value) for label, value in zip(labels, values, strict=True)], dtype=np.float64
        )
        bad = np.array([label != "" or not empty for label in labels], dtype=bool) & ~np.isfinite(values)
        if bad.any():
            k = int(bad[codes].argmax())
            known = f" nor one of {listed(map(repr, words), 20)}" if words else ""
            raise TableError(
                f"{self.where(k, column)}{labels[codes[k]]!r} is not a finite number{known}: correct the file"
            )
        return values[codes]


def decode(content: bytes, file: str) -> str:
    """A file's text; raises `TableError` where it is not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(f"{file}: not a text file in UTF-8 ({error})") from None


def parse(texts: Sequence[tuple[str, str]], header: Sequence[str]) -> Texts:
    """All rows of (file's name, its text), whose first line must be the `header`, cells separated by commas.

    Raises `TableError` for another header and for a row with more or fewer cells.
    """
    first, commas = ",".join(header), len(header) - 1
    lines: list[str] = []
    sizes = []
    for file, text in texts:
        found, *rows = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
        if found.rstrip() != first:
            raise TableError(f"{file}: the first line must be {first!r}, not {found[:300]!r}")
        for row, line in enumerate(rows, start=1):
            if line.count(",") != commas:
                cells = f"{line.count(',') + 1} cells instead of {commas + 1}"
                raise TableError(f"{file}, row {row}: {cells}: {line[:300]!r}")
        lines += rows
        sizes.append(len(rows))
    frame = pd.DataFrame(columns=list(header), dtype="str")
    if lines:
        frame = pd.read_csv(
            io.StringIO("\n".join(lines)),
            header=None,
            names=list(header),
            dtype="category",
            lineterminator="\n",
            quoting=csv.QUOTE_NONE,
            na_filter=False,
            skip_blank_lines=False,
        )
    starts = np.cumsum(sizes) - sizes
    row_in_file = np.arange(len(lines)) - np.repeat(starts, sizes).astype(np.int64) + 1
    file_of_row = np.repeat(np.arange(len(texts)), sizes)
    return Texts(frame.astype("category"), tuple(file for file, _ in texts), file_of_row, row_in_file)
