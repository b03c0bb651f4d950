"""Real files: four hospitals, German credit, Taiwanese credit cards, breast cancer."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from pvi.data import Tables, read_frame, read_tables

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
OPTIONS = {
    "header": False,
    "na": "?",
    "target": 13,
    "positive": ">0",
    "categorical": (2, 6, 10, 12),
    "missing": "indicator",
}


def hospitals(data_dir: Path, **options: object) -> Tables:
    files = [data_dir / "heart-disease" / f"processed.{name}.data" for name in HOSPITALS]
    return read_tables(files, **{**OPTIONS, **options})  # type: ignore[arg-type]


def test_four_hospitals(data: Path) -> None:
    tables = hospitals(data, holdout=0)
    assert tuple(tables) == HOSPITALS
    assert [len(y) for _, y in tables.values()] == [303, 294, 123, 200]
    assert [int(y.sum()) for _, y in tables.values()] == [139, 106, 115, 149]
    assert list(tables.missing.values()) == [6, 782, 273, 698]
    # Cleveland writes 4.0 where the others write 4: one level.
    assert [name for name in tables.columns if name.startswith("2=")] == ["2=1.0", "2=2.0", "2=3.0"]
    assert {"11 missing", "12 missing", "12=6.0", "12=7.0"} <= set(tables.columns)
    x = torch.cat([x for x, _ in tables.values()])
    assert x.shape == (920, 28)  # 9 numbers, 9 levels, 10 indicators
    assert bool(torch.isfinite(x).all())


def test_four_hospitals_against_pandas_on_the_pooled_rows(data: Path) -> None:
    tables = hospitals(data, holdout=0)
    files = [data / "heart-disease" / f"processed.{name}.data" for name in HOSPITALS]
    rows = pd.concat([pd.read_csv(file, header=None, na_values="?") for file in files])
    x = torch.cat([x for x, _ in tables.values()]).numpy()
    column = {name: x[:, place] for place, name in enumerate(tables.columns)}
    for place in (0, 3, 4, 7, 9, 11):
        expected = (rows[place] - rows[place].mean()) / rows[place].std(ddof=0)
        np.testing.assert_allclose(column[str(place)], expected.fillna(0), atol=1e-9)
    for place in (1, 5, 8):
        np.testing.assert_allclose(column[str(place)], rows[place].fillna(rows[place].mean()), atol=1e-12)
    for name in tables.columns:
        if "=" in name:
            place, level = name.split("=")
            np.testing.assert_array_equal(column[name], rows[int(place)] == float(level))
        if name.endswith("missing"):
            np.testing.assert_array_equal(column[name], rows[int(name.split()[0])].isna())


def test_four_hospitals_need_a_word_about_gaps(data: Path) -> None:
    with pytest.raises(ValueError, match=r"client 'cleveland': 11 4, 12 2; client 'hungarian': 3 1, 4 23, 5 8"):
        hospitals(data, missing="error")
    with pytest.raises(ValueError, match=r"client 'switzerland': no row is left, each of its 123"):
        hospitals(data, missing="drop")


def test_a_hospital_encodes_a_new_file(data: Path, tmp_path: Path) -> None:
    tables = hospitals(data, holdout=0)
    lines = (data / "heart-disease" / "processed.va.data").read_text().splitlines()[:5]
    bare = tmp_path / "new.csv"
    bare.write_text("\n".join(line.rsplit(",", 1)[0] for line in lines))
    frame = read_frame(bare, tables.schema)
    assert tables.schema.encode(frame).equal(tables["va"][0][:5])
    assert tables.schema.encode_target(frame) is None


def test_german_credit_is_separated_by_blanks(data: Path) -> None:
    tables = read_tables(data / "credit" / "german.data", header=False, target=20, positive="2", holdout=0)
    x, y = tables["german"]
    assert (x.shape[0], int(y.sum())) == (1000, 300)
    assert "0=A11" in tables.columns
    assert "18=A192" in tables.columns


def test_credit_cards_write_numbers_as_1e05(data: Path) -> None:
    file = data / "credit" / "UCI_Credit_Card.csv.gz"
    tables = read_tables(
        file, by="SEX", target="default.payment.next.month", drop="ID", categorical=("EDUCATION", "MARRIAGE"), holdout=0
    )
    rows = pd.read_csv(file)
    assert [len(y) for _, y in tables.values()] == rows.groupby("SEX").size().tolist()
    assert int(sum(y.sum() for _, y in tables.values())) == 6636
    limit = rows["LIMIT_BAL"].to_numpy(dtype=float)
    men = ((limit - limit.mean()) / limit.std())[rows["SEX"] == 1]
    np.testing.assert_allclose(tables["1"][0][:, tables.columns.index("LIMIT_BAL")], men, atol=1e-9)
    assert "EDUCATION=5" in tables.columns


def test_breast_cancer(data: Path) -> None:
    file = data / "breast-cancer" / "breast-cancer-wisconsin.data"
    tables = read_tables(file, header=False, na="?", target=10, positive="==4", drop=0, missing="mean", holdout=0)
    x, y = tables["breast-cancer-wisconsin"]
    assert (tuple(x.shape), int(y.sum()), tables.missing["breast-cancer-wisconsin"]) == ((699, 9), 241, 16)
