"""Scripts that import azureml, and those that know one spelling of --local_rank, run as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.agent.run import runtime_copy
from muster.defaults import RANK_HOOKS
from muster.runtime.azureml_names import MODULES

SCRIPT = """
import azureml.core
from azureml.core import Dataset, Model, Run, Workspace
from azureml.core.run import Run as SameRun, _OfflineRun
run = Run.get_context()
assert Run is SameRun and not isinstance(run, _OfflineRun)
run.log("loss", 0.5)
ws = run.experiment.workspace
with Dataset.get_by_name(ws, name="my-images").mount() as mounted:
    print(mounted.mount_point)
assert Dataset.get_by_name(ws, "Photos of 2020").to_path() == Dataset.get_by_name(ws, "my-images").to_path()
open("model.bin", "w").write("weights")
Model.register(workspace=ws, model_path="model.bin", model_name="net")
try:
    ws.get_default_datastore()
except Exception as error:
    print(error)
"""


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """The folder as an agent lays it out."""
    runtime_copy.install(tmp_path / "node" / "1")
    return tmp_path / "node" / "1"


def run(runtime: Path, code: str, *arguments: str, path: str = "", inside: bool = True) -> str:
    uploads = runtime / "uploads"
    uploads.mkdir(exist_ok=True)
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{runtime}:{path}",
        "MUSTER_HOOKS": ",".join(RANK_HOOKS),
        "MUSTER_EVENTS_FILE": str(runtime / "events.jsonl"),
        "MUSTER_UPLOADS_DIR": str(uploads),
        "MUSTER_INPUT_my_images": str(uploads),
        "MUSTER_ASSETS": '{"Photos-of-2020": "my_images"}',
        **({"MUSTER_RUN_ID": "r-1"} if inside else {}),
    }
    (runtime / "train.py").write_text(code)
    command = [sys.executable, "train.py", *arguments]
    done = subprocess.run(command, env=env, cwd=runtime, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_script_of_azure_ml_finds_its_run(runtime: Path) -> None:
    said = run(runtime, SCRIPT)
    assert str(runtime / "uploads") in said
    assert "workspace.get_default_datastore is not available inside a run" in said
    events = [json.loads(line) for line in (runtime / "events.jsonl").read_text().splitlines()]
    assert [(event["kind"], event["name"]) for event in events] == [("metric", "loss"), ("model", "net")]
    assert (runtime / "uploads" / "outputs/models/net/model.bin").read_text() == "weights"


def test_secrets_files_and_properties_of_a_run(runtime: Path) -> None:
    said = run(
        runtime,
        "import os\nfrom azureml.core import Keyvault, Run\nos.environ['SECRET_my_key'] = 'open sesame'\n"
        "run = Run.get_context()\nprint(run.get_secret('my-key'), run.experiment.workspace.get_default_keyvault()"
        ".get_secret('my_key'))\n"
        "run.upload_file('reports/a.txt', 'train.py')\nrun.download_file('reports/a.txt', 'again.py')\n"
        "print(run.get_file_names(), open('again.py').read() == open('train.py').read(), run.status, run.properties)\n"
        "try:\n    run.get_secret('other')\nexcept Exception as error:\n    print(error, error.hint)\n",
    )
    assert said.splitlines()[:2] == ["open sesame open sesame", "['reports/a.txt'] True Running {}"]
    assert "no secret other" in said and "SECRET_other: ${{secrets.other}}" in said


def test_an_installed_azureml_comes_first_module_by_module(runtime: Path, tmp_path: Path) -> None:
    installed = tmp_path / "site" / "azureml"
    (installed / "core").mkdir(parents=True)
    (installed / "core" / "__init__.py").write_text("Run = 'the real one'\n")
    said = run(runtime, "from azureml.core import Run; print(Run)", path=str(installed.parent))
    assert said.strip() == "the real one"


def test_parts_that_an_installed_azureml_lacks_are_muster_s(runtime: Path, tmp_path: Path) -> None:
    # A namespace package, as azureml-mlflow alone would leave it.
    (tmp_path / "site" / "azureml" / "mlflow").mkdir(parents=True)
    (tmp_path / "site" / "azureml" / "mlflow" / "__init__.py").write_text("")
    code = "import azureml.mlflow; from azureml.core import Run; print(Run.get_context().id, azureml.mlflow.__file__)"
    said = run(runtime, code, path=str(tmp_path / "site"))
    assert said.startswith("r-1 ") and str(tmp_path / "site") in said


def test_every_name_that_a_submission_imports_can_be_imported_in_a_rank(runtime: Path) -> None:
    names = {module: names for module, names in MODULES.items() if module.split(".")[0] == "azureml"}
    statements = "".join(f"from {module} import {', '.join(found)}\n" for module, found in names.items() if found)
    said = run(
        runtime,
        statements + "from azureml.core import Run, ScriptRunConfig, Workspace\n"
        "from azureml.core.authentication import MsiAuthentication\n"
        "ws = Workspace.from_config(auth=MsiAuthentication())\n"
        "print([ws.subscription_id, ws.resource_group, ws.location], Run.get_context().id)\n"
        "for use in (lambda: ScriptRunConfig('.'), lambda: Environment.from_docker_image('a', 'b'),\n"
        "            lambda: Datastore.get(ws, 'a'), lambda: ScriptRunConfig.nothing):\n"
        "    try:\n        use()\n    except AzureMLException as error:\n        print(error)\n"
        "class Mine(ServiceException):\n    pass\n",
    )
    first, *refused = said.splitlines()
    assert first == "['', '', 'local'] r-1"
    used = ("ScriptRunConfig", "Environment.from_docker_image", "Datastore.get", "ScriptRunConfig.nothing")
    refused = [line for line in refused if "a rank does not talk to the server" in line]
    assert all(name in line for name, line in zip(used, refused, strict=True))


@pytest.mark.parametrize("statement", ["import azureml.opendatasets", "from azureml.train.hyperdrive import choice"])
def test_what_has_no_counterpart_says_what_to_do_in_a_rank_too(runtime: Path, statement: str) -> None:
    code = f"try:\n {statement}\nexcept ModuleNotFoundError as error: print(error.name, error)"
    name, text = run(runtime, code).split(" ", 1)
    assert text.startswith(f"{name} cannot be imported: ") and "docs/coming-from-azureml.md" in text


def test_what_nobody_has_is_still_missing(runtime: Path) -> None:
    code = "try:\n import azureml.nothing\nexcept ModuleNotFoundError as error: print(error.name)"
    assert run(runtime, code).strip() == "azureml.nothing"


@pytest.mark.parametrize("known", ["--local_rank", "--local-rank"])
@pytest.mark.parametrize("given", [["--local-rank=3"], ["--local_rank", "3"]])
def test_either_spelling_of_local_rank_reaches_the_script(runtime: Path, known: str, given: list[str]) -> None:
    code = f"import argparse; p = argparse.ArgumentParser(); p.add_argument({known!r}, type=int)\nprint(p.parse_args())"
    assert run(runtime, code, *given).strip() == "Namespace(local_rank=3)"


def test_a_parser_that_knows_neither_is_left_alone(runtime: Path) -> None:
    code = "import argparse; print(argparse.ArgumentParser().parse_known_args()[1])"
    assert run(runtime, code, "--local-rank=3").strip() == "['--local-rank=3']"
