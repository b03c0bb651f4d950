"""Every example in a docstring runs and says what the docstring says."""

import doctest
import importlib
import pkgutil

import pytest

import pvi

MODULES = [info.name for info in pkgutil.walk_packages(pvi.__path__, "pvi.") if not info.name.endswith("__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0


def test_there_are_docstrings_with_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(examples) >= 10
