"""Who may do what: the table, the function, and the document that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.control.access import RULES, Action, Caller, Rule, may, narrower, reach, require
from muster.errors import AccessDenied

ADA, EVE, BOB, ROOT = Caller("member", "ada"), Caller("member", "eve"), Caller("reader", "bob"), Caller("admin", "root")
RUN = Caller("run", "train-1")
SECURITY = Path(__file__).parents[3] / "docs" / "security.md"
WORDS = {"no": "–", "own": "own", "all": "yes"}


def table() -> list[str]:
    head = ["| what | reader | member | admin | token of a run |", "|---|---|---|---|---|"]
    return head + [f"| {rule.text} | {cells(rule)} |" for rule in RULES.values()]


def cells(rule: Rule) -> str:
    return f"{WORDS[rule.reader]} | {WORDS[rule.member]} | yes | {WORDS[rule.run]}"


def test_every_action_has_a_rule() -> None:
    assert RULES.keys() == set(Action)


def test_the_document_shows_the_table() -> None:
    assert "\n".join(table()) in SECURITY.read_text()


def test_an_administrator_may_do_everything() -> None:
    assert all(may(ROOT, action, owner) for action in Action for owner in ("ada", None))


@pytest.mark.parametrize("action", [Action.CANCEL_RUN, Action.DELETE_RUN, Action.CHANGE_RUN, Action.USE_SECRET])
def test_a_member_acts_on_what_is_theirs(action: Action) -> None:
    assert may(ADA, action, "ada")
    assert not may(EVE, action, "ada")
    assert not may(EVE, action, None)
    assert not may(Caller("member", ""), action, None)


def test_a_reader_changes_nothing_but_their_tokens() -> None:
    changing = {action for action in Action if action.value.split(".")[-1] not in ("read",)} - {Action.MANAGE_TOKEN}
    assert not [action for action in changing if may(BOB, action, "bob") or may(BOB, action, None)]
    assert may(BOB, Action.READ) and not may(BOB, Action.READ_AUDIT)


def test_a_run_reaches_itself_alone() -> None:
    allowed = {action for action in Action if reach(RUN, action) != "no"}
    assert allowed == {Action.READ, Action.READ_DATA, Action.CHANGE_RUN, Action.LOG_TO_RUN}
    assert all(may(RUN, action, "train-1") for action in allowed)
    assert not any(may(RUN, action, owner) for action in Action for owner in ("train-2", "ada", None))


def test_agents_and_grants_do_their_own_things_alone() -> None:
    agent, grant = Caller("agent", "n0"), Caller("grant", "user/ada")
    assert {action for action in Action if may(agent, action)} == {Action.SERVE_NODE, Action.READ_CODE}
    assert {action for action in Action if may(grant, action)} == {
        Action.READ_DATA, Action.WRITE_DATA, Action.DELETE_DATA
    }  # fmt: skip


def test_a_refusal_says_who_may() -> None:
    with pytest.raises(AccessDenied, match="belongs to ada") as found:
        require(EVE, Action.CANCEL_RUN, "ada", "the run train-1")
    assert "Its owner can" in found.value.hint
    with pytest.raises(AccessDenied, match="'reader' may not submit a job") as found:
        require(BOB, Action.SUBMIT, None, "")
    assert "admin or member" in found.value.hint


def test_of_two_roles_the_one_counts_that_may_less() -> None:
    assert narrower("admin", "member") == narrower("member", "admin") == "member"
    assert narrower("reader", "admin") == "reader"


if __name__ == "__main__":
    print("\n".join(table()))
