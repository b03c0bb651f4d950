"""What can be measured: labels, decimals, and which way is better."""

from typing import NamedTuple


class Metric(NamedTuple):
    """How a column of the curves is called and written; ``log`` where its curve is read on a log axis."""

    label: str
    digits: int
    higher_is_better: bool
    log: bool = False


METRICS: dict[str, Metric] = {
    "log_likelihood": Metric("test log-likelihood (nats a row)", 4, True),
    "accuracy": Metric("test accuracy", 4, True),
    "error": Metric("test error", 4, False),
    "auroc": Metric("AUROC", 4, True),
    "auprc": Metric("AUPRC", 4, True),
    "ece": Metric("expected calibration error", 4, False),
    "brier": Metric("Brier score", 4, False),
    "elbo": Metric("ELBO (nats)", 2, True),
    "elbo_gap": Metric("ELBO gap (nats)", 3, False, log=True),
    "kl": Metric("KL to global VI (nats)", 2, False, log=True),
}
