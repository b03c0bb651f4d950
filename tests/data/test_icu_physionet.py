"""The PhysioNet Challenge 2012: published counts, both ends of the cache, and what is refused."""

import io
import tarfile
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from test_icu_features import by_hand

from pvi.data import TableError
from pvi.data.icu import Stays, physionet2012, stay_tables

DESCRIPTORS = "00:00,RecordID,{}\n00:00,Age,54\n00:00,Gender,0\n00:00,Height,{}\n00:00,ICUType,{}\n00:00,Weight,{}\n"
RECORDS = {
    "1001": DESCRIPTORS.format(1001, -1, 4, 80.5) + "00:30,HR,90\n01:00,HR,0\n01:30,HR,100\n"
    "02:00,NISysABP,120\n02:00,SysABP,110\n",
    "1003": DESCRIPTORS.format(1003, 170, 1, -1) + "00:00,pH,735\n47:59,pH,7.35\n48:00,Urine,40\n03:00,Na,140\n",
    "1002": DESCRIPTORS.format(1002, -1, 2, -1),
}  # fmt: skip
OUTCOMES = (
    "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n"
    "1001,6,1,5,-1,0\n1002,16,8,8,-1,0\n1003,1,1,9,3,1\n"
)


def archive(folder: Path, records: list[tuple[str, str]], outcomes: str = OUTCOMES) -> Path:
    (folder / "icu2012").mkdir(exist_ok=True)
    with tarfile.open(folder / "icu2012/set-a.tar.gz", "w:gz") as tar:
        for name, text in records:
            member = tarfile.TarInfo(f"set-a/{name}.txt")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    (folder / "icu2012/Outcomes-a.txt").write_text(outcomes)
    return folder


def small(folder: Path, record: str = "", old: str = "", new: str = "") -> Path:
    """The three records, with a change in one."""
    assert old in RECORDS.get(record, "")
    texts = [(name, text.replace(old, new) if name == record else text) for name, text in RECORDS.items()]
    return archive(folder, [(name, "Time,Parameter,Value\n" + text) for name, text in texts])


def test_small_records(tmp_path: Path) -> None:
    stays = physionet2012(small(tmp_path), cache=False)
    assert stays.records == ("1001", "1002", "1003")
    assert stays.died.tolist() == [0, 0, 1]
    assert stays.unit == ("surgical", "cardiac surgery recovery", "coronary care")
    assert stays.features.shape == (3, 714)

    def whole(stay: int, variable: str) -> list[float]:
        start = stays.columns.index(f"{variable}, whole, mean")
        return stays.features[stay, start : start + 6].tolist()

    assert whole(0, "Heart Rate") == [95, 5, 90, 100, 0, 2]
    assert whole(0, "Systolic blood pressure") == [115, 5, 110, 120, 0, 2]  # in the artery and at the arm
    assert whole(0, "Weight") == [80.5, 0, 80.5, 80.5, 0, 1]
    assert whole(2, "pH") == [7.35, 0, 7.35, 7.35, 0, 1]
    assert whole(2, "Urine") == [40, 0, 40, 40, 0, 1]
    assert np.nansum(stays.features[1]) == 0
    assert stays.notes[:3] == (
        "Height: unknown (-1) in 2 stays.",
        "Weight: unknown (-1) in 2 stays.",
        "1 stays have no measurement of the 17 variables: 1002.",
    )
    assert stays.notes[3].startswith("1 measurements of other parameters are not used (ALP, ALT, ")
    assert stays.notes[4:] == (
        "Heart Rate: 1 of 3 values are outside 10 to 350 and count as not measured.",
        "pH: 1 of 2 values are outside 6.3 to 8 and count as not measured.",
    )
    raw = physionet2012(tmp_path, cache=False, ranges={})
    assert raw.notes == stays.notes[:4]
    assert raw.features[0, raw.columns.index("Heart Rate, whole, min")] == 0


