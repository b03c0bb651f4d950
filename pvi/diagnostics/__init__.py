"""What a result looks like from outside: ArviZ, pictures, held-out rows. Slow libraries are imported when used."""

from pvi.diagnostics.arviz_export import to_arviz, to_datatree, to_netcdf
from pvi.diagnostics.classification import (
    calibration_error,
    calibration_table,
    classification_metrics,
    heldout_classification,
    heldout_probabilities,
)
from pvi.diagnostics.heldout import heldout_log_density, heldout_metrics
from pvi.diagnostics.partition_plot import class_counts, plot_partition
from pvi.diagnostics.personal import personal_metrics
from pvi.diagnostics.plots import convergence, forest
from pvi.diagnostics.reliability_plot import reliability
from pvi.diagnostics.repetitions import Interval, difference_interval, mean_interval

__all__ = [
    "Interval",
    "calibration_error",
    "calibration_table",
    "class_counts",
    "classification_metrics",
    "convergence",
    "difference_interval",
    "forest",
    "heldout_classification",
    "heldout_log_density",
    "heldout_metrics",
    "heldout_probabilities",
    "mean_interval",
    "personal_metrics",
    "plot_partition",
    "reliability",
    "to_arviz",
    "to_datatree",
    "to_netcdf",
]
