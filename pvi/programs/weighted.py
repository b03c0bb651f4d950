"""The likelihood of a stack of clients: padded rows count nothing, programs are told their data as plain tensors."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pvi.programs.batch import Batch
from pvi.programs.errors import ProgramError
from pvi.programs.program import Program, counted_once, jacobian, site_nodes


def weighted_log_likelihood(
    program: Program, x: Tensor, batch: Batch, weights: Tensor | None, scale: Tensor | float = 1.0
) -> Tensor:
    """Σ_i w_i log p(y_i | θ(x)) in nats, ``x [size]`` -> ``[]``; ``weights [n]``, ``None`` for ones.

    ``scale`` multiplies all densities but those of latents that count once: n/b for a mini-batch. Observed sites
    without a row axis have weight 1. Raises :class:`~pvi.programs.errors.ProgramError` where two axes of a site's
    density are as long as there are rows, and under discrete latents that are summed out.
    """
    names = program.likelihood_sites
    if any(site.name in names for site in program.sites.enumerated):
        raise ProgramError("its discrete latents are summed out, which has no batched form")
    own = tuple(site for site in program.coordinates.sites if site.name in names)
    values = program.coordinates.constrain(x)
    nodes, once = site_nodes(program, values, batch, names), counted_once(program)
    parts = [(1.0 if name in once else scale) * _total(name, node, weights) for name, node in nodes.items()]
    total = parts[0] if len(parts) == 1 else torch.stack(parts).sum()
    return total + jacobian(program.coordinates, x, own) if own else total


def _total(name: str, node: Mapping[str, Any], weights: Tensor | None) -> Tensor:
    if weights is None:
        total: Tensor = node["log_prob_sum"].reshape(())
        return total
    log_prob: Tensor = node["log_prob"]
    axes = [axis for axis, length in enumerate(log_prob.shape) if length == len(weights)]
    framed = [frame.dim for frame in node["cond_indep_stack"] if frame.size == len(weights)]
    if len(framed) == 1:
        axes = [log_prob.ndim + framed[0]]
    if len(axes) > 1:
        raise ProgramError(f"the density of site {name!r} has several axes of {len(weights)}: which are its rows?")
    if not axes:
        return log_prob.sum()
    shape = [1] * log_prob.ndim
    shape[axes[0]] = len(weights)
    return (log_prob * weights.reshape(shape)).sum()


def tensors_of(batch: Batch) -> tuple[Tensor, ...]:
    """The tensors among a batch's arguments."""
    return tuple(value for value in batch.values() if isinstance(value, Tensor))


def refill(batch: Batch, tensors: Sequence[Tensor]) -> Batch:
    """The batch with its tensors exchanged for others, in order."""
    left = iter(tensors)

    def part(value: Any) -> Any:
        return next(left) if isinstance(value, Tensor) else value

    args = tuple(part(value) for value in batch.args)
    return Batch(args, {key: part(value) for key, value in batch.kwargs.items()})


def constants_of(batch: Batch) -> tuple[Any, ...]:
    """The arguments that are no tensors."""
    return tuple(value for value in batch.values() if not isinstance(value, Tensor))


def signature(batch: Batch) -> Hashable:
    """What two clients' data must share to be stacked: everything but the values and the number of rows.

    Arguments that have no hash are told apart by their ids, which are theirs only as long as they are kept.
    """

    def part(value: Any) -> Hashable:
        if isinstance(value, Tensor):
            return value.ndim > 0, tuple(value.shape[1:]), value.dtype, value.device
        try:
            hash(value)
        except TypeError:
            return type(value), id(value)
        return type(value), value

    return tuple(part(value) for value in batch.args), tuple((key, part(value)) for key, value in batch.kwargs.items())
