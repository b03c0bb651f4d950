"""Observed sites at many posterior draws: new observations, expectations and pointwise log likelihoods."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from pyro import poutine
from pyro.distributions.torch_distribution import MaskedDistribution
from pyro.distributions.util import scale_and_mask
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pvi.programs.batch import Batch
from pvi.programs.context import running, seeded
from pvi.programs.errors import ProgramError
from pvi.programs.handlers import Values
from pvi.quadrature import MAX_ELEMENTS

PREDICTIVE = 0x5DEECE66D
"""Keeps the stream of predictions apart from that of the posterior draws, whose seed is often the same."""
LEAST = 2
"""Draws at once, however much memory one takes."""
ACCELERATED = 8
"""Accelerators work on so many times more numbers at once: their runs cost little more than their start."""


def predicted_values(
    model: Callable[..., Any], observed: tuple[str, ...], draws: Mapping[str, Tensor], batch: Batch, seed: int = 0
) -> dict[str, Tensor]:
    """One draw of the observed sites at each draw of the latents, {site: ``[draws, rows, ...]``}.

    Latents that have no draws come from their priors.
    """
    return _each(model, draws, batch, lambda nodes: {name: nodes[name]["value"] for name in observed}, seed)


def expected_values(
    model: Callable[..., Any], observed: tuple[str, ...], draws: Mapping[str, Tensor], batch: Batch
) -> dict[str, Tensor]:
    """The observed distributions' means at each draw, {site: ``[draws, rows, ...]``}; see :func:`mean`."""
    return _each(model, draws, batch, lambda nodes: {name: mean(nodes[name]["fn"]) for name in observed})


def mean(distribution: Any) -> Tensor:
    """A distribution's mean ``[rows, ...]``; of a Categorical its probabilities ``[rows, ..., classes]``.

    Those are the mean of the one-hot outcome. torch says NaN, since classes are no numbers.
    """
    base = distribution
    while isinstance(base, torch.distributions.Independent | MaskedDistribution):
        base = base.base_dist
    return base.probs if isinstance(base, torch.distributions.Categorical) else distribution.mean


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
    model: Callable[..., Any],
    draws: Mapping[str, Tensor],
    batch: Batch,
    read: Callable[[Any], dict[str, Tensor]],
    seed: int = 0,
) -> dict[str, Tensor]:
    """What ``read`` finds in the model's trace at every draw, stacked: vectorised where the program can be."""
    first = next(iter(draws.values()))

    def at(values: dict[str, Tensor]) -> dict[str, Tensor]:
        with Values(values):
            return read(poutine.trace(model).get_trace(*batch.args, **batch.kwargs).nodes)

    with running(first.dtype), torch.no_grad(), seeded(seed ^ PREDICTIVE, first.device):
        try:
            return _in_chunks(at, draws, batch)
        except ProgramError:
            raise
        except (RuntimeError, ValueError, NotImplementedError):
            # Control flow on values, or an operation without a batching rule; or the model fails on this data.
            found = _one_by_one(at, draws, batch)
    return {name: torch.stack([one[name] for one in found]) for name in found[0]}


def _in_chunks(
    at: Callable[[dict[str, Tensor]], dict[str, Tensor]], draws: Mapping[str, Tensor], batch: Batch
) -> dict[str, Tensor]:
    """``at`` mapped over the draws, so many at once that no tensor has more than ``MAX_ELEMENTS`` elements.

    The first draw runs by itself and shows how much memory one takes. On a CPU more at once would not be faster: its
    caches are full.
    """
    first = next(iter(draws.values()))
    with _Activations(batch) as seen:
        begun = at({name: value[0] for name, value in draws.items()})
    # Results go where there is room for all of them: kept one by one they would scatter over the freed activations,
    # and the process would grow with every chunk.
    found = {name: value.new_empty((len(first), *value.shape)) for name, value in begun.items()}
    for name, value in begun.items():
        found[name][0] = value

    def apart(values: dict[str, Tensor]) -> dict[str, Tensor]:
        with _InPlace():
            return at(values)

    allowed = MAX_ELEMENTS if first.device.type == "cpu" else ACCELERATED * MAX_ELEMENTS
    chunk = max(LEAST, allowed // max(1, seen.largest))
    for start in range(1, len(first), chunk):
        part = slice(start, start + chunk)
        some = {name: value[part] for name, value in draws.items()}
        for name, value in torch.func.vmap(apart, randomness="different")(some).items():
            found[name][part] = value
    return found


class _Activations(TorchFunctionMode):
    """The most elements that a function gives, views of the data apart: draws share these."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self.shared = {value.untyped_storage().data_ptr() for value in batch.values() if isinstance(value, Tensor)}
        self.largest = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for part in outputs if isinstance(outputs, tuple | list) else (outputs,):
            if isinstance(part, Tensor) and not self._is_shared(part):
                self.largest = max(self.largest, part.numel())
        return outputs

    def _is_shared(self, part: Tensor) -> bool:
        try:
            return part.untyped_storage().data_ptr() in self.shared
        except (RuntimeError, NotImplementedError):
            return False  # tensors of a model's own vmap have no storage to show


class _InPlace(TorchFunctionMode):
    """What distributions do in place, in the forms that ``vmap`` knows: each draw fills an empty tensor of its own."""

    EMPTY = frozenset([torch.empty, torch.empty_like, Tensor.new, Tensor.new_empty])

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.clamp_:
            return args[0].copy_(torch.clamp(*args, **(kwargs or {})))
        made = func(*args, **(kwargs or {}))
        if func in self.EMPTY and made.is_floating_point():
            return torch.rand(made.shape, dtype=made.dtype, device=made.device)
        return made


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
