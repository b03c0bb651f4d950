"""What each sample site must satisfy, checked once on every client's data before any fitting."""

from typing import Any

import torch

from pvi.programs.errors import ProgramError


def kind(fn: Any) -> str:
    """The name of a distribution's class, independent dimensions unwrapped."""
    return type(_base(fn)).__name__


def _base(fn: Any) -> Any:
    while isinstance(fn, torch.distributions.Independent):
        fn = fn.base_dist
    return fn


def check_site(name: str, node: Any, client: str) -> None:
    """Raises :class:`ProgramError` for a discrete latent that cannot be enumerated and for ill-fitting observations."""
    fn, value = node["fn"], node["value"]
    if node["infer"].get("is_auxiliary"):
        return
    _check_parameters(name, fn, client, node["is_observed"])
    if not node["is_observed"]:
        if fn.support.is_discrete and not fn.has_enumerate_support:
            raise ProgramError(
                f"site {name!r} is a discrete latent ({kind(fn)}) with too many values to enumerate: sum it out in the "
                "model, or make it continuous"
            )
        return
    expected = (*fn.batch_shape, *fn.event_shape)
    if tuple(value.shape) != tuple(expected):
        raise ProgramError(
            f"client {client!r}: observed site {name!r} has a value of shape {tuple(value.shape)} under a distribution "
            f"of shape {tuple(expected)}; they would be broadcast against each other. One outcome a row is (rows,)"
        )
    ok = fn.support.check(value)
    if not bool(ok.all()):
        first = (~ok).nonzero()[0].tolist() if ok.ndim else []
        wrong = value[tuple(first)] if first else value
        raise ProgramError(
            f"client {client!r}: observed site {name!r} ({kind(fn)}) has the value {wrong.tolist()} at row "
            f"{first[0] if first else 0}, outside its support {fn.support}; distinct values of that site: "
            f"{sorted(set(value.flatten()[:10000].tolist()))[:6]}"
        )


def _check_parameters(name: str, fn: Any, client: str, observed: bool) -> None:
    """A forgotten link shows here: Bernoulli(probs=f) with f outside [0, 1]. Overflow is let pass."""
    base = _base(fn)
    for parameter, constraint in getattr(base, "arg_constraints", {}).items():
        # Parameters that the user did not give are computed when asked for.
        value = base.__dict__.get(parameter)
        if not isinstance(value, torch.Tensor) or torch.distributions.constraints.is_dependent(constraint):
            continue
        bad = ~constraint.check(value)
        if bad.shape == value.shape and bool((bad & torch.isfinite(value)).any()):
            wrong = value[bad & torch.isfinite(value)].flatten()[0].item()
            hint = (
                "; is a link missing? For example dist.Bernoulli(logits=f), dist.Poisson(f.exp())" if observed else ""
            )
            raise ProgramError(
                f"client {client!r}: site {name!r} gets {parameter} = {wrong:.4g} in its {kind(fn)}, outside "
                f"{constraint}{hint}"
            )
