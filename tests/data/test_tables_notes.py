"""The sentences that tell the user what happened to the columns."""

from pathlib import Path

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


def test_the_same_file_twice_is_noted(tmp_path: Path) -> None:
    text = "x,y\n1,0\n2,1\n3,1\n"
    paths = {name: tmp_path / f"{name}.csv" for name in ("a", "b", "c", "d")}
    for name, path in paths.items():
        path.write_text(text + "4,0\n" * (name == "b"))
    tables = data.read_tables(paths, target="y", holdout=0)
    assert tables.notes[0] == "Clients 'a' and 'c' and 'd' have the same file: its rows count 3 times."
    again = data.read_tables({"here": paths["b"], "there": paths["b"]}, target="y", holdout=0)
    assert "Clients 'here' and 'there' have the same file: its rows count 2 times." in again.notes
    assert not any("same file" in note for note in data.read_tables([paths["a"], paths["b"]], target="y").notes)
