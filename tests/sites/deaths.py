"""Deaths × moments on a real Slurm: what a run makes of each, and whether the cluster then takes the next job.

`python -m tests.sites.deaths` runs them all and prints the table; `--death` and `--moment` choose some.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import psutil
from tests.sites.slurm import SlurmSite

from muster.client.api import Client
from muster.client.connect import connect
from muster.client.submit import submit
from muster.client.workspace import create_workspace, find_workspace
from muster.job.explain import make_spec
from muster.wire import states
from muster.wire.runs import RunView

MOMENTS = ("idle", "queued", "preparing", "running", "finalizing")
PATIENCE_S = 150.0
OPTIONS = {"partition": "batch", "poll_seconds": 0.5, "server_address": "127.0.0.1"}
_OUTPUT_MB = 150


@dataclass(frozen=True)
class Cell:
    """What one death at one moment led to."""

    death: str
    moment: str
    outcome: str
    """The verdicts of the run's attempts; of `idle`, nothing."""
    well: bool
    """The run came to its end, and the next job completed."""


@dataclass
class Scene:
    """A private Slurm and a workspace on it."""

    slurm: SlurmSite
    folder: Path

    @property
    def client(self) -> Client:
        """Found anew each time: the server may be another one."""
        return connect(find_workspace(self.folder))

    def run(self, **job: object) -> str:
        return submit(self.client, make_spec(job), self.folder, python=sys.executable).id

    def view(self, run_id: str) -> RunView:
        return self.client.run(run_id)

    def server(self) -> psutil.Process:
        return psutil.Process(self.client.health().pid)

    def agents(self) -> list[psutil.Process]:
        """The agents of this workspace, wherever Slurm has started them."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if words[1:3] == ["-m", "muster.agent"] and words[-1].startswith(str(self.folder)):
                    found.append(process)
        return found


@contextlib.contextmanager
def scene() -> Iterator[Scene]:
    slurm, folder = SlurmSite(num_nodes=4), Path(tempfile.mkdtemp(prefix="deaths-"))
    try:
        slurm.start()
        os.environ.update(slurm.environment)
        create_workspace(folder, "deaths")
        made = Scene(slurm, folder)
        made.client.create_cluster("hpc", "slurm", OPTIONS)
        made.client.create_cluster("held", "slurm", {**OPTIONS, "sbatch": ["--hold"]})
        set_up = f"touch {folder}/setup; while [ ! -e {folder}/go ]; do sleep 0.1; done"
        made.client.create_cluster("slow", "slurm", {**OPTIONS, "setup": set_up})
        yield made
    finally:
        with contextlib.suppress(Exception):
            connect(find_workspace(folder)).shutdown(force=True)
        slurm.close()
        shutil.rmtree(folder, ignore_errors=True)


# Deaths: each returns what makes the site whole again.


def controller(here: Scene) -> Callable[[], None]:
    here.slurm.kill_controller()
    return here.slurm.start_controller


def slurmd(here: Scene) -> Callable[[], None]:
    """That of a node with an agent; of the first where there is none."""
    busy = here.slurm.command("squeue", "-h", "-t", "running", "-o", "%B").split()
    node = busy[0] if busy else here.slurm.nodes[0]
    here.slurm.kill_node(node)

    def revive() -> None:
        # Slurm must have noticed, or nothing has happened at all.
        until(lambda: _state(here, node).startswith(("down", "idle*", "mix*", "alloc*")), "Slurm's notice")
        here.slurm.start_node(node)

    return revive


def agent(here: Scene) -> Callable[[], None]:
    for process in here.agents()[:1]:
        process.send_signal(signal.SIGKILL)
    return lambda: None


def server(here: Scene) -> Callable[[], None]:
    here.server().kill()
    # The next call starts another.
    return lambda: None


DEATHS: dict[str, Callable[[Scene], Callable[[], None]]] = {
    "controller": controller, "slurmd": slurmd, "agent": agent, "server": server,
}  # fmt: skip


# Moments


def arrange(here: Scene, moment: str) -> str | None:
    """Bring a run to a moment; its id."""
    for name in ("go", "up", "setup"):
        (here.folder / name).unlink(missing_ok=True)
    if moment == "idle":
        return None
    wait = f"touch {here.folder}/up; while [ ! -e {here.folder}/go ]; do sleep 0.1; done"
    compute = {"queued": "held", "preparing": "slow"}.get(moment, "hpc")
    large = f"mkdir -p outputs; head -c {_OUTPUT_MB}000000 /dev/urandom > outputs/large"
    command = {"running": wait, "finalizing": large}.get(moment, "true")
    run_id = here.run(command=command, compute=compute, retry={"node_loss": 3, "platform": 3, "backoff_s": 0})
    reached: dict[str, Callable[[], bool]] = {
        "queued": lambda: run_id in here.slurm.command("squeue", "-h", "-o", "%j"),
        "preparing": (here.folder / "setup").exists,
        "running": (here.folder / "up").exists,
        "finalizing": lambda: here.view(run_id).status in (states.FINALIZING, *states.TERMINAL),
    }
    until(reached[moment], f"{run_id} {moment}")
    return run_id


def play(here: Scene, death: str, moment: str) -> Cell:
    """One cell of the table."""
    run_id = arrange(here, moment)
    revive = DEATHS[death](here)
    revive()
    (here.folder / "go").touch()
    outcome = ""
    well = True
    if run_id is not None:
        view = ended(here, run_id, release=moment == "queued")
        outcome = ", ".join(attempt.verdict.code for attempt in view.attempts if attempt.verdict)
        well = view.status == states.COMPLETED
    following = ended(here, here.run(command="true", compute="hpc"))
    return Cell(death, moment, outcome, well and following.status == states.COMPLETED)


def ended(here: Scene, run_id: str, release: bool = False) -> RunView:
    def over() -> RunView | None:
        if release:
            held = here.slurm.command("squeue", "-h", "-t", "pending", "-o", "%i").split()
            for job in held:
                here.slurm.command("scontrol", "release", job)
        view = here.view(run_id)
        return view if view.status in states.TERMINAL else None

    found = until(over, f"the end of {run_id}")
    assert isinstance(found, RunView)
    return found


def table(cells: list[Cell]) -> str:
    """As documents have it: a row for each death, a column for each moment."""
    by = {(cell.death, cell.moment): cell for cell in cells}
    moments = [moment for moment in MOMENTS if any(cell.moment == moment for cell in cells)]
    lines = [f"| death of | {' | '.join(moments)} |", "|---" * (len(moments) + 1) + "|"]
    for death in dict.fromkeys(cell.death for cell in cells):
        row = [by.get((death, moment)) for moment in moments]
        shown = ["" if cell is None else _shown(cell) for cell in row]
        lines.append(f"| {death} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _shown(cell: Cell) -> str:
    said = cell.outcome or "next job completed"
    return said if cell.well else f"**wrong**: {said}"


def _state(here: Scene, node: str) -> str:
    return here.slurm.command("sinfo", "-h", "-p", "urgent", "-n", node, "-o", "%t")


def until(condition: Callable[[], object], what: str) -> object:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {PATIENCE_S:g} s")
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--death", choices=DEATHS, action="append")
    parser.add_argument("--moment", choices=MOMENTS, action="append")
    chosen = parser.parse_args()
    cells: list[Cell] = []
    with scene() as here:
        for death, moment in product(chosen.death or DEATHS, chosen.moment or MOMENTS):
            began = time.monotonic()
            try:
                cells.append(play(here, death, moment))
            except TimeoutError as error:
                cells.append(Cell(death, moment, str(error), False))
            print(f"{cells[-1]} {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(table(cells))
    sys.exit(0 if all(cell.well for cell in cells) else 1)


if __name__ == "__main__":
    main()
