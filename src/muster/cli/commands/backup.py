"""A workspace's database: `backup`, `restore`, `repair`. They work without a server, on the workspace's machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from muster.cli.options import argument
from muster.client.workspace import find_workspace
from muster.errors import Conflict


def backup(
    file: Annotated[Path | None, argument("FILE", "Where to (default: a new name in the current folder).")] = None,
) -> None:
    """Write the workspace's records, settings and keys to one file.

    The server may be running. Files of runs are not included: they are in the workspace's store.

    \b
    Examples:
      muster backup
      muster backup vision.tar
    """
    _maintain("backup", *([str(file)] if file else []))


def restore(file: Annotated[Path, argument("FILE", "What `muster backup` wrote.")]) -> None:
    """Restore the workspace from a backup.

    It goes into whichever database the workspace has; what that replaces is kept aside. Runs that the store has and
    the backup lacks are put back too. The server must not be running.

    \b
    Examples:
      muster restore vision.tar
    """
    _maintain("restore", str(file))


def repair() -> None:
    """Rebuild a damaged database from the last automatic backup and the store.

    Also puts back runs that an intact database lacks. The server must not be running.

    \b
    Examples:
      muster repair
    """
    _maintain("repair")


def _maintain(*words: str) -> None:
    ref = find_workspace()
    if ref.server is not None:
        raise Conflict(f"this workspace belongs to the server at {ref.server.url}.", "Do it on that machine.")
    command = [sys.executable, "-m", "muster.server.maintenance", "--workspace", str(ref.root), *words]
    sys.stdout.flush()
    os.execv(command[0], command)