def same(one: Stays, other: Stays) -> bool:
    return all(
        np.array_equal(a, b, equal_nan=True) if isinstance(a, np.ndarray) else a == b
        for a, b in ((getattr(one, field.name), getattr(other, field.name)) for field in fields(Stays))
    )


def test_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    first = physionet2012(tmp_path)
    (kept,) = (tmp_path / "home/pvi").iterdir()
    told: list[int] = []
    assert same(physionet2012(tmp_path, progress=lambda done, total: told.append(done)), first)
    assert not told  # it was not read again
    content = kept.read_bytes()
    with np.load(kept) as stored:
        forged = {name: stored[name] for name in stored.files}
    forged["died"] = 1 - forged["died"]
    buffer = io.BytesIO()
    np.savez(buffer, **forged)  # type: ignore[arg-type]
    for damaged in (b"", b"junk", content[: len(content) // 2], content[:-30], buffer.getvalue()):
        kept.write_bytes(damaged)
        assert same(physionet2012(tmp_path), first)
        with np.load(kept) as again:  # and it is whole again
            assert "digest" in again.files
            assert again["died"].tolist() == first.died.tolist()
    assert list((tmp_path / "home/pvi").iterdir()) == [kept]
    # Other ranges and other files are other features.
    assert not same(physionet2012(tmp_path, ranges={}), first)
    small(tmp_path, "1001", "HR,100", "HR,101")
    assert not same(physionet2012(tmp_path), first)
    assert len(list((tmp_path / "home/pvi").iterdir())) == 3


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    stays = physionet2012(small(tmp_path), cache=tmp_path / "file")
    assert stays.notes[-1].startswith("The features could not be kept for the next time")
    assert same(physionet2012(tmp_path, cache=tmp_path / "other"), physionet2012(tmp_path, cache=False))


def test_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[int, int]] = []
    physionet2012(small(tmp_path), cache=False, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert capsys.readouterr().out == ""
    physionet2012(tmp_path, cache=False, progress=True)
    assert "3/3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("record", "old", "new", "message"),
    [
        ("1001", "HR,100", "HR,1OO", r"1001.txt, row 9, column 'Value': '1OO' is not a finite number"),
        ("1001", "HR,100", "HR,", r"1001.txt, row 9, column 'Value': '' is not a finite number"),
        ("1001", "HR,100", "Hr,100", r"1001.txt, row 9, column 'Parameter': 'Hr' is no parameter"),
        ("1001", "HR,100", "HR", r"1001.txt, row 9: 2 cells instead of 3: '01:30,HR'"),
        ("1003", "47:59", "47:60", r"1003.txt, row 8, column 'Time': '47:60' is no time such as 07:30"),
        ("1003", "RecordID,1003", "RecordID,1004", r"1003.txt, row 1, .*the RecordID is 1004, the file's name says"),
        ("1003", "00:00,RecordID,1003\n", "", r"1003.txt: 0 rows with RecordID, there must be one"),
        ("1003", "00:00,Age,54", "00:00,ICUType,1", r"1003.txt: 2 rows with ICUType, there must be one"),
        ("1003", "ICUType,1", "ICUType,5", r"1003.txt, row 5, column 'Value': the ICUType is 5, not 1, 2, 3 or 4"),
    ],
)  # fmt: skip
def test_refused_records(tmp_path: Path, record: str, old: str, new: str, message: str) -> None:
    with pytest.raises(TableError, match=message):
        physionet2012(small(tmp_path, record, old, new), cache=False)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",3,1\n", ",3,2\n", r"Outcomes-a.txt, row 3, column 'In-hospital_death': '2' is neither 0 nor 1"),
        ("1003,1", "1002,1", r"Outcomes-a.txt, row 3, column 'RecordID': '1002' is there twice"),
        ("1003,1,1,9,3,1\n", "", r"1003.txt: the outcomes have no row for this record"),
        ("1003,1", "1004,1,1,9,3,1\n1003,1", r"the outcomes have 1 records without a file: 1004"),
        ("SOFA", "sofa", r"Outcomes-a.txt: the first line must be 'RecordID,SAPS-I,SOFA"),
    ],
)
def test_refused_outcomes(tmp_path: Path, old: str, new: str, message: str) -> None:
    small(tmp_path)
    (tmp_path / "icu2012/Outcomes-a.txt").write_text(OUTCOMES.replace(old, new))
    with pytest.raises(TableError, match=message):
        physionet2012(tmp_path, cache=False)


