"""The speed benchmarks run from end to end, and put their tables where they belong."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from benchmarks.check import TOLERANCE, largest_difference
from benchmarks.measure import exponent, spread
from benchmarks.ours import alike
from benchmarks.plans import QUICKLY
from benchmarks.tables import BEGIN, END, number, write

ROOT = Path(__file__).parents[1]


def script(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.{name}", *options]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)


@pytest.mark.parametrize("index", range(len(QUICKLY.cases)))
def test_hand_written_gradients_are_the_library_s(index):
    case = QUICKLY.cases[index]()
    assert largest_difference(case, alike(case, torch.device("cpu"))) < TOLERANCE


def test_a_rerun_replaces_exactly_its_own_tables(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"before\n\n{BEGIN}\n{END}\n\nafter\n", encoding="utf-8")
    write(path, ["| old |"])
    write(path, ["| new |", ""])
    assert path.read_text(encoding="utf-8") == f"before\n\n{BEGIN}\n\n| new |\n\n{END}\n\nafter\n"


def test_a_document_without_tables_gets_them_at_its_end(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("# Page\n", encoding="utf-8")
    write(path, ["| new |"])
    assert path.read_text(encoding="utf-8") == f"# Page\n\n## Speed\n\n{BEGIN}\n\n| new |\n\n{END}\n"


def test_the_document_has_a_place_for_the_tables():
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1


def test_numbers():
    assert exponent([1, 10, 100], [2.0, 20.0, 200.0]) == pytest.approx(1)
    assert exponent([1, 10, 100], [3.0, 3.0, 3.0]) == pytest.approx(0)
    assert spread([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert [number(value) for value in (0.1234, 99.94, 99.96, 12345.6)] == ["0.123", "99.9", "100", "12,346"]


@pytest.mark.slow
def test_the_benchmarks_run(tmp_path):
    found = script("run", "--quick", "--out", str(tmp_path / "tables.md"))
    assert found.returncode == 0, found.stderr
    text = (tmp_path / "tables.md").read_text(encoding="utf-8")
    for words in ("hand-derived gradients", "seconds of set-up", "exponent", "unequal clients", "peak GB"):
        assert words in text


@pytest.mark.slow
def test_the_gpu_benchmarks_run_on_a_cpu():
    found = script("gpu", "--device", "cpu", "--quick")
    assert found.returncode == 0, found.stderr
    assert "PyroSVI, 100 steps" in found.stdout
    assert "| pFedBayes, VGG | made-up photos | 4 | 3 |" in found.stdout


def test_a_part_of_the_gpu_benchmarks():
    found = script("gpu", "--device", "cpu", "--quick", "--only", "photos")
    assert found.returncode == 0, found.stderr
    for method in ("pFedBayes, VGG", "FOLA, two convolutions"):
        assert f"{method}, made-up photos, 4 clients: 3 rounds" in found.stdout
    assert "PyroSVI" not in found.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_the_gpu_benchmarks_say_what_to_do():
    found = script("gpu")
    assert found.returncode != 0
    assert "--device cpu" in found.stderr


PERSONAL_ROUND = ROOT / "benchmarks" / "personal_round.py"


def test_hand_written_pfedbayes_has_the_library_s_objective():
    found = runpy.run_path(str(PERSONAL_ROUND))
    sizes = found["Sizes"](clients=2, rows=40, hidden=20, batch=25, draws=3, iterations=2)
    assert found["difference"](sizes) < found["TOLERANCE"]
    q, w = torch.randn(2, 2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    laws = [torch.distributions.Normal(v[0], torch.nn.functional.softplus(v[1])) for v in (q, w)]
    expected = torch.distributions.kl_divergence(*laws).sum()
    torch.testing.assert_close(found["divergence"](q, w), expected)


@pytest.mark.parametrize("more", [["--no-compile"], pytest.param([], marks=pytest.mark.slow)])
def test_a_round_of_pfedbayes_is_timed(more, capsys, monkeypatch):
    sizes = {"clients": 2, "rows": 30, "hidden": 8, "batch": 10, "draws": 2, "iterations": 3, "rounds": 2, "warm": 1}
    options = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    monkeypatch.setattr(sys, "argv", [str(PERSONAL_ROUND), *options, *more])
    runpy.run_path(str(PERSONAL_ROUND))["main"]()
    said = capsys.readouterr().out
    for words in ("objectives apart", "pvi / hand-written", "10 s at the full size"):
        assert words in said
