"""The command as its users start it: a process of its own."""

import os
import signal
import subprocess
import sys

import pytest

import pvi

COMMAND = (sys.executable, "-m", "pvi.cli")


def test_the_command_of_the_documentation(data, tmp_path):
    files = sorted(map(str, (data / "heart-disease").glob("processed.*.data")))
    arguments = ["--no-header", "--na", "?", "--target", "13", "--positive", ">0", "--categorical", "2,6,10,12",
                 "--missing", "indicator", "--schedule", "synchronous", "--damping", "0.5", "--rounds", "20",
                 "--out", f"{tmp_path}/run/"]  # fmt: skip
    environment = os.environ | {"COLUMNS": "80"}
    outcome = subprocess.run(
        [*COMMAND, "fit", *files, *arguments], capture_output=True, text=True, timeout=300, env=environment, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr == ""
    assert "\x1b" not in outcome.stdout
    assert max(map(len, outcome.stdout.splitlines())) <= 80
    assert pvi.load(tmp_path / "run").elbo > -309
    for name in ("cleveland", "hungarian", "switzerland", "va", "12 missing", "round 20/20"):
        assert name in outcome.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_keeps_its_rounds(hospitals, tmp_path, number):
    arguments = [
        *COMMAND,
        "fit",
        *map(str, hospitals),
        "--target",
        "died",
        "--rounds",
        "100000",
        "--out",
        str(tmp_path),
    ]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("round      3/"):
                process.send_signal(number)
                break
        said = process.stdout.read()
        assert process.wait(timeout=120) == 130, process.stderr.read()
    assert "rounds were played" in " ".join(said.split())
    assert len(pvi.load(tmp_path).history) >= 3
