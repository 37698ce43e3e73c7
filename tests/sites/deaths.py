"""Deaths × moments on a real Slurm or Ray: what a run makes of each, and whether the cluster then takes the next job.

`python -m tests.sites.deaths --engine slurm` plays them all and prints the table; `--death` and `--moment` choose some.
With `--engine ray --redis` the head keeps its tables in a Redis (apt-get install redis-server).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import psutil
from tests.sites.ray import RaySite
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
SERVER_CUT_S = 12.0
"""Longer than an agent waits before it tries another way, shorter than it waits before it gives up."""
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
    """A workspace on a private site."""

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

    def agents(self, run_id: str | None) -> list[psutil.Process]:
        """The agents that were brought for a run."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if run_id and words[1:3] == ["-m", "muster.agent"] and f"/{run_id}." in words[-1]:
                    found.append(process)
        return found

    def compute(self, moment: str) -> str:
        """The cluster that a run of this moment is for."""
        return {"queued": "held", "preparing": "slow"}.get(moment, "main")

    def is_queued(self, run_id: str) -> bool:
        raise NotImplementedError

    def hold(self) -> None:
        """Have what comes next wait in the queue."""

    def let_go(self) -> None:
        """Have what is held in the queue start."""

    @property
    def set_up(self) -> str:
        """A node's set-up that waits."""
        return f"touch {self.folder}/setup; while [ ! -e {self.folder}/go ]; do sleep 0.1; done"


@dataclass
class SlurmScene(Scene):
    slurm: SlurmSite

    def is_queued(self, run_id: str) -> bool:
        return run_id in self.slurm.command("squeue", "-h", "-o", "%j")

    def let_go(self) -> None:
        for job in self.slurm.command("squeue", "-h", "-t", "pending", "-o", "%i").split():
            self.slurm.command("scontrol", "release", job)


@dataclass
class RayScene(Scene):
    ray: RaySite
    holds: bool = False

    @property
    def options(self) -> dict[str, object]:
        return {**self.ray.options, "cut_off_seconds": 8}

    def compute(self, moment: str) -> str:
        if moment == "preparing" and all(cluster.name != "slow" for cluster in self.client.clusters()):
            self.client.create_cluster("slow", "ray", {**self.options, "setup": self.set_up})
        return "slow" if moment == "preparing" else "main"

    def is_queued(self, run_id: str) -> bool:
        return "waits" in self.view(run_id).reason

    def hold(self) -> None:
        """A group of somebody else's has every CPU."""
        self.holds = True
        self._on_ray(
            "from ray.util import placement_group as make; "
            f"bundles = [{{'CPU': {self.ray.cpus}}}] * {len(self.ray.hosts)}; "
            "ray.get(make(bundles, 'STRICT_SPREAD', name='held', lifetime='detached').ready(), timeout=60)"
        )

    def let_go(self) -> None:
        """A head that was started anew has forgotten the group."""
        if not self.holds:
            return
        self.holds = False
        self._on_ray(
            "from ray.util import get_placement_group as find, placement_group_table as table; "
            "held = 'held' in [group['name'] for group in table().values() if group['state'] != 'REMOVED']; "
            "held and ray.util.remove_placement_group(find('held'))"
        )

    def _on_ray(self, code: str) -> None:
        start = "import ray; ray.init('auto', namespace='others', logging_level='ERROR'); "
        self.ray.ray("python", "-c", start + code)


@contextlib.contextmanager
def scene() -> Iterator[SlurmScene]:
    with _workspace() as folder, contextlib.closing(SlurmSite(num_nodes=4)) as slurm:
        slurm.start()
        os.environ.update(slurm.environment)
        made = SlurmScene(folder, slurm)
        create_workspace(folder, "deaths")
        made.client.create_cluster("main", "slurm", OPTIONS)
        made.client.create_cluster("held", "slurm", {**OPTIONS, "sbatch": ["--hold"]})
        made.client.create_cluster("slow", "slurm", {**OPTIONS, "setup": made.set_up})
        with _ended_server(folder):
            yield made


@contextlib.contextmanager
def ray_scene(redis: bool = False) -> Iterator[RayScene]:
    with _workspace() as folder, contextlib.closing(RaySite(redis=redis)) as ray:
        ray.start()
        with ray_workspace(ray, folder) as made:
            yield made


