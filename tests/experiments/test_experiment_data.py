"""What the experiments make of their data: the tables against an independent reading, images, stays."""

import numpy as np
import pandas as pd
import pyro
import pytest
import torch
from datasets import uci as independent

from pvi.data import TableError, icu, train_test
from pvi.data import uci as tables
from pvi.experiments import ICU, MNIST, UCI, PFedBayes
from pvi.experiments.icu import benchmark_folder, first
from pvi.experiments.mnist import pooled
from pvi.experiments.uci import imbalance

LOAD = {"credit": tables.credit, "bank": tables.bank, "adult": lambda: tables.adult(part="train")}


def in_order(train, test):
    """Columns sorted by their training values."""
    order = np.lexsort(train[::-1])
    return train[:, order], test[:, order]


@pytest.mark.parametrize("scale", ["train", "all"])
@pytest.mark.parametrize(
    "name",
    ["credit", pytest.param("bank", marks=pytest.mark.slow), pytest.param("adult", marks=pytest.mark.slow)],
)
@pytest.mark.usefixtures("data")
def test_train_and_test_rows_are_those_of_an_independent_reading(name, scale):
    ours = train_test(LOAD[name](), fit_rows="all" if scale == "all" else "training")
    both = independent(name, scale_on=scale)
    for pair, (_, y) in zip((ours.train, ours.test), both.values(), strict=True):
        np.testing.assert_array_equal(pair[1], y)
    expected = [x[:, 1:] for x, _ in both.values()]  # theirs begin with the intercept
    if scale == "train":  # levels that only test rows have are no columns of ours
        seen = expected[0].any(0)
        expected = [x[:, seen] for x in expected]
    own = [np.asarray(x) for x, _ in (ours.train, ours.test)]
    assert own[0].shape == expected[0].shape
    assert len(ours.columns) == own[0].shape[1]
    for found, wanted in zip(in_order(*own), in_order(*expected), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-9)


@pytest.mark.usefixtures("data")
def test_seeds_and_rows():
    one, other = train_test(tables.credit(), seed=1, rows=100), train_test(tables.credit(), seed=2, rows=100)
    assert [len(y) for _, y in (one.train, one.test, other.train)] == [80, 20, 80]
    assert not np.array_equal(one.test[1], other.test[1]) or not np.array_equal(one.test[0], other.test[0])
    for rows in (1, 654, 0, -5):
        with pytest.raises(TableError, match=f"credit: {rows} rows asked for, there are 653"):
            train_test(tables.credit(), rows=rows)
    for share in (0, 1, -0.5):
        with pytest.raises(TableError, match="test is the share of rows in the test set, between 0 and 1"):
            train_test(tables.credit(), test=share)
    with pytest.raises(TableError, match="a test set of 0 of 3 rows"):
        train_test(tables.credit(), rows=3)


@pytest.mark.usefixtures("data")
def test_every_row_of_credit_is_with_one_client_or_nobody():
    setting = UCI(dataset="credit").setting(0, None)
    dealt = np.concatenate(list(setting.parts.values()))
    assert len(set(dealt.tolist())) == len(dealt)
    whole = UCI(dataset="credit", clients=1).setting(0, None)
    (x, y), = whole.clients.values()  # fmt: skip
    assert f"{len(y) - len(dealt)} of {len(y)} training rows are with no client" in " ".join(setting.notes)
    for name, rows in setting.parts.items():
        torch.testing.assert_close(setting.clients[name][0], x[rows], rtol=0, atol=0)
    sizes = [len(rows) for rows in setting.parts.values()]
    assert max(sizes) > 3 * min(sizes)
    torch.testing.assert_close(whole.test, setting.test, rtol=0, atol=0)


def test_imbalances():
    assert imbalance("0.75,0.95") == {"size_imbalance": 0.75, "class_imbalance": 0.95}
    assert imbalance("A") != imbalance("B")
    for text in ("C", "", "0.5", "a,b", "1,2,3"):
        with pytest.raises(ValueError, match="split is A, B, or two numbers"):
            imbalance(text)


