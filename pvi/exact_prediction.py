"""Predictions of generalised linear models without draws: one integral over the predictor f_i ~ N(m_i, v_i) a row.

They apply where every latent has a Gaussian q, mean-field or full, in which the predictor is affine, and the outcome
depends on the latents through it alone. All is computed in double precision.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Literal, NamedTuple, get_args

import torch
from pyro import poutine
from torch import Tensor
from torch.distributions import constraints

from pvi.adaptive_quadrature import NotIntegrated, log_expectation
from pvi.families import is_gaussian
from pvi.objectives import row_moments
from pvi.posterior import Posterior
from pvi.programs.batch import Batch
from pvi.programs.context import running, seeded
from pvi.programs.handlers import Predictor, Values
from pvi.programs.linear_predictor import LinearPredictor, NotAffine, find_predictor
from pvi.programs.predictive import mean
from pvi.programs.program import Program
from pvi.programs.row_likelihood import close, evaluate_predictor, stacked
from pvi.programs.sites import discover
from pvi.quadrature import expected_value

Model = Callable[..., Any]
Method = Literal["auto", "draws", "quadrature"]
"""How integrals over q are taken: "quadrature" is exact, "draws" takes posterior draws, "auto" the first it can."""


class NotExact(ValueError):
    """An exact prediction was asked of a model that has none; the message says why."""


class _Rows(NamedTuple):
    """A program whose rows have one predictor each, with its means and standard deviations ``[n]`` under q."""

    program: Program
    batch: Batch
    predictor: LinearPredictor
    loc: Tensor
    scale: Tensor
    observed: Tensor
    support: Any


def exactly(
    method: Method,
    what: Callable[[Model, str, Posterior, Batch], Tensor | NotAffine],
    model: Model,
    observed: tuple[str, ...],
    posterior: Posterior,
    batch: Batch,
) -> dict[str, Tensor] | None:
    """``what`` by observed site; None where posterior draws are wanted or, with "auto", needed.

    Raises :class:`NotExact` where "quadrature" is wanted and does not apply, ``ValueError`` for an unknown method.
    """
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {get_args(Method)}, got {method!r}")
    if method == "draws":
        return None
    found: Tensor | NotAffine = NotAffine(f"it observes several sites ({', '.join(observed)})")
    if len(observed) == 1:
        found = what(model, observed[0], posterior, batch)
    if isinstance(found, Tensor):
        return {observed[0]: found}
    if method == "quadrature":
        raise NotExact(f"the model has no exact predictions: {found.reason}; say method='draws'")
    return None


def exact_log_density(model: Model, site: str, posterior: Posterior, batch: Batch) -> Tensor | NotAffine:
    """log ∫ p(y_i | θ) q(θ) dθ in nats ``[n]``, good to about 1e-9, or why it cannot be had without draws."""
    rows = _find(model, site, posterior, batch)
    if isinstance(rows, NotAffine):
        return rows
    # A location family has a peak of its own at the observation, which heavy tails keep apart from that of q.
    starts = [rows.observed] if rows.support is constraints.real else []
    try:
        found = log_expectation(rows.predictor.log_prob, rows.loc, rows.scale, starts)
    except NotIntegrated as error:
        return NotAffine(str(error))
    return found.to(posterior.natural.dtype)


def exact_mean(model: Model, site: str, posterior: Posterior, batch: Batch) -> Tensor | NotAffine:
    """E[y_i] ``[n]``, for a Bernoulli site P(y_i = 1), or why it cannot be had without draws.

    The batch may lack the outcomes. A mean beyond the range of floating point is infinite.
    """
    rows = _find(model, site, posterior, batch, complete=True)
    if isinstance(rows, NotAffine):
        return rows
    values = posterior.coordinates.constrain(rows.loc.new_zeros(posterior.coordinates.size))

    def means(f: Tensor) -> Tensor:
        found: Tensor = mean(_run(rows.program.model, values, rows.batch, f)[site]["fn"])
        return found

    with torch.no_grad():
        at_loc = means(rows.loc)
        if at_loc.shape != rows.loc.shape or not bool(at_loc.isfinite().all()):
            return NotAffine("its outcome has not one finite mean a row")
        means_of = stacked(means, rows.loc, torch.Generator(device=rows.loc.device).manual_seed(0))
        if rows.support is constraints.real:
            width = rows.predictor.width
            found, finer = (expected_value(means_of, rows.loc, rows.scale, part) for part in (width, width / 2))
            if not close(found, finer, 1e-8):
                return NotAffine("the mean of its outcome varies too fast in the predictor for quadrature")
        elif _is_positive(rows.support):
            try:
                found = log_expectation(lambda f: means_of(f).log(), rows.loc, rows.scale).exp()
            except NotIntegrated as error:
                return NotAffine(str(error))
        else:
            return NotAffine("its outcome is neither a real number nor a positive one")
    return found.to(posterior.natural.dtype)


def _find(model: Model, site: str, posterior: Posterior, batch: Batch, complete: bool = False) -> _Rows | NotAffine:
    """What there is to integrate; ``complete``: outcomes that the batch lacks are made up."""
    if not is_gaussian(posterior.family):
        return NotAffine("its posterior is not Gaussian")
    coordinates, natural = posterior.coordinates, posterior.natural.double()
    batch = batch.to(natural.device, torch.float64)
    try:
        with torch.no_grad():
            typical = coordinates.constrain(posterior.family.location(natural))
            node = _run(model, typical, batch)[site]
            if complete and not node["is_observed"]:
                model = poutine.condition(model, data={site: node["value"]})
            sites = discover(model, batch, "predict")
            latents = (*sites.shared, *sites.private)
            if {latent.name for latent in latents} != set(coordinates.names) or any(one.by_row for one in latents):
                return NotAffine("it has latents beside those of the posterior, which come from their prior")
            program = Program(model, sites, coordinates, frozenset([site]))
            predictor = _bent(program, batch, natural) or find_predictor(program, batch, natural)
            if isinstance(predictor, NotAffine):
                return predictor
            loc, scale = row_moments(predictor, posterior.family, natural)
    except (RuntimeError, ValueError, TypeError, KeyError) as error:
        # Predictions by draws say what is wrong with the arguments, or manage what double precision does not.
        return NotAffine(f"it cannot be evaluated here: {(str(error).splitlines() or [''])[0]}")
    if tuple(node["fn"].batch_shape) != (batch.num_rows,):
        return NotAffine("its rows are one joint outcome; put them into a plate")
    return _Rows(program, batch, predictor, loc, scale, node["value"].double(), node["fn"].support)


def _run(model: Model, values: Mapping[str, Tensor], batch: Batch, f: Tensor | None = None) -> Any:
    """The nodes of a trace at these latents, and at the predictor f where one is given."""
    handler = nullcontext() if f is None else Predictor(f)
    with running(torch.float64), seeded(0, batch.device), Values(values), handler:
        return poutine.trace(model).get_trace(*batch.args, **batch.kwargs).nodes


def _bent(program: Program, batch: Batch, natural: Tensor) -> NotAffine | None:
    """Whether the predictor is not affine along one line: a cheap no, before it is evaluated for every latent."""
    generator = torch.Generator(device=natural.device).manual_seed(2)
    size = program.coordinates.size
    x = torch.randn(size, generator=generator, dtype=natural.dtype, device=natural.device)
    low, middle, high = (evaluate_predictor(program, batch, step * x) for step in (-1.0, 0.0, 1.0))
    if low is None or middle is None or high is None or close(low + high, 2 * middle, 1e-11):
        return None
    return NotAffine("its predictor is not affine in the latents")


def _is_positive(support: Any) -> bool:
    """Whether no outcome, and so no mean, is negative."""
    known = (constraints.boolean, constraints.nonnegative_integer, constraints.nonnegative, constraints.positive)
    lower = getattr(support, "lower_bound", -1.0)
    return any(support is one for one in known) or bool(torch.as_tensor(lower >= 0).all())
