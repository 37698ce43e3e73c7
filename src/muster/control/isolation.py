"""Whether a person's ranks may run where they would run: what keeps them from the server's files. Pure."""

from __future__ import annotations

from muster import errors

NONE = "none"
"""The administrator says that ranks of everybody may be the account which runs the server."""
LEVELS = (NONE,)


def read_isolation(config: object) -> str:
    """The key `isolation` of workspace.json; empty: what is not isolated is refused where several people work."""
    if config is None or config in LEVELS:
        return str(config or "")
    raise errors.UserError(
        f"`isolation` in workspace.json is {config!r}.", f"It takes {', '.join(LEVELS)}, or is left out."
    )


def require_isolation(*, isolation: str, is_shared: bool, is_admin: bool, in_container: bool, compute: str) -> None:
    """Refuse a member's job whose ranks would run as the server's own account, and so could read its keys."""
    if not is_shared or is_admin or in_container or isolation == NONE:
        return
    raise errors.AccessDenied(
        f"on {compute} the job would run as the account of the server, which several people share: its ranks could "
        "read the workspace's keys and the runs of others",
        "Give the job an environment with an image, which runs in a container; or an administrator accepts it by "
        'writing {"isolation": "none"} into workspace.json.',
    )
