"""What the broker has done on a node, in one of Ray's workers: start an agent, see whether it lives, end it.

Standard library only, so that a worker that did it stays small.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.engines.ray import leash
from muster.paths import NodePaths
from muster.version import VERSION

_START_S = 60.0
_LEAVE_S = 10.0
_LOOK_S = 0.02


def start_agent(config: Mapping[str, Any], setting: Mapping[str, Any], gpus: Sequence[str]) -> str:
    """Start the agent of a node, unless it lives; returns why it did not stay, empty where it did."""
    if setting["version"] != VERSION:
        return f"it has Muster {VERSION}, the server {setting['version']}: install muster=={setting['version']} there"
    root = _folder(setting) / str(config["node"])
    paths = NodePaths(root)
    if _somebody_there(root):
        return ""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_private(paths.config, {**config, "root": str(root)})
    addresses = [setting["head"], *(url for url in config["server"] if url.startswith("https://"))]
    told = {"raylet": os.getppid(), "addresses": addresses, "cut_off_s": setting["cut_off_s"]}
    _write_private(root / leash.FILE, told)
    environment = _environment() | {"MUSTER_AGENT_HOST": str(setting["host"]), "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    subprocess.run(leash.command(root), env=environment, cwd="/", start_new_session=True, check=True)
    _collect(root, environment)
    deadline = time.monotonic() + _START_S
    while not paths.agent_lives():
        if paths.log.exists() and not leash.leash_lives(root):
            return _last_words(paths) or "its agent did not stay"
        if time.monotonic() > deadline:
            return f"its agent did not start within {_START_S:g} s"
        time.sleep(_LOOK_S)
    return ""


def agent_is_there(node: str, setting: Mapping[str, Any]) -> bool:
    return _somebody_there(_folder(setting) / node)


def end_agent(node: str, setting: Mapping[str, Any], patience_s: float = _LEAVE_S) -> None:
    """Wait for an agent that leaves by itself; one that stays is asked to go."""
    root = _folder(setting) / node
    deadline = time.monotonic() + patience_s
    while leash.leash_lives(root) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    if leash.leash_lives(root):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((root / leash.PID).read_text()), signal.SIGTERM)


def _somebody_there(root: Path) -> bool:
    return leash.leash_lives(root) or NodePaths(root).agent_lives()


def _collect(mine: Path, environment: Mapping[str, str]) -> None:
    """Have delivered what earlier agents of this machine left because their server was away for too long."""
    for root in mine.parent.iterdir():
        attempts = NodePaths(root).attempts
        left = root != mine and (root / leash.FILE).exists() and attempts.is_dir() and any(attempts.iterdir())
        if left and not _somebody_there(root):
            told = json.loads((root / leash.FILE).read_text())
            _write_private(root / leash.FILE, {**told, "raylet": os.getppid()})
            subprocess.run(leash.command(root), env=environment, cwd="/", start_new_session=True, check=True)


def _folder(setting: Mapping[str, Any]) -> Path:
    return Path(str(setting["folder"])).expanduser()


def _environment() -> dict[str, str]:
    """What this node's Ray was started with; Ray gives its workers more, which ranks would misread."""
    try:
        raw = Path(f"/proc/{os.getppid()}/environ").read_bytes().decode(errors="surrogateescape")
        found = dict(item.split("=", 1) for item in raw.split("\0") if "=" in item)
    except OSError:
        found = dict(os.environ)
    return {name: value for name, value in found.items() if not name.startswith(("RAY_", "GRPC_ENABLE_FORK"))}


def _write_private(path: Path, data: Mapping[str, Any]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(dict(data), file)


def _last_words(paths: NodePaths) -> str:
    lines = paths.log.read_text(errors="replace")[-4000:].strip().splitlines()
    return lines[-1] if lines else ""
