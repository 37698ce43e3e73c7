"""The launcher examples say the same in all their forms: job file, SDK, table of what was run, index."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from tests.frameworks.cases import CASES, Case
from tests.frameworks.environments import ENVIRONMENTS
from tests.frameworks.results import DOCUMENT, read, table

from muster.job.jobfile import load_job_file
from muster.job.spec import JobSpec
from muster.launch.layout import layout
from muster.sdk.job import to_job

EXAMPLES = Path(__file__).parents[2] / "examples" / "launchers"
WITH_SDK = [case for case in CASES if case.sdk_name]


def job_file(case: Case) -> JobSpec:
    return load_job_file(EXAMPLES / f"{case.example}.yml").spec


@pytest.fixture(scope="module")
def submit() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / "submit.py"))


def test_every_example_is_a_case() -> None:
    there = {f"{path.parent.name}/{path.stem}" for path in EXAMPLES.glob("*/*.yml")}
    assert there == {case.example for case in CASES}


def test_every_case_has_a_name_and_an_environment_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    # Those of MLflow and of scoring have tests of their own.
    others = {name for name in ENVIRONMENTS if "mlflow" in name} | {"scoring"}
    assert {case.environment for case in CASES} | others == ENVIRONMENTS.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_job_file_is_as_large_as_its_case_says(case: Case) -> None:
    spec = job_file(case)
    assert spec.resources.instance_count == case.nodes
    starts = len(layout(spec))
    launcher_starts_the_rest = case.convention in ("PyTorch, per node", "single process")
    assert starts == case.nodes if launcher_starts_the_rest else starts >= case.nodes * case.per_node


@pytest.mark.parametrize("case", WITH_SDK, ids=lambda case: case.name)
def test_the_sdk_says_the_same_as_the_job_file(case: Case, submit: dict[str, Any]) -> None:
    by_sdk, _ = to_job(submit["config"](case.sdk_name), "launchers")
    by_file = job_file(case)
    assert by_sdk.resources.instance_count == by_file.resources.instance_count
    assert (by_sdk.distribution is None) == (by_file.distribution is None)
    if by_sdk.distribution and by_file.distribution:
        assert by_sdk.distribution.type == by_file.distribution.type
    assert len(layout(by_sdk)) == len(layout(by_file))
    assert by_sdk.environment_variables == by_file.environment_variables


def test_the_index_names_every_job_file() -> None:
    index = (EXAMPLES / "README.md").read_text()
    linked = set(re.findall(r"\(([\w-]+/[\w-]+)\.yml\)", index))
    assert linked == {case.example for case in CASES}


def test_the_table_in_the_document_is_the_record() -> None:
    assert table(read()) in DOCUMENT.read_text()


def test_every_case_was_run_in_every_way_and_passed() -> None:
    wanted = {(case.name, "job file") for case in CASES} | {(case.name, "SDK") for case in WITH_SDK}
    assert wanted - {(record.case, record.way) for record in read() if record.passed} == set()
