"""Three hospitals, one treatment effect: what each knows alone, and what they know together."""

import torch

import pvi


def hospital(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Age (standardised) and treatment (0 or 1), and whether the patient recovered."""
    generator = torch.Generator().manual_seed(seed)
    age = torch.randn(n, generator=generator, dtype=torch.float64)
    treated = torch.randint(2, (n,), generator=generator).double()
    chance = torch.sigmoid(0.8 * treated - 0.6 * age)
    return torch.stack([age, treated], 1), torch.bernoulli(chance, generator=generator)


def main() -> None:
    clients = {"north": hospital(40, 0), "south": hospital(60, 1), "west": hospital(25, 2)}
    options = {"guide": "full", "schedule": "sequential", "damping": 1.0, "rounds": 5}
    for name, data in clients.items():
        show(f"{name} alone", pvi.fit("logistic_regression", [data], **options))
    together = pvi.fit("logistic_regression", clients, **options, columns=["age", "treated"])
    show("together, no row shared", together)


def show(label: str, result: pvi.Result) -> None:
    effect = result.posterior.marginal("weights")
    mean, sd = effect.mean[1].item(), effect.stddev[1].item()
    print(
        f"{label:24s} effect of treatment {mean:+.2f}, 95 % interval {mean - 1.96 * sd:+.2f} to {mean + 1.96 * sd:+.2f}"
    )


if __name__ == "__main__":
    main()
