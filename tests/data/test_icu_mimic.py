"""The benchmark's in-hospital mortality files: read as it reads them, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pvi.data import TableError
from pvi.data.icu import Stays, extract, mimic3_benchmark
from pvi.data.icu.ranges import IMPOSSIBLE_OUTSIDE

HEADER = (
    "Hours,Capillary refill rate,Diastolic blood pressure,Fraction inspired oxygen,Glascow coma scale eye opening,"
    "Glascow coma scale motor response,Glascow coma scale total,Glascow coma scale verbal response,Glucose,Heart Rate,"
    "Height,Mean blood pressure,Oxygen saturation,Respiratory rate,Systolic blood pressure,Temperature,Weight,pH\n"
)
FIRST = (
    "0.0672222222222,,56.0,,Spontaneously,Obeys Commands,,Oriented,,83.0,,71.0,97.0,19.0,105.0,36.6,,\n"
    "1.5,0.0,,0.5,4 Spontaneously,6 Obeys Commands,15,5 Oriented,120.0,85.0,170.0,,98.0,,,,80.0,7.38\n"
    "10.25,,60.0,,None,No response,3.0,No Response-ETT,,1e2,,,,,,,,\n"
    "47.9,1.0,,,2 To pain,4 Flex-withdraws,,1.0 ET/Trach,,,,,,,,,,7.41\n"
)
SECOND = "-0.5,,,,,,,,,70.0,,,,,,,,\n0.0,,,,,,,,,71.0,,,,,,,,\n48.0,,,,,,,,,72.0,,,,,,,,\n48.2,,,,,,,,,999.0,,,,,,,,\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three training stays (the third without a row) and one test stay."""
    for part, stays in {
        "train": {"10_episode1": FIRST, "11_episode2": SECOND, "12_episode1": ""},
        "test": {"9_episode1": FIRST},
    }.items():
        (tmp_path / part).mkdir()
        for stay, rows in stays.items():
            (tmp_path / part / f"{stay}_timeseries.csv").write_text(HEADER + rows)
    (tmp_path / "train" / "listfile.csv").write_text(
        "stay,y_true\n11_episode2_timeseries.csv,1\n10_episode1_timeseries.csv,0\n12_episode1_timeseries.csv,0\n"
    )
    (tmp_path / "test" / "listfile.csv").write_text("stay,y_true\n9_episode1_timeseries.csv,1\n")
    return tmp_path


def whole(stays: Stays, stay: int, variable: str) -> list[float]:
    """Mean, standard deviation, least, largest, skewness, number of all measurements."""
    start = stays.columns.index(f"{variable}, whole, mean")
    return stays.features[stay, start : start + 6].tolist()


def test_training_stays(folder: Path) -> None:
    stays = mimic3_benchmark(folder, "train")
    assert stays.records == ("11_episode2_timeseries", "10_episode1_timeseries", "12_episode1_timeseries")
    assert stays.features.shape == (3, 714)
    assert stays.died.tolist() == [1, 0, 0]
    assert stays.unit == ("", "", "")
    assert whole(stays, 0, "Heart Rate") == [71.5, 0.5, 71, 72, 0, 2]
    assert np.isnan(whole(stays, 2, "Heart Rate")[:5]).all()
    assert np.nansum(stays.features[2]) == 0
    assert stays.notes == (
        "1 stays have no measurement: 12_episode1_timeseries.",
        "2 measurements before hour 0 or after hour 48 are not used.",
    )


def test_texts_are_numbers_as_published(folder: Path) -> None:
    hours = [0.0672222222222, 1.5, 10.25, 47.9]
    expected = extract(
        [
            {
                "Capillary refill rate": ([1.5, 47.9], [0, 1]),
                "Diastolic blood pressure": ([hours[0], 10.25], [56, 60]),
                "Fraction inspired oxygen": ([1.5], [0.5]),
                "Glasgow coma scale eye opening": (hours, [4, 4, 0, 2]),
                "Glasgow coma scale motor response": (hours, [6, 6, 1, 4]),
                "Glasgow coma scale total": ([1.5, 10.25], [15, 3]),
                "Glasgow coma scale verbal response": (hours, [5, 5, 1, 1]),
                "Glucose": ([1.5], [120]),
                "Heart Rate": (hours[:3], [83, 85, 100]),
                "Height": ([1.5], [170]),
                "Mean blood pressure": (hours[:1], [71]),
                "Oxygen saturation": (hours[:2], [97, 98]),
                "Respiratory rate": (hours[:1], [19]),
                "Systolic blood pressure": (hours[:1], [105]),
                "Temperature": (hours[:1], [36.6]),
                "Weight": ([1.5], [80]),
                "pH": ([1.5, 47.9], [7.38, 7.41]),
            }
        ]
    )
    np.testing.assert_array_equal(mimic3_benchmark(folder, "test").features, expected)


