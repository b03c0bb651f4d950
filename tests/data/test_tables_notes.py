"""The sentences that tell the user what happened to the columns."""

import pandas as pd

from pvi import data


def test_notes_on_constant_columns_partial_levels_and_identifiers() -> None:
    made = {
        "a": pd.DataFrame({"k": 1, "e": None, "c": ["u", "v"] * 30, "id": range(60), "y": [0, 1] * 30}),
        "b": pd.DataFrame({"k": 1, "e": None, "c": ["u", "w"] * 30, "id": range(60, 120), "y": 1}),
    }
    tables = data.tables_from_frames(made, target="y", missing="mean", holdout=0)
    assert tables.columns == ("c=v", "c=w", "id")
    notes = " ".join(tables.notes)
    assert "Column 'k' was left out: it has the same value" in notes
    assert "Column 'e' was left out: no cell has a value" in notes
    assert "levels that not all clients have: v (only a), w (only b)" in notes
    assert "Column 'id' has another whole number in every row" in notes
    assert "Client 'b' has positive training rows only." in notes


def test_a_constant_column_with_gaps_keeps_its_indicator() -> None:
    made = {"a": pd.DataFrame({"k": [1, None, 1, 1], "x": [1, 2, 3, 5], "y": [0, 1, 0, 1]})}
    tables = data.tables_from_frames(made, target="y", missing="indicator", holdout=0)
    assert tables.columns == ("k missing", "x")
    assert tables["a"][0][:, 0].tolist() == [0, 1, 0, 0]


def test_a_level_seen_in_held_out_rows_only_is_noted() -> None:
    frame = pd.DataFrame({"c": ["u", "v"] * 10, "x": range(20), "y": [0, 1] * 10})
    for row in range(20):
        rare = frame.assign(c=frame["c"].where(frame.index != row, "rare"))
        tables = data.tables_from_frames({"a": rare}, target="y", coding="full")
        if tables.schema.columns[0].levels == ("u", "v"):
            assert any("level 'rare' was not in training" in note and "1 of 4" in note for note in tables.notes)
            sums = tables.holdout["a"][0][:, :2].sum(1)
            assert sorted(sums.tolist()) == [0, 1, 1, 1]
            return
    raise AssertionError("no split held the row out")
