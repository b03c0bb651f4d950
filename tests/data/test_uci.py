"""Adult, Bank Marketing and Credit Approval: published counts, and both ways to get them."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from pvi.data import TableError
from pvi.data.uci import Dataset, adult, bank, credit


@pytest.mark.parametrize(
    ("load", "rows", "positive", "gaps"),
    [
        (lambda folder: adult(folder), 48842, 11687, {"workclass": 2799, "occupation": 2809, "native-country": 857}),
        (
            lambda folder: adult(folder, "train"),
            32561,
            7841,
            {"workclass": 1836, "occupation": 1843, "native-country": 583},
        ),
        (
            lambda folder: adult(folder, "test"),
            16281,
            3846,
            {"workclass": 963, "occupation": 966, "native-country": 274},
        ),
        (bank, 45211, 5289, {}),
        (credit, 690, 307, {"A1": 12, "A2": 12, "A4": 6, "A5": 6, "A6": 9, "A7": 9, "A14": 13}),
    ],
)
def test_published_counts(
    data: Path, load: Callable[[Path], Dataset], rows: int, positive: int, gaps: dict[str, int]
) -> None:
    dataset = load(data)
    assert len(dataset.frame) == rows
    assert int((dataset.frame[dataset.target] == dataset.positive).sum()) == positive
    missing = dataset.frame.isna().sum()
    assert missing[missing > 0].to_dict() == gaps
    assert len(dataset.numeric) + len(dataset.categorical) + 1 == dataset.frame.shape[1]


@pytest.mark.parametrize(("load", "rows", "features"), [(adult, 48842, 108), (bank, 45211, 51), (credit, 653, 46)])
def test_published_preprocessing(data: Path, load: Callable[[Path], Dataset], rows: int, features: int) -> None:
    dataset = load(data)
    tables = dataset.tables(1, coding="full", holdout=0)
    x = tables["client 1"][0].numpy()
    assert x.shape == (rows, features)
    frame = dataset.frame.dropna() if dataset.missing == "drop" else dataset.frame
    scaled = StandardScaler().fit_transform(frame[list(dataset.numeric)].astype(float))
    hot = OneHotEncoder(sparse_output=False).fit_transform(frame[list(dataset.categorical)].fillna("?").astype(str))
    place = [tables.columns.index(name) for name in dataset.numeric]
    np.testing.assert_allclose(x[:, place], scaled, atol=1e-9)
    rest = np.delete(x, place, axis=1)
    np.testing.assert_allclose(np.sort(rest.sum(0)), np.sort(hot.sum(0)))
    np.testing.assert_allclose(rest @ rest[:50].T, hot @ hot[:50].T)


def test_a_level_that_one_client_lacks(data: Path) -> None:
    dataset = adult(data)
    clients = np.repeat(["train", "test"], [32561, 16281])
    tables = dataset.tables(clients.tolist(), coding="full", holdout=0)
    assert [x.shape for x, _ in tables.values()] == [(32561, 108), (16281, 108)]
    place = tables.columns.index("native-country=Holand-Netherlands")
    assert tables["train"][0][:, place].sum() == 1
    assert tables["test"][0][:, place].sum() == 0
    assert any("Holand-Netherlands (only train)" in note for note in tables.notes)


def test_ways_to_name_clients(data: Path) -> None:
    dataset = credit(data)
    even = dataset.tables(10)
    assert list(even) == [f"client {number}" for number in range(1, 11)]
    assert sum(len(y) for _, y in [*even.values(), *even.holdout.values()]) == 653
    assert not dataset.tables(10, seed=1)["client 1"][1].equal(even["client 1"][1])
    assert set(dataset.tables("A9", missing="indicator")) == {"t", "f"}
    with pytest.raises(TableError, match="credit: there is no column 'A99'"):
        dataset.tables("A99")
    with pytest.raises(TableError, match="credit: 0 clients for 690 rows"):
        dataset.tables(0)
    with pytest.raises(TableError, match="credit: 2 clients' names for 690 rows"):
        dataset.tables(["a", "b"])


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for load in (adult, bank, credit):
        with pytest.raises(TableError, match="file not found"):
            load(tmp_path)
    with pytest.raises(TableError, match="part is 'all', 'train' or 'test'"):
        adult(tmp_path, "half")  # type: ignore[arg-type]


def test_openml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PVI_DATA", raising=False)
    asked = []

    def fetch(name: str, *, version: int, as_frame: bool, parser: str) -> SimpleNamespace:
        asked.append((name, version))
        width, target = {
            "adult": (14, [">50K", "<=50K"]),
            "bank-marketing": (16, ["1", "2"]),
            "credit-approval": (15, ["+", "-"]),
        }[name]
        places = {"adult": (0, 2, 4, 10, 11, 12), "bank-marketing": (0, 5, 9, 11, 12, 13, 14)}
        numbers = places.get(name, (1, 2, 7, 10, 13, 14))
        columns = {
            f"V{place + 1}": [1.0, 2, 3, 5] if place in numbers else pd.Categorical(["u", None, "v", "u"])
            for place in range(width)
        }
        return SimpleNamespace(data=pd.DataFrame(columns), target=pd.Series(pd.Categorical(target * 2), name="class"))

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    for load, positives in ((adult, [1, 0, 1, 0]), (bank, [0, 1, 0, 1]), (credit, [1, 0, 1, 0])):
        dataset = load()
        tables = dataset.tables(1, missing="indicator", holdout=0)
        assert tables["client 1"][1].tolist() == positives
        assert len(tables.columns) == len(dataset.numeric) + 2 * len(dataset.categorical)
    assert asked == [("adult", 2), ("bank-marketing", 1), ("credit-approval", 1)]
    assert adult().frame.columns[0] == "age"
    with pytest.raises(TableError, match="does not tell Adult's official parts apart"):
        adult(part="test")


def test_no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fetch(*_: object, **__: object) -> None:
        raise OSError("Name or service not known")

    # A folder that lacks the set is no error where it comes from the environment.
    monkeypatch.setenv("PVI_DATA", str(tmp_path))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    for load in (adult, bank, credit):
        with pytest.raises(TableError, match=r"could not be fetched from OpenML .*Name or service.*PVI_DATA"):
            load()


def test_another_table_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PVI_DATA", raising=False)
    small = SimpleNamespace(data=pd.DataFrame({"a": [1]}), target=pd.Series([1]))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda *_, **__: small)
    with pytest.raises(TableError, match="OpenML sent 2 columns instead of 16"):
        credit()
