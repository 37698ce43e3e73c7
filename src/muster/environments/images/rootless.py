"""Whether an engine works for an ordinary user, read from its own output. Pure, standard library only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

ASK = ("info", "--format", "{{range .Host.IDMappings.UIDMap}}{{.Size}} {{end}}")
"""Prints how many user ids this user's containers may have."""

_PATTERNS = (
    (
        re.compile(r"newuidmap|newgidmap"),
        "the programs newuidmap and newgidmap, which give containers their user ids, are missing or may not be used",
        "Install them (Debian: `apt-get install uidmap`; others: shadow-utils).",
    ),
    (
        re.compile(r"cannot clone|user namespaces are not enabled|max_user_namespaces", re.I),
        "the kernel does not let this user have user namespaces",
        "Allow them: `sysctl user.max_user_namespaces=15000`, and on Ubuntu an AppArmor profile for podman.",
    ),
)
_LIMITS = ("--memory", "--cpus", "--cpuset-", "--pids-limit")


class Trouble(NamedTuple):
    """Why an engine cannot be used, and what the node's owner can do about it."""

    what: str
    next: str = ""


def read(user: str, code: int, printed: str, complaints: Sequence[str]) -> Trouble | None:
    """What prevents this user from using it; None if nothing does."""
    if code != 0:
        text = "\n".join(complaints)
        for pattern, what, next in _PATTERNS:
            if pattern.search(text):
                return Trouble(what, next)
        return Trouble(complaints[-1] if complaints else f"`podman info` ended with code {code}")
    sizes = [int(word) for word in printed.split() if word.isdigit()]
    # The only one is the user's own: no other user could exist inside.
    if sum(sizes) == 1:
        return Trouble(
            f"the user {user} has no range of user ids for containers (/etc/subuid, /etc/subgid)",
            f"Give it one: `usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}`, a range that no "
            "other user has, and then, as that user, `podman system migrate`.",
        )
    return None


def left_out(args: Sequence[str], cgroups_v2: bool) -> str | None:
    """A notice about limits that podman does not apply for an ordinary user; it runs the container without them."""
    limits = [arg.partition("=")[0] for arg in args if arg.startswith(_LIMITS)]
    if cgroups_v2 or not limits:
        return None
    return (
        f"podman leaves out {', '.join(limits)}: containers of an ordinary user only have limits with cgroups v2, "
        "and this node has v1"
    )


def of_docker(security: str) -> Trouble | None:
    """A rootless daemon maps the user's uid inside to another one outside, which may not write the user's files."""
    if "name=rootless" not in security:
        return None
    return Trouble(
        "its daemon runs in rootless mode, which Muster does not use", "Install podman, which needs no root."
    )
