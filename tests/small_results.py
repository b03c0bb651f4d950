"""Small results that several tests look at."""

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

import pvi

COLUMNS = ("age", "dose", "sex=f")
SIZES = {"north": 17, "south": 40, "island": 5}


def regression_data(columns: int = len(COLUMNS), seed: int = 0) -> dict[str, tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.linspace(-1.5, 2, columns, dtype=torch.float64)
    clients = {}
    for name, size in SIZES.items():
        x = torch.randn(size, columns, generator=generator, dtype=torch.float64)
        y = (torch.rand(size, generator=generator, dtype=torch.float64) < torch.sigmoid(x @ weights)).double()
        clients[name] = (x, y)
    return clients


def logistic(guide: str | None = None, rounds: int = 4) -> pvi.Result:
    return pvi.fit("logistic_regression", regression_data(), guide=guide, damping=0.5, rounds=rounds, columns=COLUMNS)


def scales(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Real, positive, shifted and bounded latents."""
    weights = pyro.sample("weights", dist.Normal(torch.zeros(x.shape[1]), 1.0).to_event(1))
    noise = pyro.sample("noise", dist.LogNormal(torch.tensor(-1.0), torch.tensor(0.5)))
    with pyro.plate("rows", x.shape[0]):
        return pyro.sample("y", dist.Normal(x @ weights, noise), obs=y)


def constrained(rounds: int = 2) -> pvi.Result:
    solver = pvi.solvers.SVI(steps=150)
    return pvi.fit(scales, regression_data(), rounds=rounds, damping=0.5, columns=COLUMNS, solver=solver)
