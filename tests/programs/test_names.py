"""Models by name: bundled, by import path, in a file."""

import pytest

from pvi.programs.names import ModelNameError, bundled_models, resolve_model

FILE = "def model(y):\n    return 'model'\n\ndef other(y):\n    return 'other'\n\nnumber = 3\n"


def test_bundled_models_resolve_and_describe_themselves():
    found = bundled_models()
    assert "logistic_regression" in found
    for name, line in found.items():
        assert callable(resolve_model(name))
        assert len(line) > 10


def test_a_function_is_itself():
    def model():
        return None

    assert resolve_model(model) is model


def test_by_import_path():
    from pvi.models.logistic_regression import model

    assert resolve_model("pvi.models.logistic_regression:model") is model
    assert resolve_model("pvi.models.logistic_regression") is model


def test_by_file(tmp_path):
    path = tmp_path / "my_model.py"
    path.write_text(FILE)
    assert resolve_model(str(path))(None) == "model"
    assert resolve_model(f"{path}:model")(None) == "model"
    assert resolve_model(f"{path}:other")(None) == "other"


def test_two_files_of_one_name_do_not_mix(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text(f"def model():\n    return {folder!r}\n")
    first, second = (resolve_model(f"{tmp_path / folder / 'same.py'}:model") for folder in ("a", "b"))
    assert (first(), second()) == ("a", "b")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("logistic_regresion", "no bundled model 'logistic_regresion'; there are .*logistic_regression"),
        ("no_such_package.models:model", "cannot import 'no_such_package.models'"),
        ("pvi.models.logistic_regression:modell", r"has no function 'modell'; it has \[.*'model'"),
        ("nowhere.py:model", "there is no file nowhere.py"),
        ("{folder}/my_model.py:third", "has no function 'third'"),
        ("{folder}/my_model.py:number", "has no function 'number'"),
        ("{folder}/broken.py:model", "fails on import: ZeroDivisionError"),
    ],
)
def test_names_that_lead_nowhere(name, message, tmp_path):
    (tmp_path / "my_model.py").write_text(FILE)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(ModelNameError, match=message):
        resolve_model(name.format(folder=tmp_path))


def test_a_module_that_fails_on_import_is_named(tmp_path, monkeypatch):
    (tmp_path / "broken_module_of_a_test.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelNameError, match="cannot import 'broken_module_of_a_test': ZeroDivisionError"):
        resolve_model("broken_module_of_a_test:model")


def test_other_types_are_refused():
    with pytest.raises(TypeError, match=r"a model is a Pyro program .* got int"):
        resolve_model(3)
