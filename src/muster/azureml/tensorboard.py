"""`Tensorboard`: TensorBoard on runs, started and stopped by a script or a notebook."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from muster.errors import JobError
from muster.sdk.run import Run

_STOP_S = 10.0


class Tensorboard:
    """`muster tensorboard` on some runs; it follows those that still run."""

    def __init__(
        self, runs: Iterable[Run] | Run, local_root: str | None = None, port: int = 6006, **kwargs: Any
    ) -> None:
        self._runs = [runs] if isinstance(runs, Run) else list(runs)
        if not self._runs:
            raise JobError("Tensorboard needs a run", "Give Tensorboard([run]).")
        self._port = _free_port(port)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, start_browser: bool = False) -> str:
        """Start TensorBoard; returns its address."""
        if self._process is None:
            words = ["tensorboard", *(run.id for run in self._runs), "--port", str(self._port)]
            self._process = subprocess.Popen([sys.executable, "-m", "muster", *words])
        address = f"http://127.0.0.1:{self._port}/"
        print(address, flush=True)
        return address

    def stop(self) -> None:
        """Stop TensorBoard."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port(wanted: int) -> int:
    """The wanted port, or another one if it is taken."""
    for port in (wanted, 0):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            found: int = tried.getsockname()[1]
            return found
    raise JobError("no port of this machine is free", "Give port=… another number.")
