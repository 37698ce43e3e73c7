"""Collects a run's provenance after its submission, so that no start waits for it."""

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
"""Its name among a run's files."""
DIFFERENCE = "muster/uncommitted.diff"
"""Uncommitted changes of the code, as a patch for `git apply`."""


@wire
class GitState:
    """The git repository of a job's code."""

    commit: str
    branch: str | None = None
    """None: no branch was checked out."""
    remote: str | None = None
    dirty: bool = False
    """There were uncommitted changes: the file `muster/uncommitted.diff` has them."""
    untracked: int = field(default=0, metadata=OMIT)
    """How many files git does not track."""


@wire
class Provenance:
    """The state of the machine and the code when a run was submitted."""

    at: float
    command_line: tuple[str, ...]
    """The command line, or the script that submitted."""
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
    """Collect it once in the background, and send it for each run.

    The thread keeps the interpreter alive until it is done.
    """
    worker = threading.Thread(target=_record, args=(client, runs, folder, tuple(command_line)), name="provenance")
    worker.start()
    return worker


def read(client: Client, run_id: str, files: Sequence[str]) -> Provenance | None:
    """The provenance of a run; None where there is none."""
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
        # A failure here must not affect the run.
        log.debug("no provenance of %s: %s", ", ".join(runs), error)


def gather(folder: Path, command_line: tuple[str, ...]) -> tuple[Provenance, bytes]:
    """The current provenance, and the uncommitted changes of the code."""
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
    """The commit of a folder, and how the folder differs from it; None where it is not in a repository."""
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
    """`name==version` of everything in this Python; cached until something is installed or removed."""
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
    """A fingerprint that changes with the Python, and with every package that is installed or removed."""
    folders = [Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    parts = [sys.executable, sys.version, *(f"{path} {path.stat().st_mtime_ns}" for path in folders if path.is_dir())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _freezes_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster" / "freezes"


def _git(folder: Path, *arguments: str) -> bytes | None:
    """The output of git; None where it fails."""
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


def _text(output: bytes | None) -> str | None:
    return output.decode(errors="replace").strip() or None if output is not None else None


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
