"""A workspace that all framework tests share, and the record of what they saw."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.frameworks.environments import home_folder
from tests.frameworks.resnet50 import results as resnet50
from tests.frameworks.results import Record, write

_RECORDS = pytest.StashKey[list[Record]]()
_QUALITIES = pytest.StashKey[list[resnet50.Quality]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record", action="store_true", help="write docs/*.json and the tables in launchers.md and resnet50.md"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RECORDS] = []
    config.stash[_QUALITIES] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    records, qualities = session.config.stash[_RECORDS], session.config.stash[_QUALITIES]
    if records and session.config.getoption("--record"):
        write(records)
    if qualities and session.config.getoption("--record"):
        resnet50.write(qualities)


@pytest.fixture(scope="session")
def records(pytestconfig: pytest.Config) -> list[Record]:
    return pytestconfig.stash[_RECORDS]


@pytest.fixture(scope="session")
def qualities(pytestconfig: pytest.Config) -> list[resnet50.Quality]:
    return pytestconfig.stash[_QUALITIES]


@pytest.fixture(scope="session")
def jobs_home() -> Iterator[Path]:
    """The home that jobs see: frameworks keep there what they compile."""
    before = os.environ["HOME"]
    os.environ["HOME"] = str(home_folder())
    yield home_folder()
    os.environ["HOME"] = before


@pytest.fixture(scope="session")
def shared(jobs_home: Path) -> Iterator[Path]:
    """A workspace folder; its server starts with the first run and ends with the last."""
    folder = Path(tempfile.mkdtemp(prefix="mf-"))
    muster = Path(sys.executable).with_name("muster")
    subprocess.run([muster, "init"], cwd=folder, check=True, capture_output=True)
    yield folder
    subprocess.run([muster, "down"], cwd=folder, check=True, capture_output=True)
    shutil.rmtree(folder)
