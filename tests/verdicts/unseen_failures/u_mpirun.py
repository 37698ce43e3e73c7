"""Jobs whose command has mpirun in it."""

from functools import partial

from recorder import Failure

Run = partial(
    Failure, convention="mpirun", num_ranks=4, variables={"OMPI_MCA_btl": "self,sm", "OMPI_MCA_plm": "isolated"}
)
MPIRUN = "mpirun --oversubscribe -n 4 "

FAILURES = [
    Run(
        name="u-mpirun-one-raises",
        way="a rank's exception among the tagged output of all",
        code="exception",
        rank=2,
        command=MPIRUN + "--tag-output python -u -m mpi4py train.py",
        files={
            "train.py": """from mpi4py import MPI
import numpy as np, time
comm = MPI.COMM_WORLD
rng = np.random.default_rng(comm.rank)
cov = np.eye(3)
if comm.rank == 2:
    cov[2, 2] = -1
for step in range(5):
    print(f"rank {comm.rank} step {step}")
    if step == 3:
        L = np.linalg.cholesky(cov)
    comm.allreduce(step)
    time.sleep(0.05)
"""
        },
        wanted="Matrix is not positive definite",
        helpful=(r"train\.py", r"positive definite|cov|cholesky"),
        misleading=(r"network|firewall|memory|oversubscribe",),
    ),
    Run(
        name="u-mpirun-slots",
        way="more ranks than slots, without --oversubscribe",
        code="bad_input",
        also_codes=("exit_code", "launcher_missing"),
        rank=None,
        num_ranks=48,
        command="mpirun --host localhost:4 -n 48 python train.py",
        files={"train.py": "from mpi4py import MPI\nprint(MPI.COMM_WORLD.rank)\n"},
        wanted=("not enough slots available", "Either request fewer"),
        helpful=(r"slots|oversubscribe|-n\b|fewer",),
        misleading=(r"firewall|disk",),
    ),
    Run(
        name="u-mpirun-program-not-there",
        way="the program's name is wrong",
        code="launcher_missing",
        also_codes=("bad_input", "exit_code"),
        rank=None,
        command=MPIRUN + "./build/bin/trainer --config run.toml",
        files={"run.toml": "steps = 10\n"},
        wanted=("could not find an executable", "unable to find the specified executable", "build/bin/trainer"),
        helpful=(r"build/bin/trainer|build|compile|path",),
        misleading=(r"firewall|memory",),
    ),
    Run(
        name="u-mpirun-exit-code-one-rank",
        way="a shell wrapper of one rank leaves with 3 and a line",
        code="exit_code",
        rank=1,
        command=MPIRUN + "bash rank.sh",
        files={
            "rank.sh": """#!/bin/bash
id=$OMPI_COMM_WORLD_RANK
echo "[$(date +%T)] rank $id: mounting overlay for user data"
if [ "$id" = 1 ]; then
  echo "[$(date +%T)] rank $id: overlay image is locked by another mount, giving up" >&2
  exit 3
fi
sleep 15
""",
        },
        wanted="overlay image is locked by another mount",
        helpful=(r"rank\.sh", r"overlay|mount|lock"),
        misleading=(r"network|firewall|memory",),
    ),
    Run(
        name="u-mpirun-usage-of-option",
        way="mpirun does not know an option",
        code="bad_input",
        also_codes=("exit_code",),
        rank=None,
        command="mpirun --oversubscribe -n 4 --bind-too core python train.py",
        files={"train.py": "print('hello')\n"},
        wanted=("bind-too", "unrecognized"),
        helpful=(r"--bind-to\b|bind-too|option",),
        misleading=(r"firewall|memory",),
    ),
    Run(
        name="u-mpirun-thread-dies-job-hangs",
        way="the reader thread of one rank dies with a traceback, all wait till the limit",
        code="timeout",
        also_codes=("exception",),
        rank=3,
        limit_s=25,
        command=MPIRUN + "python -u loader.py",
        files={
            "loader.py": """import queue, threading
from mpi4py import MPI
comm = MPI.COMM_WORLD
q = queue.Queue(maxsize=2)


def reader():
    sizes = [8, 8, 8, 0, 8, 8] if comm.rank == 3 else [8] * 6
    for n, size in enumerate(sizes):
        q.put(1024 // size)


threading.Thread(target=reader, daemon=True).start()
for n in range(6):
    item = q.get()
    total = comm.allreduce(item)
    if comm.rank == 0:
        print("batch", n, total)
"""
        },
        wanted=("integer division or modulo by zero", "ZeroDivisionError"),
        helpful=(r"loader\.py", r"zero|thread|size"),
        misleading=(r"network|firewall|memory|oversubscribe",),
    ),
    Run(
        name="u-mpirun-hides-code",
        way="the script pipes mpirun through tee and checks the product only",
        code="exception",
        rank=0,
        command="bash run_all.sh",
        files={
            "run_all.sh": """#!/bin/bash
mkdir -p logs out
mpirun --oversubscribe -n 4 python -m mpi4py stats.py 2>&1 | tee logs/stats.log
echo "mpirun finished with status $?"
if [ ! -s out/mean.txt ]; then
  echo "out/mean.txt is missing or empty" >&2
  exit 1
fi
""",
            "stats.py": """from mpi4py import MPI
import statistics
comm = MPI.COMM_WORLD
values = [] if comm.rank < 4 else [1.0]
every = comm.gather(values, root=0)
if comm.rank == 0:
    mean = statistics.mean(v for part in every for v in part)
    open("out/mean.txt", "w").write(str(mean))
comm.barrier()
""",
        },
        wanted="mean requires at least one data point",
        helpful=(r"stats\.py", r"data point|values|empty"),
        misleading=(r"network|firewall|memory|oversubscribe",),
    ),
    Run(
        name="u-mpirun-c-assertion",
        way="a C program of one rank fails an assertion",
        code="signal",
        also_codes=("exception",),
        rank=3,
        command="bash build_and_run.sh",
        files={
            "halo.c": """#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int width(int rank) { return rank == 3 ? -2 : 4; }
int main(void) {
    int rank = atoi(getenv("OMPI_COMM_WORLD_RANK"));
    int w = width(rank);
    printf("rank %d halo width %d\\n", rank, w);
    fflush(stdout);
    usleep(300000);
    assert(w > 0 && "halo width must be positive");
    sleep(20);
    return 0;
}
""",
            "build_and_run.sh": """set -euo pipefail
gcc -g -o halo halo.c
mpirun --oversubscribe -n 4 ./halo
""",
        },
        wanted="halo width must be positive",
        helpful=(r"halo\.c", r"halo|assert|width"),
        misleading=(r"network|firewall|out of memory|oversubscribe",),
    ),
    Run(
        name="u-mpirun-writer-module-missing",
        way="a module that only some ranks import is missing",
        code="environment",
        also_codes=("timeout", "exception"),
        rank=0,
        command=MPIRUN + "python -u app.py",
        files={
            "app.py": """from mpi4py import MPI
import time
comm = MPI.COMM_WORLD
writer = None
if comm.rank == 0:
    import tensorboardX
    writer = tensorboardX.SummaryWriter("runs")
for i in range(30):
    comm.barrier()
    time.sleep(0.1)
"""
        },
        limit_s=25,
        wanted="No module named 'tensorboardX'",
        helpful=(r"tensorboardX", r"install"),
        misleading=(r"network|firewall|out of memory|oversubscribe",),
    ),
]
