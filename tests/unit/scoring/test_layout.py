"""Where scripts find their models: as Azure ML lays them out, and as Muster does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from muster.job.endpoints.models import ModelInput, inputs_of, variables_of
from muster.scoring import layout


def told(monkeypatch: pytest.MonkeyPatch, folder: Path, *models: ModelInput) -> dict[str, str]:
    """The variables of a replica whose models lie where their inputs say."""
    (folder / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder / "tmp"))
    inputs = {f"MUSTER_INPUT_{key}": str(given["path"]) for key, given in inputs_of(models).items()}  # type: ignore
    environ = {**{key: str(value) for key, value in variables_of(models).items()}, **inputs, "MUSTER_RUN_ID": "r"}
    layout.tell(environ)
    # Another replica of the same run finds it there.
    layout.tell(environ)
    return environ


def test_a_file_lies_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.pt").write_text("w")
    found = told(monkeypatch, tmp_path, ModelInput(str(tmp_path / "net.pt"), "net", "3", "net.pt"))
    assert Path(found["AZUREML_MODEL_DIR"], "net.pt").read_text() == "w"
    assert found["MUSTER_MODEL_PATH"] == str(tmp_path / "net.pt")
    assert json.loads(found["MUSTER_MODEL_PATHS"]) == {"net": str(tmp_path / "net.pt")}


def test_a_folder_is_there_by_its_own_name_and_so_is_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "staged" / "inner").mkdir(parents=True)
    (tmp_path / "staged" / "net.pt").write_text("w")
    (tmp_path / "staged" / "inner" / "more.txt").write_text("m")
    found = told(monkeypatch, tmp_path, ModelInput(str(tmp_path / "staged"), "net", "3", "model"))
    place = Path(found["AZUREML_MODEL_DIR"])
    for name in ("net.pt", "model/net.pt"):
        assert (place / name).read_text() == "w"
    for name in ("inner/more.txt", "model/inner/more.txt"):
        assert (place / name).read_text() == "m"
    assert found["MUSTER_MODEL_PATH"] == str(tmp_path / "staged")


def test_several_lie_below_their_names_and_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "staged").mkdir()
    for name in ("net.pt", "staged/weights"):
        (tmp_path / name).write_text(name)
    models = (
        ModelInput(str(tmp_path / "net.pt"), "net", "3", "net.pt"),
        ModelInput(str(tmp_path / "staged"), "other", "1", "trained"),
    )
    place = Path(told(monkeypatch, tmp_path, *models)["AZUREML_MODEL_DIR"])
    assert (place / "net" / "3" / "net.pt").read_text() == "net.pt"
    assert (place / "other" / "1" / "trained" / "weights").read_text() == "staged/weights"


def test_without_models_nothing_is_said() -> None:
    environ: dict[str, str] = {}
    assert layout.tell(environ) == "" and environ == {}
