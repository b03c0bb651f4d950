"""The rows of the PhysioNet Challenge 2012 as stays: which parameters are used, and what every record must have."""

import numpy as np
from numpy.typing import NDArray

from pvi.data.errors import TableError, listed
from pvi.data.icu.features import Measurements, column_names, summarise
from pvi.data.icu.ranges import Ranges, keep_possible
from pvi.data.icu.stays import Stays
from pvi.data.icu.texts import Texts

SOURCES: dict[str, tuple[str, ...]] = {
    "Lactate": ("Lactate",),  # stands in for capillary refill: both show how tissue is perfused
    "Diastolic blood pressure": ("DiasABP", "NIDiasABP"),
    "Fraction inspired oxygen": ("FiO2",),
    "Urine": ("Urine",),  # these three stand in for the parts of the Glasgow coma scale
    "Blood urea nitrogen": ("BUN",),
    "Glasgow coma scale total": ("GCS",),
    "White blood cells": ("WBC",),
    "Glucose": ("Glucose",),
    "Heart Rate": ("HR",),
    "Height": ("Height",),
    "Mean blood pressure": ("MAP", "NIMAP"),
    "Oxygen saturation": ("SaO2",),
    "Respiratory rate": ("RespRate",),
    "Systolic blood pressure": ("SysABP", "NISysABP"),
    "Temperature": ("Temp",),
    "Weight": ("Weight",),
    "pH": ("pH",),
}
"""Our variable -> the parameters of the set whose measurements it holds."""
DESCRIPTORS = ("RecordID", "Age", "Gender", "Height", "ICUType", "Weight")
UNUSED = (
    *("ALP", "ALT", "AST", "Albumin", "Bilirubin", "Cholesterol", "Creatinine", "HCO3", "HCT", "K", "MechVent", "Mg"),
    *("Na", "PaCO2", "PaO2", "Platelets", "TroponinI", "TroponinT"),
)
UNITS = {1: "coronary care", 2: "cardiac surgery recovery", 3: "medical", 4: "surgical"}
HEADER = ("Time", "Parameter", "Value")
OUTCOME_HEADER = ("RecordID", "SAPS-I", "SOFA", "Length_of_stay", "Survival", "In-hospital_death")
UNKNOWN = -1
"""What a descriptor holds that nobody knows."""


def deaths(table: Texts) -> dict[str, float]:
    """Record -> 1.0 for death in hospital, else 0.0; raises `TableError` for a record twice and other outcomes."""
    found: dict[str, float] = {}
    for k, (record, died) in enumerate(zip(table.texts("RecordID"), table.texts("In-hospital_death"), strict=True)):
        if record in found:
            raise TableError(f"{table.where(k, 'RecordID')}{record!r} is there twice")
        if died not in ("0", "1"):
            raise TableError(f"{table.where(k, 'In-hospital_death')}{died!r} is neither 0 nor 1")
        found[record] = float(died)
    return found


def stays(texts: Texts, died: dict[str, float], ranges: Ranges) -> Stays:
    """The stays of all records (files called <RecordID>.txt) whose outcomes are `died`.

    Raises `TableError` for what is not as published, naming file and row.
    """
    hours, values = _hours(texts), texts.numbers("Value", empty=False)
    parameters = texts.frame["Parameter"].cat.categories.tolist()
    code = texts.frame["Parameter"].cat.codes.to_numpy()
    rows_of = {name: np.flatnonzero(code == place) for place, name in enumerate(parameters)}
    known = {*DESCRIPTORS, *UNUSED, *(name for names in SOURCES.values() for name in names)}
    for name in (name for name in parameters if name not in known):
        raise TableError(f"{texts.where(rows_of[name][0], 'Parameter')}{name!r} is no parameter of this data set")
    records = _records(texts, values, rows_of, died)
    units = _units(texts, values, rows_of)

    missing = (
        (values == UNKNOWN) & (hours == 0) & np.isin(code, [parameters.index(d) for d in DESCRIPTORS if d in rows_of])
    )
    variable_of = {source: place for place, sources in enumerate(SOURCES.values()) for source in sources}
    variable = np.array([variable_of.get(name, -1) for name in parameters], dtype=np.int64)[code]
    used = (variable >= 0) & ~missing
    found = Measurements(texts.file[used], variable[used], hours[used], values[used])
    possible, notes = keep_possible(found, tuple(SOURCES), ranges)
    features = summarise(possible, len(records), len(SOURCES))

    first = []
    for name in ("Height", "Weight"):
        if count := int(missing[rows_of.get(name, [])].sum()):
            first.append(f"{name}: unknown ({UNKNOWN}) in {count} stays.")
    empty = [
        record for record, some in zip(records, np.isin(np.arange(len(records)), found.stay), strict=True) if not some
    ]
    if empty:
        first.append(f"{len(empty)} stays have no measurement of the {len(SOURCES)} variables: {listed(empty)}.")
    unused = sum(len(rows_of.get(name, [])) for name in UNUSED)
    first.append(f"{unused} measurements of other parameters are not used ({listed(UNUSED, 20)}), nor are age and sex.")
    outcome = np.array([died[record] for record in records])
    return Stays("PhysioNet 2012", records, features, column_names(tuple(SOURCES)), outcome, units, (*first, *notes))


def _records(
    texts: Texts, values: NDArray[np.float64], rows_of: dict[str, NDArray[np.int64]], died: dict[str, float]
) -> tuple[str, ...]:
    records = tuple(file.removesuffix(".txt") for file in texts.files)
    for record, k in zip(records, _one_row(texts, rows_of, "RecordID"), strict=True):
        if record != f"{values[k]:g}":
            raise TableError(f"{texts.where(k, 'Value')}the RecordID is {values[k]:g}, the file's name says {record}")
        if record not in died:
            raise TableError(f"{record}.txt: the outcomes have no row for this record")
    if surplus := sorted(died.keys() - set(records)):
        raise TableError(f"the outcomes have {len(surplus)} records without a file: {listed(surplus)}")
    return records


def _units(texts: Texts, values: NDArray[np.float64], rows_of: dict[str, NDArray[np.int64]]) -> tuple[str, ...]:
    rows = _one_row(texts, rows_of, "ICUType")
    for k in rows[~np.isin(values[rows], list(UNITS))]:
        raise TableError(f"{texts.where(k, 'Value')}the ICUType is {values[k]:g}, not 1, 2, 3 or 4")
    return tuple(UNITS[int(values[k])] for k in rows)


def _one_row(texts: Texts, rows_of: dict[str, NDArray[np.int64]], name: str) -> NDArray[np.int64]:
    """The one row [files] with a descriptor in each file; raises `TableError` where there is none or more than one."""
    rows = rows_of.get(name, np.zeros(0, np.int64))
    counts = np.bincount(texts.file[rows], minlength=len(texts.files))
    for place in np.flatnonzero(counts != 1):
        raise TableError(f"{texts.files[place]}: {counts[place]} rows with {name}, there must be one")
    return rows


def _hours(texts: Texts) -> NDArray[np.float64]:
    labels = texts.frame["Time"].cat.categories.to_series()
    parts = labels.str.extract(r"^(\d\d):([0-5]\d)$").astype(float)
    codes = texts.frame["Time"].cat.codes.to_numpy()
    for k in np.flatnonzero(parts[0].isna().to_numpy()[codes]):
        raise TableError(f"{texts.where(k, 'Time')}{labels.iloc[codes[k]]!r} is no time such as 07:30")
    return (parts[0] + parts[1] / 60).to_numpy()[codes]
