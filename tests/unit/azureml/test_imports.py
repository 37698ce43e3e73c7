"""`python -m muster.azureml`: imports of Azure ML's packages mean Muster."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from muster.runtime.azureml_names import MODULES, REFUSED, WHOLE


def run(tmp_path: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "submit.py").write_text(code)
    command = [sys.executable, "-m", "muster.azureml", str(tmp_path / "submit.py"), *arguments]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("module", [name for name, names in MODULES.items() if names])
def test_every_name_of_the_table_is_there(module: str) -> None:
    for name, where in MODULES[module].items():
        home, _, other = where.partition(":")
        assert hasattr(importlib.import_module(home), other or name), f"{module}.{name}"


def test_the_whole_modules_are_there() -> None:
    for where in WHOLE.values():
        found = importlib.import_module(where)
        assert all(hasattr(found, name) for name in found.__all__)


def test_a_script_imports_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("HERE = 1\n")
    done = run(
        tmp_path,
        "import sys\n"
        "import azureml.core\n"
        "import azureml.core.run\n"
        "from beside import HERE\n"
        "from azureml.core import Environment, Experiment, ScriptRunConfig, Workspace\n"
        "from azureml.core.authentication import ServicePrincipalAuthentication\n"
        "from azureml.core.compute import AmlCompute, ComputeTarget\n"
        "from azureml.core.compute_target import ComputeTargetException\n"
        "from azureml.core.runconfig import DEFAULT_CPU_IMAGE, MpiConfiguration\n"
        "from azureml.data import OutputFileDatasetConfig\n"
        "from azureml.telemetry import set_diagnostics_collection\n"
        "from azureml.widgets import RunDetails\n"
        "from azure.ai.ml import Input, MLClient, command\n"
        "from azure.ai.ml.constants import AssetTypes\n"
        "from azure.identity import DefaultAzureCredential\n"
        "set_diagnostics_collection(send_diagnostics=True)\n"
        "print(ScriptRunConfig.__module__, azureml.core.VERSION, sys.argv[1:], __name__)\n",
        "--epochs",
        "3",
    )
    assert done.stdout.strip() == "muster.sdk.runconfig 1.60.0 ['--epochs', '3'] __main__", done.stderr


def test_what_has_no_counterpart_is_refused_by_name(tmp_path: Path) -> None:
    """A module or a name of one: what to do instead is said, of a class when it is used."""
    done = run(
        tmp_path,
        "import importlib\n"
        f"for name in {[*REFUSED, 'azureml.nothing.at.all', 'azureml.core.Nothing', 'azure.ai.ml.nothing']}:\n"
        "    home, _, last = name.rpartition('.')\n"
        "    taken = f'from {home} import {last}'\n"
        "    for statement in (f'import {name}', taken, f'{taken}; {last}()'):\n"
        "        try:\n"
        "            exec(statement, {})\n"
        "        except ImportError as error:\n"
        "            print(statement, '->', error)\n"
        "        else:\n"
        "            print('IMPORTED', statement)\n",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    kept = [line for line in lines if line.startswith("IMPORTED")]
    # A class of a module that is there may be imported and left unused, as notebooks do.
    assert 30 < len(kept) < len(REFUSED) and all(
        re.fullmatch(r"IMPORTED from \S+ import [A-Z]\w+", line) for line in kept
    )
    refused = [line for line in lines if "cannot be imported: " in line or "cannot be used: " in line]
    assert len(lines) == 3 * (len(REFUSED) + 3) == len(refused) + len(kept)
    assert any("azureml.core.Nothing cannot be imported" in line and "ScriptRunConfig" in line for line in lines)


def test_a_class_that_is_refused_names_the_line_that_uses_it(tmp_path: Path) -> None:
    code = "from azureml.core.compute import AksCompute, ComputeTarget\nprint('trains')\n"
    done = run(tmp_path, code + "AksCompute.provisioning_configuration()\n")
    assert (done.returncode, done.stdout) == (1, "trains\n") and "Traceback" not in done.stderr
    assert f"{tmp_path / 'submit.py'}:3: azureml.core.compute.AksCompute cannot be used: services run" in done.stderr


def test_a_refusal_is_printed_without_a_traceback(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "from azureml.core import Environment\nEnvironment.from_existing_conda_environment('a', 'b')\n",
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: the conda environment 'b' cannot be taken over")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("config.save_to_directory('x')", "ScriptRunConfig of Muster has no 'save_to_directory'; it has "),
        ("config.comand = config.argumnets", "has no 'argumnets'; it has arguments"),
        ("ScriptRunConfig('.', scrip='a.py')", "unexpected keyword argument 'scrip'"),
        (
            "from azure.ai.ml.entities import Data; Data(pth='x')",
            "Data.__init__() got an unexpected keyword argument 'pth'",
        ),
        ("Workspace.nothing", "Workspace of Muster has no 'nothing'; it has "),
    ],
)
def test_what_a_class_does_not_have_is_said_without_a_traceback(tmp_path: Path, statement: str, said: str) -> None:
    start = "from azureml.core import ScriptRunConfig, Workspace\nconfig = ScriptRunConfig('.', 'a.py')\n"
    done = run(tmp_path, start + statement)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    first, hint = done.stderr.splitlines()
    assert first.startswith(f"error: {tmp_path / 'submit.py'}:3: ") and said in first and "docs/coming" in hint


def test_errors_of_the_script_itself_are_pythons(tmp_path: Path) -> None:
    done = run(tmp_path, "from azureml.core import Run\nclass Mine: pass\nMine().nothing\n")
    assert "AttributeError: 'Mine' object has no attribute 'nothing'" in done.stderr and "Traceback" in done.stderr


@pytest.mark.parametrize(("words", "code"), [([], 2), (["--help"], 0), (["nothing.py"], 2)])
def test_the_runner_explains_itself(words: list[str], code: int) -> None:
    command = [sys.executable, "-m", "muster.azureml", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "usage: python -m muster.azureml SCRIPT" in done.stdout + done.stderr


def test_python_m_muster_is_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "muster", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "muster run train.py" in done.stdout


def test_an_import_that_is_refused_names_the_line_and_no_line_of_musters(tmp_path: Path) -> None:
    (tmp_path / "tuning.py").write_text("x = 1\nfrom azureml.train.hyperdrive import choice\n")
    done = run(tmp_path, "import tuning\n")
    assert done.returncode == 1
    where = f"error: {tmp_path / 'tuning.py'}:2: azureml.train.hyperdrive cannot be imported: "
    assert done.stderr.startswith(where)
    assert "Traceback" not in done.stderr
