"""Launcher examples that need no more than this Python has; tests/frameworks runs them all."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.frameworks.cases import CASES, Case
from tests.frameworks.training import train

NEEDS = {"pytorch/torchrun": "torch", "mpi/job": "mpi4py", "horovod-torch/compat": "torch", "shell/job": "muster"}
HERE = [case for case in CASES if case.name in NEEDS]


@pytest.mark.parametrize("case", HERE, ids=lambda case: case.name)
def test_an_example_trains_through_its_job_file(case: Case, workspace: Path) -> None:
    _check(case, workspace, sdk=False)


@pytest.mark.parametrize(
    "case", [case for case in HERE if case.name in ("mpi/job", "shell/job")], ids=lambda case: case.name
)
def test_an_example_trains_through_the_sdk(case: Case, workspace: Path) -> None:
    _check(case, workspace, sdk=True)


def _check(case: Case, workspace: Path, *, sdk: bool) -> None:
    if find_spec(NEEDS[case.name]) is None:
        pytest.skip(f"{NEEDS[case.name]} is not installed")
    training = train(case, Path(sys.executable).parent, workspace, sdk=sdk)
    assert not training.problem, f"{training.problem}\n{training.said}"
