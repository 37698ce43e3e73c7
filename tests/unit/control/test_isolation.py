"""Which jobs are isolated, by what, and which may not run."""

from __future__ import annotations

import pytest

from muster import errors
from muster.control.isolation import NONE, SANDBOX, Circumstances, read_isolation, settle

ALONE = Circumstances("local", False, True, False, True)
MEMBER = Circumstances("local", True, False, False, True)
ADMIN = Circumstances("local", True, True, False, True)
ELSEWHERE = Circumstances("gpus", True, False, False, False)
RAY = ELSEWHERE._replace(takes_orders=True)


@pytest.mark.parametrize(
    ("asked", "workspace", "circumstances", "expected"),
    [
        (None, "", ALONE, None),
        (SANDBOX, "", ALONE, SANDBOX),
        (None, SANDBOX, ALONE, SANDBOX),
        (NONE, SANDBOX, ALONE, NONE),
        (None, "", MEMBER, SANDBOX),
        (None, NONE, MEMBER, None),
        (SANDBOX, NONE, MEMBER, SANDBOX),
        (None, "", MEMBER._replace(in_container=True), None),
        (None, SANDBOX, MEMBER._replace(in_container=True), None),
        (None, "", ADMIN, None),
        (None, SANDBOX, ADMIN, SANDBOX),
        (NONE, SANDBOX, ADMIN, NONE),
        (SANDBOX, "", ELSEWHERE, SANDBOX),
        (None, SANDBOX, ELSEWHERE, SANDBOX),
        (None, "", RAY._replace(in_container=True), None),
        (None, NONE, RAY, None),
        (SANDBOX, "", RAY._replace(is_admin=True), SANDBOX),
        (SANDBOX, "", RAY._replace(is_shared=False), SANDBOX),
    ],
)
def test_what_isolates_a_job(
    asked: str | None, workspace: str, circumstances: Circumstances, expected: str | None
) -> None:
    assert settle(asked, workspace, circumstances) == expected


@pytest.mark.parametrize(
    ("asked", "workspace", "circumstances"),
    [
        (None, "", ELSEWHERE),
        (NONE, "", MEMBER),
        (NONE, SANDBOX, MEMBER),
        (NONE, SANDBOX, ELSEWHERE),
        (None, "", RAY),
        (SANDBOX, "", RAY),
        (None, SANDBOX, RAY),
        (NONE, "", RAY),
        (None, "", MEMBER._replace(trouble="bubblewrap is not installed")),
    ],
)
def test_a_member_never_gets_the_servers_account(
    asked: str | None, workspace: str, circumstances: Circumstances
) -> None:
    with pytest.raises(errors.AccessDenied) as refused:
        settle(asked, workspace, circumstances)
    assert circumstances.trouble in (refused.value.hint or "") and "isolation" in (refused.value.hint or "")


@pytest.mark.parametrize("circumstances", [ALONE, MEMBER, ADMIN])
def test_a_sandbox_that_is_asked_for_and_cannot_be_had_is_refused(circumstances: Circumstances) -> None:
    with pytest.raises(errors.JobError, match="bwrap is broken"):
        settle(SANDBOX, "", circumstances._replace(trouble="bwrap is broken"))


def test_the_workspace_takes_known_words_alone() -> None:
    assert [read_isolation(word) for word in (None, NONE, SANDBOX)] == ["", NONE, SANDBOX]
    for word in ("None", "users", True, ["sandbox"]):
        with pytest.raises(errors.UserError, match="isolation"):
            read_isolation(word)
