"""What a result looks like from outside: ArviZ, pictures, held-out rows. Slow libraries are imported when used."""

from pvi.diagnostics.arviz_export import to_arviz, to_datatree, to_netcdf
from pvi.diagnostics.heldout import heldout_log_density, heldout_metrics
from pvi.diagnostics.partition_plot import class_counts, plot_partition
from pvi.diagnostics.plots import convergence, forest

__all__ = [
    "class_counts",
    "convergence",
    "forest",
    "heldout_log_density",
    "heldout_metrics",
    "plot_partition",
    "to_arviz",
    "to_datatree",
    "to_netcdf",
]
