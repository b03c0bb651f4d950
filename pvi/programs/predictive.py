"""Observed sites at many posterior draws: expectations and pointwise log likelihoods."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from pyro import poutine
from pyro.distributions.util import scale_and_mask
from torch import Tensor

from pvi.programs.batch import Batch
from pvi.programs.context import running, seeded
from pvi.programs.errors import ProgramError
from pvi.programs.handlers import Values
from pvi.quadrature import MAX_ELEMENTS


def expected_values(
    model: Callable[..., Any], observed: tuple[str, ...], draws: Mapping[str, Tensor], batch: Batch
) -> dict[str, Tensor]:
    """The observed distributions' means at each draw, {site: ``[draws, rows, ...]``}."""
    return _each(model, draws, batch, lambda nodes: {name: nodes[name]["fn"].mean for name in observed})


def pointwise(
    model: Callable[..., Any], observed: tuple[str, ...], draws: Mapping[str, Tensor], batch: Batch
) -> dict[str, Tensor]:
    """log p(y_i | θ_s) in nats, {site: ``[draws, rows]``}, the model's own scales and masks included.

    Raises :class:`~pvi.programs.errors.ProgramError` where a site has no observations or they do not have its shape.
    """

    def log_probs(nodes: Any) -> dict[str, Tensor]:
        found = {}
        for name in observed:
            node = nodes[name]
            shape = (*node["fn"].batch_shape, *node["fn"].event_shape)
            if not node["is_observed"]:
                raise ProgramError(f"site {name!r} has no observations: pass the data with its targets")
            if tuple(node["value"].shape) != shape:
                raise ProgramError(
                    f"site {name!r} has observations of shape {tuple(node['value'].shape)} under a distribution of "
                    f"shape {shape}; one outcome a row is (rows,)"
                )
            found[name] = scale_and_mask(node["fn"].log_prob(node["value"]), node["scale"], node["mask"])
        return found

    return _each(model, draws, batch, log_probs)


def _each(
    model: Callable[..., Any], draws: Mapping[str, Tensor], batch: Batch, read: Callable[[Any], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """What ``read`` finds in the model's trace at every draw, stacked: vectorised where the program can be."""
    first = next(iter(draws.values()))

    def at(values: dict[str, Tensor]) -> dict[str, Tensor]:
        with Values(values):
            return read(poutine.trace(model).get_trace(*batch.args, **batch.kwargs).nodes)

    rows = max([value.numel() for value in batch.values() if isinstance(value, Tensor)], default=1)
    chunk = max(1, MAX_ELEMENTS // rows)
    with running(first.dtype), torch.no_grad(), seeded(0, first.device):
        try:
            return torch.func.vmap(at, chunk_size=chunk, randomness="different")(dict(draws))
        except ProgramError:
            raise
        except (RuntimeError, ValueError, NotImplementedError):
            # Control flow on values, or an operation without a batching rule; or the model fails on this data.
            found = _one_by_one(at, draws, batch)
    return {name: torch.stack([one[name] for one in found]) for name in found[0]}


def _one_by_one(
    at: Callable[[dict[str, Tensor]], dict[str, Tensor]], draws: Mapping[str, Tensor], batch: Batch
) -> list[dict[str, Tensor]]:
    count = len(next(iter(draws.values())))
    try:
        return [at({name: value[index] for name, value in draws.items()}) for index in range(count)]
    except (RuntimeError, ValueError) as error:
        if isinstance(error, ProgramError):
            raise
        shapes = [tuple(value.shape) if isinstance(value, Tensor) else value for value in batch.values()]
        latents = {name: tuple(value.shape[1:]) for name, value in draws.items()}
        raise ProgramError(
            f"the model failed on inputs of shapes {shapes}: {str(error).splitlines()[0]}; its latents have the "
            f"shapes {latents}"
        ) from error
