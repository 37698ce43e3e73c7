"""Every recorded failure is judged; how often rightly is in docs/verdicts.md, and README.md says what is asked."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.verdicts import fit_ranking
from tests.verdicts.report import DOCUMENT, FOLDERS, HERE, Score, load, score, tables, with_table

from muster.diagnosis.ranking.weights import WEIGHTS
from muster.diagnosis.rules import RULES
from muster.wire.verdicts import CODES

SCORES = {folder: [score(case) for case in load(HERE / folder)] for folder in FOLDERS}
CORPUS, LEARNING = SCORES["corpus"], SCORES["learning"]


def share(found: list[bool | None]) -> float:
    asked = [item for item in found if item is not None]
    return sum(asked) / len(asked)


def test_the_corpus_is_wide_enough() -> None:
    cases = [item.case for item in CORPUS]
    assert len(cases) >= 60
    assert len({(case["code"], case["way"]) for case in cases}) >= 25
    assert {case["convention"] for case in cases} == {"single", "process", "torchrun", "mpirun"}
    assert {1, 2, 4, 8} <= {case["num_ranks"] for case in cases}
    assert {case["code"] for case in cases} == CODES.keys() - {"completed", "time_slice"}


def test_what_the_rules_were_written_with_is_wide_enough() -> None:
    cases = [item.case for item in LEARNING]
    assert len(cases) >= 150
    assert {"single", "shell", "spawn", "process", "torchrun", "mpirun", "mpi"} == {c["convention"] for c in cases}
    assert {1, 2, 3, 4, 5, 6, 8} <= {case["num_ranks"] for case in cases}


@pytest.mark.parametrize("item", CORPUS, ids=lambda item: str(item.case["name"]))
def test_the_rank_to_blame_is_named(item: Score) -> None:
    assert item.rank in (True, None), item.verdict.message


@pytest.mark.parametrize("scores", [CORPUS, LEARNING], ids=["corpus", "learning"])
def test_nearly_every_cause_is_right(scores: list[Score]) -> None:
    assert share([item.code for item in scores]) >= 0.97, [i.case["name"] for i in scores if not i.code]
    assert share([item.rank for item in scores]) >= 0.97, [i.case["name"] for i in scores if i.rank is False]


@pytest.mark.parametrize(
    "name",
    [
        "t-ddp-record-too-short",  # of its loader's worker, which reads a file and knows no peers
        "t-hang-recv-from-wrong-peer",  # a message that nobody sends, while the others are at a barrier
        "t-monitored-barrier-two-away",  # named by the barrier, though they complain themselves later
        "t-mpirun-hang-at-limit",  # asked where it is before the one in front of it had answered
        "t-run-exception-group",  # a deadline in a group of tasks, which is no lost peer
        "u-sh-cpp-segfault-in-script",  # the shell says what its program died of, and goes on
        "u-tr-system-exit-word",  # lines of other ranks in the launcher's log are not its own
    ],
)
def test_what_was_missed_once_is_right(name: str) -> None:
    item = next(item for item in LEARNING if item.case["name"] == name)
    assert (item.code, item.rank in (True, None), item.line) == (True, True, True), item.verdict.message


def test_the_weights_of_the_ranking_are_those_that_fit() -> None:
    """A little may change with how a log is read."""
    fitted = fit_ranking.fitted(fit_ranking.recorded())
    assert fitted == pytest.approx(dict(WEIGHTS), abs=0.1), "python -m tests.verdicts.fit_ranking prints them"


def test_the_message_has_the_line_that_a_person_wants() -> None:
    assert share([item.line for item in LEARNING]) >= 0.95, [i.case["name"] for i in LEARNING if i.line is False]


def test_next_steps_help_or_are_left_out() -> None:
    steps = [item.step for item in LEARNING]
    assert steps.count("misleading") <= 0.02 * len(steps), [i.verdict.next for i in LEARNING if i.step == "misleading"]
    assert steps.count("helpful") >= 0.8 * len(steps)


def test_no_verdict_says_less_than_the_bare_tool() -> None:
    """The wanted line, where the tool's own last lines have it."""
    worse = [i.case["name"] for i in LEARNING if i.bare_line and not i.line]
    assert worse == []


@pytest.mark.parametrize("item", CORPUS, ids=lambda item: str(item.case["name"]))
def test_a_verdict_says_what_a_person_needs(item: Score) -> None:
    verdict = item.verdict
    assert verdict.message
    if verdict.code in ("exception", "environment", "disk_full", "gpu_oom"):
        assert verdict.lines


def test_every_rule_names_cases_that_it_is_for() -> None:
    names = [str(item.case["name"]) for scores in SCORES.values() for item in scores]
    for rule in RULES:
        for prefix in rule.cases:
            assert any(name.startswith(prefix) for name in names), f"{rule.name}: there is no case {prefix}…"


def test_a_rule_fits_a_case_that_it_names() -> None:
    texts = {
        str(item.case["name"]): "\n".join(rank["tail"] for rank in item.case["evidence"]["ranks"])
        for folder in ("corpus", "learning")
        for item in SCORES[folder]
    }
    for rule in RULES:
        named = [text for name, text in texts.items() if name.startswith(rule.cases or ("-",))]
        plain = [re.sub(r"^\s+|\x1b\[[0-9;]*m", "", line) for text in named for line in text.split("\n")]
        assert not named or any(rule.pattern.search(line[:2000]) for line in plain), rule.name


def test_the_tables_in_the_document_are_these() -> None:
    text = DOCUMENT.read_text()
    assert with_table(text, tables()) == text, "python -m tests.verdicts.report writes them again"


def test_a_case_is_named_as_its_file_and_tells_nothing_of_the_machine() -> None:
    for folder in FOLDERS:
        for path in sorted(Path(HERE / folder).glob("*.json")):
            assert json.loads(path.read_text(encoding="utf-8"))["name"] == path.stem
            assert "/work/wt/" not in path.read_text(encoding="utf-8"), path
