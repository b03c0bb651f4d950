"""Irregular time series of intensive care stays as tables: 17 variables, 7 sub-periods, 6 statistics."""

from pvi.data.icu.clients import Scaling, StayTables, stay_tables
from pvi.data.icu.features import STATISTICS, SUB_PERIODS, VARIABLES, column_names, extract
from pvi.data.icu.mimic import mimic3_benchmark
from pvi.data.icu.physionet import physionet2012
from pvi.data.icu.ranges import IMPOSSIBLE_OUTSIDE
from pvi.data.icu.scaling import FeatureStatistics, encode, merge, statistics
from pvi.data.icu.stays import Stays

__all__ = [
    "IMPOSSIBLE_OUTSIDE",
    "STATISTICS",
    "SUB_PERIODS",
    "VARIABLES",
    "FeatureStatistics",
    "Scaling",
    "StayTables",
    "Stays",
    "column_names",
    "encode",
    "extract",
    "merge",
    "mimic3_benchmark",
    "physionet2012",
    "statistics",
    "stay_tables",
]
