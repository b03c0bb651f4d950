"""Whether the exponential of a coefficient is an odds ratio or a rate ratio: asked of the program, not of its name."""

import torch

from pvi.families import is_gaussian
from pvi.programs.batch import Batch
from pvi.programs.linear_predictor import LinearPredictor, find_predictor
from pvi.programs.program import Program
from pvi.programs.sites import discover
from pvi.result import Result

RATIOS = {"Bernoulli": "odds_ratio", "Poisson": "rate_ratio"}
ENOUGH_ROWS = 50
"""Rows on which to see what kind of model it is."""


def ratio_name(result: Result) -> str:
    """``odds_ratio`` for logistic regression, ``rate_ratio`` for Poisson regression, else empty.

    That is: a Bernoulli or Poisson site whose predictor is affine in latents, all of them real, a client's own too.
    """
    space = next(iter(result.local.values()), result.posterior)
    real = all(site.is_real for site in space.coordinates.sites) and is_gaussian(space.family)
    if result.model is None or not real:
        return ""
    natural = result.posterior.natural
    if result.data:
        batch = next(iter(result.data.values()))
        batch = batch.take(torch.arange(min(batch.num_rows, ENOUGH_ROWS), device=natural.device))
    else:
        # A result from disk has no rows; made-up ones show the form of a regression just as well.
        x = torch.randn(4, max(1, len(result.columns)), generator=torch.Generator().manual_seed(0)).to(natural)
        batch = Batch((x, natural.new_zeros(4)), {})
    try:
        sites = discover(result.model, batch, "any")
        program = Program(result.model, sites, space.coordinates, frozenset(result.observed))
        predictor = find_predictor(program, batch, natural)
    except (ValueError, RuntimeError):
        # No regression of this form: there is no ratio.
        return ""
    if not isinstance(predictor, LinearPredictor):
        return ""
    return RATIOS.get(sites.observed[0].distribution, "")
