"""Everything a run needs to know before its first round, checked: programs, family, prior, clients' problems."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from pvi.objectives import LocalProblem
from pvi.posterior import Posterior
from pvi.programs.batch import Batch, as_batch, check_finite
from pvi.programs.guides import FullCovariance, Guide, MeanField, approximation
from pvi.programs.linear_predictor import find_predictor
from pvi.programs.names import resolve_model
from pvi.programs.prior import prior_posterior
from pvi.programs.program import Program, check_deterministic
from pvi.programs.sites import ProgramError, Site, Sites, argument_names, discover


class Problem(NamedTuple):
    """The model, its prior in the guide's family, and each client's local problem."""

    model: Callable[..., Any]
    model_name: str
    observed: tuple[str, ...]
    prior: Posterior
    clients: dict[str, LocalProblem]


def build_problem(
    model: Callable[..., Any] | str, clients: Any, guide: Any, device: torch.device, dtype: torch.dtype | None
) -> Problem:
    """Resolve and check model, data and guide; see :func:`pvi.fit` for the arguments and the errors."""
    program_function = resolve_model(model)
    batches = client_batches(clients, argument_names(program_function))
    first_name, first = next(iter(batches.items()))
    precision = dtype if dtype is not None else first.dtype
    if precision not in (torch.float32, torch.float64):
        raise ValueError(f"{precision} is not supported: pass dtype=torch.float32 or torch.float64")
    batches = {name: batch.to(device, precision) for name, batch in batches.items()}
    first = batches[first_name]
    sites = {name: discover(program_function, batch, name) for name, batch in batches.items()}
    _check_same(sites)
    shared = sites[first_name].shared
    if sites[first_name].private:
        names = [site.name for site in sites[first_name].private]
        raise ProgramError(
            f"sites {names} are private: they lie inside a plate with observations, or are marked so. Only shared "
            'latents are supported; move them out of the plate or mark them infer={"pvi": "shared"}'
        )
    if not shared:
        raise ProgramError("the model has no latent site: there is no posterior to compute")
    approximating = approximation(_resolve_guide(guide), shared, first)
    programs = {name: Program(program_function, found, approximating.coordinates) for name, found in sites.items()}
    like = torch.zeros((), dtype=precision, device=device)
    for name, program in programs.items():
        check_deterministic(program, batches[name], name, like)
    prior = prior_posterior(programs[first_name], approximating, batches, like)
    problems = {
        name: LocalProblem(name, program, batches[name], approximating, find_predictor(program, batches[name], like))
        for name, program in programs.items()
    }
    observed = tuple(site.name for site in sites[first_name].observed)
    return Problem(program_function, _name(model), observed, prior, problems)


def client_batches(clients: Any, arguments: tuple[str, ...] = ()) -> dict[str, Batch]:
    """The clients' data by name, checked for rows and finite values; unnamed clients are "client 0", ..."""
    if isinstance(clients, Mapping):
        named = {str(name): data for name, data in clients.items()}
    elif isinstance(clients, Sequence) and not isinstance(clients, str):
        named = {f"client {index}": data for index, data in enumerate(clients)}
    else:
        raise TypeError(f"clients must be a list or a dict of each client's data, got {type(clients).__name__}")
    if not named:
        raise ValueError("there are no clients: pass a list or a dict with each client's data")
    batches = {name: as_batch(data, name) for name, data in named.items()}
    for name, batch in batches.items():
        check_finite(batch, name, arguments)
    return batches


def _resolve_guide(guide: Any) -> Guide:
    if guide is None or guide == "mean-field":
        return MeanField()
    if isinstance(guide, str):
        if guide != "full":
            raise ValueError(f'unknown guide {guide!r}: None (mean field), "full", or a Pyro guide')
        return FullCovariance()
    if isinstance(guide, MeanField | FullCovariance) or callable(guide):
        return guide
    raise TypeError(f"a guide is None, 'full', pvi.FullCovariance or a Pyro program, got {type(guide).__name__}")


def _check_same(sites: Mapping[str, Sites]) -> None:
    """All clients must see the same shared sites: same names, shapes and supports, the same observed names."""
    (first_name, first), *others = sites.items()
    by_name = {site.name: site for site in first.shared}
    for name, found in others:
        for site in found.shared:
            other = by_name.get(site.name)
            if other is not None and site.shape != other.shape:
                raise ProgramError(
                    f"shared site {site.name!r} has shape {site.shape} at client {name!r} but {other.shape} at "
                    f"client {first_name!r}: do their data have the same columns?"
                )
            if other is not None and repr(site.support) != repr(other.support):
                raise ProgramError(
                    f"shared site {site.name!r} has support {site.support} at client {name!r} but {other.support} "
                    f"at client {first_name!r}"
                )
        for kind in ("shared", "observed"):
            mine = [site.name for site in _of(found, kind)]
            theirs = [site.name for site in _of(first, kind)]
            if mine != theirs:
                raise ProgramError(
                    f"client {name!r} has the {kind} sites {mine}, client {first_name!r} has {theirs}; "
                    "all clients must run the same program"
                )


def _of(sites: Sites, kind: str) -> tuple[Site, ...]:
    return sites.shared if kind == "shared" else sites.observed


def _name(model: Callable[..., Any] | str) -> str:
    if isinstance(model, str):
        return model
    return f"{getattr(model, '__module__', '?')}:{getattr(model, '__qualname__', type(model).__name__)}"
