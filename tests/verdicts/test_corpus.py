"""Every recorded failure is judged; how often rightly is in docs/verdicts.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.verdicts.report import DOCUMENT, load, table, with_table

from muster.diagnosis.verdict import judge
from muster.wire.codec import from_json
from muster.wire.verdicts import CODES, Evidence

CASES = load()


def test_the_corpus_is_wide_enough() -> None:
    assert len(CASES) >= 60
    assert len({(case["code"], case["way"]) for case in CASES}) >= 25
    assert {case["convention"] for case in CASES} == {"single", "process", "torchrun", "mpirun"}
    assert {1, 2, 4, 8} <= {case["num_ranks"] for case in CASES}
    assert {case["code"] for case in CASES} == CODES.keys() - {"completed", "time_slice"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_the_rank_to_blame_is_named(case: dict) -> None:
    verdict = judge(from_json(Evidence, case["evidence"]))
    if case["rank"] is not None:
        assert verdict.rank in (case["rank"], *case["also"]), verdict.message


def test_nearly_every_cause_is_right() -> None:
    wrong = [case["name"] for case in CASES if judge(from_json(Evidence, case["evidence"])).code != case["code"]]
    assert len(wrong) <= 0.05 * len(CASES), wrong


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_a_verdict_says_what_a_person_needs(case: dict) -> None:
    verdict = judge(from_json(Evidence, case["evidence"]))
    assert verdict.message and verdict.next
    if verdict.code in ("exception", "environment", "disk_full", "gpu_oom"):
        assert verdict.lines


def test_the_table_in_the_document_is_this_one() -> None:
    text = DOCUMENT.read_text()
    assert with_table(text, table(CASES)) == text, "python -m tests.verdicts.report writes it again"


def test_nothing_of_the_machine_is_kept() -> None:
    for path in sorted(Path(__file__).with_name("corpus").glob("*.json")):
        assert json.loads(path.read_text())["name"] == path.stem
