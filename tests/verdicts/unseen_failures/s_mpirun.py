"""Commands with mpirun in them: one log for the launcher and all ranks."""

from recorder import Failure

FAILURES = [
    Failure(
        name="s-run-server-and-workers",
        code="exception",
        convention="mpirun",
        num_ranks=4,
        command="mpirun --oversubscribe -n 1 python -u server.py : -n 3 python -u -m mpi4py worker.py",
        files={
            "server.py": r"""from mpi4py import MPI

comm = MPI.COMM_WORLD
print("server of", comm.size - 1, "workers", flush=True)
for _ in range(60):
    comm.send({"w": 1.0}, dest=comm.recv(source=MPI.ANY_SOURCE))
""",
            "worker.py": r"""from mpi4py import MPI

comm = MPI.COMM_WORLD
schema = {1: ["x", "y"], 2: ["x"], 3: ["x", "y"]}[comm.rank]
for step in range(20):
    comm.send(comm.rank, dest=0)
    weights = comm.recv(source=0)
    row = dict(zip(schema, (0.1, 0.2)))
    loss = row["x"] - row["y"] * weights["w"]
    print(f"worker {comm.rank} step {step} loss {loss:.2f}", flush=True)
""",
        },
        wanted="KeyError: 'y'",
        helpful=(r"worker\.py|schema|'y'",),
        misleading=(r"network|memory|slots",),
        rank=2,
    ),
    Failure(
        name="s-run-too-few-slots",
        code="bad_input",
        convention="mpirun",
        num_ranks=64,
        command="mpirun -n 64 python -u train.py",
        files={"train.py": "from mpi4py import MPI\nprint(MPI.COMM_WORLD.rank)\n"},
        wanted="There are not enough slots available in the system to satisfy the 64",
        helpful=(r"slots|oversubscribe|-n|fewer|ranks|processes",),
        misleading=(r"memory|firewall",),
        rank=None,
    ),
    Failure(
        name="s-run-program-not-found",
        code="launcher_missing",
        convention="mpirun",
        num_ranks=2,
        command="mpirun --oversubscribe -n 2 ./build/solver --input mesh.dat",
        files={"mesh.dat": "1 2 3\n", "src/solver.cpp": "int main() {}\n"},
        wanted=("build/solver", "could not access", "No such file"),
        helpful=(r"build/solver|build",),
        misleading=(r"memory|firewall|network",),
        rank=None,
    ),
    Failure(
        name="s-run-option-of-other-mpi",
        code="bad_input",
        convention="mpirun",
        num_ranks=2,
        command="mpirun -n 2 -ppn 2 -genv OMP_NUM_THREADS 1 python train.py",
        files={"train.py": "print('x')\n"},
        wanted=("unknown option", "unrecognized", "-ppn", "-genv", "not recognized"),
        helpful=(r"genv|ppn|option|-x",),
        misleading=(r"memory|firewall",),
        rank=None,
    ),
    Failure(
        name="s-run-mean-of-empty-part",
        code="exception",
        convention="mpirun",
        num_ranks=6,
        command="mpirun --oversubscribe -n 6 --tag-output python -u -W error -m mpi4py means.py",
        files={
            "means.py": r"""import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
x = np.arange(50.0)
part = x[comm.rank * 10:(comm.rank + 1) * 10]
print(f"{len(part)} values", flush=True)
m = part.mean()
print(comm.allreduce(m) / comm.size)
""",
        },
        wanted=("RuntimeWarning: Mean of empty slice", "RuntimeWarning: invalid value encountered"),
        helpful=(r"means\.py|empty|part",),
        misleading=(r"network|memory|slots",),
        rank=5,
    ),
    Failure(
        name="s-run-c-null-on-rank-one",
        code="signal",
        convention="mpirun",
        num_ranks=3,
        command="mpicc -g -o table table.c && mpirun --oversubscribe -n 3 ./table",
        files={
            "table.c": r"""#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank;
    char name[64];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(name, sizeof name, rank == 1 ? "TABLE_%d_PATH" : "PATH", rank);
    char *path = getenv(name);
    printf("rank %d reads %s\n", rank, name);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d: %zu characters\n", rank, strlen(path));
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
""",
        },
        wanted=("Segmentation fault", "signal 11", "SIGSEGV"),
        helpful=(r"native|table|TABLE_1_PATH|gdb|core dump|FAULTHANDLER|debug",),
        misleading=(r"network|firewall",),
        rank=1,
    ),
    Failure(
        name="s-run-quits-with-nine",
        code="exit_code",
        convention="mpirun",
        num_ranks=4,
        command="mpirun --oversubscribe -n 4 python -u licence.py",
        files={
            "licence.py": r"""import os, sys, time
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
seats = 3
print(f"rank {rank}: asking for a seat", flush=True)
time.sleep(1)
if rank >= seats:
    print(f"rank {rank}: FATAL: all {seats} licence seats are taken", file=sys.stderr, flush=True)
    sys.exit(9)
time.sleep(30)
""",
        },
        wanted="FATAL: all 3 licence seats are taken",
        helpful=(r"licence|seat|fewer",),
        misleading=(r"network|memory|slots",),
        rank=3,
    ),
    Failure(
        name="s-run-ranks-agree-then-one-sleeps",
        code="timeout",
        convention="mpirun",
        num_ranks=4,
        command="mpirun --oversubscribe -n 4 python -u anneal.py",
        limit_s=15,
        files={
            "anneal.py": r"""import time
from mpi4py import MPI

comm = MPI.COMM_WORLD


def cool(t):
    while t > 1e-3:
        t *= 1.0 if comm.rank == 2 else 0.9
        time.sleep(0.001)
    return t


t = cool(1.0 + comm.rank)
print(f"rank {comm.rank} cooled to {t:.5f}", flush=True)
print(comm.allreduce(t, op=MPI.MIN))
""",
        },
        wanted=("did not", "hung", "stuck", "cool(", "time.sleep"),
        helpful=(r"anneal\.py|cool|rank 2",),
        misleading=(r"memory|firewall|slots",),
        rank=2,
    ),
    Failure(
        name="s-run-hosts-file-not-there",
        code="bad_input",
        convention="mpirun",
        num_ranks=2,
        command="mpirun --hostfile cluster/hosts.txt -n 2 python train.py",
        files={"cluster/hosts": "localhost slots=2\n", "train.py": "print('x')\n"},
        wanted=("hosts.txt",),
        helpful=(r"hosts\.txt|hostfile|hosts",),
        misleading=(r"memory|firewall",),
        rank=None,
    ),
]
