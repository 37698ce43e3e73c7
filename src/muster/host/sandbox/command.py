"""The command line of bubblewrap. Pure, standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/sys")
"""System folders that every sandbox sees where they exist, read-only."""
# Runs before a program that root starts: from then on the account's permissions apply.
_BECOME = """import ctypes, os, sys
os.setgroups([int(group) for group in sys.argv[3].split(",") if group])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[1]))
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
os.execv(sys.argv[4], sys.argv[4:])
"""


class Account(NamedTuple):
    """The account that a program runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    name: str = ""


class Shown(NamedTuple):
    """A file or folder of the machine, and its path for the program."""

    source: str
    target: str
    writable: bool = False
    device: bool = False


class View(NamedTuple):
    """What a program sees."""

    system: tuple[tuple[str, str], ...] = ()
    """System folders; for a link with its target."""
    shown: tuple[Shown, ...] = ()
    hidden: tuple[str, ...] = ()
    """Folders that look empty to it although they are below a visible one."""
    blank: tuple[str, ...] = ()
    """Files that look empty to it."""
    cwd: str = "/"
    hostname: str = ""


def command(program: str, view: View, python: str, account: Account | None, argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` with this view, as process 1; as another account where root starts it."""
    line = [program, "--die-with-parent", "--as-pid-1", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    line += ["--unshare-cgroup-try"]
    if account is None:
        line += ["--unshare-user"]
    else:
        line += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    if view.hostname:
        line += ["--hostname", view.hostname]
    for path, leads_to in view.system:
        line += ["--symlink", leads_to, path] if leads_to else ["--ro-bind", path, path]
    line += ["--proc", "/proc", "--dev", "/dev"]
    line += ["--perms", "1777", "--tmpfs", "/dev/shm", "--perms", "1777", "--tmpfs", "/tmp"]
    for path in view.hidden:
        line += ["--tmpfs", path] if is_seen(path, view.system) else []
    for folder in _above(view):
        # Folders that bubblewrap itself creates for mounts are accessible only to root.
        line += ["--dir", folder]
    for item in _outermost_first(view.shown):
        line += [_bind(item), item.source, item.target]
    for path in view.blank:
        line += ["--ro-bind", "/dev/null", path]
    line += ["--chdir", view.cwd, "--"]
    if account is not None:
        groups = ",".join(str(group) for group in account.groups)
        line += [python, "-I", "-S", "-c", _BECOME, str(account.uid), str(account.gid), groups]
    return [*line, *argv]


def is_seen(path: str, system: Sequence[tuple[str, str]]) -> bool:
    """Whether a path is in a system folder that is visible."""
    return any(PurePosixPath(path).is_relative_to(folder) for folder, leads_to in system if not leads_to)


def _above(view: View) -> list[str]:
    """The parent folders of what is shown, the outermost first."""
    above = {str(parent) for item in view.shown for parent in PurePosixPath(item.target).parents}
    lost = {path for path in above if path == "/" or path.startswith("/dev") or is_seen(path, view.system)}
    hidden = {path for path in above for empty in view.hidden if PurePosixPath(path).is_relative_to(empty)}
    return sorted((above - lost) | hidden)


def _outermost_first(shown: Sequence[Shown]) -> list[Shown]:
    """Sorted so that inner paths come after outer ones, which would cover them."""
    return sorted(dict.fromkeys(shown), key=lambda item: len(PurePosixPath(item.target).parts))


def _bind(item: Shown) -> str:
    if item.device:
        return "--dev-bind-try"
    return "--bind" if item.writable else "--ro-bind"
