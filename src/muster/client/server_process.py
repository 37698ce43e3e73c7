"""Starts the embedded server, fully detached from the process that needed it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from muster.defaults import SERVER_START_S
from muster.errors import ServerUnavailable
from muster.host.locks import FileLock
from muster.paths import WorkspacePaths

_KEPT = (
    "HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME",
    "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "SLURM_CONF", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "DOCKER_HOST", "CONTAINERS_CONF", "CONTAINERS_REGISTRIES_CONF", "CONTAINERS_STORAGE_CONF",
)  # fmt: skip


class ServerProcess:
    """The server of a workspace, from its start until it is ready."""

    def __init__(self, paths: WorkspacePaths, deadline_s: float = SERVER_START_S) -> None:
        self._paths = paths
        self._deadline_s = deadline_s
        self._said_before = 0
        """Bytes of the log that earlier servers wrote."""

    def start(self) -> None:
        """Start it and wait until it serves; ServerUnavailable with its last words otherwise."""
        ready, announce = os.pipe()
        try:
            try:
                self._spawn(announce)
            finally:
                os.close(announce)
            readable, _, _ = select.select([ready], [], [], self._deadline_s)
            if not readable:
                raise self._failure(f"did not become ready within {self._deadline_s:g} s")
            if not os.read(ready, 1):
                raise self._failure("could not be started")
        finally:
            os.close(ready)

    def _spawn(self, announce: int) -> None:
        server = [sys.executable, "-m", "muster.server", "--workspace", str(self._paths.root)]
        command = [*server, "--ready-fd", str(announce)]
        with self._paths.server_log.open("ab") as log:
            self._said_before = log.tell()
            # The shell leaves at once, so that the server is nobody's child here and never a zombie of a notebook.
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
        if shell.wait() != 0:
            raise self._failure("could not be started")

    def _failure(self, what: str) -> ServerUnavailable:
        log = self._paths.server_log
        words = last_lines(log, since=self._said_before)
        return ServerUnavailable(
            f"the server of the workspace {self._paths.root} {what}. Its last words:\n{words}",
            f"The whole log is {log}; `muster doctor` checks this machine.",
        )


def server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What the server gets of the environment of whoever starts it: a known base, not the whole shell."""
    env = {name: environ[name] for name in _KEPT if name in environ}
    env.setdefault("PATH", os.defpath)
    if "MUSTER_RUN_ID" not in environ:
        env |= {name: value for name, value in environ.items() if name.startswith("MUSTER_") and not _is_secret(name)}
    # Muster itself may have been found through PYTHONPATH.
    package_parent = str(Path(__file__).resolve().parents[2])
    if package_parent in environ.get("PYTHONPATH", "").split(os.pathsep):
        env["PYTHONPATH"] = package_parent
    return env


def _is_secret(name: str) -> bool:
    return name in ("MUSTER_SERVER", "MUSTER_TOKEN", "MUSTER_TOKEN_FILE", "MUSTER_CERTIFICATE")


@contextmanager
def start_lock(paths: WorkspacePaths) -> Iterator[None]:
    """Held by the one client that starts the server; the others wait for it."""
    held = FileLock(paths.start_lock).acquire_within(2 * SERVER_START_S)
    if held is None:
        raise ServerUnavailable(
            f"another process has been starting the server of {paths.root} for {2 * SERVER_START_S:g} s",
            f"See {paths.server_log}.",
        )
    with held:
        yield


def wait_until_gone(paths: WorkspacePaths, answers: Callable[[], bool] = lambda: False) -> None:
    """Wait until a server has let go of the workspace, or answers: one that has it may be on its way in or out."""
    if not paths.server_lock.exists():
        return

    def pause(poll_s: float) -> bool:
        time.sleep(poll_s)
        return answers()

    held = FileLock(paths.server_lock).acquire_within(SERVER_START_S, pause=pause)
    if held is not None:
        held.release()
    elif not answers():
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
