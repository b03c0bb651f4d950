"""Statistics of the clients, merged, are those of the pooled rows."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pvi import data
from pvi.data.cells import tidy
from pvi.data.kinds import ordered_levels
from pvi.data.schema import Schema, encode_rows

parts_of_numbers = st.lists(
    st.lists(st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 6)), min_size=1, max_size=20),
    min_size=1,
    max_size=5,
)


def merged(parts: list[list[float]]) -> data.ColumnStatistics:
    frames = [tidy(pd.DataFrame({"x": part})) for part in parts]
    return data.merge(data.client_statistics(frame).columns["x"] for frame in frames)


@settings(max_examples=60, deadline=None)
@given(parts_of_numbers)
def test_mean_and_deviation_are_those_of_the_pooled_rows(parts: list[list[float]]) -> None:
    pooled = np.concatenate(parts)
    seen = merged(parts)
    scale = max(np.abs(pooled).max(), 1e-6)
    assert seen.mean == pytest.approx(pooled.mean(), rel=1e-9, abs=1e-9 * scale)
    assert seen.deviation == pytest.approx(pooled.std(), rel=1e-9, abs=1e-9 * scale)
    assert (seen.low, seen.high, seen.count) == (pooled.min(), pooled.max(), len(pooled))


def test_no_digits_are_lost_where_the_mean_is_large() -> None:
    draws = np.random.default_rng(0).normal(size=(3, 500)) * np.array([[1.0], [2.0], [0.5]])
    # Multiples of 2^-20 stay exact when 1e9 is added, so the answer is known.
    exact = np.round(draws * 2**20) / 2**20
    seen = merged([(row + 1e9).tolist() for row in exact])
    # Means near 1e9 are rounded to 1e-7, which moves the spread between clients a little.
    assert seen.deviation == pytest.approx(exact.std(), rel=1e-8)
    # The textbook formula would have lost everything.
    pooled = (exact + 1e9).ravel()
    assert abs(np.sqrt(max((pooled**2).mean() - pooled.mean() ** 2, 0.0)) - exact.std()) > 1e-2


def test_merging_does_not_depend_on_the_order() -> None:
    parts = [[1.0, 2.0], [5.0], [7.0, 7.0, 9.0]]
    one, other = merged(parts), merged(parts[::-1])
    assert one.levels == other.levels
    assert one.deviation == pytest.approx(other.deviation, rel=1e-14)


def test_counts_of_levels_and_gaps() -> None:
    frame = tidy(pd.DataFrame({"x": ["a", "b", None, "a", "?"], "y": [1, 2, 3, None, 5]}), na=("?",))
    seen = data.client_statistics(frame).columns
    assert seen["x"].levels == {"a": 2, "b": 1}
    assert (seen["x"].count, seen["x"].missing, seen["x"].numbers) == (3, 2, 0)
    assert (seen["y"].count, seen["y"].missing, seen["y"].mean) == (4, 1, 2.75)


def test_only_sums_travel_for_a_column_of_many_numbers() -> None:
    frame = tidy(pd.DataFrame({"x": np.arange(200.0)}))
    seen = data.client_statistics(frame).columns["x"]
    assert seen.levels is None


def test_statistics_survive_json() -> None:
    said = data.client_statistics(tidy(pd.DataFrame({"x": [1, 2], "y": ["a", "b"]})))
    assert data.ClientStatistics.from_dict(json.loads(json.dumps(said.to_dict()))) == said


def test_numbers_spelled_in_two_ways_are_one_level() -> None:
    assert ordered_levels({"4": 2, "4.0": 1, "10": 1}) == ({"4.0": 3, "10.0": 1}, True)
    assert ordered_levels({"10": 1, "4": 2}) == ({"4": 2, "10": 1}, True)
    assert ordered_levels({"10": 1, "x": 1, "4": 2}) == ({"10": 1, "4": 2, "x": 1}, False)


def test_a_deployment_sends_statistics_only_and_gets_the_same_numbers() -> None:
    draws = np.random.default_rng(1)
    frames = {
        name: tidy(pd.DataFrame({"x": draws.normal(size=30), "c": draws.choice([*"abc"], 30), "y": [0, 1] * 15}))
        for name in ("north", "south")
    }
    wire = {name: json.dumps(data.client_statistics(frame).to_dict()) for name, frame in frames.items()}
    said = {name: data.ClientStatistics.from_dict(json.loads(text)) for name, text in wire.items()}
    columns, _ = data.aggregate(said, data.Choices(), ignore=("y",))
    rule = data.target_rule("y", data.merge(client.columns["y"] for client in said.values()))
    schema = Schema(columns, rule, data.ReadOptions(), ("x", "c", "y"))
    tables = data.tables_from_frames(frames, target="y", holdout=0)
    assert tables.schema.columns == schema.columns
    for name, frame in frames.items():
        assert encode_rows(schema, frame).equal(tables[name][0])


def test_numbers_too_large_to_square() -> None:
    with pytest.raises(data.TableError, match="column 'x': the numbers are too large"):
        data.client_statistics(tidy(pd.DataFrame({"x": [1e200, -1e200]})))
