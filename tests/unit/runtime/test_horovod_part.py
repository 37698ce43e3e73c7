"""`import horovod` in a rank: Muster's layer where the job asks for it and the real package is absent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.agent.run import runtime_copy
from muster.defaults import RANK_HOOKS

SCRIPT = """
try:
    import horovod
except ModuleNotFoundError:
    print("absent")
else:
    from horovod.common.exceptions import HorovodInternalError
    print(getattr(horovod, "__version__", "real"), HorovodInternalError.__module__)
"""


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """The folder as an agent lays it out."""
    runtime_copy.install(tmp_path / "node" / "1")
    return tmp_path / "node" / "1"


def said(runtime: Path, path: str = "", **variables: str) -> str:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{runtime}:{path}", "MUSTER_HOOKS": ",".join(RANK_HOOKS)}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env={**env, **variables}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_job_that_asks_for_it_finds_horovod(runtime: Path) -> None:
    assert said(runtime, HOROVOD_COMPAT="1") == "0.28.1 horovod.common.exceptions"


@pytest.mark.parametrize("variables", [{}, {"HOROVOD_COMPAT": "0"}])
def test_nobody_else_does(runtime: Path, variables: dict[str, str]) -> None:
    assert said(runtime, **variables) == "absent"


def test_an_installed_horovod_comes_first(runtime: Path, tmp_path: Path) -> None:
    real = tmp_path / "site" / "horovod" / "common"
    real.mkdir(parents=True)
    (real.parent / "__init__.py").write_text("__version__ = 'real'\n")
    (real / "__init__.py").touch()
    (real / "exceptions.py").write_text("class HorovodInternalError(Exception): pass\n")
    assert said(runtime, path=str(tmp_path / "site"), HOROVOD_COMPAT="1") == "real horovod.common.exceptions"
