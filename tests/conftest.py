"""Settings and fixtures of every test."""

import getpass
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from datasets import pvi_data

from pvi.executors import EXECUTORS

# Small tensors only lose by sharing cores.
torch.set_num_threads(1)

# Processes that compile the same kernels into one folder disturb each other.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    folder = Path(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}_{worker}")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder))


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--executor vectorised`` runs every fit that does not name its executor under this one."""
    parser.addoption("--executor", default="auto", help="what fits run under where they name nothing")


@pytest.fixture(autouse=True, scope="session")
def executor(request: pytest.FixtureRequest) -> Iterator[None]:
    """What ``executor="auto"`` stands for in this run of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXECUTORS, "auto", EXECUTORS[request.config.getoption("--executor")])
        yield


@pytest.fixture
def data() -> Path:
    """The folder of real data sets; skips where there is none."""
    return pvi_data()