def test_pooled_pixels_are_means_of_squares():
    x = torch.rand(3, 784, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert pooled(x, 1) is x
    halves = pooled(x, 2)
    assert halves.shape == (3, 196)
    images = x.numpy().reshape(3, 28, 28)
    for image, row, column in ((0, 0, 0), (1, 13, 4), (2, 7, 13)):
        square = images[image, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        assert float(halves[image, 14 * row + column]) == pytest.approx(square.mean())


def stays(number):
    columns = icu.column_names()
    return icu.Stays(
        "somewhere", tuple(map(str, range(number))), np.arange(number * len(columns), dtype=float).reshape(number, -1),
        columns, np.arange(number) % 2, unit=tuple("ab"[k % 2] for k in range(number)), notes=("A note.",),
    )  # fmt: skip


def test_first_stays():
    whole = stays(7)
    assert first(whole, None) is whole
    some = first(whole, 3)
    assert (some.records, some.unit, len(some)) == (("0", "1", "2"), ("a", "b", "a"), 3)
    np.testing.assert_array_equal(some.features, whole.features[:3])
    assert some.died.tolist() == [0, 1, 0]
    assert some.notes == ("A note.", "Only the first 3 of 7 stays are used.")
    assert len(first(whole, 7)) == 7
    for number in (0, 8, -1):
        with pytest.raises(ValueError, match=f"stays={number}: somewhere has 7"):
            first(whole, number)


@pytest.mark.parametrize(
    ("kind", "option"),
    [(UCI, "dataset"), (UCI, "scale"), (UCI, "split"), (ICU, "source"), (ICU, "model"), (ICU, "clients"),
     (MNIST, "dataset"), (MNIST, "partition"), (PFedBayes, "dataset"), (PFedBayes, "size"), (PFedBayes, "study"),
     (PFedBayes, "assignment")],
)  # fmt: skip
def test_unknown_choices_are_refused_at_once(kind, option):
    with pytest.raises(ValueError, match=f"{option} is .*, not 'other'"):
        kind(**{option: "other"})


@pytest.mark.parametrize("kind", [UCI, ICU, MNIST, PFedBayes])
def test_quick_options_are_options(kind):
    assert set(kind.QUICK) <= {*kind.__dataclass_fields__}
    assert kind(**kind.QUICK) != kind()


def test_seeds_of_the_network_start_elsewhere():
    x = torch.zeros(2, 5)
    starts = []
    for seed in (0, 1):
        _, guide = ICU(model="bnn")._program(seed)
        trace = pyro.poutine.trace(guide).get_trace(x, None)
        starts.append(trace.nodes["weights_1"]["fn"].mean)
    assert not torch.equal(*starts)


def test_where_the_benchmark_is(tmp_path, monkeypatch):
    monkeypatch.delenv("PVI_DATA", raising=False)
    with pytest.raises(ValueError, match="--data-dir"):
        benchmark_folder(None)
    assert benchmark_folder(str(tmp_path)) == tmp_path
    (tmp_path / "in-hospital-mortality").mkdir()
    monkeypatch.setenv("PVI_DATA", str(tmp_path))
    assert benchmark_folder(None) == tmp_path / "in-hospital-mortality"


@pytest.mark.parametrize("seed", range(4))  # the row is dealt to training by some, to the test rows by others
def test_messages_name_the_rows_of_the_file(seed):
    numbers = [str(value) for value in range(40)]
    numbers[4] = "abc"
    frame = pd.DataFrame({"x": numbers, "y": ["a", "b"] * 20})
    data = tables.Dataset("made up", frame, "y", "a", ("x",), (), "error")
    with pytest.raises(TableError, match="column 'x', row 5: 'abc'"):
        train_test(data, seed=seed, test=0.5)
