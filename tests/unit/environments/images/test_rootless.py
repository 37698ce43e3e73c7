"""What keeps podman from serving an ordinary user, and the step that each answer names."""

from __future__ import annotations

import pytest

from muster.environments.images import rootless

NO_PROGRAM = 'exec: "newuidmap": executable file not found in $PATH'
NO_NAMESPACE = "cannot clone: Operation not permitted"


def test_a_user_with_ids_for_containers_has_no_trouble() -> None:
    assert rootless.read("anna", 0, "1 65536 \n", ["a warning"]) is None


def test_limits_that_podman_would_leave_out_are_told() -> None:
    args = ("--memory", "8g", "--cpus=2", "--cap-drop", "ALL")
    said = rootless.left_out(args, cgroups_v2=False)
    assert said is not None and "--memory, --cpus:" in said
    assert rootless.left_out(args, cgroups_v2=True) is None
    assert rootless.left_out(("--cap-drop", "ALL"), cgroups_v2=False) is None


def test_dockers_rootless_mode_is_told() -> None:
    assert rootless.of_docker("[name=seccomp,profile=builtin name=cgroupns]") is None
    trouble = rootless.of_docker("[name=seccomp,profile=builtin name=rootless name=cgroupns]")
    assert trouble is not None and "podman" in trouble.next


@pytest.mark.parametrize(
    ("code", "printed", "complaint", "what", "step"),
    [
        (0, "1 \n", "no subuid ranges found", "the user anna has no range", "--add-subuids 100000-165535"),
        (1, "", NO_PROGRAM, "newuidmap and newgidmap", "apt-get install uidmap"),
        (125, "", NO_NAMESPACE, "user namespaces", "user.max_user_namespaces"),
        (125, "", "database is locked", "database is locked", ""),
        (125, "", "", "ended with code 125", ""),
    ],
)
def test_trouble_is_told_with_the_next_step(code: int, printed: str, complaint: str, what: str, step: str) -> None:
    trouble = rootless.read("anna", code, printed, [complaint] if complaint else [])
    assert trouble is not None
    assert what in trouble.what
    assert step in trouble.next