@contextlib.contextmanager
def ray_workspace(ray: RaySite, folder: Path) -> Iterator[RayScene]:
    """A workspace with its clusters on a Ray that runs."""
    made = RayScene(folder, ray)
    if not (folder / ".muster").exists():
        create_workspace(folder, "deaths")
        made.client.create_cluster("main", "ray", made.options)
    with _ended_server(folder):
        yield made


@contextlib.contextmanager
def _ended_server(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            connect(find_workspace(folder)).shutdown(force=True)


@contextlib.contextmanager
def _workspace() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="deaths-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# Deaths: each returns what makes the site whole again.


def controller(here: Scene, run_id: str | None) -> Callable[[], None]:
    assert isinstance(here, SlurmScene)
    here.slurm.kill_controller()
    return here.slurm.start_controller


def slurmd(here: Scene, run_id: str | None) -> Callable[[], None]:
    """That of a node with an agent; of the first where there is none."""
    assert isinstance(here, SlurmScene)
    slurm = here.slurm
    busy = here.slurm.command("squeue", "-h", "-t", "running", "-o", "%B").split()
    node = busy[0] if busy else here.slurm.nodes[0]
    here.slurm.kill_node(node)

    def revive() -> None:
        # Slurm must have noticed, or nothing has happened at all.
        until(lambda: _state(slurm, node).startswith(("down", "idle*", "mix*", "alloc*")), "Slurm's notice")
        here.slurm.start_node(node)

    return revive


def head(here: Scene, run_id: str | None) -> Callable[[], None]:
    assert isinstance(here, RayScene)
    here.ray.kill_ray(here.ray.hosts[0])
    return here.ray.revive


def raylet(here: Scene, run_id: str | None) -> Callable[[], None]:
    """That of a host with a part of the run which is not the head; of the last where there is none."""
    assert isinstance(here, RayScene)
    ray, host = here.ray, _host(here, run_id)
    ray.raylet(host).kill()

    def revive() -> None:
        # What is left of Ray there ends by itself a little later.
        ray.kill_ray(host)
        ray.revive()

    return revive


def _host(here: RayScene, run_id: str | None) -> str:
    """A host with a part of the run which is not the head; the last where there is none."""
    nodes = here.view(run_id).attempts[-1].nodes if run_id else ()
    others = [node.name for node in nodes if node.name in here.ray.hosts[1:]]
    return others[0] if others else here.ray.hosts[-1]


def broker(here: Scene, run_id: str | None) -> Callable[[], None]:
    assert isinstance(here, RayScene)
    here.ray.broker().kill()
    return lambda: None


def bridge(here: Scene, run_id: str | None) -> Callable[[], None]:
    for process in here.server().children():
        if "muster.engines.ray.bridge" in process.cmdline():
            process.kill()
    return lambda: None


def agent(here: Scene, run_id: str | None) -> Callable[[], None]:
    for process in here.agents(run_id)[:1]:
        process.send_signal(signal.SIGKILL)
    return lambda: None


def server(here: Scene, run_id: str | None) -> Callable[[], None]:
    here.server().kill()
    # The next call starts another.
    return lambda: None


def node_link(here: Scene, run_id: str | None) -> Callable[[], None]:
    """A host of the run, or the last, reaches nobody until its manager has given it up."""
    if isinstance(here, SlurmScene):
        return _slurm_node_link(here.slurm)
    assert isinstance(here, RayScene)
    ray, host = here.ray, _host(here, run_id)
    ray.cut(host)

    def heal() -> None:
        until(lambda: host not in _living(here), "Ray's notice")
        ray.heal(host)
        # The daemon of a node that was given up ends itself.
        until(lambda: not ray.has_ray(host), f"the end of Ray on {host}")
        ray.revive()

    return heal


def server_link(here: Scene, run_id: str | None) -> Callable[[], None]:
    """The server reaches no node, and none reaches it, for a while; nodes reach each other and their manager."""
    if isinstance(here, SlurmScene):
        ports = {port for port in _listening(here.server()) if port}
        heal = _deaf(*ports)
    else:
        assert isinstance(here, RayScene)
        heal = here.ray.cut_server()
    time.sleep(SERVER_CUT_S)
    return heal


def _slurm_node_link(slurm: SlurmSite) -> Callable[[], None]:
    """The controller no longer reaches the daemon of a node, which works on."""
    busy = slurm.command("squeue", "-h", "-t", "running", "-o", "%B").split()
    node = busy[0] if busy else slurm.nodes[0]
    open_again = _deaf(slurm.port_of(node))

    def heal() -> None:
        until(lambda: _state(slurm, node).startswith("down") or _state(slurm, node).endswith("*"), "Slurm's notice")
        open_again()

    return heal


def _deaf(*ports: int) -> Callable[[], None]:
    """What is sent to these ports of this machine's own address gets lost, until the returned is called."""
    rules = [["INPUT", "-i", "lo", "-p", "tcp", "--dport", str(port), "-j", "DROP"] for port in ports]
    for rule in rules:
        subprocess.run(["iptables", "-w", "-A", *rule], check=True)

    def open_again() -> None:
        for rule in rules:
            subprocess.run(["iptables", "-w", "-D", *rule], check=True)

    return open_again


def _listening(process: psutil.Process) -> set[int]:
    found = process.net_connections(kind="tcp")
    return {item.laddr.port for item in found if item.status == psutil.CONN_LISTEN}


def _living(here: RayScene) -> set[str]:
    return {node.name for node in here.client.cluster("main").nodes if node.state in ("idle", "running")}


Death = Callable[[Scene, str | None], Callable[[], None]]
DEATHS: dict[str, dict[str, Death]] = {
    "slurm": {
        "controller": controller,
        "slurmd": slurmd,
        "agent": agent,
        "server": server,
        "node's link": node_link,
        "server's link": server_link,
    },
    "ray": {
        "head": head,
        "raylet": raylet,
        "broker": broker,
        "bridge": bridge,
        "agent": agent,
        "server": server,
        "node's link": node_link,
        "server's link": server_link,
    },
}


# Moments


def arrange(here: Scene, moment: str) -> str | None:
    """Bring a run to a moment; its id."""
    for name in ("go", "up", "setup"):
        (here.folder / name).unlink(missing_ok=True)
    if moment == "idle":
        return None
    wait = f"touch {here.folder}/up; while [ ! -e {here.folder}/go ]; do sleep 0.1; done"
    compute = here.compute(moment)
    large = f"mkdir -p outputs; head -c {_OUTPUT_MB}000000 /dev/urandom > outputs/large"
    command = {"running": wait, "finalizing": large}.get(moment, "true")
    if moment == "queued":
        here.hold()
    run_id = here.run(command=command, compute=compute, retry={"node_loss": 3, "platform": 3, "backoff_s": 0})
    reached: dict[str, Callable[[], bool]] = {
        "queued": lambda: here.is_queued(run_id),
        "preparing": (here.folder / "setup").exists,
        "running": (here.folder / "up").exists,
        "finalizing": lambda: here.view(run_id).status in (states.FINALIZING, *states.TERMINAL),
    }
    until(reached[moment], f"{run_id} {moment}")
    return run_id


def play(here: Scene, death: str, moment: str) -> Cell:
    """One cell of the table."""
    run_id = arrange(here, moment)
    engine = "slurm" if isinstance(here, SlurmScene) else "ray"
    DEATHS[engine][death](here, run_id)()
    (here.folder / "go").touch()
    outcome = ""
    well = True
    if run_id is not None:
        view = ended(here, run_id, release=moment == "queued")
        outcome = ", ".join(attempt.verdict.code for attempt in view.attempts if attempt.verdict)
        well = view.status == states.COMPLETED
    following = ended(here, here.run(command="true", compute="main"))
    return Cell(death, moment, outcome, well and following.status == states.COMPLETED)


def ended(here: Scene, run_id: str, release: bool = False) -> RunView:
    def over() -> RunView | None:
        if release:
            here.let_go()
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


def _state(slurm: SlurmSite, node: str) -> str:
    return slurm.command("sinfo", "-h", "-p", "urgent", "-n", node, "-o", "%t")


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
    parser.add_argument("--engine", choices=DEATHS, default="slurm")
    parser.add_argument("--redis", action="store_true")
    parser.add_argument("--death", action="append")
    parser.add_argument("--moment", choices=MOMENTS, action="append")
    chosen = parser.parse_args()
    # Whoever ends it finds nothing left of the site.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    cells: list[Cell] = []
    engine = chosen.engine
    with scene() if engine == "slurm" else ray_scene(chosen.redis) as here:
        for death, moment in product(chosen.death or DEATHS[engine], chosen.moment or MOMENTS):
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
