"""What is measured of personal models (PM) and the global model (GM), each client's test rows predicted by both."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pvi import Posterior, Result
from pvi.diagnostics import classification_metrics
from pvi.experiments.protocol import Pair
from pvi.programs.batch import Batch
from pvi.programs.predictive import expected_values

PERCENT = 100.0
STILL = 1e-4
"""Posterior standard deviations: what rounding alone moves."""
AT_ONCE = 5_000
"""Images times draws of one forward pass: those of the small VGG take a third of a gigabyte a layer."""


class Predicted(NamedTuple):
    """Class probabilities ``[n, K]`` and labels ``[n]`` of all clients' test rows."""

    probabilities: Tensor
    labels: Tensor

    def metrics(self, prefix: str) -> dict[str, float]:
        """Accuracy in per cent, log likelihood and entropy of the prediction in nats a row, calibration error."""
        found = classification_metrics(self.probabilities.numpy(), self.labels.numpy())
        return {
            prefix: PERCENT * found["accuracy"],
            f"{prefix}_log_likelihood": found["log_likelihood"],
            f"{prefix}_ece": found["ece"],
            f"{prefix}_entropy": entropy(self.probabilities).mean().item(),
        }


def entropy(probabilities: Tensor) -> Tensor:
    """-Σ p log p in nats, ``[..., K] -> [...]``."""
    return -torch.special.xlogy(probabilities, probabilities).sum(-1)


def accuracies_at_mean(result: Result, test: Mapping[str, Pair]) -> dict[str, float]:
    """Accuracies in per cent of the networks at the posterior means: one forward pass each."""
    found = {}
    if result.personal:
        found["pm_at_mean"] = _accuracy(personal(result, test, None, 0))
    if moved(result):
        found["gm_at_mean"] = _accuracy(shared(result, test, None, 0))
    return found


def predictions(
    result: Result, test: Mapping[str, Pair], num_samples: int, seed: int, *, unmoved: bool = False
) -> dict[str, Predicted]:
    """``pm`` and ``gm`` averaged over posterior draws, as far as there are such models; ``unmoved`` ones too."""
    found = {}
    if result.personal:
        found["pm"] = personal(result, test, num_samples, seed)
    if unmoved or moved(result):
        found["gm"] = shared(result, test, num_samples, seed)
    return found


def moved(result: Result) -> bool:
    """Whether there is a global model to speak of: where clients work alone the server's stays what it was."""
    return any(past.max_shift > STILL for past in result.history)


def personal(result: Result, test: Mapping[str, Pair], num_samples: int | None, seed: int) -> Predicted:
    """Each client's rows by its personal posterior; at the means where ``num_samples`` is ``None``."""
    parts = [_probabilities(result, result.personal[name], x, num_samples, seed) for name, (x, _) in test.items()]
    return Predicted(torch.cat(parts), _labels(test))


def shared(result: Result, test: Mapping[str, Pair], num_samples: int | None, seed: int) -> Predicted:
    """Everybody's rows by the global posterior."""
    together = torch.cat([x for x, _ in test.values()])
    return Predicted(_probabilities(result, result.posterior, together, num_samples, seed), _labels(test))


def _probabilities(result: Result, posterior: Posterior, x: Tensor, num_samples: int | None, seed: int) -> Tensor:
    """Class probabilities ``[n, K]`` averaged over draws, or at the means."""
    assert result.model is not None
    where = posterior.natural
    if num_samples is None:
        draws = {name: value[None] for name, value in posterior.mean.items()}
    else:
        draws = posterior.sample(num_samples, torch.Generator(device=where.device).manual_seed(seed))
    parts = []
    for rows in x.split(max(1, AT_ONCE // (num_samples or 1))):
        batch = Batch((rows,), {}).to(where.device, where.dtype)
        parts.append(expected_values(result.model, result.observed, draws, batch)[result.observed[0]].mean(0).cpu())
    return torch.cat(parts)


def _labels(test: Mapping[str, Pair]) -> Tensor:
    return torch.cat([y for _, y in test.values()]).cpu()


def _accuracy(found: Predicted) -> float:
    return PERCENT * (found.probabilities.argmax(-1) == found.labels).double().mean().item()
