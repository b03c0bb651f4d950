"""An experiment's folder: written, interrupted, gone on with, refused."""

import json

import pandas as pd
import pytest
import toy_experiment
from rich.console import Console
from toy_experiment import ADAM, BEST, PVI, VCL, Toy

from pvi.cli import experiment_run
from pvi.cli.experiment_run import Request, run
from pvi.experiments.folder import read_curves

COMMAND = "pvi experiment toy"


@pytest.fixture
def start(tmp_path):
    """Run the toy into a folder; returns whether it came to its end and what it said."""

    def started(*, given=None, **request):
        console = Console(width=100, record=True, quiet=False, force_terminal=False)
        complete = run(Toy, given or {}, Request(COMMAND, out=request.pop("out", tmp_path / "toy"), **request), console)
        return complete, console.export_text()

    return started


def interrupt(monkeypatch, after):
    """Ctrl-C after so many rounds of all methods together."""
    stand, play, heard = experiment_run.play, experiment_run.play, []

    def played(experiment, data_dir, only, done, report, *rest, **named):
        def counting(progress):
            report(progress)
            heard.append(progress)
            if len(heard) == after:
                raise KeyboardInterrupt

        return play(experiment, data_dir, only, done, counting, *rest, **named)

    monkeypatch.setattr(experiment_run, "play", played)
    return lambda: monkeypatch.setattr(experiment_run, "play", stand)


def read(folder):
    return read_curves(folder / "curves.csv")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "toy"
    assert run(Toy, {"rows": 30}, Request(COMMAND, out=folder), Console(width=100))
    return folder


def test_what_is_written(whole):
    assert sorted(path.name for path in whole.iterdir()) == [
        "README.md", "config.json", "curves.csv", "curves.png", "partition.png",
        "reliability-global-vi-adam.png", "reliability-global-vi.png", "reliability-pvi.png",
        "reliability-vcl.png", "table.csv",
    ]  # fmt: skip
    settings = json.loads((whole / "config.json").read_text())
    assert settings["options"] == {"rows": 30, "seeds": 2, "rounds": 4, "every": 1}
    assert settings["scaled_from_full"] == ["rows 60 -> 30"]
    assert settings["command"] == COMMAND
    assert sorted(settings["data_sha256"]) == ["0", "1"]
    assert len(set(settings["data_sha256"].values())) == 2
    assert {"pvi", "torch", "python"} <= set(settings["versions"])
    page = (whole / "README.md").read_text()
    for said in (
        "# A toy",
        f"    {COMMAND}\n",
        "rows 60 -> 30",
        "| PVI reaches global VI | PVI: test log-lik.",
        "- A note.",
        "| less global VI | test log-lik. | accuracy |",
        "![Calibration](reliability-pvi.png)",
    ):
        assert said in page
    assert "Stopped early" not in page
    table = pd.read_csv(whole / "table.csv", index_col="method")
    assert table.index.tolist() == [BEST, PVI, ADAM, VCL]
    for method, row in table.iterrows():
        shown = f"{row['log_likelihood']:.4f} ± {row['log_likelihood_half']:.4f}"
        assert f"| {method} | 2 | {row['round']:g} | {row['messages']:g} | {shown} |" in page
    mean = read(whole).query("method == @PVI and round == 4")["log_likelihood"].mean()
    assert table.loc[PVI, "log_likelihood"] == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize(("after", "finished"), [(1, 0), (3, 1), (8, 5), (12, 10)])
def test_interrupted_and_gone_on_with(start, whole, tmp_path, monkeypatch, after, finished):
    back = interrupt(monkeypatch, after)
    complete, said = start(given={"rows": 30})
    assert not complete
    folder = tmp_path / "toy"
    if finished:  # lines of the methods that came to their end
        assert "Stopped early" in (folder / "README.md").read_text()
        assert len(read(folder)) == finished
    else:
        assert "nothing to show" in said
        assert not (folder / "curves.csv").exists()
    back()
    complete, _ = start(given={"rows": 30}, resume=True)
    assert complete
    expected = read(whole)
    found = read(folder)
    pd.testing.assert_frame_equal(found.drop(columns="seconds"), expected.drop(columns="seconds"), check_exact=True)
    assert json.loads((folder / "config.json").read_text()) == json.loads((whole / "config.json").read_text())
    assert "Stopped early" not in (folder / "README.md").read_text()


def test_a_finished_run_gone_on_with_stays_as_it_is(start, tmp_path):
    start(given={"rows": 30, "seeds": 1})
    before = (tmp_path / "toy/curves.csv").read_text()
    assert start(given={"rows": 30, "seeds": 1}, resume=True)[0]
    assert (tmp_path / "toy/curves.csv").read_text() == before


def test_other_options_or_rows_are_not_gone_on_with(start, tmp_path, monkeypatch):
    start(given={"rows": 30, "seeds": 1}, only=[VCL])
    before = (tmp_path / "toy/curves.csv").read_text()
    with pytest.raises(ValueError, match=r"toy: the run there has other options .*'rows': 30.* another --out"):
        start(given={"rows": 33, "seeds": 1}, resume=True)
    monkeypatch.setattr(toy_experiment, "SHIFT", 1e-15)
    with pytest.raises(ValueError, match=r"toy: the rows of seed 0 are not those of the run there"):
        start(given={"rows": 30, "seeds": 1}, resume=True)
    assert (tmp_path / "toy/curves.csv").read_text() == before
    with pytest.raises(ValueError, match=r"nowhere: there is no config.json to resume from"):
        start(out=tmp_path / "nowhere", resume=True)


def test_what_an_earlier_run_left_is_not_taken_for_a_new_one(start, tmp_path, monkeypatch):
    start(given={"rows": 30, "seeds": 1}, only=[VCL])
    back = interrupt(monkeypatch, 1)
    assert not start(given={"rows": 33, "seeds": 1}, only=[VCL])[0]
    assert not (tmp_path / "toy/README.md").exists()
    back()
    assert start(given={"rows": 33, "seeds": 1}, only=[VCL], resume=True)[0]
    assert read(tmp_path / "toy")["elbo"].nunique() == 2


def test_folders_of_others_are_not_written_into(start, tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/thesis.tex").write_text("years")
    with pytest.raises(ValueError, match=r"toy holds thesis.tex: choose another --out, or say --overwrite"):
        start()
    assert [path.name for path in (tmp_path / "toy").iterdir()] == ["thesis.tex"]
    assert start(given={"seeds": 1, "rows": 30}, only=[VCL], overwrite=True)[0]
    assert (tmp_path / "toy/thesis.tex").read_text() == "years"


@pytest.mark.parametrize(
    ("request_", "given", "said"),
    [({"preset": "small"}, {}, "preset is full or quick, not 'small'"), ({}, {"seeds": 0}, "seeds must be at least 1")],
)
def test_refused_before_anything_is_written(start, tmp_path, request_, given, said):
    with pytest.raises(ValueError, match=said):
        start(given=given, **request_)
    assert not (tmp_path / "toy").exists()


def test_the_screen(start):
    _, said = start(given={"rows": 30, "seeds": 1})
    for text in ("A toy of two clients", "Differs from the full size: rows 60 -> 30, seeds 2 -> 1.",
                 "Note: A note.", "seed 0  PVI  ELBO",
                 "PVI reaches global VI", "Written to", "README.md"):  # fmt: skip
        assert text in said
