"""Real MLflow clients, each in a virtual environment that is made once and kept in ~/.cache/muster-tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.frameworks.environments import cache_folder

from muster.host.locks import FileLock

CLIENTS = ("2.22.5", "3.17.2")
# The last two for a store in SQLite, which the small client can write as well.
_PACKAGES = ("numpy", "pandas", "cloudpickle", "sqlalchemy<2.1", "alembic")


@pytest.fixture(scope="session", params=CLIENTS)
def mlflow_python(request: pytest.FixtureRequest) -> Path:
    """The Python of a client of this version."""
    folder = cache_folder() / f"mlflow-client-{request.param}-{sys.version_info.major}.{sys.version_info.minor}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")).acquire():
        if not (folder / "made").exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            packages = [f"mlflow-skinny=={request.param}", *_PACKAGES]
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, *packages], check=True)
            (folder / "made").touch()
    return folder / "bin" / "python"
