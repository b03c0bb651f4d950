"""Heart disease at its four hospitals: private intercepts and foreign priors against NUTS, a slow client, schedules.

Run from the repository root: ``PVI_DATA=... python benchmarks/hospitals.py``. NUTS runs on the pooled rows
(``tests/oracles/nuts.py``: two chains of 1,000 draws after 400 of warm-up, its own log densities).
"""

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

import pvi
from pvi.models import logistic_regression, mixed_logistic_regression

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from datasets import heart_disease
from oracles import nuts

HORIZON = 0.1
"""Nats: the gap at which a run counts as there."""


def laplace(x: Tensor, y: Tensor) -> None:
    """Laplace(0, 0.3) on the weights."""
    weights = pyro.sample("weights", dist.Laplace(x.new_zeros(x.shape[1]), 0.3).to_event(1))
    bias = pyro.sample("bias", dist.Normal(x.new_tensor(0.0), 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights + bias), obs=y)


def hierarchy(x: Tensor, y: Tensor) -> None:
    """The weights' scale is a shared site of its own."""
    tau = pyro.sample("tau", dist.HalfNormal(x.new_tensor(1.0)))
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), tau).to_event(1))
    bias = pyro.sample("bias", dist.Normal(x.new_tensor(0.0), 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights + bias), obs=y)


def against_nuts(clients: dict[str, tuple[Tensor, Tensor]]) -> None:
    """Largest distance of a mean in NUTS's standard deviations, smallest and largest ratio of standard deviations."""
    mixed: dict[str, Any] = {"damping": 0.5, "rounds": 20, "acceleration": "anderson"}
    stochastic: dict[str, Any] = {"damping": 0.4, "rounds": 25}
    cases = {
        "private intercepts, tau = 1": (mixed_logistic_regression.model, mixed, partial(nuts.mixed_effects, 1.0)),
        "Laplace prior": (laplace, stochastic, nuts.laplace_prior),
        "hierarchical scale": (hierarchy, stochastic, nuts.hierarchical_scale),
    }
    print("\n| model | guide | s | mean off by at most, sd | sd ratio |\n| --- | --- | --- | --- | --- |")
    for name, (model, options, reference) in cases.items():
        truth = reference()
        for guide in ("full", None):
            began = time.perf_counter()
            result = pvi.fit(model, clients, guide, **options)
            seconds = time.perf_counter() - began
            off, ratios = [], []
            for site in result.posterior.site_names:
                mean, sd = torch.as_tensor(truth.mean[site]), torch.as_tensor(truth.sd[site])
                off.append(((result.posterior.mean[site] - mean).abs() / sd).max().item())
                ratio = result.posterior.sd[site] / sd
                ratios += [ratio.min().item(), ratio.max().item()]
            label = "mean field" if guide is None else guide
            print(
                f"| {name} | {label} | {seconds:.1f} | {max(off):.3f} | {min(ratios):.2f} to {max(ratios):.2f} |",
                flush=True,
            )


def schedules(clients: dict[str, tuple[Tensor, Tensor]]) -> None:
    """Simulated time and messages until the gap is within the horizon; one hospital is ten times slower."""
    latency = [1.0, 1.0, 1.0, 10.0]
    best = pvi.fit(logistic_regression.model, clients, algorithm="global-vi").elbo
    runs: dict[str, dict[str, Any]] = {
        "synchronous, ρ = 0.5": {"schedule": pvi.schedules.Synchronous(latency=latency), "damping": 0.5},
        "synchronous, Anderson": {
            "schedule": pvi.schedules.Synchronous(latency=latency), "damping": 0.5, "acceleration": "anderson",
        },
        "sequential, ρ = 1": {"schedule": pvi.schedules.Sequential(latency=latency), "damping": 1.0},
        "asynchronous, ρ = 0.5": {"schedule": pvi.schedules.Asynchronous(latency=latency), "damping": 0.5},
        "random subset of 2, ρ = 0.5": {
            "schedule": pvi.schedules.RandomSubset(size=2, latency=latency), "damping": 0.5,
        },
    }  # fmt: skip
    print("\n| run | simulated time | messages | gap after 70 rounds |\n| --- | --- | --- | --- |")
    for name, options in runs.items():
        result = pvi.fit(logistic_regression.model, clients, rounds=70, **options)
        messages, reached = 0, "never"
        for record in result.history:
            messages += record.communications
            if best - record.elbo <= HORIZON:
                reached = f"{record.simulated_seconds:.0f} | {messages}"
                break
        print(f"| {name} | {reached} | {best - result.elbo:.1e} |", flush=True)


def main() -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    data = heart_disease(intercept=False)
    clients = {name: (torch.as_tensor(x), torch.as_tensor(y)) for name, (x, y) in data.items()}
    schedules(clients)
    against_nuts(clients)


if __name__ == "__main__":
    main()
