"""Settings and fixtures of every test."""

from pathlib import Path

import pytest
import torch
from datasets import pvi_data

# Small tensors only lose by sharing cores.
torch.set_num_threads(1)


@pytest.fixture
def data() -> Path:
    """The folder of real data sets; skips where there is none."""
    return pvi_data()
