"""The user's configuration folder: the server they logged in to, and the workspaces they have used."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from muster.host.files import PRIVATE, write_file


def config_dir() -> Path:
    """The user's configuration of Muster."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "muster"


def servers_dir() -> Path:
    """A folder for each server that the user logged in to, made like a workspace's."""
    return config_dir() / "servers"


def user_server() -> Path | None:
    """The folder of the server that commands use where no folder has a workspace; None: not logged in."""
    try:
        name = json.loads(_pointer().read_bytes())["server"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    found = servers_dir() / str(name)
    return found if found.parent == servers_dir() and found.is_dir() else None


def use_server(folder: Path) -> None:
    """Make commands use this server where no folder has a workspace."""
    write_file(_pointer(), json.dumps({"server": folder.name}), mode=PRIVATE)


def use_no_server() -> None:
    _pointer().unlink(missing_ok=True)


def used_workspaces() -> list[Path]:
    """Existing folders of workspaces that the user created or trusted, the newest first."""
    found: dict[Path, float] = {}
    for mark in (config_dir() / "trusted").glob("*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            record = json.loads(mark.read_bytes())
            root = Path(record["workspace"])
            if (root / "workspace.json").is_file():
                found[root] = max(found.get(root, 0.0), float(record["at"]))
    return sorted(found, key=lambda root: -found[root])


def _pointer() -> Path:
    return config_dir() / "login.json"
