"""``pvi experiment pfedbayes`` as its users start it: few made-up images, and slices of the real ones."""

import json
import shlex

import numpy as np
import pandas as pd
import pytest

METHODS = ["pFedBayes", "FedAvg", "FedProx", "local BNN"]
FILES = ["README.md", "config.json", "curves.csv", "curves.png", "partition.png", "table.csv"]
SMALL = (
    "--clients 4 --train-per-class 8 --test-per-class 4 --hidden 8 --rounds 2 --local-rounds 1 --iterations 3 "
    "--particles 2 --samples 3 --every 2 --no-compile"
)


@pytest.fixture
def play(call, tmp_path):
    """Run to the end; returns the table, the curves and what was said."""

    def run(line, data_dir=None):
        where = [] if data_dir is None else ["--data-dir", data_dir]
        outcome = call("experiment", "pfedbayes", *shlex.split(line), *where, "--out", tmp_path / "out")
        assert outcome.exit_code == 0, outcome.output
        assert max(map(len, outcome.output.splitlines())) <= 80
        found = pd.read_csv(tmp_path / "out/table.csv", index_col="method")
        return found, pd.read_csv(tmp_path / "out/curves.csv"), outcome.output

    return run


def test_the_table(play, digits, tmp_path):
    found, curves, said = play(SMALL, digits)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == FILES
    assert found.index.tolist() == METHODS
    assert found["messages"].tolist() == [16, 16, 16, 8]
    assert found[["pm", "gm"]].notna().to_numpy().tolist() == [
        [True, True],
        [False, True],
        [False, True],
        [True, False],
    ]
    assert curves["pm_at_mean"].dropna().between(0, 100).all()
    assert found.loc["pFedBayes", "pm_peak"] == curves.query("method == 'pFedBayes'")["pm_at_mean"].max()
    page = (tmp_path / "out/README.md").read_text()
    for text in ("# pFedBayes on mnist, small: 4 clients of 5 labels", "rounds 800 -> 2", "hidden 100 -> 8",
                 "| pFedBayes: PM 94.13 at its peak in 800 rounds | pFedBayes: PM peak ",
                 "| FedAvg: GM 87.38 at its peak in 800 rounds |",
                 "- Not stated in the paper and chosen here", "400 training and 50 test images together"):  # fmt: skip
        assert text in page
    assert "PM peak" in said


def test_what_was_not_run_is_not_compared(play, digits, tmp_path):
    found, _, said = play(f"{SMALL} --only FedAvg", digits)
    assert "seed 0  FedAvg  objective -" in said
    assert found.index.tolist() == ["FedAvg"]
    page = (tmp_path / "out/README.md").read_text()
    assert "FedAvg: GM 87.38" in page
    assert "PM 94.13" not in page
    assert "FedProx" not in page.split("## Notes")[0].split("## Beside")[1]


def test_it_goes_on(play, call, digits, tmp_path):
    play(f"{SMALL} --only FedAvg", digits)
    before = pd.read_csv(tmp_path / "out/curves.csv")
    found, after, said = play(f"{SMALL} --only 'local BNN' --resume", digits)
    assert found.index.tolist() == ["FedAvg", "local BNN"]
    assert "seed 0  FedAvg" not in said
    pd.testing.assert_frame_equal(after.query("method == 'FedAvg'")[before.columns], before)
    line = [*shlex.split(SMALL), "--zeta", "5", "--data-dir", digits, "--out", tmp_path / "out", "--resume"]
    other = call("experiment", "pfedbayes", *line)
    assert other.exit_code == 2
    assert "the run there has other options" in other.output


def test_studies(play, digits, tmp_path):
    found, _, said = play(f"{SMALL} --study zeta --size medium --only 'ζ = 10'", digits)
    assert found.index.tolist() == ["ζ = 10"]
    assert "by ζ" in said
    page = (tmp_path / "out/README.md").read_text()
    assert "| ζ = 10: GM 93.22 at its peak in 800 rounds | ζ = 10: GM peak" in page
    assert "ζ = 20" not in page


