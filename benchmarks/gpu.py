"""CPU against CUDA in under five minutes: the same fits on both, agreement and seconds.

Run from the repository root: ``python benchmarks/gpu.py``. Without a CUDA device only the CPU column is filled.
"""

import time

import torch

import pvi
from pvi.models import logistic_regression


def clients(num_clients: int, num_rows: int, num_features: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Logistic-regression data, seeded."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(num_features, generator=generator, dtype=torch.float64) / num_features**0.5
    data = []
    for _ in range(num_clients):
        x = torch.randn(num_rows, num_features, generator=generator, dtype=torch.float64)
        chance = torch.sigmoid(x @ truth)
        data.append((x, (torch.rand(num_rows, generator=generator, dtype=torch.float64) < chance).double()))
    return data


def timed(device: str, **options: object) -> tuple[pvi.Result, float]:
    """A warm run's result and seconds."""
    data = clients(5, 20_000, 100)
    pvi.fit(logistic_regression.model, data, device=device, **(options | {"rounds": 1}))  # type: ignore[arg-type]
    began = time.perf_counter()
    result = pvi.fit(logistic_regression.model, data, device=device, **options)  # type: ignore[arg-type]
    if device == "cuda":
        torch.cuda.synchronize()
    return result, time.perf_counter() - began


def main() -> None:
    """One line a solver."""
    torch.set_num_threads(1)
    runs: dict[str, dict[str, object]] = {
        "Newton, full covariance": {"guide": "full", "damping": 0.5, "rounds": 5},
        "Newton, Anderson": {"damping": 0.5, "rounds": 5, "acceleration": "anderson"},
        "SVI, 100 steps": {"solver": pvi.solvers.SVI(steps=100), "rounds": 2},
        "PyroSVI, 100 steps": {"solver": pvi.solvers.PyroSVI(steps=100), "rounds": 2},
    }
    print("| solver | cpu s | cuda s | max difference of means, in sd |")
    print("| --- | --- | --- | --- |")
    for name, options in runs.items():
        cpu, cpu_seconds = timed("cpu", **options)
        if not torch.cuda.is_available():
            print(f"| {name} | {cpu_seconds:.2f} | no CUDA device | |")
            continue
        cuda, cuda_seconds = timed("cuda", **options)
        difference = (cuda.posterior.mean["weights"].cpu() - cpu.posterior.mean["weights"]).abs()
        sd = cpu.posterior.sd["weights"]
        print(f"| {name} | {cpu_seconds:.2f} | {cuda_seconds:.2f} | {(difference / sd).max():.1e} |")


if __name__ == "__main__":
    main()
