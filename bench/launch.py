"""With the server warm: `muster run` to the first all-reduce against `torchrun`; MPI ranks against bare `mpirun`."""

from __future__ import annotations

import os
import re
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.measure import Figure, Workspace, interleave, log_lines, median, quick, report, temporary_workspace
from muster.client.submit import submit
from muster.job.explain import make_spec
from muster.launch.mpi import OPEN_MPI, RANK_PROGRAM, REMOTE_PROGRAM, Host, Kind, command

SCRIPT = """
import sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
sys.stdout.write(f"reduced {time.time()}\\n")  # one write, or the lines of two ranks could mix
dist.destroy_process_group()
"""

# The ranks of 2 simulated nodes report when they run; what MPI does after that costs the same in both.
MPI_NODES, MPI_RANKS = 2, 2
MPI_COMMAND = ("python", "-S", "-c", "import time; print('reduced', time.time())")


def main() -> None:
    is_quick = quick(__doc__)
    client_parts: list[float] = []
    with temporary_workspace() as workspace:
        (workspace.folder / "code").mkdir()
        (workspace.folder / "code" / "reduce.py").write_text(SCRIPT)
        samples = interleave(
            2 if is_quick else 9,
            {"torchrun": lambda: by_torchrun(workspace), "muster": lambda: by_muster(workspace, client_parts)},
        )
        mpi = interleave(
            2 if is_quick else 9,
            {"mpirun": lambda: by_mpirun(workspace), "muster": lambda: by_muster_mpi(workspace)},
        )
    added = statistics.median(mpi["muster"]) - statistics.median(mpi["mpirun"])
    ratio = statistics.median(samples["muster"]) / statistics.median(samples["torchrun"])
    figures = [
        median("torchrun", samples["torchrun"], "s"),
        median("muster run", samples["muster"], "s"),
        Figure("muster run against torchrun", ratio, "", at_most=1.0),
        median("the client's part: start to accepted", client_parts[1:], "s", at_most=0.3),
        median("mpirun, 2 nodes: start to the last rank's first line", mpi["mpirun"], "s"),
        median("muster, MPI, 2 nodes: accepted to the last rank's first line", mpi["muster"], "s"),
        Figure("what muster adds to mpirun", added, "s", at_most=0.3),
    ]
    report("launch", figures, is_quick)


def by_torchrun(workspace: Workspace) -> float:
    torchrun = Path(sys.executable).with_name("torchrun")
    command = [str(torchrun), "--standalone", "--nproc-per-node", "2", "reduce.py"]
    began = time.time()
    done = subprocess.run(
        command,
        cwd=workspace.folder / "code",
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return reduced_at(done.stdout) - began


def by_muster(workspace: Workspace, client_parts: list[float]) -> float:
    muster = Path(sys.executable).with_name("muster")
    began = time.time()
    subprocess.run(
        [str(muster), "run", "reduce.py", "--procs", "2"],
        cwd=workspace.folder / "code",
        check=True,
        stdout=subprocess.DEVNULL,
    )
    run = workspace.client.run("@latest")
    client_parts.append(run.created_at - began)
    return max(reduced_at("\n".join(lines)) for lines in log_lines(workspace.client, run)) - began


def by_mpirun(workspace: Workspace) -> float:
    """Bare Open MPI with the same two daemons; in place of ssh a shell that gives the second node its name."""
    mpirun = Path(sys.executable).with_name("mpirun")
    remote = workspace.folder / "remote"
    remote.write_text('#!/bin/sh\nshift\nexec unshare --uts sh -c "hostname 127.0.0.2; $*"\n')
    remote.chmod(0o700)
    hosts = [Host(socket.gethostname(), MPI_RANKS), Host("second", MPI_RANKS)]
    made = command(Kind(OPEN_MPI, "5"), str(mpirun), hosts, settings={}, root=os.getuid() == 0)
    path = f"{mpirun.parent}:{os.environ['PATH']}"
    bare = [str(remote) if part == REMOTE_PROGRAM else part for part in made if part != RANK_PROGRAM]
    began = time.time()
    done = subprocess.run(
        [*bare, *MPI_COMMAND], check=True, capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    return reduced_at(done.stdout) - began


def by_muster_mpi(workspace: Workspace) -> float:
    job = {
        "command": list(MPI_COMMAND),
        "resources": {"instance_count": MPI_NODES},
        "distribution": {"type": "mpi", "process_count_per_instance": MPI_RANKS},
    }
    run_id = submit(workspace.client, make_spec(job), workspace.folder, python=sys.executable).id
    deadline = time.monotonic() + 60
    while (run := workspace.client.run(run_id)).status not in ("Completed", "Failed"):
        if time.monotonic() > deadline:
            raise SystemExit(f"{run_id} did not end: {run.status}")
        time.sleep(0.02)
    logs = [rank.log for rank in run.attempts[-1].ranks if rank.role != "launcher"]
    said = [workspace.client.read_file(run_id, log).decode() for log in logs]
    return max(map(reduced_at, said)) - float(run.created_at)


def reduced_at(printed: str) -> float:
    """When the slowest of the ranks had its first result; other libraries' lines may stand in between."""
    times = re.findall(r"reduced (\d+\.\d+)", printed)
    if not times:
        raise SystemExit(f"no rank said that it had reduced:\n{printed}")
    return max(map(float, times))


if __name__ == "__main__":
    main()
