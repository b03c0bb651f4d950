"""Full-covariance PVI against NUTS on the pooled rows: the third table of docs/benchmarks.md.

Run from the repository root: ``python benchmarks/nuts.py``. Breast cancer (scikit-learn, first five features), five
clients by k-means, 30 synchronous rounds with damping 0.5; NUTS with 400 warm-up steps and 3,000 draws.
"""

import sys
from pathlib import Path

import pyro
import torch
from pyro.infer import MCMC, NUTS

import pvi
from pvi.models import logistic_regression

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from datasets import breast_cancer


def main() -> None:
    """One line a coefficient."""
    torch.set_num_threads(1)
    clients = {
        name: (torch.as_tensor(x), torch.as_tensor(y))
        for name, (x, y) in breast_cancer(features=5, intercept=False).items()
    }
    result = pvi.fit(logistic_regression.model, clients, guide="full", damping=0.5, rounds=30)
    pyro.set_rng_seed(0)
    mcmc = MCMC(NUTS(logistic_regression.model), num_samples=3000, warmup_steps=400, disable_progbar=True)
    mcmc.run(*(torch.cat(parts) for parts in zip(*clients.values(), strict=True)))
    draws = mcmc.get_samples()
    print("| coefficient | PVI mean | NUTS mean | difference, sd | PVI sd | NUTS sd | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for site in ("weights", "bias"):
        mean, sd = result.posterior.mean[site].reshape(-1), result.posterior.sd[site].reshape(-1)
        sampled = draws[site].reshape(len(draws[site]), -1)
        for index in range(len(mean)):
            other, spread = sampled[:, index].mean(), sampled[:, index].std()
            print(
                f"| {site}[{index}] | {mean[index]:.3f} | {other:.3f} | {(mean[index] - other) / spread:+.3f} | "
                f"{sd[index]:.3f} | {spread:.3f} | {sd[index] / spread:.3f} |"
            )


if __name__ == "__main__":
    main()
