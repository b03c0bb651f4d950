"""Stays as clients' tables: who has which rows, what is held out, and whose scale it is."""

import numpy as np
import pytest
import torch
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

import pvi
from pvi.data import TableError, homogeneous
from pvi.data.icu import Stays, encode, stay_tables


@pytest.fixture
def stays() -> Stays:
    """100 stays, 5 columns: one with gaps, one constant, one that only ward b measures."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 5)) * [1, 10, 100, 1, 1] + 5
    unit = tuple(np.where(np.arange(100) % 3 == 0, "a", "b").tolist())
    x[rng.random(100) < 0.5, 1] = np.nan
    x[:, 3] = 2
    x[np.array(unit) == "a", 4] = np.nan
    died = (rng.random(100) < 0.3).astype(float)
    names = ("p", "q", "r", "s", "t, mean")
    return Stays("toy", tuple(f"stay{k}" for k in range(100)), x, names, died, unit, ("A note.",))


def test_units_are_clients(stays: Stays) -> None:
    tables = stay_tables(stays, holdout=0.25, seed=3)
    assert list(tables) == ["a", "b"]
    assert [len(y) for _, y in tables.values()] == [26, 50]
    assert [len(y) for _, y in tables.holdout.values()] == [8, 16]
    for client, (train, out) in tables.rows.items():
        assert sorted([*train, *out]) == [k for k in range(100) if stays.unit[k] == client]
        for rows, (x, y) in ((train, tables[client]), (out, tables.holdout[client])):
            assert x.dtype == y.dtype == torch.float64
            np.testing.assert_array_equal(x, encode(stays.features[rows], tables.fitted[client]))
            np.testing.assert_array_equal(y, stays.died[rows])
    assert tables.columns == stays.columns


def test_the_scale_is_that_of_all_training_rows(stays: Stays) -> None:
    tables = stay_tables(stays)
    train = np.concatenate([train for train, _ in tables.rows.values()])
    pooled = StandardScaler().fit(stays.features[train][:, [0, 1, 2, 4]])
    for client, (x, _) in tables.items():
        expected = pooled.transform(stays.features[tables.rows[client][0]][:, [0, 1, 2, 4]])
        imputed = SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True).fit_transform(expected)
        np.testing.assert_allclose(x[:, [0, 1, 2, 4]], imputed, atol=1e-10)
        assert (x[:, 3] == 0).all()
    assert tables.fitted["a"] is tables.fitted["b"]


def test_the_scale_of_each_client_alone(stays: Stays) -> None:
    tables = stay_tables(stays, scaling="client")
    for x, _ in tables.values():
        np.testing.assert_allclose(x[:, [0, 2]].mean(0), 0, atol=1e-12)
        np.testing.assert_allclose(x[:, [0, 2]].std(0, correction=0), 1, atol=1e-12)
    assert (tables["a"][0][:, 4] == 0).all()
    assert "2 columns do not vary in the training stays of client 'a' and are 0: 's', 't, mean'." in tables.notes
    assert "1 columns do not vary in the training stays of client 'b' and are 0: 's'." in tables.notes


def test_notes(stays: Stays) -> None:
    notes = stay_tables(stays).notes
    assert notes[0] == "A note."
    assert notes[1] == "1 columns do not vary in the training stays of all clients and are 0: 's'."
    own = stays.features[[unit == "a" for unit in stays.unit]]
    assert notes[2].startswith(f"client 'a': {np.isnan(own).mean():.1%} of the cells of 34 stays have no measurement")
    assert len(notes) == 4
    lucky = stay_tables(Stays(**{**vars(stays), "died": np.zeros(100)})).notes
    assert "client 'a': all training stays ended alike." in lucky


def test_the_seed_and_the_name_decide(stays: Stays) -> None:
    one, same, other = (stay_tables(stays, seed=seed).rows["a"][1] for seed in (0, 0, 1))
    assert one.tolist() == same.tolist() != other.tolist()
    alone = stay_tables(stays, {"a": np.flatnonzero(np.array(stays.unit) == "a")}).rows["a"][1]
    assert alone.tolist() == one.tolist()


def test_ways_to_name_clients(stays: Stays) -> None:
    parts = homogeneous(100, num_clients=4)
    dealt = stay_tables(stays, {f"client {m}": rows for m, rows in enumerate(parts)}, holdout=0)
    assert [train.tolist() for train, _ in dealt.rows.values()] == [rows.tolist() for rows in parts]
    assert [len(y) for _, y in dealt.holdout.values()] == [0] * 4
    named = stay_tables(stays, ["x"] * 60 + ["y"] * 40, holdout=0)
    assert {client: len(y) for client, (_, y) in named.items()} == {"x": 60, "y": 40}
    result = pvi.fit("logistic_regression", named, damping=0.5, rounds=2, columns=[f"x{k}" for k in range(5)])
    assert len(result.history) == 2


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        (["a"], "1 clients' names for 100 stays"),
        (["a"] * 99 + [""], r"stay stay99 has no client \(its unit is unknown\): say clients"),
        ({"a": [0, 100]}, "client 'a': give one or more of the row numbers 0 to 99"),
        ({"a": [-1]}, "client 'a': give one or more"),
        ({"a": []}, "client 'a': give one or more"),
        ({"a": [0.5]}, "client 'a': give one or more"),
        ({"a": [0, 1], "b": [1]}, "stay stay1 is dealt 2 times"),
        ({}, "no clients"),
    ],
)
def test_refused(stays: Stays, clients: object, message: str) -> None:
    with pytest.raises(TableError, match=message):
        stay_tables(stays, clients)  # type: ignore[arg-type]


def test_refused_options(stays: Stays) -> None:
    with pytest.raises(TableError, match="holdout must be at least 0 and below 1"):
        stay_tables(stays, holdout=1.0)
    with pytest.raises(TableError, match="scaling is 'federation' or 'client', not 'none'"):
        stay_tables(stays, scaling="none")  # type: ignore[arg-type]


def test_a_fit_takes_the_columns_names(stays: Stays) -> None:
    tables = stay_tables(stays)
    assert pvi.fit("logistic_regression", tables, rounds=1).columns == tables.columns
