"""Pyro's NUTS on logistic regressions of heart disease: posteriors that no Gaussian family holds.

All use the pooled rows of four hospitals, `datasets.heart_disease(intercept=False)`: 920 rows, 28 columns. The log
densities are written by hand, since a traced program takes ten times as long; tests hold them against plain Pyro
programs. Results are cached by their arguments, and the generators' states are left as they were.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

import numpy as np
import torch
from datasets import heart_disease, pooled
from pyro.infer import MCMC, NUTS
from pyro.ops.stats import effective_sample_size, split_gelman_rubin
from pyro.util import get_rng_state, set_rng_seed, set_rng_state
from torch import Tensor
from torch.nn.functional import softplus

from .glm import Array

Point = dict[str, Tensor]
Potential = Callable[[Point], Tensor]  # -log density of unconstrained values, up to a constant
ScalePrior = Literal["half_normal", "log_normal"]


@dataclass(frozen=True)
class Reference:
    """Draws of a posterior, a dict of site -> [chains, draws, ...], and what they are worth.

    `mean`, `sd`, their Monte Carlo standard errors `mean_error` and `sd_error`, the effective sample size `ess` and
    the split r-hat are dicts of site -> array of the site's shape. `divergences` counts over all chains.
    """

    draws: dict[str, Array]
    divergences: int

    @property
    def flat(self) -> dict[str, Array]:
        """All chains' draws of each site, [chains · draws, ...]."""
        return {site: value.reshape(-1, *value.shape[2:]) for site, value in self.draws.items()}

    @property
    def mean(self) -> dict[str, Array]:
        return {site: value.mean((0, 1)) for site, value in self.draws.items()}

    @property
    def sd(self) -> dict[str, Array]:
        return {site: value.std((0, 1), ddof=1) for site, value in self.draws.items()}

    @property
    def ess(self) -> dict[str, Array]:
        return {site: _over_draws(effective_sample_size, value) for site, value in self.draws.items()}

    @property
    def r_hat(self) -> dict[str, Array]:
        return {site: _over_draws(split_gelman_rubin, value) for site, value in self.draws.items()}

    @property
    def mean_error(self) -> dict[str, Array]:
        return {site: mean_error(value) for site, value in self.draws.items()}

    @property
    def sd_error(self) -> dict[str, Array]:
        """By the delta method: the error of the variance over twice the standard deviation."""
        squares = {site: (value - value.mean((0, 1))) ** 2 for site, value in self.draws.items()}
        return {site: mean_error(value) / (2 * self.sd[site]) for site, value in squares.items()}


def mean_error(draws: Array) -> Array:
    """Monte Carlo standard error of the mean of draws [chains, draws, ...]."""
    return np.asarray(draws.std((0, 1), ddof=1) / np.sqrt(_over_draws(effective_sample_size, draws)))


def _over_draws(statistic: Callable[..., Tensor], draws: Array) -> Array:
    return statistic(torch.as_tensor(draws), chain_dim=0, sample_dim=1).numpy()


def sample(
    potential: Potential,
    shapes: dict[str, tuple[int, ...]],
    warmup: int,
    draws: int,
    chains: int,
    seed: int,
    dense: bool = False,
) -> Reference:
    """NUTS with a diagonal or dense mass matrix, one chain after the other, from standard normal starts times 0.1."""
    state, runs, divergences = get_rng_state(), [], 0
    try:
        for chain in range(chains):
            set_rng_seed(1000 * seed + chain)
            start = {site: 0.1 * torch.randn(shape, dtype=torch.float64) for site, shape in shapes.items()}
            kernel = NUTS(potential_fn=potential, full_mass=dense)
            mcmc = MCMC(kernel, draws, warmup_steps=warmup, initial_params=start, disable_progbar=True)
            mcmc.run()
            runs.append({site: value.numpy() for site, value in mcmc.get_samples().items()})
            divergences += sum(len(steps) for steps in mcmc.diagnostics()["divergences"].values())
    finally:
        set_rng_state(state)
    return Reference({site: np.stack([run[site] for run in runs]) for site in shapes}, divergences)


@cache
def hospitals() -> tuple[Tensor, Tensor, Tensor]:
    """Pooled features [920, 28], outcomes [920] and each row's hospital, 0 to 3."""
    clients = heart_disease(intercept=False)
    x, y = pooled(clients)
    place = np.repeat(np.arange(len(clients)), [len(outcomes) for _, outcomes in clients.values()])
    return torch.as_tensor(x), torch.as_tensor(y), torch.as_tensor(place)


