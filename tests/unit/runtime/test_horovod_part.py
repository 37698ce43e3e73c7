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


def said(runtime: Path, code: str = SCRIPT, path: str = "", **variables: str) -> str:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{runtime}:{path}", "MUSTER_HOOKS": ",".join(RANK_HOOKS)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={**env, **variables}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_job_that_asks_for_it_finds_horovod(runtime: Path) -> None:
    assert said(runtime, HOROVOD_COMPAT="1") == "0.28.1 horovod.common.exceptions"


@pytest.mark.parametrize("variables", [{}, {"HOROVOD_COMPAT": "0"}])
def test_nobody_else_does(runtime: Path, variables: dict[str, str]) -> None:
    assert said(runtime, **variables) == "absent"


KERAS = """
import keras, tf_keras
import keras.backend as K
from keras import layers
import horovod._keras.callbacks as callbacks

assert keras is tf_keras and keras.layers is tf_keras.layers is layers and tf_keras.__spec__.name == "tf_keras"
class Optimizer:
    momentum = 0.9
class Callback(callbacks.LearningRateScheduleCallbackImpl):
    class model:
        optimizer = Optimizer()
    momentum_correction = True
callback = Callback()
callback._adjust_learning_rate(1.0)
print(K.get_value(3), callback.momentum_correction, callback.adjusted)
"""


def test_horovod_finds_the_keras_that_it_knows(runtime: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    files = {
        "keras/__init__.py": "raise ImportError('the other Keras')",
        "tf_keras/__init__.py": "from tf_keras import layers",
        "tf_keras/layers.py": "",
        "tf_keras/backend.py": "def get_value(value): return value",
        "horovod/__init__.py": "",
        "horovod/_keras/__init__.py": "",
        "horovod/_keras/callbacks.py": "class LearningRateScheduleCallbackImpl:\n"
        "    def _adjust_learning_rate(self, epoch): self.adjusted = epoch\n",
    }
    for name, content in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(content)
    assert said(runtime, KERAS, path=str(site), HOROVOD_KERAS="tf_keras") == "3 False 1.0"


def test_an_installed_horovod_comes_first(runtime: Path, tmp_path: Path) -> None:
    real = tmp_path / "site" / "horovod" / "common"
    real.mkdir(parents=True)
    (real.parent / "__init__.py").write_text("__version__ = 'real'\n")
    (real / "__init__.py").touch()
    (real / "exceptions.py").write_text("class HorovodInternalError(Exception): pass\n")
    assert said(runtime, path=str(tmp_path / "site"), HOROVOD_COMPAT="1") == "real horovod.common.exceptions"
