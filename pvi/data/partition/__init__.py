"""Rows dealt to simulated clients: the recipes of published experiments, one a file, as row numbers by client."""

from pvi.data.partition.by_column import by_column
from pvi.data.partition.dealing import leftover
from pvi.data.partition.dirichlet_by_class import dirichlet_by_class
from pvi.data.partition.dirichlet_by_client import dirichlet_by_client
from pvi.data.partition.homogeneous import homogeneous
from pvi.data.partition.k_means import k_means
from pvi.data.partition.label_shards import label_shards
from pvi.data.partition.label_skew import LabelSkew, label_skew
from pvi.data.partition.small_large import SPLIT_A, SPLIT_B, small_large

__all__ = [
    "SPLIT_A",
    "SPLIT_B",
    "LabelSkew",
    "by_column",
    "dirichlet_by_class",
    "dirichlet_by_client",
    "homogeneous",
    "k_means",
    "label_shards",
    "label_skew",
    "leftover",
    "small_large",
]
