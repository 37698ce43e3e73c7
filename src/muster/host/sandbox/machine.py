"""This machine's support for sandboxes: bubblewrap, system folders, Python installations, accounts."""

from __future__ import annotations

import functools
import hashlib
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from muster.host.sandbox.command import SYSTEM, Account, Shown, View, command, is_seen

# Above the range of systemd's containers, below the one reserved for `nobody` on 64-bit systems.
_FIRST_UID = 0x71000000
_UIDS = 1 << 24
_TRY_S = 20.0
_MOST_LINKS = 40


class NoSandbox(Exception):
    """Why there is no sandbox here."""


@functools.cache
def bubblewrap() -> str:
    """The path of bubblewrap, tested once; raises NoSandbox."""
    program = shutil.which("bwrap")
    if program is None:
        raise NoSandbox("bubblewrap (`bwrap`) is not installed: apt install bubblewrap, dnf install bubblewrap")
    python = base_python()
    view = View(system_folders(), tuple(Shown(folder, folder) for folder in python_folders((python,))))
    tried = command(program, view, python, account_of("", "try"), ["/usr/bin/env", "true"])
    try:
        done = subprocess.run(tried, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRY_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSandbox(f"bubblewrap cannot be run: {error}") from error
    if done.returncode != 0:
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        raise NoSandbox(
            f"bubblewrap fails here ({errors[-1] if errors else f'exit code {done.returncode}'}): the kernel must let "
            "this account make user namespaces, and a container must be allowed to"
        )
    return program


def trouble() -> str:
    """Why there is no sandbox here; empty where there is one."""
    try:
        bubblewrap()
    except NoSandbox as error:
        return str(error)
    return ""


def system_folders(root: Path = Path("/")) -> tuple[tuple[str, str], ...]:
    """System folders that exist; links with their targets."""
    found = [root / name.lstrip("/") for name in SYSTEM]
    return tuple((str(path), str(path.readlink()) if path.is_symlink() else "") for path in found if path.exists())


def resolver(path: Path = Path("/etc/resolv.conf")) -> list[str]:
    """The target of /etc/resolv.conf, where it is outside of /etc."""
    real = path.resolve()
    return [str(real)] if real.is_file() and not real.is_relative_to("/etc") else []


def base_python() -> str:
    """This process's base interpreter, without its virtual environment."""
    return os.path.realpath(sys.executable)


def python_folders(pythons: Iterable[str]) -> list[str]:
    """The installations of interpreters: environments and their base installations, nothing else.

    Only folders that look like an installation: a made-up path must not expose somebody else's folder.
    """
    found: list[str] = []
    for python in pythons:
        path = Path(python)
        for _ in range(_MOST_LINKS):
            home = path.parent.parent
            if _is_installation(home) and not is_seen(str(home), system_folders()):
                found.append(str(home))
            if not path.is_symlink():
                break
            path = Path(os.path.normpath(path.parent / path.readlink()))
    return list(dict.fromkeys(found))


def _is_installation(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").is_file() or any(folder.glob("lib/python3*"))


def account_of(unix_user: str, person: str) -> Account | None:
    """The account of ranks where root starts them: the person's own, or one that nobody else gets.

    None where this process is not root: ranks then run as its own account. KeyError: there is no such account.
    """
    if os.getuid() != 0:
        return None
    if unix_user:
        entry = pwd.getpwnam(unix_user)
        groups = tuple(os.getgrouplist(unix_user, entry.pw_gid))
        return Account(entry.pw_uid, entry.pw_gid, groups, unix_user)
    number = _FIRST_UID + int.from_bytes(hashlib.sha256(person.encode()).digest()[:8], "big") % _UIDS
    return Account(number, number)


def hand_over(folders: Iterable[Path], account: Account) -> None:
    """Change the owner of folders and all their content; of links themselves, never of their targets."""
    for folder in folders:
        os.lchown(folder, account.uid, account.gid)
        for base, inner, names in os.walk(folder):
            for name in (*inner, *names):
                os.lchown(os.path.join(base, name), account.uid, account.gid)  # noqa: PTH118
