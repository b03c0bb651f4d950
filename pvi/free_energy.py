"""The global free energy F(q) = Σ_m E_q[log p(y_m | θ)] - KL(q, p), term by term."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from pvi.algorithms.protocol import SHARED, Energy
from pvi.assembly import Problem
from pvi.client import ClientState
from pvi.families import kl
from pvi.objectives import Estimate, client_term
from pvi.server import ServerState
from pvi.terms import Terms, terms


class FreeEnergy(NamedTuple):
    """The clients' terms and KL(q, p) in nats, and the Monte Carlo standard error of the whole (0: exact)."""

    likelihoods: dict[str, float]
    divergence: float
    standard_error: float

    @property
    def value(self) -> float:
        """F(q), nats: the evidence lower bound."""
        return sum(self.likelihoods.values()) - self.divergence


def falls(before: FreeEnergy, after: FreeEnergy, rounding: float) -> bool:
    """Whether F fell by more than three standard errors and ``rounding``, relative to its size.

    Nothing falls from a value that is not finite.
    """
    if not math.isfinite(before.value):
        return False
    noise = 3 * max(before.standard_error, after.standard_error) + rounding * abs(before.value)
    return not after.value >= before.value - noise


def free_energy(
    problem: Problem,
    server: ServerState,
    clients: Mapping[str, ClientState],
    by_client: Terms = terms,
    energy: Energy = SHARED,
) -> FreeEnergy:
    """F(q); the draws are the same in every round, so that the differences between rounds carry little noise."""
    if energy.personal:
        return _personal(problem, server, clients, energy.weight)
    natural = server.posterior.natural
    own = [clients[name].conditional for name in problem.clients]
    found = by_client(list(problem.clients.values()), natural, own)
    estimates = dict(zip(problem.clients, found, strict=True))
    variance = sum(estimate.standard_error**2 for estimate in estimates.values())
    divergence = energy.weight * kl(server.prior.family, natural, server.prior.natural).item() if energy.weight else 0.0
    if problem.prior_problem is not None and energy.weight:
        correction = client_term(problem.prior_problem, natural, None, seed=len(estimates))
        divergence, variance = divergence - correction.value, variance + correction.standard_error**2
    return FreeEnergy({name: estimate.value for name, estimate in estimates.items()}, divergence, variance**0.5)


def _personal(problem: Problem, server: ServerState, clients: Mapping[str, ClientState], weight: float) -> FreeEnergy:
    """Σ_m (E_{q_m}[log p(y_m | θ)] - weight KL(q_m, q)) with the personal posteriors q_m."""
    shared = server.posterior
    estimates, divergence = dict[str, Estimate](), 0.0
    for index, (name, part) in enumerate(problem.clients.items()):
        personal = clients[name].personal
        natural = shared.natural if personal is None or personal.natural is None else personal.natural
        estimates[name] = client_term(part, natural, None, seed=index)
        divergence += weight * kl(shared.family, natural, shared.natural).item()
    variance = sum(estimate.standard_error**2 for estimate in estimates.values())
    return FreeEnergy({name: estimate.value for name, estimate in estimates.items()}, divergence, variance**0.5)
