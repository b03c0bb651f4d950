"""Whatever the cells are: finite tensors, or an error that says what is wrong."""

import json

import pandas as pd
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pvi import data

CELLS = st.one_of(
    st.none(),
    st.integers(-3, 3),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(["", " ", "?", "a", "b ", "yes", "no", "1", "1.0", "nan", "-inf", "1_0", "0x1", "1e400", "٣", "é"]),
    st.booleans(),
    st.just(pd.NaT),
    st.dates(),
)
FRAME = st.integers(1, 8).flatmap(
    lambda rows: st.fixed_dictionaries(
        {
            "u": st.lists(CELLS, min_size=rows, max_size=rows),
            "v": st.lists(st.sampled_from([0, 1, 2.5, None]), min_size=rows, max_size=rows),
            "w": st.lists(st.sampled_from(["yes", "no", "x", None]), min_size=rows, max_size=rows),
            "y": st.lists(st.integers(0, 1), min_size=rows, max_size=rows),
        }
    )
)


@settings(max_examples=150, deadline=None)
@given(
    frames=st.dictionaries(st.sampled_from(["a", "b", "c"]), FRAME, min_size=1),
    missing=st.sampled_from(["error", "drop", "mean", "indicator"]),
    standardise=st.sampled_from(["numeric", "all", "none"]),
    coding=st.sampled_from(["reference", "full"]),
    holdout=st.sampled_from([0, 0.2, 0.6]),
    kind=st.sampled_from(["numeric", "categorical", "boolean", "na"]),
)
def test_finite_or_refused(
    frames: dict[str, dict[str, list[object]]], missing: str, standardise: str, coding: str, holdout: float, kind: str
) -> None:
    made = {name: pd.DataFrame(columns) for name, columns in frames.items()}
    options = {"missing": missing, "standardise": standardise, "coding": coding, "holdout": holdout}
    options[kind] = "?" if kind == "na" else "u"
    try:
        tables = data.tables_from_frames(made, target="y", **options)  # type: ignore[arg-type]
    except data.TableError:
        return
    schema = data.Schema.from_dict(json.loads(json.dumps(tables.schema.to_dict(), allow_nan=False)))
    for name, (x, y) in tables.items():
        test_x, test_y = tables.holdout[name]
        assert x.shape == (len(y), len(tables.columns))
        assert test_x.shape == (len(test_y), len(tables.columns))
        assert bool(torch.isfinite(torch.cat([x, test_x])).all())
        if holdout == 0 and missing != "drop":
            assert schema.encode(made[name]).equal(x)
