"""The open PhysioNet / Computing in Cardiology Challenge 2012: set A, 4,000 stays in four kinds of unit."""

import io
import os
import tarfile
import zlib
from dataclasses import replace
from pathlib import Path

from pvi.data.errors import TableError
from pvi.data.icu import cache as caching
from pvi.data.icu.challenge import HEADER, OUTCOME_HEADER, SOURCES, deaths, stays
from pvi.data.icu.counting import Count, counting
from pvi.data.icu.features import STATISTICS, SUB_PERIODS
from pvi.data.icu.ranges import IMPOSSIBLE_OUTSIDE, Ranges
from pvi.data.icu.stays import Stays
from pvi.data.icu.texts import Texts, decode, parse

SERIES, OUTCOMES = "icu2012/set-a.tar.gz", "icu2012/Outcomes-a.txt"


def physionet2012(
    data_dir: str | Path | None = None,
    *,
    cache: bool | str | Path = True,
    ranges: Ranges = IMPOSSIBLE_OUTSIDE,
    progress: bool | Count = False,
) -> Stays:
    """The 4,000 stays of set A: 714 features of the first 48 hours, death in hospital, and the kind of unit.

    `data_dir` (else the environment variable PVI_DATA) names the folder with `icu2012/set-a.tar.gz` and
    `icu2012/Outcomes-a.txt`. Values outside of `ranges` count as not measured; `notes` counts them.

    `cache`: features are kept in `pvi` in the user's cache folder (XDG_CACHE_HOME, else `~/.cache`), or in the folder
    named here, and read from there the next time; False keeps nothing. A kept file serves only the very same raw files
    and ranges, and one that is damaged is built again. `progress`: True shows a bar, a function is called with the
    number of stays read and of all.

    Raises `TableError` for files that are not there and for any cell that is not as published, naming file and row.
    """
    series_path, outcomes_path = _find(data_dir)
    series, outcomes = series_path.read_bytes(), outcomes_path.read_bytes()
    folder = caching.cache_folder(cache)
    settings = (SOURCES, sorted(ranges.items()), SUB_PERIODS, STATISTICS)
    kept = folder / f"icu2012-{caching.key([series, outcomes], settings)}.npz" if folder else None
    if kept and (before := caching.load(kept)):
        return before
    died = deaths(parse([(str(outcomes_path), decode(outcomes, str(outcomes_path)))], OUTCOME_HEADER))
    found = stays(_records(series, series_path, progress), died, ranges)
    failed = caching.save(kept, found) if kept else ""
    return replace(found, notes=(*found.notes, failed)) if failed else found


def _find(data_dir: str | Path | None) -> tuple[Path, Path]:
    named = data_dir or os.environ.get("PVI_DATA")
    if not named:
        raise TableError(f"say data_dir, or set PVI_DATA, to name the folder that has {SERIES} and {OUTCOMES}")
    paths = Path(named) / SERIES, Path(named) / OUTCOMES
    for path in paths:
        if not path.is_file():
            raise TableError(f"{path}: file not found; it is part of the PhysioNet Challenge 2012 (physionet.org)")
    return paths


def _records(content: bytes, path: Path, progress: bool | Count) -> Texts:
    """The rows of all records, in the order of the file names."""
    texts: dict[str, str] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            members = [member for member in archive.getmembers() if member.isfile() and member.name.endswith(".txt")]
            with counting(progress, len(members), "stays") as tell:
                for done, member in enumerate(members, start=1):
                    name, file = Path(member.name).name, archive.extractfile(member)
                    if name in texts:
                        raise TableError(f"{path}: the archive has {name} twice")
                    texts[name] = decode(file.read() if file else b"", name)
                    tell(done)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise TableError(f"{path}: not a complete tar.gz archive ({error}): fetch it again") from error
    if not texts:
        raise TableError(f"{path}: the archive has no record (<RecordID>.txt)")
    return parse(sorted(texts.items()), HEADER)
