"""Four hospitals where a drug works differently: one posterior for all, and one for each that learns from all."""

import torch

import pvi
from pvi.diagnostics import personal_metrics

EFFECTS = {"north": 2.0, "south": 1.0, "east": 0.0, "west": -1.5}
"""What treatment adds to the log odds of recovery; age counts the same everywhere."""
Rows = tuple[torch.Tensor, torch.Tensor]


def hospital(n: int, effect: float, generator: torch.Generator) -> Rows:
    """Age (standardised) and treatment (0 or 1), and whether the patient recovered."""
    age = torch.randn(n, generator=generator, dtype=torch.float64)
    treated = torch.randint(2, (n,), generator=generator).double()
    chance = torch.sigmoid(effect * treated - 0.8 * age)
    return torch.stack([age, treated], 1), torch.bernoulli(chance, generator=generator)


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    clients = {name: hospital(80, effect, generator) for name, effect in EFFECTS.items()}
    heldout = {name: hospital(500, effect, generator) for name, effect in EFFECTS.items()}
    algorithm = pvi.PFedBayes(zeta=1.0, learning_rate=0.05, global_learning_rate=0.05)
    result = pvi.fit("logistic_regression", clients, algorithm=algorithm, rounds=20, columns=["age", "treated"])
    print(f"effect of treatment, global: {effect_of(result)}")
    for name, truth in EFFECTS.items():
        print(f"{name:5s} truth {truth:+.1f}, personal: {effect_of(result.of_client(name))}")
    table = personal_metrics(result, heldout)
    print("\nheld-out patients, personal model (pm) against global model (gm):")
    print(table.drop(columns=["auroc_pm", "auroc_gm"]).round(3).to_string())


def effect_of(result: pvi.Result) -> str:
    mean, sd = result.posterior.mean["weights"][1].item(), result.posterior.sd["weights"][1].item()
    return f"{mean:+.2f} ± {sd:.2f}"


if __name__ == "__main__":
    main()
