"""Pictures of a result, as files."""

from pvi.diagnostics.convergence_plot import convergence
from pvi.diagnostics.forest_plot import forest

__all__ = ["convergence", "forest"]
