"""Projects of MLflow run as jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.cli.overrides import Overrides, with_overrides
from muster.errors import JobError
from muster.job.jobfile import LoadedJob, load_job_file, read_job_file
from muster.job.parts import EnvironmentSpec, Input

PROJECT = """\
name: tutorial
python_env: python_env.yaml
entry_points:
  main:
    parameters:
      data: {type: path, default: data.csv}
      alpha: float
      l1_ratio: {type: float, default: 0.1}
      label: {type: string, default: v7}
    command: "python train.py {data} --alpha {alpha} --l1 {l1_ratio} --label {label} --at ${HOME} --json '{{}}'"
  validate:
    command: "python validate.py"
"""
PYTHON = """\
python: 3.10
build_dependencies: [pip, setuptools==58.1.0]
dependencies: [-r requirements.txt, tabulate]
"""


def project(folder: Path, text: str = PROJECT, **inputs: str) -> LoadedJob:
    (folder / "MLproject").write_text(text)
    (folder / "python_env.yaml").write_text(PYTHON)
    (folder / "data.csv").touch()
    document = read_job_file(folder / "MLproject")
    return document.checked(with_overrides(document.data, Overrides(inputs=inputs)))


def test_the_main_entry_point_is_the_command_and_its_parameters_are_inputs(tmp_path: Path) -> None:
    spec = project(tmp_path, alpha="0.5").spec
    assert spec.command == (
        "python train.py ${{inputs.data}} --alpha ${{inputs.alpha}} --l1 ${{inputs.l1_ratio}} "
        "--label ${{inputs.label}} --at ${HOME} --json '{}'"
    )
    assert (spec.code, spec.display_name) == (".", "tutorial")
    assert spec.inputs["data"] == Input(type="uri_file", path="data.csv")
    assert {name: spec.inputs[name] for name in ("alpha", "l1_ratio", "label")} == {
        "alpha": 0.5, "l1_ratio": 0.1, "label": "v7",
    }  # fmt: skip


def test_its_python_and_packages_are_the_environment(tmp_path: Path) -> None:
    environment = project(tmp_path, alpha="1").spec.environment
    assert isinstance(environment, EnvironmentSpec) and environment.python == "3.10"
    assert environment.pip == (f"-r {tmp_path / 'requirements.txt'}", "tabulate")
    of_conda = PROJECT.replace("python_env: python_env.yaml", "conda_env: conda.yaml")
    (tmp_path / "conda.yaml").write_text("dependencies: [python=3.10, pip]\n")
    found = project(tmp_path, of_conda, alpha="1").spec.environment
    assert isinstance(found, EnvironmentSpec) and found.conda_file == str(tmp_path / "conda.yaml")
    in_an_image = PROJECT.replace("python_env: python_env.yaml", "docker_env: {image: me/train}")
    found = project(tmp_path, in_an_image, alpha="1").spec.environment
    assert isinstance(found, EnvironmentSpec) and found.image == "me/train"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{alpha}", "{beta}", "{beta}, which is no parameter; there are: data, alpha"),
        ("alpha: float", "alpha: double", "'double' is not a type of MLflow's"),
        ("  main:", "  train:", "there is no entry point 'main'; there are: train, validate"),
        ("alpha: float", "alpha: float", "inputs.alpha"),
    ],
)
def test_what_cannot_be_run_says_why(tmp_path: Path, old: str, new: str, said: str) -> None:
    (tmp_path / "MLproject").write_text(PROJECT.replace(old, new))
    (tmp_path / "python_env.yaml").write_text(PYTHON)
    with pytest.raises(JobError) as refused:
        load_job_file(tmp_path / "MLproject")
    assert said in str(refused.value)
