"""A client's data as arguments."""

import math

import numpy as np
import pytest
import torch

from pvi.programs.batch import Batch, as_batch, check_finite

X, Y = torch.arange(6.0).reshape(3, 2), torch.tensor([1, 0, 1])


def test_containers():
    for data, args, names in (
        ((X, Y), 2, []),
        ([X, Y], 2, []),
        (X, 1, []),
        ({"x": X, "y": Y}, 0, ["x", "y"]),
        (X.numpy(), 1, []),
        ({"x": X.numpy()}, 0, ["x"]),
    ):
        batch = as_batch(data, "a")
        assert len(batch.args) == args
        assert list(batch.kwargs) == names
        assert batch.num_rows == 3
        assert all(isinstance(value, torch.Tensor) for value in batch.values())
    batch = as_batch((X, Y), "a")
    assert as_batch(batch, "a") == batch


def test_rows_are_taken_from_tensors_with_rows_only():
    batch = Batch((X, 2.0, torch.tensor(7.0)), {"y": Y, "flag": "on"})
    part = batch.take(torch.tensor([2, 0]))
    assert torch.equal(part.args[0], X[[2, 0]])
    assert torch.equal(part.kwargs["y"], Y[[2, 0]])
    assert part.args[1:] == batch.args[1:]
    assert part.kwargs["flag"] == "on"
    assert part.num_rows == 2


def test_moving_casts_floating_tensors_only():
    batch = as_batch((Y, X), "a").to(torch.device("cpu"), torch.float64)
    assert [value.dtype for value in batch.values()] == [torch.int64, torch.float64]
    assert batch.dtype == torch.float64
    assert as_batch((Y,), "a").dtype == torch.get_default_dtype()


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ("text", TypeError, "client 'a': expected a tuple or a dict of tensors .* got str"),
        ((X, Y[:2]), ValueError, r"client 'a': its tensors have \[3, 2\] rows"),
        ((torch.tensor(1.0),), ValueError, "client 'a': its data holds no tensor with rows"),
        ((X[:0],), ValueError, "client 'a' is empty"),
    ],
)
def test_data_that_cannot_be_used(data, error, message):
    with pytest.raises(error, match=message):
        as_batch(data, "a")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_are_located(value):
    x = X.clone()
    x[1, 0] = x[2, 1] = value
    with pytest.raises(ValueError, match=r"client 'a': 'features' has 2 values .* at row 1, column 0"):
        check_finite(as_batch((x, Y), "a"), "a", ("features", "y"))
    with pytest.raises(ValueError, match=r"client 'a': 'x' has 2 values"):
        check_finite(as_batch({"x": x}, "a"), "a")
    check_finite(as_batch((X, Y), "a"), "a")


def test_numpy_single_precision_is_kept():
    assert as_batch(np.zeros((2, 2), dtype=np.float32), "a").dtype == torch.float32
