"""One table of verdict codes: complete, and the same decisions as before."""

from __future__ import annotations

import re
from pathlib import Path

import muster.wire
from muster.diagnosis import causes, rules, verdict
from muster.wire.verdicts import CODES, USER_ERRORS, code_of


def test_every_code_that_a_cause_or_a_verdict_gives_stands_in_the_table() -> None:
    texts = [Path(str(module.__file__)).read_text() for module in (causes, verdict)]
    given = set(re.findall(r'(?:Cause|_verdict|return)\(?\s*"([a-z_]+)"', "\n".join(texts)))
    given |= {rule.code for rule in rules.RULES}
    assert {"gpu_oom", "timeout", "launcher_missing", "host_oom", "platform"} <= given
    assert given <= set(CODES)


def test_every_code_that_a_node_or_an_engine_gives_stands_in_the_table() -> None:
    source = "\n".join(path.read_text() for path in Path(muster.wire.__path__[0]).parent.rglob("*.py"))
    given = set(re.findall(r'\b(?:Refusal|TransferError|Ending|NotReady|Failure)\(\s*"([a-z_]+)"', source))
    assert {"data_unavailable", "preempted", "port_trouble"} <= given
    assert given <= set(CODES)


def test_those_that_a_retry_policy_may_name() -> None:
    assert USER_ERRORS == (
        "bad_input", "collective", "data_unavailable", "disk_full", "environment", "exception", "exit_code", "gpu_oom",
        "host_oom", "launcher_missing", "rendezvous", "shm_too_small", "signal", "timeout",
    )  # fmt: skip


def test_which_verdicts_keep_the_next_attempt_off_a_node_and_which_count_against_it() -> None:
    assert {name for name, code in CODES.items() if code.avoid_node} == {"node_lost", "preempted", "gpu_fault"}
    assert {name for name, code in CODES.items() if code.blames_node} == {
        "node_lost", "gpu_fault", "disk_full", "platform",
    }  # fmt: skip


def test_budgets() -> None:
    assert {name for name, code in CODES.items() if code.budget is None} == {"completed", "cancelled", "time_slice"}
    assert {name for name, code in CODES.items() if code.never_retried} == {"completed", "cancelled"}
    assert {name for name, code in CODES.items() if code.final} == {"timeout", "bad_input", "launcher_missing"}
    assert {
        name: CODES[name].budget for name in ("preempted", "node_lost", "gpu_fault", "platform", "port_trouble")
    } == {
        "preempted": "preemption",
        "node_lost": "node_loss",
        "gpu_fault": "node_loss",
        "platform": "platform",
        "port_trouble": "platform",
    }


def test_a_code_that_is_not_in_the_table_is_an_error_of_the_job() -> None:
    assert code_of("new_one").is_user_error
    assert code_of("new_one").next == ""