@pytest.mark.slow
def test_uncertainty(play, digits, tmp_path):
    found, curves, _ = play(f"{SMALL} --study uncertainty --iterations 1", digits)
    assert found.index.tolist() == ["after 0 rounds", "after 1 rounds", "after 10 rounds"]
    assert found["round"].tolist() == [1, 1, 10]
    entropies = found[["pm_entropy", "gm_entropy"]].to_numpy()
    assert ((entropies > 0) & (entropies <= np.log(10))).all()
    assert curves["gm"].notna().all()
    pictures = [f"picture-after-{n}-rounds.png" for n in (0, 1, 10)]
    diagrams = [f"reliability-{model}-after-{n}-rounds.png" for model in ("pm", "gm") for n in (0, 1, 10)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*FILES, *pictures, *diagrams])
    page = (tmp_path / "out/README.md").read_text()
    places = [page.index(f"]({name})") for name in pictures]
    assert places == sorted(places)
    assert "Beside the paper" not in page
    options = json.loads((tmp_path / "out/config.json").read_text())["options"]
    assert (options["study"], options["compile"]) == ("uncertainty", False)
    play(f"{SMALL} --study uncertainty --only 'after 0 rounds'", digits)  # an earlier run's pictures go with it
    assert [path.name for path in (tmp_path / "out").glob("picture-*")] == pictures[:1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--dataset cifar100", "dataset is mnist or fmnist or cifar10, not 'cifar100'"),
        ("--size tiny", "size is small or medium or large, not 'tiny'"),
        ("--study eta", "study is table or zeta or rho or uncertainty, not 'eta'"),
        ("--assignment shards", "assignment is balanced or two-types, not 'shards'"),
        ("--labels 11", "labels is from 1 to 10, the number of classes, not 11"),
        ("--labels 3 --clients 4", "12 is no multiple of 10"),
        ("--labels 4 --clients 5 --assignment two-types", "4 divides no 10"),
        ("--train-per-class 20 --test-per-class 20", "mnist has images for 22 of a class at each of 4 clients"),
        ("--average median", "average is 'parameters' or 'moments'"),
        ("--dataset fmnist", "train-images-idx3-ubyte.gz"),
        ("--zeta -1", "zeta"),
        ("--rho 50", "initial_rho"),
        ("--proximal -1", "proximal"),
        ("--only FedSGD", "no method 'FedSGD'; there are 'pFedBayes', 'FedAvg', 'FedProx', 'local BNN'"),
        *[(f"--{option} 0", "") for option in ("clients", "labels", "train-per-class", "test-per-class", "iterations",
           "particles", "batch", "hidden", "samples", "every", "rounds", "local-rounds", "seeds")],
    ],
)  # fmt: skip
def test_refused(call, digits, tmp_path, line, said):
    words = shlex.split(SMALL)
    given = shlex.split(line)
    outcome = call("experiment", "pfedbayes", *words, *given, "--data-dir", digits, "--out", tmp_path / "out")
    assert outcome.exit_code == 2, outcome.output
    assert "Traceback" not in outcome.output
    assert said in " ".join(outcome.output.split())
    assert not (tmp_path / "out/curves.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "more"),
    [
        ("mnist", "--train-per-class 20 --test-per-class 20 --hidden 20"),
        ("fmnist", "--train-per-class 20 --test-per-class 20 --hidden 20"),
        ("cifar10", "--clients 4 --train-per-class 5 --test-per-class 5 --iterations 2 --particles 1 --rounds 1"),
    ],
)
@pytest.mark.usefixtures("data")
def test_real_images(play, dataset, more):
    line = f"--dataset {dataset} --rounds 8 --local-rounds 2 --samples 3 --no-compile {more}"
    found, curves, said = play(line)
    assert found.index.tolist() == METHODS
    if dataset == "cifar10":
        assert "of the 50,000 training images" in " ".join(said.split())
        return
    own = curves.query("method == 'pFedBayes'")["pm_at_mean"]
    assert own.iloc[-1] > 40  # five labels a client: guesses are right by 20 %
    assert own.iloc[-1] > own.iloc[0]
