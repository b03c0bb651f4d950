"""Everything that can be wrong with files and options, each with its message."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from pvi import data

Write = Callable[..., list[Path]]
FRAME = pd.DataFrame({"age": [50, 61, 47, 70], "kind": ["a b", "c", "c", "a b"], "y": [0, 1, 1, 0]})
GOOD = "x,c,y\n1,u,0\n2,v,1\n3,u,1\n"


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ({"a": ""}, {}, r"a\.csv: the file is empty"),
        ({"a": "\n \n"}, {}, "the file is empty"),
        ({"a": "x,c,y\n"}, {}, "has a header but no rows"),
        ({"a": "x,y\n1,0\n1,2,3\n"}, {}, r"client 'a': .*line 3 has 3 cells, expected 2 \(separator ','\)"),
        ({"a": "x,c,y\n1,u,0\n\n2,1\n"}, {}, "line 4 has 2 cells, expected 3"),
        ({"a": "x,x,y\n1,2,0\n"}, {}, "duplicated column names: 'x'.*header=False"),
        ({"a": "x,,y\n1,2,0\n"}, {}, r"column 1 \(counted from 0\) has an empty name"),
        ({"a": "1,2,0\n2,3,1\n"}, {}, r"the first row has numbers only: .*header=False \(--no-header\)"),
        ({"a": "word\nother\n"}, {}, "no separator found"),
        ({"a": GOOD}, {"separator": "::"}, "the separator '::' must be one character"),
        ({"a": 'x,y\n"1,0\n2,1\n'}, {}, "line 3: unexpected end of data"),
        ({"a": GOOD}, {"target": "Y"}, r"target: there is no column 'Y' \(did you mean 'y'\?\)|no column 'Y'"),
        ({"a": GOOD}, {"target": 7}, "target: there is no column 7. The columns are x, c, y"),
        ({"a": GOOD}, {"drop": "ages"}, "drop: there is no column 'ages'"),
        ({"a": GOOD}, {"numeric": ("q",)}, "numeric: there is no column 'q'"),
        ({"a": GOOD}, {"drop": ("y", "x")}, "the target 'y' is among the columns to leave out"),
        ({"a": GOOD}, {"by": "y"}, "the target 'y' is among the columns to leave out"),
        ({"a": GOOD}, {"drop": ("c", "x")}, "no feature is left beside the target 'y'"),
        ({"a": "x,c,y\n1,u,0\n2,,1\n"}, {"by": "c"}, "column 'c', row 2: the client's name is missing"),
        ({"a": GOOD, "b": GOOD}, {"by": "c"}, "by='c' splits one file into clients; 2 files were given"),
        ({"a": GOOD}, {"names": ("p", "q", "r")}, "names are for files without a header"),
        ({"a": GOOD}, {"header": False, "names": ("p",)}, "1 names were given for 3 columns: p"),
        (
            {"a": GOOD, "b": "x,d,y\n1,u,0\n"},
            {},
            "client 'b': the columns are not .*'a': it lacks 'c' and has the extra 'd'",
        ),
        ({"a": GOOD, "b": "x,y\n1,0\n"}, {}, "client 'b': .*it lacks 'c'"),
        ({"a": GOOD}, {"numeric": "c"}, "client 'a', column 'c', row 1: 'u' is not a finite number"),
        ({"a": GOOD}, {"categorical": "c", "boolean": "c"}, "said to be of two kinds: 'c'"),
        ({"a": GOOD}, {"boolean": "x"}, "column 'x': boolean needs two values, found 1, 2, 3"),
        ({"a": GOOD, "b": "x,c,y\n1,u,0\ninf,v,1\n"}, {}, "client 'b', column 'x', row 2: 'inf' is not a finite"),
        ({"a": "x,y\n1,0\nNaN,1\n"}, {}, "column 'x', row 2: 'NaN' is not a finite number: .*list it in na"),
        (
            {"a": "x;y\n1;0\n1,5;1\n"},
            {},
            "client 'a', column 'x', row 2: '1,5' is a number with a comma: write a point",
        ),
        ({"a": "x,c,y\n1,,0\n2,,1\n,u,1\n"}, {}, r"missing cells: client 'a': x 1, c 2. Say missing='drop'"),
        ({"a": "x,c,y\n1,,0\n2,,1\n"}, {"missing": "drop"}, r"client 'a': no row is left, each of its 2 .*\(c 2\)"),
        ({"a": GOOD}, {"missing": "zero"}, "missing is one of error, drop, mean, indicator, not 'zero'"),
        ({"a": GOOD}, {"coding": "x"}, "coding is one of reference, full, not 'x'"),
        ({"a": GOOD}, {"standardise": True}, "standardise is one of numeric, all, none, not True"),
        ({"a": GOOD}, {"task": "x"}, "task is 'binary' or 'numeric'"),
        ({"a": GOOD}, {"fit_rows": "x"}, "fit_rows is 'training' or 'all'"),
        ({"a": GOOD}, {"holdout": 1}, "holdout must be at least 0 and below 1, not 1"),
        ({"a": GOOD}, {"seed": -1}, "seed must not be negative"),
        ({"a": "x,y\n1,0\n1,1\n"}, {}, "no feature is left: every column has the same value"),
        ({"a": "c,c=u,y\nu,1,0\nv,2,1\nv,3,0\n"}, {}, "two features would have the same name, 'c=u'"),
        (
            {"a": "x,y\n" + "".join(f"name{i},{i % 2}\n" for i in range(60))},
            {"holdout": 0},
            "column 'x': text of more than 50",
        ),
        (
            {"a": "x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(60)), "b": "x,y\n1,0\n2,1\n3,1\n4O,1\n"},
            {},
            "Most cells are numbers, but client 'b', column 'x', row 4 holds '4O'",
        ),
        (
            {"a": "x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(20)), "b": "x,y\n1,0\n2,1\n3,1\nsixty,1\n"},
            {},
            r"client 'b', column 'x', row 4 holds 'sixty'. Correct .*--na.*--categorical.*--numeric",
        ),
    ],
)
def test_refused(write: Write, texts: dict[str, str], options: dict[str, object], message: str) -> None:
    settings: dict[str, object] = {"target": "y", "holdout": 0, **options}
    paths = dict(zip(texts, write(**texts), strict=True))
    with pytest.raises(data.TableError, match=message):
        data.read_tables(paths, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, r"none\.csv: file not found"),
        ("a.xlsx", b"x", r"unsupported suffix '\.xlsx': supported are \.csv"),
        ("a", b"x", r"unsupported suffix '\(none\)'"),
        ("a.parquet", b"x,y\n", "cannot be read as Parquet"),
        ("a.csv.gz", b"x,y\n1,0\n", "cannot be read"),
        ("a.csv", b"x,y\n\xff\xfe,1\n", "the text is not UTF-8"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(data.TableError, match=message):
        data.read_tables(tmp_path / name, target="y")


def test_no_files_twice_and_folders(tmp_path: Path) -> None:
    with pytest.raises(data.TableError, match="no files"):
        data.read_tables([], target="y")
    with pytest.raises(data.TableError, match="files given twice"):
        data.read_tables([tmp_path / "a.csv", tmp_path / "a.csv"], target="y")
    with pytest.raises(data.TableError, match="is a folder"):
        data.read_tables(tmp_path, target="y")
    with pytest.raises(data.TableError, match="no clients"):
        data.tables_from_frames({}, target="y")
    with pytest.raises(data.TableError, match="client 'a': the table has no rows"):
        data.tables_from_frames({"a": FRAME.iloc[:0]}, target="y")
    lists = pd.DataFrame({"x": [[1], [2]], "y": [0, 1]})
    with pytest.raises(data.TableError, match="client 'a': column 'x': the cells are not text"):
        data.tables_from_frames({"a": lists}, target="y")
