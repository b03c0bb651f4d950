"""What can be measured: labels, decimals, and which way is better."""

from typing import NamedTuple


class Metric(NamedTuple):
    """How a column of the curves is called (in full, and in narrow tables) and written.

    ``log`` where its curve is read on a log axis.
    """

    label: str
    short: str
    digits: int
    higher_is_better: bool
    log: bool = False


METRICS: dict[str, Metric] = {
    "log_likelihood": Metric("test log-likelihood (nats a row)", "test log-lik.", 4, True),
    "accuracy": Metric("test accuracy", "accuracy", 4, True),
    "error": Metric("test error", "error", 4, False),
    "auroc": Metric("AUROC", "AUROC", 4, True),
    "auprc": Metric("AUPRC", "AUPRC", 4, True),
    "ece": Metric("expected calibration error", "calib. error", 4, False),
    "brier": Metric("Brier score", "Brier", 4, False),
    "elbo": Metric("ELBO (nats)", "ELBO", 2, True),
    "elbo_gap": Metric("ELBO gap (nats)", "ELBO gap", 3, False, log=True),
    "kl": Metric("KL to global VI (nats)", "KL", 2, False, log=True),
}