def _misfit(eta: Tensor, y: Tensor) -> Tensor:
    """-log p(y | log-odds)."""
    return softplus(eta).sum() - y @ eta


def _log_scale_potential(log_tau: Tensor, prior: ScalePrior) -> Tensor:
    """-log density of log tau; the half normal's has the Jacobian of the logarithm, the log normal's is normal."""
    return 0.5 * torch.exp(2 * log_tau) - log_tau if prior == "half_normal" else 0.5 * log_tau**2


def laplace_potential(point: Point, scale: float) -> Tensor:
    """weights ~ Laplace(0, scale), bias ~ Normal(0, 1)."""
    x, y, _ = hospitals()
    weights, bias = point["weights"], point["bias"]
    return _misfit(x @ weights + bias, y) + weights.abs().sum() / scale + 0.5 * bias**2


def hierarchical_potential(point: Point, prior: ScalePrior) -> Tensor:
    """tau ~ prior, weights ~ Normal(0, tau), bias ~ Normal(0, 1); the point holds log tau."""
    x, y, _ = hospitals()
    weights, bias, log_tau = point["weights"], point["bias"], point["log_tau"]
    scaled = 0.5 * (weights**2).sum() * torch.exp(-2 * log_tau) + len(weights) * log_tau
    return _misfit(x @ weights + bias, y) + scaled + 0.5 * bias**2 + _log_scale_potential(log_tau, prior)


def mixed_potential(point: Point, tau: float | None) -> Tensor:
    """weights, bias ~ Normal(0, 1), intercepts ~ Normal(0, tau); tau None: the point holds log tau ~ Normal(0, 1)."""
    x, y, place = hospitals()
    weights, bias, intercepts = point["weights"], point["bias"], point["intercepts"]
    log_tau = point["log_tau"] if tau is None else torch.tensor(tau, dtype=x.dtype).log()
    own = 0.5 * (intercepts**2).sum() * torch.exp(-2 * log_tau) + len(intercepts) * log_tau
    if tau is None:
        own = own + 0.5 * log_tau**2
    return _misfit(x @ weights + bias + intercepts[place], y) + 0.5 * (weights**2).sum() + 0.5 * bias**2 + own


@lru_cache(maxsize=8)
def laplace_prior(
    scale: float = 0.3, warmup: int = 400, draws: int = 1000, chains: int = 2, seed: int = 0
) -> Reference:
    """Sites "weights" [28] ~ Laplace(0, scale), "bias" ~ Normal(0, 1): 37 s of one core."""
    return sample(lambda p: laplace_potential(p, scale), {"weights": (28,), "bias": ()}, warmup, draws, chains, seed)


@lru_cache(maxsize=8)
def hierarchical_scale(
    prior: ScalePrior = "half_normal", warmup: int = 400, draws: int = 1000, chains: int = 2, seed: int = 0
) -> Reference:
    """Sites "weights" [28] ~ Normal(0, tau), "bias" ~ Normal(0, 1), "tau" ~ prior of scale 1: 45 s of one core."""
    shapes: dict[str, tuple[int, ...]] = {"weights": (28,), "bias": (), "log_tau": ()}
    return _with_tau(sample(lambda p: hierarchical_potential(p, prior), shapes, warmup, draws, chains, seed))


@lru_cache(maxsize=8)
def mixed_effects(
    tau: float | None = 1.0, warmup: int = 400, draws: int = 1000, chains: int = 2, seed: int = 0
) -> Reference:
    """Sites "weights" [28], "bias" ~ Normal(0, 1), and the hospitals' "intercepts" [4] ~ Normal(0, tau).

    With tau None it is latent, "tau" ~ LogNormal(0, 1). 32 s of one core, 52 s with a latent tau.
    """
    shapes: dict[str, tuple[int, ...]] = {"weights": (28,), "bias": (), "intercepts": (4,)}
    if tau is None:
        shapes["log_tau"] = ()
    found = sample(lambda p: mixed_potential(p, tau), shapes, warmup, draws, chains, seed, dense=True)
    return found if tau is not None else _with_tau(found)


def _with_tau(found: Reference) -> Reference:
    """The site "tau" in place of its logarithm."""
    rest = {site: value for site, value in found.draws.items() if site != "log_tau"}
    return Reference({**rest, "tau": np.exp(found.draws["log_tau"])}, found.divergences)
