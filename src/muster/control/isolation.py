"""What keeps a person's ranks from the server's files and from those of others, and whether it is enough. Pure."""

from __future__ import annotations

from typing import NamedTuple

from muster import errors

NONE, SANDBOX = "none", "sandbox"
LEVELS = (NONE, SANDBOX)
"""For the workspace: anybody's ranks may run as the server's account, or all of them run in a sandbox."""


class Circumstances(NamedTuple):
    """Where a job would run, and who submits it."""

    compute: str
    is_shared: bool
    """Several people use the workspace."""
    is_admin: bool
    in_container: bool
    """In an image, with no arguments of its own that could breach the container."""
    on_this_machine: bool
    trouble: str = ""
    """Why this machine has no sandbox."""
    takes_orders: bool = False
    """The engine runs whatever ranks ask it for, as its own account: only a container counts as a barrier there."""


def read_isolation(config: object) -> str:
    """The key `isolation` of workspace.json; empty: what is not isolated is refused where several people work."""
    if config is None or config in LEVELS:
        return str(config or "")
    raise errors.UserError(
        f"`isolation` in workspace.json is {config!r}.", f"It takes {', '.join(LEVELS)}, or is left out."
    )


def settle(asked: str | None, workspace: str, circumstances: Circumstances) -> str | None:
    """How a job is isolated: SANDBOX, or not where it is in a container or needs nothing; raises where it may not run.

    `asked`: by the job; `workspace`: by its administrator.
    """
    if circumstances.in_container:
        return None
    is_free = not circumstances.is_shared or circumstances.is_admin or workspace == NONE
    if asked == NONE and not is_free:
        raise _refusal(circumstances, "the job asks for `isolation: none`, which only an administrator may")
    if circumstances.takes_orders and not is_free:
        raise _refusal(circumstances, "Ray runs for a rank, in a sandbox too, whatever it asks for")
    wanted = asked or (workspace if workspace == SANDBOX else None)
    # Other machines are checked when the job starts there.
    if wanted is None and not is_free and circumstances.on_this_machine and not circumstances.trouble:
        wanted = SANDBOX
    if wanted == SANDBOX:
        if circumstances.on_this_machine and circumstances.trouble:
            raise errors.JobError(
                f"the job is to run in a sandbox, and this machine has none: {circumstances.trouble}",
                "Or give the job an environment with an image, which runs in a container.",
            )
        return SANDBOX
    if not is_free:
        raise _refusal(circumstances, "nothing keeps its ranks apart from others")
    return asked


def _refusal(circumstances: Circumstances, why: str) -> errors.AccessDenied:
    machine = (
        f"This machine has no sandbox: {circumstances.trouble}. "
        if circumstances.trouble and circumstances.on_this_machine
        else ""
    )
    sandbox = "" if circumstances.takes_orders else "Write `isolation: sandbox` into the job, or give it"
    return errors.AccessDenied(
        f"on {circumstances.compute} the job would run as the account of the server, which several people share: "
        f"its ranks could read the workspace's keys and the runs of others; {why}",
        f"{machine}{sandbox or 'Give the job'} an environment with an image, which runs in a "
        'container; or an administrator accepts it by writing {"isolation": "none"} into workspace.json.',
    )
