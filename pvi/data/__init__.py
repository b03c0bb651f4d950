"""Tables of several clients as tensors, and images."""

from pvi.data import icu, images
from pvi.data.aggregation import Choices, aggregate
from pvi.data.errors import TableError
from pvi.data.images import ImageError, Images, cifar10, fashion_mnist, mnist
from pvi.data.partition import (
    SPLIT_A,
    SPLIT_B,
    LabelSkew,
    by_column,
    dirichlet_by_class,
    dirichlet_by_client,
    homogeneous,
    k_means,
    label_shards,
    label_skew,
    leftover,
    small_large,
)
from pvi.data.reading import ReadOptions, read_file
from pvi.data.schema import Schema, read_frame
from pvi.data.sources import read_tables, tables_from_frames
from pvi.data.statistics import ClientStatistics, ColumnStatistics, client_statistics, merge
from pvi.data.tables import Tables, describe
from pvi.data.target import TargetRule, target_rule
from pvi.data.train_test import TrainTest, train_test

__all__ = [
    "SPLIT_A",
    "SPLIT_B",
    "Choices",
    "ClientStatistics",
    "ColumnStatistics",
    "ImageError",
    "Images",
    "LabelSkew",
    "ReadOptions",
    "Schema",
    "TableError",
    "Tables",
    "TargetRule",
    "TrainTest",
    "aggregate",
    "by_column",
    "cifar10",
    "client_statistics",
    "describe",
    "dirichlet_by_class",
    "dirichlet_by_client",
    "fashion_mnist",
    "homogeneous",
    "icu",
    "images",
    "k_means",
    "label_shards",
    "label_skew",
    "leftover",
    "merge",
    "mnist",
    "read_file",
    "read_frame",
    "read_tables",
    "small_large",
    "tables_from_frames",
    "target_rule",
    "train_test",
]
