"""Gathers where a run came from, after the server has taken it: no start waits for it."""

from __future__ import annotations

import getpass
import hashlib
import json
import logging
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import field
from importlib import metadata
from pathlib import Path

from muster.client.api import Client
from muster.host.files import write_file
from muster.wire.codec import OMIT, from_file, to_json
from muster.wire.message import wire

log = logging.getLogger("muster.client")

_GIT_S = 10.0
_MOST_DIFFERENCE = 5 << 20
_PASSWORD = re.compile(r"(?<=//)[^/@\s]+@")
_SECRET = re.compile(r"(?i)(?:token|password|passwd|secret|api[_-]?key|credential)[\w-]*(?:=|$)")


FILE = "muster/provenance.json"
"""The name by which it is kept among a run's files."""
DIFFERENCE = "muster/uncommitted.diff"
"""What the code had beyond its commit, as `git apply` takes it."""


@wire
class GitState:
    """The repository that a job's code lies in."""

    commit: str
    branch: str | None = None
    """None: no branch was checked out."""
    remote: str | None = None
    dirty: bool = False
    """There was more than the commit: the file `muster/uncommitted.diff` has it."""
    untracked: int = field(default=0, metadata=OMIT)
    """How many files git does not know of."""


@wire
class Provenance:
    """What was there when a run was submitted."""

    at: float
    command_line: tuple[str, ...]
    """What was typed, or the script that submitted."""
    host: str
    user: str
    folder: str
    python: str
    """Version and path."""
    platform: str
    packages: tuple[str, ...] = ()
    """`name==version` of everything in that Python."""
    cpus: int = 0
    memory_bytes: int = 0
    gpus: tuple[str, ...] = ()
    """Names of this machine's GPUs."""
    git: GitState | None = None


def record(client: Client, runs: Sequence[str], folder: Path, command_line: Sequence[str]) -> threading.Thread:
    """Gather it once, and send it for each run, beside everything else.

    The thread keeps the interpreter until it is done.
    """
    worker = threading.Thread(target=_record, args=(client, runs, folder, tuple(command_line)), name="provenance")
    worker.start()
    return worker


def read(client: Client, run_id: str, files: Sequence[str]) -> Provenance | None:
    """What is kept of a run; None for one that has none."""
    if FILE not in files:
        return None
    try:
        return from_file(Provenance, json.loads(client.read_file(run_id, FILE)))
    except ValueError:
        return None


def _record(client: Client, runs: Sequence[str], folder: Path, command_line: tuple[str, ...]) -> None:
    try:
        found, difference = gather(folder, command_line)
        for run_id in runs:
            client.upload(run_id, FILE, json.dumps(to_json(found), indent=2).encode())
            if difference:
                client.upload(run_id, DIFFERENCE, difference)
    except Exception as error:
        # A run is worth more than its record.
        log.debug("no provenance of %s: %s", ", ".join(runs), error)


def gather(folder: Path, command_line: tuple[str, ...]) -> tuple[Provenance, bytes]:
    """What is there now, and what the code has beyond its commit."""
    git, difference = git_state(folder)
    found = Provenance(
        at=time.time(),
        command_line=without_secrets(command_line),
        host=socket.gethostname(),
        user=_user(),
        folder=str(folder),
        python=f"{platform.python_version()} {sys.executable}",
        platform=platform.platform(),
        packages=freeze(),
        cpus=os.cpu_count() or 0,
        memory_bytes=_memory_bytes(),
        gpus=_gpus(),
        git=git,
    )
    return found, difference


def without_secrets(words: Sequence[str]) -> tuple[str, ...]:
    """A command line with the values of options and variables that look like secrets left out."""
    kept: list[str] = []
    hide_next = False
    for word in words:
        name, equals, _ = word.partition("=")
        if hide_next:
            kept.append("***")
            hide_next = False
        elif equals and _SECRET.search(f"{name}="):
            kept.append(f"{name}=***")
        else:
            hide_next = word.startswith("--") and bool(_SECRET.search(word))
            kept.append(_PASSWORD.sub("***@", word))
    return tuple(kept)


def git_state(folder: Path) -> tuple[GitState | None, bytes]:
    """The commit that a folder is at, and how it differs from it; None where git knows nothing of it."""
    if shutil.which("git") is None or (commit := _git(folder, "rev-parse", "HEAD")) is None:
        return None, b""
    branch = _text(_git(folder, "symbolic-ref", "--short", "-q", "HEAD"))
    remote = _text(_git(folder, "config", "--get", "remote.origin.url"))
    difference = _git(folder, "diff", "--binary", "HEAD", "--", ".") or b""
    untracked = (_git(folder, "ls-files", "--others", "--exclude-standard", "--", ".") or b"").splitlines()
    clean_remote = _PASSWORD.sub("***@", remote) if remote else None
    state = GitState(commit.decode().strip(), branch, clean_remote, bool(difference), len(untracked))
    return state, difference[:_MOST_DIFFERENCE]


def freeze() -> tuple[str, ...]:
    """`name==version` of everything in this Python; remembered until something is installed or removed."""
    kept = _freezes_dir() / f"{_fingerprint_of_python()}.json"
    try:
        return tuple(json.loads(kept.read_bytes()))
    except (OSError, ValueError):
        pass
    names = {(item.metadata["Name"] or "", item.version) for item in metadata.distributions()}
    found = tuple(sorted((f"{name}=={version}" for name, version in names if name), key=str.lower))
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_file(kept, json.dumps(found))
    except OSError:
        pass
    return found


def _fingerprint_of_python() -> str:
    """Changes with the Python, and whenever a package comes or goes."""
    folders = [Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    parts = [sys.executable, sys.version, *(f"{path} {path.stat().st_mtime_ns}" for path in folders if path.is_dir())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _freezes_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster" / "freezes"


def _git(folder: Path, *arguments: str) -> bytes | None:
    """What git says; None where it refuses."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            timeout=_GIT_S,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _text(said: bytes | None) -> str | None:
    return said.decode(errors="replace").strip() or None if said is not None else None


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0


def _gpus() -> tuple[str, ...]:
    """Names of NVIDIA's GPUs, as the driver lists them."""
    found = []
    for card in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        try:
            found += re.findall(r"^Model:\s*(.+)$", card.read_text(), re.MULTILINE)
        except OSError:
            continue
    return tuple(name.strip() for name in found)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
