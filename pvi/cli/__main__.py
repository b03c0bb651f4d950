"""``python -m pvi.cli`` is ``pvi``."""

from pvi.cli import app

app(prog_name="pvi")
