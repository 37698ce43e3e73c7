"""Every example of examples/launchers trains with its real framework: the loss falls, ranks end with equal weights."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

import pytest
from tests.frameworks.cases import CASES, Case
from tests.frameworks.environments import ENVIRONMENTS
from tests.frameworks.results import Record
from tests.frameworks.training import TIMEOUT_S, train

WITH_SDK = [case for case in CASES if case.sdk_name]


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_job_file_trains(case: Case, shared: Path, records: list[Record]) -> None:
    check(case, shared, records, sdk=False)


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("case", WITH_SDK, ids=lambda case: case.name)
def test_the_sdk_trains(case: Case, shared: Path, records: list[Record]) -> None:
    check(case, shared, records, sdk=True)


def check(case: Case, folder: Path, records: list[Record], *, sdk: bool) -> None:
    environment = ENVIRONMENTS[case.environment]
    if not environment.is_made:
        pytest.skip(f"the environment {case.environment} is not made (make frameworks)")
    training = train(case, environment.folder / "bin", folder, sdk=sdk)
    way, versions = "SDK" if sdk else "job file", versions_of(case.environment, case.packages)
    records.append(Record(case.name, way, not training.problem, round(training.seconds, 1), versions))
    assert not training.problem, f"{training.problem}\n{training.said[-6000:]}"


def versions_of(environment: str, packages: Iterable[str]) -> dict[str, str]:
    """Of the packages that the table shows, as they are installed."""
    (folder,) = (ENVIRONMENTS[environment].folder / "lib").glob("python*/site-packages")
    installed = {_normal(found.name): found.version for found in distributions(path=[str(folder)])}
    return {package: installed[_normal(package)] for package in packages}


def _normal(name: str) -> str:
    return name.lower().replace("-", "_")
