"""From SIGKILL of a rank to the next training step of a 2-rank gloo job, against `torchrun --max-restarts`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from bench.measure import Figure, Workspace, median, quick, report, temporary_workspace
from muster.client.submit import submit
from muster.job.explain import make_spec
from muster.wire.runs import RunView

TRAIN = Path(__file__).parent / "jobs" / "train.py"
PATIENCE_S = 40.0
STEPS = 100_000


def main() -> None:
    is_quick = quick(__doc__)
    phases, kills, launcher_kills = (1, 4, 2) if is_quick else (5, 10, 4)
    muster: list[float] = []
    verdicts: list[float] = []
    torchrun: list[float] = []
    hung = 0
    with temporary_workspace() as workspace:
        (workspace.folder / "code").mkdir()
        shutil.copy(TRAIN, workspace.folder / "code" / "train.py")
        for phase in range(phases):
            restarts, told = by_muster(workspace, kills)
            muster += restarts
            verdicts += told
            found, failures = by_torchrun(workspace.folder / f"torchrun-{phase}", launcher_kills)
            torchrun += found
            hung += failures
            print(f"phase {phase + 1}: muster {len(muster)}, torchrun {len(torchrun)} and {hung} hung", flush=True)
    wanted = phases * kills
    figures = [
        median("muster: kill to the next step", muster, "s", at_most=statistics.median(torchrun) if torchrun else 60.0),
        Figure(f"muster: restarts of {wanted} kills", len(muster), "", at_least=wanted),
        Figure("muster: slowest verdict after a kill", max(verdicts), "s", at_most=2.0, samples=verdicts),
    ]
    if torchrun:
        figures.append(median("torchrun --max-restarts: kill to the next step", torchrun, "s"))
    figures.append(Figure(f"torchrun: hung restarts of {len(torchrun) + hung} kills", hung, ""))
    report("restart", figures, is_quick)


def by_muster(workspace: Workspace, kills: int) -> tuple[list[float], list[float]]:
    """Seconds from each kill to the next step, and to the verdict."""
    spec = make_spec(
        {
            "code": "./code",
            "command": f"python train.py --steps {STEPS} --pause-s 0.05",
            "distribution": {"type": "pytorch", "process_count_per_instance": 2},
            "environment_variables": {"OMP_NUM_THREADS": "1"},
            "retry": {"user_error": kills + 5, "backoff_s": 0},
        }
    )
    client = workspace.client
    run_id = submit(client, spec, workspace.folder, python=sys.executable).id
    restarts: list[float] = []
    killed_at: list[float] = []
    for number in range(1, kills + 1):
        attempt = wait(lambda number=number: stepping(client.run(run_id), number, workspace))
        pid = attempt.ranks[number % 2].pid
        killed_at.append(time.time())
        os.kill(pid, signal.SIGKILL)
        wait(lambda number=number: stepping(client.run(run_id), number + 1, workspace))
        restarts.append(first_step(workspace, run_id, number + 1) - killed_at[-1])
    client.cancel(run_id, force=True)
    view = wait(lambda: (v := client.run(run_id)).status == "Canceled" and v)
    told = [attempt.ended_at - at for attempt, at in zip(view.attempts, killed_at, strict=False)]
    return restarts, told


def stepping(view: RunView, number: int, workspace: Workspace) -> Any:
    """The attempt, once both of its ranks have done a step."""
    if view.status in ("Failed", "Completed"):
        raise SystemExit(f"the run ended: {view.verdict}")
    if len(view.attempts) < number:
        return None
    return view.attempts[number - 1] if first_step(workspace, view.id, number) else None


def first_step(workspace: Workspace, run_id: str, number: int) -> float:
    """When the slower rank had done its first step of an attempt; 0 before that."""
    logs = workspace.folder / ".muster" / "store" / "runs" / run_id / "attempts" / str(number) / "user_logs"
    return both_ranks("".join(path.read_text(errors="replace") for path in logs.glob("*.txt")), 0.0)


def both_ranks(text: str, after: float) -> float:
    """When both ranks had done a step after a moment; 0 before that."""
    found: dict[str, float] = {}
    for rank, at in re.findall(r"^step \d+ rank (\d) loss \S+ at (\S+)$", text, re.M):
        if float(at) > after:
            found.setdefault(rank, float(at))
    return max(found.values()) if len(found) == 2 else 0.0


def by_torchrun(folder: Path, kills: int) -> tuple[list[float], int]:
    """Seconds from each kill to the next step, and how often none came."""
    folder.mkdir()
    restarts: list[float] = []
    hung = 0
    while len(restarts) + hung < kills:
        shutil.rmtree(folder)
        folder.mkdir()
        launcher = start_torchrun(folder)
        log = folder / "log"
        try:
            wait(lambda log=log: both_ranks(log.read_text(errors="replace"), 0.0))
            while len(restarts) + hung < kills:
                took = restart_torchrun(launcher, log, (len(restarts) + hung) % 2)
                if took is None:
                    hung += 1
                    break
                restarts.append(took)
        finally:
            end_tree(launcher)
    return restarts, hung


def start_torchrun(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", "100", str(TRAIN), "--steps", str(STEPS), "--pause-s", "0.05"]
    command += ["--checkpoints", str(folder / "state"), "--resume", str(folder / "state")]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        )


def restart_torchrun(launcher: subprocess.Popen[bytes], log: Path, which: int) -> float | None:
    children = [
        child
        for child in psutil.Process(launcher.pid).children(recursive=True)
        if str(TRAIN) in child.cmdline() and child.environ().get("LOCAL_RANK") == str(which)
    ]
    at = time.time()
    children[0].kill()
    try:
        # A step that was running when the rank died does not count: the next one comes after the restart.
        done = wait(lambda: both_ranks(log.read_text(errors="replace"), at + 0.3), PATIENCE_S)
    except TimeoutError:
        return None
    return float(done) - at


def end_tree(launcher: subprocess.Popen[bytes]) -> None:
    for process in psutil.Process(launcher.pid).children(recursive=True):
        process.kill()
    launcher.kill()
    launcher.wait()


def wait(condition: Callable[[], Any], timeout_s: float = 120.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in {timeout_s:g} s")
        time.sleep(0.02)
    return found


if __name__ == "__main__":
    main()