def test_refused_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PVI_DATA", raising=False)
    with pytest.raises(TableError, match="say data_dir, or set PVI_DATA"):
        physionet2012(cache=False)
    with pytest.raises(TableError, match=r"set-a.tar.gz: file not found"):
        physionet2012(tmp_path, cache=False)
    text = "Time,Parameter,Value\n" + RECORDS["1001"]
    with pytest.raises(TableError, match=r"set-a.tar.gz: the archive has 1001.txt twice"):
        physionet2012(archive(tmp_path, [("1001", text)] * 2), cache=False)
    with pytest.raises(TableError, match="has no record"):
        physionet2012(archive(tmp_path, []), cache=False)
    with pytest.raises(TableError, match=r"1001.txt: the first line must be 'Time,Parameter,Value'"):
        physionet2012(archive(tmp_path, [("1001", RECORDS["1001"])]), cache=False)
    path = small(tmp_path) / "icu2012/set-a.tar.gz"
    content = path.read_bytes()
    for damaged in (b"", b"junk", content[: len(content) // 2], content[:100] + b"\0" * 50 + content[150:]):
        path.write_bytes(damaged)
        with pytest.raises(TableError, match=r"set-a.tar.gz: not a complete tar.gz archive .*fetch it again"):
            physionet2012(tmp_path, cache=False)


@pytest.mark.slow
def test_set_a(data: Path) -> None:
    stays = physionet2012(data, cache=False)
    assert stays.features.shape == (4000, 714)
    assert stays.died.sum() == 554
    deaths = pd.DataFrame({"unit": stays.unit, "died": stays.died}).groupby("unit").died.agg(["size", "sum"])
    assert deaths.loc[["coronary care", "cardiac surgery recovery", "medical", "surgical"]].to_numpy().tolist() == [
        *([577, 81], [874, 43], [1481, 275], [1068, 155])
    ]
    assert "Height: unknown (-1) in 1894 stays." in stays.notes
    assert any("4 stays have no measurement" in note and "140501, 140936, 141264" in note for note in stays.notes)
    with tarfile.open(data / "icu2012/set-a.tar.gz") as tar:
        for record in ("132539", "140501", "142673"):
            file = tar.extractfile(f"set-a/{record}.txt")
            assert file is not None
            table = pd.read_csv(file)
            hours = table["Time"].str[:2].astype(int) + table["Time"].str[3:].astype(int) / 60
            for variable, sources in {"Heart Rate": ["HR"], "Mean blood pressure": ["MAP", "NIMAP"]}.items():
                rows = table["Parameter"].isin(sources) & table["Value"].between(10, 350)
                start = stays.columns.index(f"{variable}, whole, mean")
                found = stays.features[stays.records.index(record), start : start + 42].reshape(7, 6)
                np.testing.assert_allclose(found, by_hand(hours[rows], table["Value"][rows]), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_logistic_regression_predicts_death(data: Path, tmp_path: Path) -> None:
    """As well as published simple models do, 0.80 to 0.85; the standard error of the area is about 0.02."""
    tables = stay_tables(physionet2012(data, cache=tmp_path), seed=0)
    x, y = (np.concatenate([pair[k].numpy() for pair in tables.values()]) for k in (0, 1))
    x_out, y_out = (np.concatenate([pair[k].numpy() for pair in tables.holdout.values()]) for k in (0, 1))
    fitted = LogisticRegression(C=0.003, max_iter=2000).fit(x, y)
    assert roc_auc_score(y_out, fitted.predict_proba(x_out)[:, 1]) > 0.79
