"""``pvi experiment NAME`` as its users start it: small made-up data here, the real tables where there are some."""

import json
import shlex
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from data.test_icu_mimic import HEADER

from pvi.cli import experiment

FILES = ["README.md", "config.json", "curves.csv", "curves.png", "partition.png", "table.csv"]
UCI = ["global VI, exact", "PVI synchronous", "PVI Anderson", "PVI sequential", "PVI asynchronous", "BCM same",
       "BCM split", "VCL", "streaming VB", "global VI, Adam"]  # fmt: skip
OTHERS = ["PVI synchronous", "PVI sequential", "BCM same", "BCM split", "VCL", "streaming VB"]


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """A folder with a table like Credit Approval's: 90 rows, two of them with a gap."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    columns = {k: rng.choice(["a", "b"], 90) for k in range(15)}
    columns |= {k: rng.normal(size=90).round(3).astype(str) for k in (1, 2, 7, 10, 13, 14)}
    granted = rng.random(90) < 1 / (1 + np.exp(-2 * columns[1].astype(float)))
    columns[3][[5, 70]] = "?"
    (folder / "credit").mkdir()
    frame = pd.DataFrame(columns).assign(granted=np.where(granted, "+", "-"))
    frame.to_csv(folder / "credit/crx.data", header=False, index=False)
    return folder


@pytest.fixture(scope="session")
def stays(tmp_path_factory):
    """The MIMIC-III benchmark's folder with 60 stays, in which a fast heart is a bad sign."""
    folder = tmp_path_factory.mktemp("stays")
    rng = np.random.default_rng(0)
    names = HEADER.strip().split(",")
    for part, numbers in {"train": range(50), "test": range(50, 60)}.items():
        (folder / part).mkdir()
        lines = ["stay,y_true"]
        for number in numbers:
            sick = rng.normal()
            rows = []
            for hour in np.sort(rng.uniform(0, 48, rng.integers(2, 6))):
                cells = {"Hours": f"{hour:.2f}", "Heart Rate": f"{85 + 12 * sick + rng.normal(0, 5):.1f}"}
                if rng.random() < 0.5:
                    cells["pH"] = f"{7.4 - 0.05 * sick:.2f}"
                rows.append(",".join(cells.get(name, "") for name in names))
            (folder / part / f"{number}_episode1_timeseries.csv").write_text(HEADER + "\n".join(rows) + "\n")
            lines.append(f"{number}_episode1_timeseries.csv,{int(sick + rng.logistic() > 0.5)}")
        (folder / part / "listfile.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def played(call, tmp_path):
    """Run to the end; returns the table, the curves and what was said."""

    def play(line, data_dir=None):
        where = [] if data_dir is None else ["--data-dir", data_dir]
        outcome = call("experiment", *shlex.split(line), *where, "--out", tmp_path / "out")
        assert outcome.exit_code == 0, outcome.output
        written = sorted(path.name for path in (tmp_path / "out").iterdir())
        assert [name for name in written if not name.startswith("reliability-")] == FILES
        assert len(written) > len(FILES)
        curves = pd.read_csv(tmp_path / "out/curves.csv")
        assert np.isfinite(curves["elbo"]).all()
        found = pd.read_csv(tmp_path / "out/table.csv", index_col="method")
        assert max(map(len, outcome.output.splitlines())) <= 80
        for method in found.index:
            assert method in outcome.output
        return found, curves, outcome.output

    return play


def test_uci(played, tables):
    found, curves, said = played("uci --preset quick --seeds 1 --rounds 2 --steps 20 --clients 4", tables)
    assert found.index.tolist() == UCI
    assert found["messages"].tolist() == [2, 16, 16, 16, 16, 8, 8, 8, 16, 40]
    assert curves["elbo_gap"].dropna().min() > -1e-6
    assert "2 of 90 rows were dropped" in said


@pytest.mark.parametrize("split", ["A", "0.75,0.95"])
def test_uci_dealt_otherwise(played, tables, tmp_path, split):
    line = "uci --preset quick --rounds 2 --clients 4 --scale all --rows 60 --only VCL --only 'PVI sequential'"
    found, _, said = played(f"{line} --split {split}", tables)
    assert found.index.tolist() == [UCI[0], "PVI sequential", "VCL"]
    assert (found["seeds"] == 2).all()
    assert f"split {split}, 4 clients" in said
    options = json.loads((tmp_path / "out/config.json").read_text())["options"]
    assert options == {"dataset": "credit", "split": split, "clients": 4, "seeds": 2, "rounds": 2, "damping": 0.2,
                       "steps": 500, "rows": 60, "scale": "all"}  # fmt: skip


def test_a_slip_of_the_pen_costs_no_results(call, tables, tmp_path):
    line = [
        "experiment",
        "uci",
        "--preset",
        "quick",
        "--rounds",
        "1",
        "--seeds",
        "1",
        "--clients",
        "2",
        "--out",
        tmp_path,
    ]
    assert call(*line, "--data-dir", tables, "--only", "VCL").exit_code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for wrong in (["--only", "PVI sync"], ["--only", "VCL", "--data-dir", "nowhere"], ["--rows", "10000000"]):
        outcome = call(*line, "--data-dir", tables, *wrong)
        assert outcome.exit_code == 2, outcome.output
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_files_of_the_users_own_are_not_taken_for_results(call, tables, tmp_path):
    (tmp_path / "README.md").write_text("years of work")
    outcome = call("experiment", "uci", "--preset", "quick", "--data-dir", tables, "--out", tmp_path)
    assert outcome.exit_code == 2
    assert "README.md" in outcome.output
    assert (tmp_path / "README.md").read_text() == "years of work"


def test_uci_goes_on(call, tables, tmp_path):
    line = ["experiment", "uci", "--preset", "quick", "--rounds", "1", "--seeds", "1", "--clients", "2",
            "--data-dir", tables, "--out", tmp_path]  # fmt: skip
    first = call(*line, "--only", "VCL", "--only", "BCM same")
    assert first.exit_code == 0
    assert pd.read_csv(tmp_path / "table.csv")["method"].tolist() == ["global VI, exact", "BCM same", "VCL"]
    second = call(*line, "--steps", "500", "--only", "BCM split", "--resume")
    assert second.exit_code == 0, second.output
    assert pd.read_csv(tmp_path / "table.csv")["method"].tolist()[-1] == "BCM split"
    assert "seed 0  VCL" not in second.output
    other = call(*line, "--rounds", "2", "--resume")
    assert other.exit_code == 2
    assert "the run there has other options" in other.output


@pytest.mark.parametrize("clients", ["k-means", "unit"])
def test_icu_on_the_mimic_layout(played, call, stays, tmp_path, clients):
    line = f"icu --preset quick --source mimic3 --rounds 1 --clients {clients}"
    if clients == "unit":
        outcome = call("experiment", *shlex.split(line), "--data-dir", stays, "--out", tmp_path / "out")
        assert outcome.exit_code == 2
        assert "unit" in outcome.output
        return
    found, curves, said = played(line, stays)
    assert found.index.tolist() == ["global VI", *OTHERS]
    assert curves["elbo_gap"].dropna().min() > -1e-6
    assert curves["auroc"].between(0, 1).all()
    assert "(mimic3)" in said


@pytest.mark.slow
def test_icu_with_a_network(played, stays):
    found, _, said = played("icu --preset quick --source mimic3 --rounds 1 --model bnn --steps 5", stays)
    assert found.index.tolist() == ["global VI", *OTHERS]
    # A round of global VI is as many gradient steps as five clients make, a message each way.
    assert found["messages"].tolist() == [2 * 5 * 5, 10, 10, 10, 10, 10, 10]
    assert "network of two layers" in said


@pytest.mark.slow
def test_mnist(played, digits):
    line = "mnist --preset quick --clients 5 --rows 200 --rounds 1 --passes 1 --epochs 1 --samples 5 --hidden 5"
    found, curves, said = played(line, digits)
    assert found.index.tolist() == ["global VI", *OTHERS]
    assert found["messages"].tolist() == [2 * round(200 / 128), 10, 10, 10, 10, 10, 10]
    assert curves["error"].between(0, 1).all()
    assert "alike" in said
    assert "200 of 400 images" in said


def test_mnist_two_digits_a_client(played, digits):
    line = "mnist --preset quick --partition digits --clients 5 --rows 200 --passes 1 --epochs 1 --samples 5 --hidden 5"
    found, _, said = played(f"{line} --only VCL --only 'BCM split'", digits)
    assert found.index.tolist() == ["BCM split", "VCL"]
    assert "of two digits each" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("uci --dataset iris", "dataset is adult or adult.data or bank or credit, not 'iris'"),
        ("uci --split C", "split is A, B, or two numbers such as 0.75,0.95 (of size, of class), not 'C'"),
        ("uci --split 0.1,0.2,0.3", "split is A, B, or two numbers"),
        ("uci --split nan,0.2", "imbalance"),
        ("uci --split 3,0.2", "imbalance"),
        ("uci --scale none", "scale is training or all, not 'none'"),
        ("uci --steps 250", "steps is at most 100, or a multiple of 100, not 250"),
        ("uci --steps 0", "steps is at most 100, or a multiple of 100, not 0"),
        ("uci --clients 0", "clients"),
        ("uci --clients 500", "clients"),
        ("uci --rounds 0", "PVI synchronous: rounds must be at least 1, not 0"),
        ("uci --seeds 0", "seeds must be at least 1, not 0"),
        ("uci --rows 1", "1 rows asked for, there are 88"),
        ("uci --damping 2", "damping must lie in (0, 1]"),
        ("uci --only PVI", "no method 'PVI'; there are 'global VI, exact', 'PVI synchronous'"),
        ("uci --preset small", "preset is full or quick, not 'small'"),
        ("uci --dataset bank", "bank-full.csv.gz: file not found"),
        ("uci --device gpu", "cannot be used here"),
        ("icu --source eicu", "source is icu2012 or mimic3, not 'eicu'"),
        ("icu --model forest", "model is logistic or bnn, not 'forest'"),
        ("icu --clients hospital", "clients is k-means or unit, not 'hospital'"),
        ("icu --source mimic3", "listfile.csv: file not found"),
        ("mnist --dataset cifar10", "dataset is mnist or fashion-mnist, not 'cifar10'"),
        ("mnist --partition digit", "partition is homogeneous or digits, not 'digit'"),
        ("mnist --pool 3", "pool is 1 or 2, not 3"),
        ("mnist --dataset fashion-mnist", "train-images-idx3-ubyte.gz"),
    ],
)
def test_refused(call, tables, tmp_path, line, said):
    line = line if "--preset" in line else f"{line} --preset quick"
    line = f"{line} --clients 4" if line.startswith("uci") and "--clients" not in line else line
    outcome = call("experiment", *shlex.split(line), "--data-dir", tables, "--out", tmp_path / "out")
    assert outcome.exit_code == 2, outcome.output
    assert said in " ".join(outcome.output.split())
    assert not (tmp_path / "out/curves.csv").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("icu --source mimic3 --stays 0", "stays=0: "),
        ("icu --source mimic3 --stays 100", "has 60"),
        ("icu --source mimic3 --scaling none", "scaling"),
        ("icu --source mimic3 --model bnn --steps 0", "steps"),
        ("icu --source mimic3 --prior-scale 0", "scale"),
        ("icu --source mimic3 --prior-scale -1", "scale"),
    ],
)
def test_refused_stays(call, stays, tmp_path, line, said):
    outcome = call("experiment", *shlex.split(line), "--data-dir", stays, "--preset", "quick", "--out", tmp_path / "o")
    assert outcome.exit_code == 2, outcome.output
    assert said in " ".join(outcome.output.split())


@pytest.mark.parametrize(
    "option",
    [
        "every",
        "clients",
        "passes",
        "sequential-damping",
        "samples",
        "epochs",
        "batch",
        "hidden",
        "rows",
        "learning-rate",
    ],
)
@pytest.mark.parametrize("partition", ["homogeneous", "digits"])
def test_nothing_of_zero(call, digits, tmp_path, option, partition):
    line = f"mnist --preset quick --partition {partition} --clients 5 --rows 200 --hidden 5 --{option} 0"
    outcome = call("experiment", *shlex.split(line), "--data-dir", digits, "--out", tmp_path / "out")
    assert outcome.exit_code == 2, outcome.output
    assert outcome.output.splitlines()[-1].startswith("Error: ")


def test_help_names_every_option_with_its_default(call):
    for kind in experiment.EXPERIMENTS.values():
        said = " ".join(call("experiment", kind.NAME, "--help").output.split())
        for field in fields(kind):
            assert f"--{field.name.replace('_', '-')}" in said
            assert field.metadata["help"].split()[0] in said
        assert "--resume" in said
    assert "Default 20." in said
    assert set(experiment.EXPERIMENTS) <= set(call("experiment", "--help").output.split())
