"""Files: separators, compression, Parquet, and names of clients."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from pvi import data
from pvi.data.reading import client_names

Write = Callable[..., list[Path]]
FRAME = pd.DataFrame({"age": [50, 61, 47, 70], "kind": ["a b", "c", "c", "a b"], "y": [0, 1, 1, 0]})


@pytest.mark.parametrize("separator", [",", ";", "\t", " ", "|"])
def test_separators(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "one.csv"
    FRAME.to_csv(path, sep=separator, index=False)
    said = separator if separator == "|" else None
    pd.testing.assert_frame_equal(
        data.read_file(path, data.ReadOptions(separator=said)).astype(str),
        FRAME.set_axis([1, 2, 3, 4]).astype(str),
        check_column_type=False,
        check_dtype=False,
    )


def test_blanks_in_runs_and_at_the_ends(tmp_path: Path) -> None:
    path = tmp_path / "one.dat"
    path.write_text("  1   2\t3 \n\n 4 5   6\r\n")
    frame = data.read_file(path, data.ReadOptions(header=False))
    assert frame.to_numpy().tolist() == [["1", "2", "3"], ["4", "5", "6"]]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".data.gz", ".parquet"])
def test_formats_give_the_same_tensors(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"one{suffix}"
    text = FRAME.to_csv(index=False, sep="\t" if suffix == ".tsv" else ",")
    if suffix == ".parquet":
        FRAME.to_parquet(path)
    elif suffix.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text("\ufeff" + text, encoding="utf-8")
    tables = data.read_tables(path, target="y", holdout=0)
    expected = data.tables_from_frames({"one": FRAME}, target="y", holdout=0)
    assert tables.columns == expected.columns == ("age", "kind=c")
    assert tables["one"][0].equal(expected["one"][0])
    assert tables["one"][1].equal(expected["one"][1])


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["processed.cleveland.data", "processed.va.data"], ["cleveland", "va"]),
        (["hospital_a.csv", "hospital_b.csv.gz"], ["a", "b"]),
        (["site1.csv", "site12.csv"], ["site1", "site12"]),
        (["north-2020-final.tsv", "south-2020-final.tsv"], ["north", "south"]),
        (["north/data.csv", "south/data.csv"], ["north", "south"]),
        (["my_file.v2.csv"], ["my_file.v2"]),
        (["a.csv", "a_b.csv"], ["a", "a_b"]),
        (["x_old_1.csv", "x_new_1.csv"], ["old", "new"]),
    ],
)
def test_names_of_clients(files: list[str], names: list[str]) -> None:
    assert client_names([Path(file) for file in files]) == names


def test_names_given_outright(write: Write) -> None:
    (path,) = write(a="x,y\n1,0\n2,1\n")
    assert list(data.read_tables({"north": path}, target="y", holdout=0)) == ["north"]


def test_a_column_names_the_clients(write: Write) -> None:
    (path,) = write(a="x,where,y\n1,b,0\n2,a,1\n3,b,1\n4,a,0\n")
    tables = data.read_tables(path, by="where", target="y", holdout=0, standardise="none")
    assert list(tables) == ["a", "b"]
    assert tables.columns == ("x",)
    assert tables["a"][0][:, 0].tolist() == [2, 4]
    (path,) = write(b="x,where,y\n1,10,0\n2,9,1\n")
    assert list(data.read_tables(path, by="where", target="y", holdout=0)) == ["9", "10"]


def test_positions_and_names_without_a_header(write: Write) -> None:
    (path,) = write(a="1,u,0\n2,v,1\n3,v,0\n")
    assert data.read_tables(path, header=False, target=2, holdout=0).columns == ("0", "1=u")
    assert data.read_tables(path, header=False, target="2", drop=["1"], holdout=0).columns == ("0",)
    named = data.read_tables(path, header=False, names=("age", "kind", "ill"), target="ill", holdout=0)
    assert named.columns == ("age", "kind=u")
    assert data.read_tables(path, header=False, names=("age", "kind", "ill"), target=2, holdout=0).target == "ill"


def test_tokens_that_mean_missing(write: Write) -> None:
    (path,) = write(a="x,z,y\n1,?,0\n-9,2,1\n3,,0\n4, ? ,1\n")
    tables = data.read_tables(path, target="y", na=("?", "-9"), missing="indicator", holdout=0)
    assert tables.columns == ("x", "x missing", "z missing")
    assert tables.missing == {"a": 4}


def test_tokens_that_mean_missing_in_columns_of_numbers() -> None:
    frame = pd.DataFrame({"x": [1.5, -9, 2], "y": [0, 1, 1]})
    assert data.tables_from_frames({"a": frame}, target="y", na="-9", missing="mean", holdout=0).missing == {"a": 1}
