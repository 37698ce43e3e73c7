"""Model files: what they say, and errors that name the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import JobError
from muster.job.modelfile import read_model_file


def written(folder: Path, text: str) -> Path:
    file = folder / "model.yml"
    file.write_text(text)
    return file


def test_a_model_file_of_azure_ml_is_read(tmp_path: Path) -> None:
    text = "$schema: https://x\nname: net\nversion: 2\npath: ./m\ntype: mlflow_model\ntags: {a: 1}\nstage: Staging\n"
    found = read_model_file(written(tmp_path, text))
    assert (found.name, found.version, found.type, found.stage) == ("net", 2, "mlflow_model", "Staging")
    assert found.path == str(tmp_path / "m") and found.tags == {"a": "1"}


@pytest.mark.parametrize("path", ["runs:/4f2c/outputs", "azureml://datastores/x/paths/y", "models:/net/1"])
def test_addresses_stay(tmp_path: Path, path: str) -> None:
    assert read_model_file(written(tmp_path, f"name: n\npath: {path}\n")).path == path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: n\n", "`path` is missing"),
        ("path: p\n", "`name` is missing"),
        ("name: n\npath: p\ntyp: x\n", r"model.yml:3: a model file has no key 'typ'"),
        ("name: n\npath: p\ntype: onnx\n", "'onnx' is not allowed"),
        ("name: n\npath: p\nversion: first\n", "no number"),
        ("- a\n", "no model file"),
        ("name: [\n", "model.yml:"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(JobError, match=said):
        read_model_file(written(tmp_path, text))
