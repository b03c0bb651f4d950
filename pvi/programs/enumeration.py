"""Sum discrete latents out of a program exactly, by parallel enumeration."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from pyro import poutine
from pyro.infer import config_enumerate
from pyro.ops.contract import contract_to_tensor
from pyro.ops.rings import LogRing
from pyro.poutine.enum_messenger import _ENUM_ALLOCATOR, EnumMessenger
from pyro.poutine.subsample_messenger import _Subsample
from torch import Tensor

from pvi.programs.batch import Batch
from pvi.programs.context import running
from pvi.programs.errors import ProgramError
from pvi.programs.handlers import Values


def enumerated_model(model: Callable[..., Any], values: Mapping[str, Tensor], plate_nesting: int) -> Callable[..., Any]:
    """The model at these values, every other discrete latent enumerated in a dimension of its own."""
    return Enumerate(values, plate_nesting)(config_enumerate(Values(values)(model), "parallel"))


class Enumerate(EnumMessenger):
    """Pyro's enumeration, which leaves given values alone: to look for enumerated axes in them breaks ``vmap``."""

    def __init__(self, values: Mapping[str, Tensor], plate_nesting: int) -> None:
        super().__init__(first_available_dim=-1 - plate_nesting)
        self.values = values

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["name"] not in self.values:
            super()._pyro_post_sample(msg)
        elif not isinstance(msg["fn"], _Subsample):  # its density may depend on enumerated sites
            msg["infer"]["_dim_to_id"] = dict(_ENUM_ALLOCATOR.dim_to_id)


def summed_out(
    model: Callable[..., Any],
    values: Mapping[str, Tensor],
    batch: Batch,
    names: frozenset[str],
    plate_nesting: int,
    dtype: torch.dtype,
) -> Tensor:
    """log Σ_z p(y, z | θ) in nats over the sites ``names``, all values of their discrete latents summed.

    Pyro contracts the sites' log densities plate by plate, so that independent rows are summed one by one.
    """
    with running(dtype):
        trace = poutine.trace(enumerated_model(model, values, plate_nesting)).get_trace(*batch.args, **batch.kwargs)
        for name, node in list(trace.nodes.items()):
            if node["type"] != "sample" or isinstance(node["fn"], _Subsample):
                continue
            if name not in names:
                trace.remove_node(name)
            elif not isinstance(node["scale"], int | float) or node["scale"] != 1:
                raise ProgramError(
                    f"site {name!r} is scaled (poutine.scale, a plate that subsamples) beside discrete latents that "
                    "are summed out: the sum of scaled densities is not the scaled sum"
                )
        trace.compute_log_prob()
        trace.pack_tensors()
    plates = trace.plate_to_symbol
    terms: OrderedDict[frozenset[str], list[Tensor]] = OrderedDict()
    for node in trace.nodes.values():
        if node["type"] == "sample" and not isinstance(node["fn"], _Subsample):
            ordinal = frozenset(plates[frame.name] for frame in node["cond_indep_stack"] if frame.vectorized)
            terms.setdefault(ordinal, []).append(node["packed"]["log_prob"])
    latent = set(trace.symbol_to_dim) - set(plates.values())
    total: Tensor = contract_to_tensor(terms, latent, ring=LogSumExp())
    return total.reshape(())


class LogSumExp(LogRing):
    """Pyro's ring of log densities with sums that ``torch.func`` can transform: variables are eliminated one by one."""

    def sumproduct(self, terms: Sequence[Tensor], dims: set[str]) -> Tensor:
        """Σ over ``dims`` of the product of terms, in logarithms; a term's axes are named by its ``_pyro_dims``."""
        left = list(terms)
        for dim in sorted(dims):
            with_it = [term for term in left if dim in _dims(term)]
            if with_it:
                product = _product(with_it)
                axes = _dims(product)
                summed = product.logsumexp(axes.index(dim))
                summed._pyro_dims = axes.replace(dim, "")
                left = [*(term for term in left if dim not in _dims(term)), summed]
        return _product(left)


def _dims(term: Any) -> str:
    return str(term._pyro_dims)


def _product(terms: Sequence[Tensor]) -> Any:
    dims = "".join(sorted(set().union(*(_dims(term) for term in terms))))
    total: Any = 0.0
    for term in terms:
        own = "".join(dim for dim in dims if dim in _dims(term))
        aligned = term.permute([_dims(term).index(dim) for dim in own])
        sizes = dict(zip(own, aligned.shape, strict=True))
        total = total + aligned.reshape([sizes.get(dim, 1) for dim in dims])
    total._pyro_dims = dims
    return total
