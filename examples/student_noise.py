"""Your own model: a robust regression with Student noise, on clients of which one has outliers."""

import pyro
import pyro.distributions as dist
import torch

import pvi


def robust(x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
    slope = pyro.sample("slope", dist.Normal(0.0, 2.0))
    level = pyro.sample("level", dist.Normal(0.0, 2.0))
    with pyro.plate("rows", len(x)):
        return pyro.sample("y", dist.StudentT(3.0, level + slope * x, 0.3), obs=y)


def client(n: int, seed: int, outliers: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, generator=generator, dtype=torch.float64)
    y = 1.5 * x - 0.5 + 0.3 * torch.randn(n, generator=generator, dtype=torch.float64)
    y[:outliers] += 8.0
    return x, y


def main() -> None:
    clients = [client(50, 0, outliers=0), client(30, 1, outliers=6)]
    result = pvi.fit(robust, clients, guide="full", damping=0.5, rounds=15)
    for site in result.posterior.site_names:
        print(f"{site}: {result.posterior.mean[site]:.3f} ± {result.posterior.sd[site]:.3f}")
    print(f"solved with {result.settings['solver']}, ELBO {result.elbo:.2f} nats")


if __name__ == "__main__":
    main()
