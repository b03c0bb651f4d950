"""What can be measured: labels, decimals, and which way is better."""

from typing import NamedTuple


class Metric(NamedTuple):
    """How a column of the curves is called (in full, and in narrow tables) and written.

    ``log`` where its curve is read on a log axis. ``peak_of`` is the column whose best round this is.
    """

    label: str
    short: str
    digits: int
    higher_is_better: bool
    log: bool = False
    peak_of: str = ""


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
    "pm": Metric("PM accuracy (%)", "PM", 2, True),
    "gm": Metric("GM accuracy (%)", "GM", 2, True),
    "pm_at_mean": Metric("PM accuracy at the mean weights (%)", "PM at mean", 2, True),
    "gm_at_mean": Metric("GM accuracy at the mean weights (%)", "GM at mean", 2, True),
    "pm_peak": Metric("PM, best round (%)", "PM peak", 2, True, peak_of="pm_at_mean"),
    "gm_peak": Metric("GM, best round (%)", "GM peak", 2, True, peak_of="gm_at_mean"),
    "pm_log_likelihood": Metric("PM test log-likelihood (nats a row)", "PM log-lik.", 4, True),
    "gm_log_likelihood": Metric("GM test log-likelihood (nats a row)", "GM log-lik.", 4, True),
    "pm_ece": Metric("PM calibration error", "PM calib.", 4, False),
    "gm_ece": Metric("GM calibration error", "GM calib.", 4, False),
    "pm_entropy": Metric("PM predictive entropy (nats)", "PM entropy", 3, False),
    "gm_entropy": Metric("GM predictive entropy (nats)", "GM entropy", 3, False),
    "ga": Metric("GA, global test accuracy (%)", "GA", 2, True),
    "la": Metric("LA, local models' test accuracy (%)", "LA", 2, True),
    "ga_peak": Metric("GA, best round (%)", "GA peak", 2, True, peak_of="ga"),
    "la_peak": Metric("LA, best round (%)", "LA peak", 2, True, peak_of="la"),
    "ae": Metric("AE, -log density at the server's mean (nats)", "AE", 1, False),
    "lf": Metric("LF, -log density at the local means (nats)", "LF", 1, False),
    "kl": Metric("KL to global VI (nats)", "KL", 2, False, log=True),
}
