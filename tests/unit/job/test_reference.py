"""The reference of the job file is in step with the models, and its examples are job files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.azureml_reference import DOCUMENT as COMPARISON
from tools.azureml_reference import document
from tools.job_reference import reference

from muster.job.jobfile import parse_job
from muster.job.sections import keys_allowed_at

DOCUMENT = Path(__file__).parents[3] / "docs" / "job-file.md"


def test_the_document_is_in_step_with_the_models() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == reference(), "run: python -m tools.job_reference > docs/job-file.md"


def test_the_tables_for_those_who_come_from_azure_ml_are_in_step() -> None:
    assert COMPARISON.read_text(encoding="utf-8") == document(), "run: python -m tools.azureml_reference"


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", reference(), re.DOTALL))
def test_every_example_is_a_job_file(text: str) -> None:
    assert parse_job(text).notices == ()


def test_every_key_has_a_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", reference(), re.MULTILINE)
    assert {key for key, *_ in rows} >= set(keys_allowed_at(()))
    assert [key for key, kind, _, meaning in rows if not kind or not meaning] == []
