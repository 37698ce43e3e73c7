"""Which workspace folders are trusted: those that this user created here, or has explicitly trusted.

A workspace's file names programs that its server runs and servers that tokens are sent to. A file that came with a
clone, an archive or from another user must not have that effect just because somebody typed `muster ps` below it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from muster.client.team import known
from muster.errors import AccessDenied
from muster.host.files import PRIVATE, write_file
from muster.paths import WorkspacePaths

VARIABLE = "MUSTER_TRUSTED"
"""Trusted folders, separated by colons, or `*`: for machines where nobody can be asked."""


class Untrusted(AccessDenied):
    """A workspace folder that this user did not create, as far as is known here."""

    code = "untrusted"

    def __init__(self, root: Path, workspace_id: str, why: str) -> None:
        hint = (
            "Its workspace.json may name programs to run and servers to send tokens to. Look at it; if you trust it, "
            f"`muster trust {root.parent}` says so once ({VARIABLE} does where nobody can be asked)."
        )
        super().__init__(f"the workspace {root} is not trusted: {why}", hint)
        self.root, self.workspace_id = root, workspace_id


def require(root: Path, workspace_id: str) -> None:
    """Refuse a folder that this user did not create here, until it is trusted."""
    if _listed(root, os.environ) or _is_home(root) or _mark(root, workspace_id).exists():
        if loose := _writable_by_others(root):
            raise AccessDenied(f"{loose} can be written by everybody on this machine", f"chmod o-w {loose}")
        return
    why = f"it belongs to {owner}" if (owner := _other_owner(root)) else "it was not made by you on this machine"
    raise Untrusted(root, workspace_id, why)


def trust(root: Path, workspace_id: str) -> None:
    """Remember that this user created a workspace, or trusts it."""
    record = {"workspace": str(root.resolve()), "id": workspace_id, "at": time.time()}
    try:
        mark = _mark(root, workspace_id)
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(mark, json.dumps(record), mode=PRIVATE)
    except OSError:
        # The home is not writable: even its creator will be asked to set MUSTER_TRUSTED.
        return


def distrust(root: Path, workspace_id: str) -> None:
    _mark(root, workspace_id).unlink(missing_ok=True)


def _mark(root: Path, workspace_id: str) -> Path:
    """The file that records trust; with the id, because another workspace may later be in the same folder."""
    base = known.config_dir() / "trusted"
    named = hashlib.sha256(b"\0".join([os.fsencode(root.resolve()), workspace_id.encode()]))
    return base / f"{named.hexdigest()[:32]}.json"


def _listed(root: Path, environ: Mapping[str, str]) -> bool:
    listed = environ.get(VARIABLE, "")
    if listed == "*":
        return True
    folders = [Path(item).expanduser().resolve() for item in listed.split(os.pathsep) if item]
    return any(root.resolve() in (folder, folder / root.name) for folder in folders)


def _is_home(root: Path) -> bool:
    """Whether it is the user's own workspace in the home folder, where nobody else can write."""
    return root.resolve() == Path.home().resolve() / root.name and not _other_owner(root)


def _other_owner(root: Path) -> str:
    """Another owner of the folder or its file; empty: none."""
    for path in (root, WorkspacePaths(root).config):
        if path.exists() and path.stat().st_uid != os.getuid():
            return f"the user {path.owner()}" if _has_name(path) else f"the user id {path.stat().st_uid}"
    return ""


def _has_name(path: Path) -> bool:
    try:
        return bool(path.owner())
    except KeyError:
        return False


def _writable_by_others(root: Path) -> Path | None:
    paths = (root, WorkspacePaths(root).config)
    return next((path for path in paths if path.exists() and path.stat().st_mode & stat.S_IWOTH), None)
