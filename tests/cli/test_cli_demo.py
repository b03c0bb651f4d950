import re

import pandas as pd
import pytest

from pvi.cli.output import COEFFICIENTS, HYPERPARAMETERS, PERSONAL, WRITTEN


@pytest.mark.slow
def test_the_demo_reaches_the_pooled_fit(tmp_path, call):
    outcome = call("demo", "--out", tmp_path / "demo")
    assert outcome.exit_code == 0, outcome.output
    assert max(map(len, outcome.output.splitlines())) <= 80
    written = {*WRITTEN, "data"} - {HYPERPARAMETERS, PERSONAL, COEFFICIENTS}
    assert {path.name for path in (tmp_path / "demo").iterdir()} == written
    gap = re.search(r"a gap of (\S+) nats", " ".join(outcome.output.split()))
    assert abs(float(gap[1])) < 1e-3
    assert pd.read_csv(tmp_path / "demo/heldout.csv").iloc[-1]["accuracy"] > 0.95
    again = call("demo", "--out", tmp_path / "demo")
    assert again.exit_code == 0, again.output


def test_the_demo_leaves_other_folders_alone(tmp_path, call):
    (tmp_path / "thesis.txt").write_text("years of work")
    assert call("demo", "--out", tmp_path).exit_code == 2
    assert len(list(tmp_path.iterdir())) == 1
