from collections.abc import Callable
from pathlib import Path

import pytest


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
