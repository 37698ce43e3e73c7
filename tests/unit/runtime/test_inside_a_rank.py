"""What a rank sees: a copy of the in-run part alone, with any Python from 3.8."""

from __future__ import annotations

import ast
import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src" / "muster"
COPIED = ("__init__.py", "run.py", "errors.py", "runtime")
SCRIPT = """
import sys
from muster import Run
from muster.run import Run as SameRun
run = Run.get_context()
assert Run is SameRun and run is SameRun.get_context()
run.log("loss", 0.5, step=1)
run.upload_file("outputs/script.py", sys.argv[0])
run.register_model("m", "outputs")
try:
    from muster import Workspace
    print("whole")
except ImportError as error:
    print("pip install muster-ml" in str(error))
print(any(name.startswith(("pydantic", "yaml", "muster.sdk")) for name in sys.modules))
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The runtime folder as an agent lays it out."""
    folder = tmp_path / "runtime" / "muster"
    folder.mkdir(parents=True)
    for name in COPIED:
        if (SOURCE / name).is_dir():
            shutil.copytree(SOURCE / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(SOURCE / name, folder / name)
    return folder.parent


def old_python() -> str | None:
    """A real Python 3.8, wherever it is."""
    found = shutil.which("python3.8")
    # Tests have a home of their own; an interpreter may lie in the user's real one.
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    candidates = [*([found] if found else []), *map(str, home.glob(".pyenv/versions/3.8.*/bin/python"))]
    return next((python for python in candidates if answers(python)), None)


def answers(python: str) -> bool:
    return subprocess.run([python, "--version"], capture_output=True, check=False).returncode == 0


def run_script(python: list[str], copy: Path, tmp_path: Path, script: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    (tmp_path / "train.py").write_text(script)
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(copy),
        "MUSTER_RUN_ID": "r-1",
        "MUSTER_EVENTS_FILE": str(tmp_path / "events.jsonl"),
        "MUSTER_UPLOADS_DIR": str(uploads),
    }
    command = [*python, "-W", "error", str(tmp_path / "train.py")]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_the_in_run_part_works_alone_in_the_oldest_python_at_hand(copy: Path, tmp_path: Path) -> None:
    # Without site-packages, an installed Muster is out of reach, as where only the copy exists.
    python = [old_python() or sys.executable, "-S"]
    done = run_script(python, copy, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "False"]
    names = [json.loads(line)["kind"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert names == ["metric", "model"]
    assert (tmp_path / "uploads/outputs/script.py").exists()


def test_an_installed_muster_adds_the_rest_to_the_copy(copy: Path, tmp_path: Path) -> None:
    script = (
        "import muster.runtime.run as r\nprint(r.__file__)\nfrom muster import Workspace\nprint(Workspace.__name__)"
    )
    done = run_script([sys.executable], copy, tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(copy / "muster/runtime/run.py"), "Workspace"]


def test_a_script_that_says_it_failed_ends_with_exit_code_1(copy: Path, tmp_path: Path) -> None:
    script = "from muster import Run\nrun = Run.get_context()\nrun.fail('loss is NaN')\nprint('goes on')"
    done = run_script([sys.executable, "-S"], copy, tmp_path, script)
    assert (done.returncode, done.stdout.strip()) == (1, "goes on")
    assert "loss is NaN" in done.stderr


@pytest.mark.parametrize(("body", "code"), [("1 / 0", 1), ("1", 0)])
def test_a_run_is_a_context_that_fails_with_its_block(copy: Path, tmp_path: Path, body: str, code: int) -> None:
    script = f"from muster import Run\ntry:\n  with Run.get_context(): {body}\nexcept ZeroDivisionError: pass"
    assert run_script([sys.executable, "-S"], copy, tmp_path, script).returncode == code


def python_files() -> list[Path]:
    return [
        file for name in COPIED for file in ([SOURCE / name] if name.endswith(".py") else (SOURCE / name).rglob("*.py"))
    ]


def annotations(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if isinstance(found := getattr(node, name, None), ast.expr):
                yield found


def has_union(annotation: ast.expr) -> bool:
    """`int | None`, which vermin cannot tell from other uses of the sign."""
    return any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) for node in ast.walk(annotation))


def test_the_in_run_part_is_written_for_python_3_8() -> None:
    options = ["--no-tips", "--violations", "-t=3.8-", "--eval-annotations"]
    done = subprocess.run(
        [sys.executable, "-c", "from vermin import main; main()", *options, *map(str, python_files())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for file in python_files():
        tree = ast.parse(file.read_text(), feature_version=(3, 8))
        assert not [ast.unparse(found) for found in annotations(tree) if has_union(found)], file


@pytest.mark.parametrize("file", python_files(), ids=lambda file: str(file.relative_to(SOURCE)))
def test_the_in_run_part_imports_only_itself_and_the_standard_library(file: Path) -> None:
    allowed = sys.stdlib_module_names | {"muster"}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= allowed
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] in allowed
            if file.parent.name == "runtime":
                assert not (node.module or "").startswith("muster.") or node.module.startswith(  # type: ignore[union-attr]
                    ("muster.runtime", "muster.errors")
                )


def test_importing_muster_loads_nothing_of_it() -> None:
    script = "import sys, muster; print([name for name in sys.modules if name.startswith('muster.')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