def test_parts_and_lists(folder: Path) -> None:
    both = mimic3_benchmark(folder)
    assert both.records[-1] == "9_episode1_timeseries"
    assert both.died.tolist() == [1, 0, 0, 1]
    np.testing.assert_array_equal(both.features[1], both.features[3])
    # The benchmark writes these beside the folders; names without .csv are the same files.
    (folder / "val_listfile.csv").write_text("stay,y_true\r\n12_episode1_timeseries,1\r\n10_episode1_timeseries,0\r\n")
    validation = mimic3_benchmark(folder, "train", listfile="val_listfile.csv")
    assert validation.records == ("12_episode1_timeseries", "10_episode1_timeseries")
    assert validation.died.tolist() == [1, 0]


def test_many_files_in_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = mimic3_benchmark(folder)
    monkeypatch.setattr("pvi.data.icu.mimic.FILES_AT_ONCE", 2)
    told: list[tuple[int, int]] = []
    stays = mimic3_benchmark(folder, progress=lambda done, total: told.append((done, total)))
    np.testing.assert_array_equal(stays.features, expected.features)
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_ranges_are_the_callers_choice(folder: Path) -> None:
    path = folder / "train" / "11_episode2_timeseries.csv"
    path.write_text(path.read_text().replace("71.0", "0.0"))
    assert whole(mimic3_benchmark(folder, "train"), 0, "Heart Rate")[2] == 0
    stays = mimic3_benchmark(folder, "train", ranges=IMPOSSIBLE_OUTSIDE)
    assert whole(stays, 0, "Heart Rate") == [72, 0, 72, 72, 0, 1]
    assert "Heart Rate: 1 of 5 values are outside 10 to 350 and count as not measured." in stays.notes
    for ranges in ({"Urine": (0, 1)}, {"pH": (8, 7)}):
        with pytest.raises(TableError, match=r"ranges: '(Urine|pH)' from \d to \d is no range of the variables"):
            mimic3_benchmark(folder, "train", ranges=ranges)


def edit(name: str, old: str, new: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


LIST, STAY = "train/listfile.csv", "train/10_episode1_timeseries.csv"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit(LIST, "stay,y_true", "stay,died"), r"listfile.csv: the first line must be .*, not 'stay,died'"),
        (edit(LIST, "10_episode1", "13_episode1"), r"listfile.csv, row 2, column 'stay': there is no file .*/13_"),
        (edit(LIST, "10_episode1", "../test/9_episode1"), r"row 2, column 'stay': there is no file"),
        (edit(LIST, "10_episode1", "11_episode2"), r"row 2, column 'stay': '11_episode2_time.* is there twice"),
        (edit(LIST, ",0\n12", ",2\n12"), r"listfile.csv, row 2, column 'y_true': '2' is neither 0 nor 1"),
        (edit(LIST, ",0\n12", ",\n12"), r"row 2, column 'y_true': '' is neither 0 nor 1"),
        (edit(LIST, ",0\n12", "\n12"), r"listfile.csv, row 2: 1 cells instead of 2"),
        (lambda folder: (folder / LIST).write_text("stay,y_true\n"), "no stay is listed"),
        (lambda folder: (folder / LIST).unlink(), r"listfile.csv: file not found; folder must be the benchmark's"),
        (edit(STAY, "Glascow", "Glasgow"), r"10_episode1_timeseries.csv: the first line must be 'Hours,Capillary"),
        (edit(STAY, "Obeys Commands,15", "Obeys,15"), r"10_.*, row 2, column 'Glascow coma scale motor response': "
         "'6 Obeys' is not a finite number nor one of '1 No Response'"),
        (edit(STAY, "1e2", "1o2"), r"10_.*csv, row 3, column 'Heart Rate': '1o2' is not a finite number: correct"),
        (edit(STAY, "1e2", "inf"), r"row 3, column 'Heart Rate': 'inf' is not a finite number"),
        (edit(STAY, "1e2", "nan"), r"row 3, column 'Heart Rate': 'nan' is not a finite number"),
        (edit(STAY, "47.9", ""), r"row 4, column 'Hours': '' is not a finite number"),
        (edit(STAY, "47.9,", "47.9,,"), r"10_episode1_timeseries.csv, row 4: 19 cells instead of 18"),
        (edit(STAY, "1.5,", "\n1.5,"), r"10_episode1_timeseries.csv, row 2: 1 cells instead of 18"),
        (lambda folder: (folder / STAY).write_bytes(b"\xff\xfe\x00"), r"10_episode1.*not a text file in UTF-8"),
    ],
)  # fmt: skip
def test_refused(folder: Path, change: Callable[[Path], object], message: str) -> None:
    change(folder)
    with pytest.raises(TableError, match=message):
        mimic3_benchmark(folder)


def test_a_stay_in_both_parts(folder: Path) -> None:
    (folder / "train/9_episode1_timeseries.csv").write_text(HEADER)
    assert len(mimic3_benchmark(folder)) == 4  # a file that no list names is nobody's
    edit(LIST, "10_episode1", "9_episode1")(folder)
    with pytest.raises(TableError, match="9_episode1_timeseries in both train and test"):
        mimic3_benchmark(folder)


def test_unknown_part(folder: Path) -> None:
    with pytest.raises(TableError, match="part is 'train', 'test' or 'all', not 'val'"):
        mimic3_benchmark(folder, "val")  # type: ignore[arg-type]
