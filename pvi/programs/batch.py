"""A client's data as the arguments of its model."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Batch(NamedTuple):
    """The positional and keyword arguments that a model is called with; tensors hold rows first."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def num_rows(self) -> int:
        """Rows of the first tensor that has rows."""
        return next(value.shape[0] for value in self.values() if is_rows(value))

    @property
    def dtype(self) -> torch.dtype:
        """That of the first floating tensor, else torch's default."""
        floating = (value.dtype for value in self.values() if isinstance(value, Tensor) and value.is_floating_point())
        return next(floating, torch.get_default_dtype())

    @property
    def device(self) -> torch.device:
        """That of the first tensor, else the CPU."""
        return next((value.device for value in self.values() if isinstance(value, Tensor)), torch.device("cpu"))

    def values(self) -> tuple[Any, ...]:
        """All arguments in order."""
        return (*self.args, *self.kwargs.values())

    def take(self, rows: Tensor) -> "Batch":
        """The batch that holds these rows only; arguments without rows stay."""

        def part(value: Any) -> Any:
            return value[rows] if is_rows(value) else value

        return Batch(
            tuple(part(value) for value in self.args),
            {key: part(value) for key, value in self.kwargs.items()},
        )

    def to(self, device: torch.device, dtype: torch.dtype) -> "Batch":
        """Tensors moved to a device, floating ones cast to a dtype."""

        def moved(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return value.to(device, dtype) if value.is_floating_point() else value.to(device)

        return Batch(
            tuple(moved(value) for value in self.args), {key: moved(value) for key, value in self.kwargs.items()}
        )


def is_rows(value: Any) -> bool:
    """Whether an argument is a tensor with a row axis."""
    return isinstance(value, Tensor) and value.ndim > 0


def as_batch(data: Any, client: str) -> Batch:
    """A tensor, a tuple or a dict of tensors (NumPy arrays are converted) as a :class:`Batch`.

    Raises ``TypeError`` for other containers and ``ValueError`` where tensors disagree in their rows or have none.
    """
    if isinstance(data, Batch):
        batch = data
    elif isinstance(data, Mapping):
        batch = Batch((), {str(key): _as_tensor(value) for key, value in data.items()})
    elif isinstance(data, tuple | list):
        batch = Batch(tuple(_as_tensor(value) for value in data), {})
    elif isinstance(data, Tensor | np.ndarray):
        batch = Batch((_as_tensor(data),), {})
    else:
        raise TypeError(
            f"client {client!r}: expected a tuple or a dict of tensors (rows first), got {type(data).__name__}"
        )
    rows = [value.shape[0] for value in batch.values() if is_rows(value)]
    if not rows:
        kinds = [type(value).__name__ for value in batch.values()]
        raise ValueError(
            f"client {client!r}: its data holds no tensor with rows, only {kinds}; convert tables with "
            "torch.as_tensor(frame.to_numpy()) or pvi.data.tables_from_frames"
        )
    if len(set(rows)) > 1:
        raise ValueError(f"client {client!r}: its tensors have {rows} rows; all must have the same number")
    if rows[0] == 0:
        raise ValueError(f"client {client!r} is empty: it has no rows; leave it out")
    return batch


def _as_tensor(value: Any) -> Any:
    return torch.as_tensor(value) if isinstance(value, np.ndarray) else value


def check_finite(batch: Batch, client: str, names: tuple[str, ...] = ()) -> None:
    """Raises ``ValueError`` naming client, argument, row and column of the first NaN or infinite value."""
    labels = [*names[: len(batch.args)], *(f"argument {i}" for i in range(len(names), len(batch.args)))]
    for label, value in zip([*labels, *batch.kwargs], batch.values(), strict=True):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        bad = (~torch.isfinite(value)).nonzero()
        if len(bad):
            row, *column = bad[0].tolist()
            where = f"row {row}" + (f", column {column[0] if len(column) == 1 else tuple(column)}" if column else "")
            raise ValueError(
                f"client {client!r}: {label!r} has {len(bad)} values that are not finite, the first "
                f"({value[tuple(bad[0])].item()}) at {where}; drop or impute them before fitting"
            )
