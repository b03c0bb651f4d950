"""The in-hospital mortality task of the public MIMIC-III benchmark, from the files that its own scripts write."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from pvi.data.errors import TableError, listed
from pvi.data.icu.counting import Count, counting
from pvi.data.icu.features import VARIABLES, Measurements, column_names, summarise
from pvi.data.icu.ranges import Ranges, keep_possible
from pvi.data.icu.stays import Stays
from pvi.data.icu.texts import Texts, decode, parse

HEADER = ("Hours", *(name.replace("Glasgow", "Glascow") for name in VARIABLES))
"""The first line of every stay's file, in the benchmark's spelling."""
LIST_HEADER = ("stay", "y_true")
WORDS: Mapping[str, Mapping[str, float]] = {
    # 0 for "None" is the benchmark's choice; the scale itself begins at 1.
    "Glascow coma scale eye opening": {
        "None": 0, "1 No Response": 1, "2 To pain": 2, "To Pain": 2, "3 To speech": 3, "To Speech": 3,
        "4 Spontaneously": 4, "Spontaneously": 4,
    },
    "Glascow coma scale motor response": {
        "1 No Response": 1, "No response": 1, "2 Abnorm extensn": 2, "Abnormal extension": 2, "3 Abnorm flexion": 3,
        "Abnormal Flexion": 3, "4 Flex-withdraws": 4, "Flex-withdraws": 4, "5 Localizes Pain": 5, "Localizes Pain": 5,
        "6 Obeys Commands": 6, "Obeys Commands": 6,
    },
    "Glascow coma scale verbal response": {
        "No Response-ETT": 1, "No Response": 1, "1 No Response": 1, "1.0 ET/Trach": 1, "2 Incomp sounds": 2,
        "Incomprehensible sounds": 2, "3 Inapprop words": 3, "Inappropriate Words": 3, "4 Confused": 4, "Confused": 4,
        "5 Oriented": 5, "Oriented": 5,
    },
}  # fmt: skip
"""Column -> text -> number, as the benchmark publishes it; numbers as text are read as they are."""
NO_RANGES: Ranges = {}
FILES_AT_ONCE = 500


def mimic3_benchmark(
    folder: str | Path,
    part: Literal["train", "test", "all"] = "all",
    *,
    listfile: str = "listfile.csv",
    ranges: Ranges = NO_RANGES,
    progress: bool | Count = False,
) -> Stays:
    """Stays of the benchmark's folder `in-hospital-mortality`: 714 features of the first 48 hours, death in hospital.

    `part`: its training stays, its test stays, or both. `<folder>/<part>/<listfile>`, or else `<folder>/<listfile>`
    (where the benchmark puts `train_listfile.csv` and `val_listfile.csv`, both of part "train"), lists the stays'
    files and outcomes. The kind of unit is not in these files: `unit` is "" throughout.

    Every value is used, as in the benchmark's own baseline, unless `ranges` says which are possible
    (such as `IMPOSSIBLE_OUTSIDE`). `progress`: True shows a bar, a function is called with the number of stays read
    and of all.

    Raises `TableError` for files that are not there, a stay twice, an outcome other than 0 and 1, and cells that are
    neither numbers nor known texts, naming file, row (the first after the header is 1) and column.
    """
    if part not in ("train", "test", "all"):
        raise TableError(f"part is 'train', 'test' or 'all', not {part!r}")
    listed_stays: dict[Path, float] = {}
    for name in ("train", "test") if part == "all" else (part,):
        listed_stays |= _stays_of(Path(folder), name, listfile)
    paths = list(listed_stays)
    records = tuple(path.stem for path in paths)
    if len(set(records)) < len(records):
        twice = sorted(record for record in set(records) if records.count(record) > 1)
        raise TableError(f"{folder}: {listed(twice)} in both train and test; a stay belongs to one of them")
    found = _measurements(paths, progress)
    possible, notes = keep_possible(found, VARIABLES, ranges)
    features = summarise(possible, len(records), len(VARIABLES))
    empty = [
        record for record, some in zip(records, np.isin(np.arange(len(records)), found.stay), strict=True) if not some
    ]
    if empty:
        notes = (f"{len(empty)} stays have no measurement: {listed(empty)}.", *notes)
    died = np.array(list(listed_stays.values()))
    return Stays("MIMIC-III benchmark", records, features, column_names(), died, ("",) * len(records), notes)


def _stays_of(folder: Path, part: str, listfile: str) -> dict[Path, float]:
    """Each stay's file and outcome, in the order of the list."""
    path = next((path for path in (folder / part / listfile, folder / listfile) if path.is_file()), None)
    if path is None:
        raise TableError(
            f"{folder / part / listfile}: file not found; folder must be the benchmark's in-hospital-mortality, with "
            "the folders train and test"
        )
    table = parse([(str(path), decode(path.read_bytes(), str(path)))], LIST_HEADER)
    found: dict[Path, float] = {}
    for k, (stay, died) in enumerate(zip(table.texts("stay"), table.texts("y_true"), strict=True)):
        file = folder / part / f"{stay.removesuffix('.csv')}.csv"
        if died not in ("0", "1"):
            raise TableError(f"{table.where(k, 'y_true')}{died!r} is neither 0 nor 1")
        if file in found:
            raise TableError(f"{table.where(k, 'stay')}{stay!r} is there twice")
        if file.parent != folder / part or not file.is_file():
            raise TableError(f"{table.where(k, 'stay')}there is no file {file}")
        found[file] = float(died)
    if not found:
        raise TableError(f"{path}: no stay is listed")
    return found


def _measurements(paths: list[Path], progress: bool | Count) -> Measurements:
    """The measurements of all stays; only some files' texts are held at a time."""
    pieces, texts = [], []
    with counting(progress, len(paths), "stays") as tell:
        for done, path in enumerate(paths, start=1):
            texts.append((str(path), decode(path.read_bytes(), str(path))))
            if len(texts) == FILES_AT_ONCE or done == len(paths):
                pieces += _numbers(parse(texts, HEADER), done - len(texts))
                texts = []
            tell(done)
    stay, variable, hours, values = (np.concatenate(part) for part in zip(*pieces, strict=True))
    return Measurements(stay, variable, hours, values)


def _numbers(texts: Texts, first: int) -> list[Measurements]:
    """The cells of some stays, of which the earliest is stay number `first`, one variable after the other."""
    hours, pieces = texts.numbers("Hours", empty=False), []
    for variable, column in enumerate(HEADER[1:]):
        values = texts.numbers(column, WORDS.get(column, {}))
        there = np.flatnonzero(~np.isnan(values))
        place = np.full(len(there), variable, dtype=np.int64)
        pieces.append(Measurements(texts.file[there] + first, place, hours[there], values[there]))
    return pieces
