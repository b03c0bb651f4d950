"""Gradients of a program's log likelihood row by row, and whether it has such rows at all."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from pvi.programs.batch import Batch
from pvi.programs.program import Program, log_likelihood
from pvi.programs.weighted import refill, tensors_of

SPREAD = 0.1
"""Standard deviation of the step from x to the second point at which rows are compared: x may be a symmetric one."""

Values = TypeVar("Values")


def over_rows(function: Callable[[Batch], Values], batch: Batch) -> Values:
    """``function`` of a batch with one row, for each row of ``batch``: its tensors get an axis of rows in front.

    Arguments without rows stay as they are. Safe under ``vmap`` over clients and under graph capture.
    """
    tensors = tensors_of(batch)
    axes = tuple(0 if tensor.ndim else None for tensor in tensors)

    def at(*parts: Tensor) -> Values:
        rows = [part if axis is None else part[None] for part, axis in zip(parts, axes, strict=True)]
        return function(refill(batch, rows))

    found: Values = torch.func.vmap(at, in_dims=axes)(*tensors)
    return found


def row_gradients(program: Program, x: Tensor, batch: Batch, weights: Tensor | None = None) -> Tensor:
    """∇ log p(y_j | θ(x)) in nats for each row j of ``batch``; ``x [d]`` -> ``[n, d]``.

    Each row is a batch of its own, so that the sum over rows is the gradient of the log likelihood only for programs
    that :func:`check_rows` lets pass. ``weights [n]`` multiply the rows; they are 0 for padding and 1 otherwise, which
    makes them weights of squares and outer products of the rows too. Safe under ``vmap`` and graph capture.
    """
    return row_values(program, x, batch, weights)[1]


def row_values(program: Program, x: Tensor, batch: Batch, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """log p(y_j | θ(x)) in nats ``[n]`` and its gradients ``[n, d]``; see :func:`row_gradients`."""

    def of_row(row: Batch) -> tuple[Tensor, Tensor]:
        gradient, value = torch.func.grad_and_value(lambda point: log_likelihood(program, point, row))(x)
        return value, gradient

    values, gradients = over_rows(of_row, batch)
    return (values, gradients) if weights is None else (values * weights, gradients * weights[:, None])


def mixing(program: Program) -> str | None:
    """What keeps a program's likelihood from being a sum over rows, as far as its sites tell; ``None``: nothing."""
    sites = program.sites
    if sites.subsampling is not None:
        return f"plate {sites.subsampling[0]!r} draws its own rows: leave subsample_size out"
    if sites.enumerated:
        names = [site.name for site in sites.enumerated]
        return f"sites {names} are discrete and summed out: sum them out in the model itself"
    own = [site.name for site in sites.private if site.by_row]
    if own:
        return f"sites {own} have one private value a row: integrate them out in the model, or make them shared"
    return None


def check_rows(program: Program, x: Tensor, batch: Batch, client: str) -> None:
    """Raises ``ValueError`` where the log likelihood at the client's data is not a sum over its rows.

    So it is for models that subsample or hold latents by row, that look across their rows or count them: the sum of
    :func:`row_gradients` is then not the gradient of the log likelihood. That is tried at ``x [d]`` and near it,
    without n gradients of length d in memory.
    """
    advice = 'curvature by row needs a sum over rows; use curvature="hessian" or another solver for this model'
    reason = mixing(program)
    if reason is not None:
        raise ValueError(f"client {client!r}: {reason}; {advice}")
    generator = torch.Generator(device=x.device).manual_seed(0)
    step = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
    for point in (x, x + SPREAD * step):
        whole = torch.func.grad(lambda point: log_likelihood(program, point, batch))(point)
        if not bool(torch.isfinite(whole).all()):
            if point is x:
                raise ValueError(
                    f"client {client!r}: the gradient of its log likelihood is not finite; check the data, or "
                    "start from another point"
                )
            continue  # the point is ours, not the user's
        rows = _gradient_of_sum(program, point, batch, client, advice)
        scale = max(1.0, whole.abs().max().item()) * batch.num_rows**0.5
        gap = (rows - whole).abs().max().item()
        # False for NaN too.
        if not gap <= 1e3 * torch.finfo(x.dtype).eps * scale:
            raise ValueError(
                f"client {client!r}: the gradients of its rows sum to something else than the gradient of its log "
                f"likelihood (they differ by up to {gap:.3g}): the model looks across its rows (batch normalisation, "
                f"centring, an observation of all rows together) or counts them; {advice}"
            )


def _gradient_of_sum(program: Program, point: Tensor, batch: Batch, client: str, advice: str) -> Tensor:
    def total(point: Tensor) -> Tensor:
        return over_rows(lambda row: log_likelihood(program, point, row), batch).sum()

    try:
        return torch.func.grad(total)(point)
    except Exception as error:
        # Programs may raise whatever they like for a single row.
        first = next(iter(str(error).splitlines()), "")
        raise ValueError(
            f"client {client!r}: the model fails on one row at a time: {type(error).__name__}: {first}; {advice}"
        ) from error
