"""Local problems whose exact q is known in closed form, for :func:`~pvi.testing.solvers.check_solver`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from pvi.families import is_gaussian
from pvi.objectives import LocalProblem
from pvi.problem import build_problem

F64 = torch.float64


class Conjugate(NamedTuple):
    """A local problem with its cavity, the starts to try, and the η of the exact q."""

    name: str
    problem: LocalProblem
    cavity: Tensor
    starts: tuple[Tensor, ...]
    exact: Tensor

    def deviations(self, natural: Tensor) -> Tensor:
        """How far q is from the exact one in posterior standard deviations: of x for means, of T(x) for others.

        Gaussian families: means and log standard deviations; others: mean parameters.
        """
        family = self.problem.family
        if is_gaussian(family):
            scale = family.variance(self.exact).sqrt()
            loc = (family.location(natural) - family.location(self.exact)) / scale
            return torch.cat([loc, (family.variance(natural).sqrt() / scale).log()])
        fisher = torch.func.jacrev(family.mean_parameters)(self.exact)
        return (family.mean_parameters(natural) - family.mean_parameters(self.exact)) / fisher.diagonal().sqrt()


def conjugate_problems() -> tuple[Conjugate, ...]:
    """An unknown mean, and linear regressions under mean field and full covariance, with cavities of all kinds."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=F64)

    y = 0.7 + normal(20)
    x = normal(30, 3) @ torch.tensor([[1.0, 0.4, 0.0], [0.0, 1.0, -0.3], [0.0, 0.0, 1.0]], dtype=F64)
    outcome = x @ torch.tensor([1.0, -0.5, 0.2], dtype=F64) + 0.5 * normal(30)
    narrow = {"loc": torch.full((3,), 1.5), "scale": 0.3}
    return (
        _conjugate("unknown mean", _unknown_mean, (y,), None, torch.zeros(1), {"loc": torch.ones(1), "scale": 0.5}),
        _conjugate("linear regression", _regression, (x, outcome), None, torch.zeros(3), narrow),
        _conjugate("linear regression, improper cavity", _regression, (x, outcome), None, _improper(), narrow),
        _conjugate("full covariance, improper cavity", _regression, (x, outcome), "full", _improper(), narrow),
    )


def counted_problems() -> tuple[Conjugate, ...]:
    """Families that are not Gaussian: rates of counts, chances, shares, and a choice among three."""
    counts = torch.tensor([[3.0, 0.0], [5.0, 1.0], [2.0, 0.0], [4.0, 1.0]], dtype=F64)
    hits = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0], dtype=F64)
    kinds = torch.tensor([0, 2, 2, 1, 2, 0, 2, 2])
    values = torch.tensor([0.4, 0.3], dtype=F64)
    # What the others' factors took away leaves cavities of negative shapes, and the client's rows make up for it.
    rates = {"concentration": counts.sum(0) + torch.tensor([-0.5, 1.0]), "rate": torch.tensor([4.5, 6.0])}
    found = torch.softmax(torch.distributions.Normal(CENTRES[:, None], 1.0).log_prob(values).sum(-1), 0)
    return (
        _counted("rates of counts", _rates, counts, {"concentration": [-0.5, 1.0], "rate": [0.5, 2.0]}, rates),
        _counted(
            "a chance",
            _chance,
            hits,
            {"concentration1": [-1.5], "concentration0": [0.5]},
            {"concentration1": [3.5], "concentration0": [2.5]},
        ),
        _counted("shares", _shares, kinds, {"concentration": [[-0.5, 1.0, 2.0]]}, {"concentration": [[1.5, 2.0, 7.0]]}),
        _counted("a choice", _choice, values, {"probs": [[1 / 3, 1 / 3, 1 / 3]]}, {"probs": found[None]}),
    )


CENTRES = torch.tensor([-1.0, 0.5, 1.0], dtype=F64)


def _rates(y: Tensor) -> None:
    rates = pyro.sample("rates", dist.Gamma(CENTRES.new_ones(2), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Poisson(rates).to_event(1), obs=y)


def _chance(y: Tensor) -> None:
    chance = pyro.sample("chance", dist.Beta(CENTRES.new_tensor(2.0), 1.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(chance), obs=y)


def _shares(y: Tensor) -> None:
    shares = pyro.sample("shares", dist.Dirichlet(CENTRES.new_tensor([1.0, 2.0, 1.0])))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Categorical(shares), obs=y)


def _choice(y: Tensor) -> None:
    choice = pyro.sample("choice", dist.Categorical(CENTRES.new_tensor([0.5, 0.2, 0.3])))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(CENTRES[choice], 1.0), obs=y)


def _counted(
    name: str, model: Callable[..., Any], data: Tensor, cavity: dict[str, Any], exact: dict[str, Any]
) -> Conjugate:
    """The model under the families of its priors; ``cavity`` and ``exact`` by their standard parameters."""

    def guide(y: Tensor) -> None:
        with pyro.poutine.block(hide=["y"]):
            model(y)

    built = build_problem(model, [(data,)], guide, torch.device("cpu"), F64)
    problem, prior = built.clients["client 0"], built.prior.natural
    (member,) = problem.approximation.family.members
    away, answer = (
        member.natural_from_standard(**{key: torch.as_tensor(value, dtype=F64) for key, value in standard.items()})
        for standard in (cavity, exact)
    )
    # Half way towards zero and beyond the prior: another proper start.
    return Conjugate(name, problem, away, (prior, 0.5 * prior + 0.25), answer)


def _improper() -> Tensor:
    """What another client's factor took away: more precision than the prior has, in one direction."""
    return torch.tensor([1.4, 0.3, -0.5])


def _unknown_mean(y: Tensor) -> None:
    loc = pyro.sample("loc", dist.Normal(y.new_tensor(0.0), 1.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(loc, 1.0), obs=y)


def _regression(x: Tensor, y: Tensor) -> None:
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


def _conjugate(
    name: str,
    model: Callable[..., Any],
    data: tuple[Tensor, ...],
    guide: str | None,
    taken: Tensor,
    other: dict[str, Any],
) -> Conjugate:
    """The problem whose cavity is the standard normal prior less the precisions ``taken`` and a pull of 0.3."""
    built = build_problem(model, [data], guide, torch.device("cpu"), F64)
    problem = built.clients["client 0"]
    family, prior = problem.approximation.family, built.prior.natural
    size = family.size
    design = data[0] if len(data) == 2 else torch.ones(len(data[0]), 1, dtype=F64)
    noise = 0.5 if len(data) == 2 else 1.0
    one = torch.ones(size, dtype=F64)
    # exp(-½ Σ λ_i x_i²) as a factor: rows of the identity, weighted.
    removed = family.quadratic(-0.3 * one, torch.eye(size, dtype=F64), taken.double(), 0 * one)
    cavity = prior - removed
    precision = torch.diag(1 - taken.double()) + design.mT @ design / noise**2
    loc = torch.linalg.solve(precision, 0.3 * one + design.mT @ data[-1] / noise**2)
    if guide == "full":
        standard = {"loc": loc, "covariance_matrix": torch.linalg.inv(precision)}
    else:
        # The best mean field has the exact mean, and the precision's diagonal.
        standard = {"loc": loc, "scale": precision.diagonal().rsqrt()}
    exact = family.members[0].natural_from_standard(**standard)
    second = family.relocate(prior / other["scale"] ** 2, other["loc"].double())
    return Conjugate(name, problem, cavity, (prior, second), exact)
