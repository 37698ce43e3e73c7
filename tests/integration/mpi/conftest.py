"""One workspace for all MPI tests, because agents are dear to start; and other MPIs in their own environments."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.conftest import _end_workspace, wait_until
from tests.integration.server.conftest import Site

from muster.client.connect import connect
from muster.client.submit import submit
from muster.client.workspace import create_workspace
from muster.job.explain import make_spec

SCRIPT = Path(__file__).parent / "job"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "muster-tests" / "mpi"


class MpiSite(Site):
    """A workspace, and MPI jobs in it."""

    def mpi(self, command: str | list[str], nodes: int = 2, per_node: int = 2, **more: Any) -> str:
        python = more.pop("python", sys.executable)
        job = {
            "code": str(SCRIPT),
            "command": command,
            "resources": {"instance_count": nodes},
            "distribution": {"type": "mpi", "process_count_per_instance": per_node},
            "retry": {"platform": 0, "node_loss": 0},
            **more,
        }
        return submit(self.client, make_spec(job), self.folder, python=str(python)).id

    def logs(self, run_id: str, ranks: int = 4) -> list[str]:
        return [self.log(run_id, f"user_logs/std_log_process_{rank}.txt").decode() for rank in range(ranks)]

    def wait_for_text(self, run_id: str, text: str, ranks: int = 4) -> None:
        def printed() -> bool:
            files = [file["path"] for file in self.view(run_id)["files"] if "std_log_process" in file["path"]]
            return len(files) == ranks and all(text in self.log(run_id, file).decode() for file in files)

        wait_until(printed, 60.0, f"{text!r} from {ranks} ranks of {run_id}")

    def nothing_left(self, run_id: str) -> None:
        """No process of the run is there any more, and nothing of it in memory."""
        needle = f"{run_id}.".encode()

        def left() -> list[int]:
            found = []
            for process in psutil.process_iter():
                try:
                    environ = (Path("/proc") / str(process.pid) / "environ").read_bytes()
                except OSError:
                    continue
                if needle in environ:
                    found.append(process.pid)
            return found

        wait_until(lambda: not left(), 20.0, f"the end of all processes of {run_id}")


@pytest.fixture(scope="session")
def mpi_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MpiSite]:
    with mpi_workspace(tmp_path_factory.mktemp("mpi")) as site:
        yield site


@contextmanager
def mpi_workspace(place: Path) -> Iterator[MpiSite]:
    folder = place / "w"
    folder.mkdir()
    client = connect(create_workspace(folder, "mpi"))
    yield MpiSite(folder, client)
    client.close()
    _end_workspace(folder)


@pytest.fixture(scope="session")
def python_with() -> Callable[..., Path]:
    """The interpreter of an environment with these packages; kept from one run of the tests to the next."""

    def make(*packages: str) -> Path:
        folder = CACHE / "-".join((f"{sys.version_info.major}.{sys.version_info.minor}", *packages))
        python = folder / "bin" / "python"
        if not (folder / "ready").exists():
            venv.create(folder, clear=True)
            install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", *packages]
            done = subprocess.run(install, capture_output=True, text=True)
            if done.returncode != 0:
                pytest.skip(f"{', '.join(packages)} cannot be installed here: {done.stderr[-300:]}")
            (folder / "ready").touch()
        return python

    return make
