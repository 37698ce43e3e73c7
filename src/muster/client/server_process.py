"""Starts the embedded server, fully detached from the process that needed it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from muster.defaults import SERVER_START_S
from muster.errors import ServerUnavailable, UserError
from muster.host.locks import FileLock, HeldLock
from muster.paths import WorkspacePaths
from muster.systems import server_refusal
from muster.wire.workspace import READY

_KEPT = (
    "HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME",
    "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "SLURM_CONF", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "DOCKER_HOST", "CONTAINERS_CONF", "CONTAINERS_REGISTRIES_CONF", "CONTAINERS_STORAGE_CONF",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    # Where packages and interpreters come from, and where environments are kept: as `--dry-run` sees it.
    "XDG_CACHE_HOME", "XDG_CONFIG_DIRS", "PYENV_ROOT",
    "PIP_CONFIG_FILE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_TRUSTED_HOST",
    "PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY", "PIP_RETRIES", "PIP_DEFAULT_TIMEOUT", "PIP_CACHE_DIR",
    "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX",
    "UV_INSECURE_HOST", "UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR",
)  # fmt: skip
_MOST_WORDS = 4096
meanwhile: Callable[[str], AbstractContextManager[object]] = nullcontext
"""Called while a server starts; the command line shows there what it waits for."""
_OF_CLIENTS = {"MUSTER_SERVER", "MUSTER_TOKEN", "MUSTER_TOKEN_FILE", "MUSTER_CERTIFICATE", "MUSTER_WORKSPACE"}


def start_server(paths: WorkspacePaths) -> None:
    """Start a workspace's server and wait until it serves; ServerUnavailable with its last output otherwise."""
    if why := server_refusal(sys.platform):
        raise UserError(f"no server can be started for the workspace {paths.root} on this system", why)
    log = paths.server_log
    log_began = log.stat().st_size if log.exists() else 0
    trouble, output = _start(paths)
    if trouble:
        last_words = output or last_lines(log, since=log_began)
        raise ServerUnavailable(
            f"the server of the workspace {paths.root} {trouble}. Its last words:\n{last_words}",
            f"The whole log is {log}; `muster doctor` checks this machine.",
        )


def _start(paths: WorkspacePaths) -> tuple[str, str]:
    """What went wrong and what the server printed; empty when it serves."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as ready:
        with os.fdopen(writing, "wb") as announce:
            is_started = _spawn(paths, announce.fileno())
        if is_started and not select.select([ready], [], [], SERVER_START_S)[0]:
            return f"did not become ready within {SERVER_START_S:g} s", ""
        output = ready.read(_MOST_WORDS) if is_started else b""
        if output == READY:
            return "", ""
        # Wait for its end: its last output comes before that.
        while more := ready.read(_MOST_WORDS):
            output += more
        lines = output.decode(errors="replace").splitlines()
        return "could not be started", "\n".join(f"  {line}" for line in lines)


def _spawn(paths: WorkspacePaths, announce: int) -> bool:
    """Start it; returns whether that worked. It writes to `announce` when it serves."""
    command = [sys.executable, "-m", "muster.server", "--workspace", str(paths.root), "--ready-fd", str(announce)]
    with paths.server_log.open("ab") as log:
        # The shell exits at once, so that the server is not a child of this process, nor ever a zombie of a notebook.
        shell = subprocess.Popen(
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            cwd="/",
            env=server_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(announce,),
            start_new_session=True,
        )
    return shell.wait() == 0


def server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of the caller's environment that the server gets: a known base, not the whole shell."""
    env = {name: environ[name] for name in _KEPT if name in environ}
    env.setdefault("PATH", os.defpath)
    if "MUSTER_RUN_ID" not in environ:
        own = {name for name in environ if name.startswith("MUSTER_")} - _OF_CLIENTS
        env |= {name: environ[name] for name in own}
    # Muster itself may have been found through PYTHONPATH.
    package_parent = str(Path(__file__).resolve().parents[2])
    if package_parent in environ.get("PYTHONPATH", "").split(os.pathsep):
        env["PYTHONPATH"] = package_parent
    return env


def start_lock(paths: WorkspacePaths) -> HeldLock:
    """The lock of the one client that starts the server; others wait for it."""
    held = FileLock(paths.start_lock).acquire_within(2 * SERVER_START_S)
    if held is None:
        raise ServerUnavailable(
            f"another process has been starting the server of {paths.root} for {2 * SERVER_START_S:g} s",
            f"See {paths.server_log}.",
        )
    return held


def has_server(paths: WorkspacePaths) -> bool:
    """Whether a server holds the workspace, even one that does not answer yet."""
    return not FileLock(paths.server_lock).is_free(shared=True)


def wait_until_gone(paths: WorkspacePaths, answers: Callable[[], bool] = lambda: False) -> None:
    """Wait until a server has released the workspace, or answers: it may be starting or shutting down."""
    if not paths.server_lock.exists():
        return

    answered = False

    def pause(poll_s: float) -> bool:
        nonlocal answered
        time.sleep(poll_s)
        answered = answers()
        return answered

    held = FileLock(paths.server_lock).acquire_within(SERVER_START_S, pause=pause)
    if held is not None:
        held.release()
    elif not answered:
        raise ServerUnavailable(
            f"a server has the workspace {paths.root} and neither answers nor ends ({SERVER_START_S:g} s)",
            f"See {paths.server_log}, or end it by hand.",
        )


def last_lines(log: Path, count: int = 15, since: int = 0) -> str:
    try:
        with log.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(since, stream.tell() - 16_384))
            lines = stream.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return "  (no log)"
    return "\n".join(f"  {line}" for line in lines[-count:]) or "  (nothing)"
