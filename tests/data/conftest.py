import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def data() -> Path:
    folder = os.environ.get("PVI_DATA")
    if not folder:
        pytest.skip("the environment variable PVI_DATA does not name a folder with the real data sets")
    return Path(folder)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., list[Path]]:
    """Write texts as files; returns their paths in the order given."""

    def files(**texts: str) -> list[Path]:
        paths = []
        for name, text in texts.items():
            paths.append(tmp_path / f"{name}.csv")
            paths[-1].write_text(text)
        return paths

    return files
