# Everything sets itself up: `make demo` and `make test` work on a fresh machine with Python 3.11 or later.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-slow bench lint clean

demo: $(INSTALLED)
	$(BIN)/pvi demo --out demo

test: lint
	$(BIN)/python -m pytest -m "not slow" --numprocesses 2 --dist loadfile

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

bench: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python -m benchmarks.run

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/benchmarks

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) demo build *.egg-info
