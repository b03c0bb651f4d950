"""Encoded tables against scikit-learn on the pooled rows."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from pvi import data
from pvi.data.aggregation import Standardise


def frames(gaps: bool = False) -> dict[str, pd.DataFrame]:
    draws = np.random.default_rng(3)
    made = {}
    for name, rows in (("a", 40), ("b", 25), ("c", 60)):
        frame = pd.DataFrame(
            {
                "age": draws.normal(50, 10, rows),
                "dose": draws.integers(0, 9, rows),
                "site": draws.choice(["left", "right", "both"], rows, p=[0.5, 0.3, 0.2]),
                "smoker": draws.choice(["yes", "no"], rows),
                "flag": draws.integers(0, 2, rows),
                "ill": draws.integers(0, 2, rows),
            }
        )
        if gaps:
            for column in ("age", "site", "flag"):
                frame.loc[draws.choice(rows, 5, replace=False), column] = None
        made[name] = frame
    return made


def pooled(tables: data.Tables) -> np.ndarray:
    return torch.cat([x for x, _ in tables.values()]).numpy()


def feature(tables: data.Tables, name: str) -> np.ndarray:
    return pooled(tables)[:, tables.columns.index(name)]


def test_shapes_and_the_mapping() -> None:
    tables = data.tables_from_frames(frames(), target="ill", holdout=0.2)
    assert list(tables) == ["a", "b", "c"]
    assert len(tables) == 3
    x, y = tables["b"]
    assert (x.shape, y.shape) == ((20, len(tables.columns)), (20,))
    assert x.dtype == y.dtype == torch.float64
    assert tables.holdout["b"][0].shape == (5, len(tables.columns))
    assert tables.target == "ill"
    assert tables == tables
    assert tables != data.tables_from_frames(frames(), target="ill")


def test_numbers_are_standardised_as_by_standard_scaler() -> None:
    tables = data.tables_from_frames(frames(), target="ill", holdout=0)
    rows = pd.concat(frames().values())
    expected = StandardScaler().fit_transform(rows[["age", "dose"]].to_numpy(dtype=float))
    np.testing.assert_allclose(pooled(tables)[:, :2], expected, atol=1e-9)
    np.testing.assert_array_equal(feature(tables, "flag"), rows["flag"])
    np.testing.assert_array_equal(feature(tables, "smoker"), rows["smoker"] == "yes")


@pytest.mark.parametrize("standardise", ["none", "all"])
def test_full_coding_is_one_hot_encoder(standardise: Standardise) -> None:
    tables = data.tables_from_frames(frames(), target="ill", holdout=0, coding="full", standardise=standardise)
    rows = pd.concat(frames().values())
    encoder = OneHotEncoder(sparse_output=False)
    expected = encoder.fit_transform(rows[["site"]].astype(object))
    if standardise == "all":
        expected = StandardScaler().fit_transform(expected)
    names = [f"site={level}" for level in encoder.categories_[0]]
    np.testing.assert_allclose(np.stack([feature(tables, name) for name in names], 1), expected, atol=1e-9)


def test_everything_standardised_is_standard_scaler_on_all_features() -> None:
    options = {"target": "ill", "holdout": 0, "missing": "indicator"}
    raw = data.tables_from_frames(frames(gaps=True), standardise="none", **options)
    scaled = data.tables_from_frames(frames(gaps=True), standardise="all", **options)
    skip = [raw.columns.index("age"), raw.columns.index("flag")]  # filled: the scale is that of the cells there are
    rest = [place for place in range(len(raw.columns)) if place not in skip]
    expected = StandardScaler().fit_transform(pooled(raw))
    np.testing.assert_allclose(pooled(scaled)[:, rest], expected[:, rest], atol=1e-9)


def test_the_reference_level_is_the_most_frequent_of_all_clients() -> None:
    tables = data.tables_from_frames(frames(), target="ill", holdout=0)
    most = pd.concat(frames().values())["site"].mode()[0]
    assert [name for name in tables.columns if name.startswith("site")] == [
        f"site={level}" for level in ("both", "left", "right") if level != most
    ]
    assert any(f"site={most}" in note and "Reference" in note for note in tables.notes)


def test_gaps_filled_with_the_mean_of_all_clients() -> None:
    tables = data.tables_from_frames(frames(gaps=True), target="ill", holdout=0, missing="mean", coding="full")
    rows = pd.concat(frames(gaps=True).values())
    # scikit-learn's scaler leaves NaN out, as we do; the mean is 0 afterwards.
    expected = np.nan_to_num(StandardScaler().fit_transform(rows[["age"]])[:, 0])
    np.testing.assert_allclose(feature(tables, "age"), expected, atol=1e-9)
    filled = rows["site"].fillna(rows["site"].mode()[0])
    np.testing.assert_array_equal(feature(tables, "site=left"), filled == "left")
    np.testing.assert_allclose(feature(tables, "flag"), rows["flag"].fillna(rows["flag"].mean()), atol=1e-12)
    assert not any("missing" in name for name in tables.columns)


def test_gaps_with_an_indicator() -> None:
    tables = data.tables_from_frames(frames(gaps=True), target="ill", holdout=0, missing="indicator")
    rows = pd.concat(frames(gaps=True).values())
    for name in ("age", "site", "flag"):
        np.testing.assert_array_equal(feature(tables, f"{name} missing"), rows[name].isna())
    assert "dose missing" not in tables.columns
    np.testing.assert_allclose(feature(tables, "age")[rows["age"].isna()], 0, atol=1e-12)
    sites = [name for name in tables.columns if name.startswith("site=")]
    assert all(not feature(tables, name)[rows["site"].isna()].any() for name in sites)


def test_rows_with_gaps_dropped() -> None:
    tables = data.tables_from_frames(frames(gaps=True), target="ill", missing="drop", holdout=0)
    kept = {name: frame.dropna() for name, frame in frames(gaps=True).items()}
    assert {name: len(y) for name, (_, y) in tables.items()} == {name: len(frame) for name, frame in kept.items()}
    lost = 40 - len(kept["a"])
    assert f"Client 'a': {lost} of 40 rows were dropped for missing cells." in tables.notes
    assert data.describe(tables).loc["a", "missing cells"] == 15


def test_scales_come_from_the_training_rows_only() -> None:
    tables = data.tables_from_frames(frames(), target="ill", holdout=0.3)
    assert feature(tables, "age").mean() == pytest.approx(0, abs=1e-12)
    assert feature(tables, "age").std() == pytest.approx(1, abs=1e-12)
    everything = data.tables_from_frames(frames(), target="ill", holdout=0.3, fit_rows="all")
    rows = pd.concat(frames().values())["age"]
    assert everything.schema.columns[0].fill == pytest.approx(rows.mean(), abs=1e-12)


def test_each_client_has_its_own_stream() -> None:
    three = data.tables_from_frames(frames(), target="ill", seed=4)
    two = data.tables_from_frames(dict(reversed([*frames().items()][:2])), target="ill", seed=4)
    for name in ("a", "b"):
        assert three[name][1].equal(two[name][1])
    other = data.tables_from_frames(frames(), target="ill", seed=5)
    assert not three["c"][1].equal(other["c"][1])
    again = data.tables_from_frames(frames(), target="ill", seed=4)
    assert three["c"][0].equal(again["c"][0])


def test_columns_in_another_order_are_the_same_columns() -> None:
    turned = {name: frame[frame.columns[::-1]] if name == "b" else frame for name, frame in frames().items()}
    expected = data.tables_from_frames(frames(), target="ill")
    assert data.tables_from_frames(turned, target="ill")["b"][0].equal(expected["b"][0])


def test_kinds_said_by_the_user() -> None:
    tables = data.tables_from_frames(
        frames(), target="ill", numeric="flag", categorical=["dose", "smoker"], boolean=(), holdout=0, coding="full"
    )
    assert {f"dose={number}" for number in range(9)} | {"smoker=no", "smoker=yes"} <= set(tables.columns)
    assert feature(tables, "flag").std() == pytest.approx(1, abs=1e-12)


def test_boolean_of_other_values() -> None:
    made = {"a": pd.DataFrame({"sex": [1, 2, 2.0, 1], "x": [1, 2, 3, 4], "y": [0, 1, 0, 1]})}
    tables = data.tables_from_frames(made, target="y", boolean="sex", holdout=0)
    np.testing.assert_array_equal(feature(tables, "sex"), [0, 1, 1, 0])
    assert "Column 'sex': 2.0 became 1, 1.0 became 0." in tables.notes


def test_true_and_false_and_nullable_columns() -> None:
    made = pd.DataFrame({"b": [True, False, True, None], "n": [1, None, 3, 4], "y": [True, False, True, False]})
    made = made.astype({"b": "boolean", "n": "Int64"})
    tables = data.tables_from_frames({"a": made}, target="y", missing="mean", holdout=0, standardise="none")
    np.testing.assert_allclose(feature(tables, "b"), [1, 0, 1, 2 / 3])
    np.testing.assert_allclose(feature(tables, "n"), [1, 8 / 3, 3, 4])
    assert tables["a"][1].tolist() == [1, 0, 1, 0]


def test_describe() -> None:
    made = frames(gaps=True)
    table = data.describe(data.tables_from_frames(made, target="ill", missing="mean"))
    assert list(table.columns) == ["rows", "held-out rows", "positives", "missing cells"]
    assert table.loc["c"].tolist() == [48, 12, pytest.approx(made["c"]["ill"].mean()), 15]


def test_codes_and_what_is_said_to_be_categorical_may_mix_numbers_and_text() -> None:
    codes = pd.DataFrame({"c": [1, 2, 3] * 10 + ["other"], "y": [0, 1, 1] * 10 + [0]})
    assert data.tables_from_frames({"a": codes}, target="y", holdout=0).columns == ("c=2", "c=3", "c=other")
    ages = pd.DataFrame({"c": [*range(20), "sixty"], "y": [0, 1, 1] * 7})
    with pytest.raises(data.TableError, match="Most cells are numbers"):
        data.tables_from_frames({"a": ages}, target="y", holdout=0)
    said = data.tables_from_frames({"a": ages}, target="y", categorical="c", holdout=0)
    assert len(said.columns) == 20
    assert data.tables_from_frames({"a": ages}, target="y", na="sixty", missing="mean", holdout=0).columns == ("c",)
