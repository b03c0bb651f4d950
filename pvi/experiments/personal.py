"""What is measured of personal models (PM) and the global model (GM), each client's test rows predicted by both."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pvi import Posterior, Result
from pvi.diagnostics import classification_metrics
from pvi.experiments.protocol import Pair
from pvi.programs.batch import Batch
from pvi.programs.predictive import expected_values, pointwise

PERCENT = 100.0
STILL = 1e-4
"""Posterior standard deviations: what rounding alone moves."""
AT_ONCE = 5_000
"""Images times draws of one forward pass: those of the small VGG take a third of a gigabyte a layer."""


class Predicted(NamedTuple):
    """Class probabilities ``[n, K]``, labels and their log predictive density in nats, ``[n]``, of clients' test rows.

    The density is not read off the probabilities: single precision rounds small ones to 0.
    """

    probabilities: Tensor
    labels: Tensor
    log_density: Tensor

    def metrics(self, prefix: str) -> dict[str, float]:
        """Accuracy in per cent, log likelihood and entropy of the prediction in nats a row, calibration error."""
        found = classification_metrics(self.probabilities.numpy(), self.labels.numpy())
        return {
            prefix: PERCENT * found["accuracy"],
            f"{prefix}_log_likelihood": self.log_density.double().mean().item(),
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
    return _joined([_predict(result, result.personal[name], rows, num_samples, seed) for name, rows in test.items()])


def shared(result: Result, test: Mapping[str, Pair], num_samples: int | None, seed: int) -> Predicted:
    """Everybody's rows by the global posterior."""
    together = torch.cat([x for x, _ in test.values()]), torch.cat([y for _, y in test.values()])
    return _predict(result, result.posterior, together, num_samples, seed)


def _predict(result: Result, posterior: Posterior, rows: Pair, num_samples: int | None, seed: int) -> Predicted:
    """Averaged over draws, or at the means; a few images at once."""
    assert result.model is not None
    where, (site,) = posterior.natural, result.observed
    if num_samples is None:
        draws = {name: value[None] for name, value in posterior.mean.items()}
    else:
        draws = posterior.sample(num_samples, torch.Generator(device=where.device).manual_seed(seed))
    parts = []
    for x, y in zip(*[part.split(max(1, AT_ONCE // (num_samples or 1))) for part in rows], strict=True):
        inputs, whole = (Batch(data, {}).to(where.device, where.dtype) for data in ((x,), (x, y)))
        probabilities = expected_values(result.model, result.observed, draws, inputs)[site].mean(0)
        if num_samples is None:
            density = probabilities.gather(1, y.to(where.device)[:, None])[:, 0].log()  # of one draw: no second pass
        else:
            density = pointwise(result.model, result.observed, draws, whole)[site].logsumexp(0) - math.log(num_samples)
        parts.append(Predicted(probabilities.cpu(), y.cpu(), density.cpu()))
    return _joined(parts)


def _joined(parts: Sequence[Predicted]) -> Predicted:
    return Predicted(*[torch.cat(columns) for columns in zip(*parts, strict=True)])


def _accuracy(found: Predicted) -> float:
    return PERCENT * (found.probabilities.argmax(-1) == found.labels).double().mean().item()
