"""Models from runs, folders and MLflow's client, as inputs and outputs of jobs, against a real server."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MUSTER
from tests.integration.cli.conftest import cli
from tests.integration.mlflow.conftest import mlflow_python

from muster.client.connect import connect
from muster.client.models import Models

__all__ = ["cli", "mlflow_python"]

TRAIN = """
import os, pathlib
target = pathlib.Path(os.environ["MUSTER_OUTPUT_net"])
(target / "sub").mkdir(parents=True)
(target / "weights.bin").write_bytes(b"weights")
(target / "sub" / "more.bin").write_bytes(b"more")
from muster import Run
Run.get_context().log("accuracy", 0.75)
"""


@pytest.fixture
def trained(cli: Any) -> str:
    cli.script("train.py", TRAIN)
    cli.script("job.yml", "command: python train.py\ncode: .\noutputs:\n  net: {type: custom_model, name: net}\n")
    return str(cli.run_id("job.yml"))


def test_an_output_registers_itself_and_outlives_its_run(cli: Any, trained: str) -> None:
    assert cli("wait", trained).returncode == 0
    shown = cli("model", "show", "net").stdout
    assert "2 files, 11 B" in shown and trained in shown and "accuracy=0.75" in shown
    cli.script(
        "use.yml",
        "command: cat ${{inputs.a}}/weights.bin ${{inputs.b}}/sub/more.bin\ninputs:\n"
        f"  a: {{type: custom_model, path: 'azureml:net@latest'}}\n  b: {{path: 'runs:/{trained}/outputs/net'}}\n",
    )
    done = cli("run", "use.yml")
    assert (done.returncode, done.stdout.strip()) == (0, "weightsmore"), done.stderr
    assert cli("rm", trained, "--yes").returncode == 0
    assert cli("model", "download", "net:1", "--to", "copy").returncode == 0
    assert (cli.folder / "copy" / "net" / "sub" / "more.bin").read_bytes() == b"more"
    assert "1 file removed" not in cli("gc", "--older-than", "1s").stderr
    done = cli("run", "--quiet", "use.yml", "--set", "inputs.b=models:/net/1")
    assert done.returncode == 2 or "models:/net/1" in done.stderr + done.stdout


def test_aliases_stages_and_deletion(cli: Any) -> None:
    for content in ("first", "second"):
        (cli.folder / "m.bin").write_text(content)
        assert cli("model", "register", "net", "--path", "m.bin").returncode == 0
    assert cli("model", "promote", "net:1", "--alias", "best", "--stage", "production").returncode == 0
    for path in ("models:/net@best", "models:/net/Production", "azureml:net:1"):
        cli.script("use.yml", f"command: cat ${{{{inputs.m}}}}\ninputs:\n  m: {{type: custom_model, path: '{path}'}}\n")
        assert cli("run", "use.yml").stdout.strip() == "first"
    compared = cli("model", "compare", "net:1", "net:2").stdout
    assert "digest" in compared and "best" in compared
    refused = cli("model", "delete", "net", "--yes")
    assert refused.returncode != 0 and "names no version" in refused.stderr
    place = Models(connect().calls).details("net:1").model.address
    assert cli("model", "delete", "net@best", "--yes").returncode == 0
    missing = cli("model", "show", "net@best")
    assert missing.returncode != 0 and "no alias 'best'" in missing.stderr
    assert place is not None and place.split("/")[-2] not in str(list((cli.folder / ".muster/store").rglob("*")))


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("{type: custom_model, path: 'azureml:nothing:1'}", "there is no model 'nothing'"),
        ("{type: custom_model, path: 'models:/net/9'}", "has no version 9"),
        ("{path: 'runs:/nobody/outputs'}", "nobody"),
        ("{type: mlflow_model, path: 'azureml:net:1'}", "is a custom_model"),
        ("{path: 'azureml:net:1'}", "There is a model of that name"),
    ],
)
def test_what_cannot_be_an_input_is_refused_before_anything_starts(cli: Any, item: str, said: str) -> None:
    (cli.folder / "m.bin").write_text("m")
    assert cli("model", "register", "net", "--path", "m.bin").returncode == 0
    cli.script("use.yml", f"command: cat ${{{{inputs.m}}}}\ninputs:\n  m: {item}\n")
    done = cli("run", "use.yml")
    assert done.returncode != 0 and said in done.stderr and not connect().runs()


def test_mlflows_client_and_muster_see_the_same_models(cli: Any, mlflow_python: Path, trained: str) -> None:
    assert cli("wait", trained).returncode == 0
    code = (
        "import mlflow\nc = mlflow.MlflowClient()\n"
        "assert c.get_model_version('net', '1').name == 'net'\n"
        f"c.create_model_version('net', 'runs:/{trained}/outputs/net/sub', run_id='{trained}')\n"
        "c.set_registered_model_alias('net', 'mine', '2')\n"
    )
    done = subprocess.run(
        [MUSTER, "mlflow", "--", str(mlflow_python), "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    cli.script("use.yml", "command: ls ${{inputs.m}}\ninputs:\n  m: {path: 'models:/net@mine'}\n")
    assert cli("run", "use.yml").stdout.strip() == "more.bin"
