"""A schema encodes a new file as it did the training files, or says what is wrong with it."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pvi import data

TRAIN = pd.DataFrame(
    {
        "age": [50.0, 61, None, 70, 44],
        "kind": ["4", "4.0", "7", "4", "2"],
        "smoker": ["yes", "no", "no", "yes", "no"],
        "dose": [1, 2, 3, 4, 6],
        "y": ["ill", "well", "ill", "well", "ill"],
    }
)


def made() -> data.Tables:
    return data.tables_from_frames(
        {"a": TRAIN}, target="y", positive="ill", categorical="kind", missing="indicator", holdout=0
    )


def test_round_trip_through_json() -> None:
    tables = made()
    back = data.Schema.from_dict(json.loads(json.dumps(tables.schema.to_dict())))
    assert back == tables.schema
    assert back.encode(TRAIN).equal(tables["a"][0])
    target = back.encode_target(TRAIN)
    assert target is not None
    assert target.equal(tables["a"][1])


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1e9, 1e9), st.sampled_from(["u", "v", "w"]), st.booleans()), min_size=4, max_size=30),
    st.sampled_from(["numeric", "all", "none"]),
    st.sampled_from(["reference", "full"]),
)
def test_any_schema_survives_json_to_the_last_bit(rows: list[tuple[float, str, bool]], scale: str, coding: str) -> None:
    frame = pd.DataFrame(rows, columns=["x", "c", "b"]).assign(y=[0, 1] + [0] * (len(rows) - 2), z=range(len(rows)))
    tables = data.tables_from_frames(
        {"a": frame},
        target="y",
        standardise=scale,
        coding=coding,
        holdout=0,  # type: ignore[arg-type]
    )
    back = data.Schema.from_dict(json.loads(json.dumps(tables.schema.to_dict())))
    assert back.encode(frame).equal(tables["a"][0])


def test_a_new_file_without_the_target_and_with_other_columns() -> None:
    new = pd.DataFrame({"note": "x", "smoker": ["no"], "kind": [4], "dose": [2.0], "age": [None]})
    row = dict(zip(made().columns, made().schema.encode(new)[0].tolist(), strict=True))
    assert row["age"] == 0
    assert row["age missing"] == 1
    assert row["smoker"] == row["kind=2.0"] == row["kind=7.0"] == 0
    assert made().schema.encode_target(new) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "5"}, r"column 'kind', row 1: the level '5' was not in training \(levels: 2.0, 4.0, 7.0\)"),
        ({"kind": "x"}, "column 'kind', row 1: the level 'x' was not in training"),
        ({"smoker": "Yes"}, r"column 'smoker', row 1: the level 'Yes' was not in training \(levels: no, yes\)"),
        ({"dose": None}, "column 'dose', row 1: a cell is missing, and none was in training"),
        ({"smoker": None}, "column 'smoker', row 1: a cell is missing"),
        ({"age": "old"}, "column 'age', row 1: 'old' is not a finite number"),
        ({"dose": 1.7e308}, "column 'dose', row 1: the number is too large"),
        ({"age": "inf"}, "column 'age', row 1: 'inf' is not a finite number"),
    ],
)
def test_cells_that_training_did_not_have(change: dict[str, object], message: str) -> None:
    with pytest.raises(data.TableError, match=message):
        made().schema.encode(TRAIN.astype(object).assign(**change))
    later = TRAIN.astype(object).copy()
    later.loc[3, list(change)] = list(change.values())
    with pytest.raises(data.TableError, match=message.replace("row 1", "row 4")):
        made().schema.encode(later)


def test_columns_that_are_not_there() -> None:
    with pytest.raises(data.TableError, match="missing columns 'age', 'dose'; found kind, smoker, y"):
        made().schema.encode(TRAIN.drop(columns=["age", "dose"]))


def test_a_target_of_another_value() -> None:
    tables = data.tables_from_frames({"a": TRAIN.assign(y=[0, 1, 0, 1, 0])}, target="y", missing="mean", holdout=0)
    with pytest.raises(data.TableError, match="column 'y', row 1: the target is neither 0 nor 1"):
        tables.schema.encode_target(TRAIN.assign(y=2))
    with pytest.raises(data.TableError, match="column 'y', row 1: the target is not a number"):
        tables.schema.encode_target(TRAIN)


def test_a_schema_of_another_version() -> None:
    with pytest.raises(data.TableError, match="version 99"):
        data.Schema.from_dict({**made().schema.to_dict(), "version": 99})


def test_new_files_without_a_header(write: Callable[..., list[Path]]) -> None:
    train, same, bare, barest, wrong = write(
        train="1,id1,u,0,3\n2,id2,v,1,4\n3,id3,v,0,6\n",
        same="1,id9,u,1,3\n",
        bare="1,id9,u,3\n",
        barest="1,u,3\n",
        wrong="1,2\n",
    )
    tables = data.read_tables({"a": train}, header=False, target=3, drop=1, holdout=0)
    for path in (same, bare, barest):
        frame = data.read_frame(path, tables.schema)
        assert tables.schema.encode(frame).equal(tables["a"][0][:1])
    with pytest.raises(data.TableError, match=r"2 columns, but training had 5 \(4 without the target\)"):
        data.read_frame(wrong, tables.schema)


def test_a_new_file_with_a_header_and_another_separator(write: Callable[..., list[Path]]) -> None:
    train, new = write(train="x,c,y\n1,u,0\n2,v,1\n3,?,0\n", new="c;x\n?;1\nu;5\n")
    tables = data.read_tables({"a": train}, target="y", na="?", missing="indicator", holdout=0, standardise="none")
    x = tables.schema.encode(data.read_frame(new, tables.schema))
    assert tables.columns == ("x", "c=v", "c missing")
    assert x.tolist() == [[1, 0, 1], [5, 0, 0]]
