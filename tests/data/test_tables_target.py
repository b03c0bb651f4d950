"""Which values of the target are positive."""

import pandas as pd
import pytest

from pvi import data


def target(values: list[object], positive: object = None, **options: object) -> list[float]:
    frame = pd.DataFrame({"x": range(len(values)), "y": values})
    tables = data.tables_from_frames({"a": frame}, target="y", positive=positive, holdout=0, **options)  # type: ignore[arg-type]
    return tables["a"][1].tolist()


@pytest.mark.parametrize(
    ("positive", "expected"),
    [
        (">0", [0, 1, 1, 1]),
        (">=2", [0, 0, 1, 1]),
        ("<2", [1, 1, 0, 0]),
        ("<= 2", [1, 1, 1, 0]),
        ("!=1", [1, 0, 1, 1]),
        ("==3", [0, 0, 0, 1]),
        ("3.0", [0, 0, 0, 1]),
        (3, [0, 0, 0, 1]),
    ],
)
def test_numbers(positive: object, expected: list[float]) -> None:
    assert target([0, 1, 2, 3], positive) == expected
    assert target(["0", "1.0", " 2", "3e0"], positive) == expected


@pytest.mark.parametrize(
    ("positive", "expected"),
    [(">50K", [0, 1, 1]), ("<=50K", [1, 0, 0]), ("!=>50K", [1, 0, 0]), ("==>50K", [0, 1, 1])],
)
def test_text_that_looks_like_a_comparison_is_a_value(positive: str, expected: list[float]) -> None:
    assert target(["<=50K", ">50K", ">50K"], positive) == expected


def test_zero_one_and_true_false_need_no_more() -> None:
    assert target([0, 1, 1]) == [0, 1, 1]
    assert target(["0", "1.0", "1"]) == [0, 1, 1]
    assert target([True, False, True]) == [1, 0, 1]
    assert target(["TRUE", "FALSE"]) == [1, 0]


def test_numbers_to_predict_stay_as_they_are() -> None:
    assert target([1.5, -2, 7], task="numeric") == [1.5, -2, 7]


def test_a_numeric_target_of_zeros_and_ones_is_noted() -> None:
    frame = pd.DataFrame({"x": range(4), "y": [0, 1, 1, 0]})
    tables = data.tables_from_frames({"a": frame}, target="y", task="numeric", holdout=0)
    assert any("0 and 1 only" in note for note in tables.notes)
    assert "target mean" in data.describe(tables).columns


@pytest.mark.parametrize(
    ("values", "positive", "message"),
    [
        ([0, 1, 2], None, "values are 0, 1, 2: say which of them is positive"),
        ([1, 2, 2], None, "values are 1, 2: say which"),
        (["yes", "no", "no"], None, r"values are no, yes: say which of them is positive.*--positive.*task='numeric'"),
        (["yes", "no", "no"], "Yes", "no cell is 'Yes'; the values are no, yes"),
        (["yes", "no", "no"], ">0", "compares numbers. Found: no, yes"),
        (["1", "2", "3", "x"], ">1", "compares numbers. client 'a', column 'y', row 4 holds 'x'"),
        ([0, 1, 2], ">>0", "positive='>>0' is not understood"),
        ([0, 1, 2], ">", "not understood"),
        ([0, 1, 2], "", "not understood"),
        ([0, 1, 2], "=>1", "not understood"),
        ([0, 1, 2], ">nan", "not understood"),
        ([0, 1, 2], ">5", r"no row of any client is positive \(the values are 0, 1, 2\)"),
        ([0, 1, 2], "7", "no row of any client is positive"),
        ([0, 1, 2], ">=0", "every row of any client is positive"),
        ([0, 0, 0], None, "no row of any client is positive"),
        ([0, 1, None], None, r"missing cells: client 'a': y 1"),
    ],
)
def test_refused(values: list[object], positive: object, message: str) -> None:
    with pytest.raises(data.TableError, match=message):
        target(values, positive)


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (["a", "b", "c"], {}, "must hold numbers only. Found: a, b, c"),
        ([1, 2, 3], {"positive": ">1"}, "is for task='binary'"),
    ],
)
def test_refused_as_a_number(values: list[object], options: dict[str, object], message: str) -> None:
    with pytest.raises(data.TableError, match=message):
        target(values, task="numeric", **options)


def test_a_gap_in_the_target_names_the_row() -> None:
    with pytest.raises(data.TableError, match="client 'a', column 'y', row 3: the target is missing"):
        target([0, 1, None, 1], missing="mean")
    assert target([0, 1, None, 1], missing="drop") == [0, 1, 1]


def notes(values: dict[str, list[object]], positive: object) -> list[str]:
    frames = {client: pd.DataFrame({"x": range(len(cells)), "y": cells}) for client, cells in values.items()}
    found = data.tables_from_frames(frames, target="y", positive=positive, holdout=0.2)
    return [note for note in found.notes if "counts as positive" in note]


def test_other_values_than_the_positive_one_are_listed() -> None:
    rows: dict[str, list[object]] = {"a": ["yes", "no"] * 10 + ["Yes"], "b": ["yes", "no", "no"] * 7 + ["?"]}
    said = "Target 'y': 'yes' (17) counts as positive, all other values as negative: 'no' (24), '?' (1), 'Yes' (1)."
    assert notes(rows, "yes") == [said]
    assert notes({"a": ["yes", "no"] * 5}, "yes") == []
    assert notes({"a": [0, 1, 2, 3] * 5}, "3") == [
        "Target 'y': 3 (5) counts as positive, all other values as negative: 0 (5), 1 (5), 2 (5)."
    ]
    assert notes({"a": [0, 1, 2, 3] * 5}, ">0") == notes({"a": [0, 1, 2] * 5}, "==2") == []
    assert len(notes({"a": list(range(60))}, "3")) == 1
