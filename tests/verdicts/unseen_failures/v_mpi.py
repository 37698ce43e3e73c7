"""mpi4py and C below Muster's own mpirun, with a log for each rank."""

from functools import partial

from recorder import Failure

Mpi = partial(Failure, convention="mpi", processes=4)

FAILURES = [
    Mpi(
        name="v-mpi-key-missing-on-worker",
        way="one worker's part of the table lacks a column; python -m mpi4py aborts the others",
        code="exception",
        rank=2,
        command="python -m mpi4py features.py",
        files={
            "features.py": """from mpi4py import MPI
import numpy as np

comm = MPI.COMM_WORLD
rank = comm.Get_rank()
rows = [{"age": 31, "income": 2.0}, {"age": 45, "income": 3.1}]
if rank == 2:
    del rows[1]["income"]
print("worker", rank, "normalises", len(rows), "rows", flush=True)
total = sum(r["income"] for r in rows)
mean = comm.allreduce(total, op=MPI.SUM) / (2 * comm.Get_size())
if rank == 0:
    print("mean income", mean)
"""
        },
        wanted="KeyError: 'income'",
        helpful=(r"features\.py|income|column",),
        misleading=(r"firewall|memory|network",),
    ),
    Mpi(
        name="v-mpi-raise-without-abort",
        way="one rank raises and waits in finalize, the others in a reduction, until the limit",
        code="exception",
        also_codes=("timeout",),
        rank=1,
        limit_s=20,
        command="python solver.py",
        files={
            "solver.py": """from mpi4py import MPI
import numpy

comm = MPI.COMM_WORLD
me = comm.rank
a = numpy.eye(6) * (0 if me == 1 else me + 1)
print(f"[{me}] inverting block", flush=True)
inv = numpy.linalg.inv(a)
norm = comm.allreduce(float(numpy.abs(inv).sum()))
print(f"[{me}] norm {norm}", flush=True)
"""
        },
        wanted="LinAlgError: Singular matrix",
        helpful=(r"solver\.py|singular|matrix|mpi4py",),
        misleading=(r"firewall|memory|network|increase the limit",),
    ),
    Mpi(
        name="v-mpi-abort-with-message",
        way="the script checks its input and calls Abort(9)",
        code="exit_code",
        rank=0,
        processes=3,
        command="python main.py",
        files={
            "main.py": """import sys
from mpi4py import MPI

comm = MPI.COMM_WORLD
if comm.rank == 0:
    batch, micro = 250, 8
    if batch % (micro * comm.size):
        print(f"FATAL global batch {batch} is not a multiple of micro batch {micro} x {comm.size} ranks", file=sys.stderr)
        sys.stderr.flush()
        comm.Abort(9)
comm.Barrier()
print("training")
"""
        },
        wanted="global batch 250 is not a multiple of micro batch 8 x 3 ranks",
        helpful=(r"batch|main\.py",),
        misleading=(r"firewall|memory|network",),
    ),
    Mpi(
        name="v-mpi-recv-of-wrong-tag",
        way="rank 0 waits for tag 11, the worker sends tag 12: nobody moves until the limit",
        code="timeout",
        rank=0,
        also=(1, 2),
        processes=3,
        limit_s=20,
        command="python -u farm.py",
        files={
            "farm.py": """from mpi4py import MPI

READY, RESULT = 11, 12
comm = MPI.COMM_WORLD
if comm.rank == 0:
    for source in range(1, comm.size):
        print("master: waiting for worker", source)
        comm.recv(source=source, tag=READY)
        print("master: worker", source, "is ready")
else:
    value = comm.rank ** 2
    print("worker", comm.rank, "sends", value)
    comm.ssend(value, dest=0, tag=RESULT)
    print("worker", comm.rank, "finished")
"""
        },
        wanted=("waiting for worker 1", "comm.recv(source=source, tag=READY)", "ssend", "recv", "time limit"),
        helpful=(r"farm\.py|tag|recv|send",),
        misleading=(r"firewall|memory|network",),
    ),
    Mpi(
        name="v-mpi-truncate",
        way="a worker sends more rows than the master's buffer takes",
        code="exception",
        rank=0,
        also=(3,),
        command="python -m mpi4py gather_rows.py",
        files={
            "gather_rows.py": """import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
ROWS = 100
if world.rank == 0:
    buf = np.empty((ROWS, 4))
    for src in range(1, world.size):
        world.Recv(buf, source=src)
        print("received block of worker", src, flush=True)
else:
    mine = ROWS if world.rank != 3 else ROWS + 12
    print("worker", world.rank, "has", mine, "rows", flush=True)
    world.Send(np.ones((mine, 4)), dest=0)
world.Barrier()
"""
        },
        wanted="MPI_ERR_TRUNCATE: message truncated",
        helpful=(r"gather_rows\.py|rows|buffer|size",),
        misleading=(r"firewall|out of memory|interface",),
    ),
    Mpi(
        name="v-mpi-killed-worker",
        way="an administrator's script kills one rank",
        code="signal",
        rank=3,
        command="python evolve.py",
        files={
            "evolve.py": """import os, signal, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
for generation in range(40):
    best = comm.allreduce(float(comm.rank + generation), op=MPI.MAX)
    if comm.rank == 0:
        print("generation", generation, "best", best, flush=True)
    if comm.rank == 3 and generation == 6:
        os.kill(os.getpid(), signal.SIGKILL)   # what the watchdog on the node does
    time.sleep(0.05)
"""
        },
        wanted=("SIGKILL", "signal 9", "Killed"),
        helpful=(r"kill|memory|watchdog|dmesg|outside",),
        misleading=(r"firewall|MASTER_PORT|interface",),
    ),
    Mpi(
        name="v-mpi-import-h5py",
        way="a package is missing for all",
        code="environment",
        rank=0,
        also=(1, 2, 3),
        command="python -m mpi4py convert.py",
        files={
            "convert.py": """import sys
from mpi4py import MPI
import numpy as np
import zarr

store = zarr.open("out.zarr", mode="w", shape=(100, 10))
"""
        },
        wanted="No module named 'zarr'",
        helpful=(r"zarr|install",),
        misleading=(r"firewall|out of memory|interface",),
    ),
    Mpi(
        name="v-mpi-read-blocks-on-fifo",
        way="one rank reads from a pipe that nobody writes to",
        code="timeout",
        rank=1,
        limit_s=20,
        processes=3,
        command="python -u stats.py",
        files={
            "stats.py": """import os
from mpi4py import MPI

comm = MPI.COMM_WORLD
names = ["a.csv", "b.csv", "c.csv"]
if comm.rank == 1:
    os.mkfifo("b.csv")
else:
    with open(names[comm.rank], "w") as out:
        out.write("1,2,3\\n")
print(comm.rank, "opens", names[comm.rank])
with open(names[comm.rank]) as f:
    values = [float(v) for v in f.read().split(",")]
print(comm.rank, "sum", sum(values))
total = comm.reduce(sum(values), root=0)
if comm.rank == 0:
    print("total", total)
comm.Barrier()
"""
        },
        wanted=("1 opens b.csv", "with open(names[comm.rank]) as f", "opens b.csv"),
        helpful=(r"b\.csv|stats\.py|open|pipe|file",),
        misleading=(r"firewall|memory|interface",),
    ),
    Mpi(
        name="v-mpi-invalid-root",
        way="the root of a broadcast comes from a config for more ranks",
        code="exception",
        rank=0,
        also=(1, 2),
        processes=3,
        command="python -m mpi4py distribute.py",
        files={
            "conf.ini": "[mpi]\nroot = 5\n",
            "distribute.py": """import configparser
from mpi4py import MPI

conf = configparser.ConfigParser()
conf.read("conf.ini")
root = conf.getint("mpi", "root")
comm = MPI.COMM_WORLD
weights = [0.1] * 10 if comm.rank == root else None
weights = comm.bcast(weights, root=root)
print(comm.rank, len(weights))
""",
        },
        wanted="MPI_ERR_ROOT: invalid root",
        helpful=(r"root|conf\.ini|distribute\.py",),
        misleading=(r"firewall|out of memory|interface",),
    ),
    Mpi(
        name="v-mpi-exits-before-finalize",
        way="one rank calls os._exit(0) after its part",
        code="exit_code",
        also_codes=("collective",),
        rank=2,
        command="python sweep.py",
        files={
            "sweep.py": """import os, time
from mpi4py import MPI

comm = MPI.COMM_WORLD
points = list(range(comm.rank, 10, comm.size))
for p in points:
    time.sleep(0.05)
    print(f"rank {comm.rank} point {p} ok", flush=True)
if comm.rank == 2:
    print("rank 2 has no more points, leaving", flush=True)
    os._exit(0)
print(f"rank {comm.rank} collects", flush=True)
print(comm.gather(points, root=0), flush=True)
"""
        },
        wanted=(
            "rank 2 has no more points, leaving",
            "without calling",
            "improper",
            "finalize",
            "exit code 0",
            "ended",
        ),
        helpful=(r"finalize|os\._exit|sweep\.py|leav|exit",),
        misleading=(r"firewall|out of memory|interface",),
    ),
    Mpi(
        name="v-mpi-c-bad-index",
        way="a C program writes beyond its array on one rank",
        code="signal",
        rank=1,
        command='if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then mpicc -g -o heat.tmp heat.c && mv heat.tmp heat; fi; '
        "while [ ! -x heat ]; do sleep 0.1; done; exec ./heat 64",
        files={
            "heat.c": """#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, size, n = atoi(argv[1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double *u = calloc(n, sizeof(double));
    fprintf(stderr, "rank %d of %d: %d cells\\n", rank, size, n);
    for (int step = 0; step < 10; step++) {
        long last = rank == 1 ? 100000000L * (step + 1) : n - 1;
        u[last] = u[0] + step;
        MPI_Allreduce(MPI_IN_PLACE, u, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    printf("rank %d ready\\n", rank);
    MPI_Finalize();
    return 0;
}
"""
        },
        wanted=("SIGSEGV", "Segmentation fault", "signal 11"),
        helpful=(r"heat|native|core|debug|address|gdb",),
        misleading=(r"firewall|interface|MASTER_PORT",),
    ),
    Mpi(
        name="v-mpi-slow-rank-zero-plots",
        way="rank 0 waits in a sleep loop for a file that is never written, others in bcast, until the limit",
        code="timeout",
        rank=0,
        limit_s=20,
        command="python -u driver.py",
        files={
            "driver.py": """import os, time
from mpi4py import MPI

comm = MPI.COMM_WORLD

def wait_for(path):
    print("waiting for", path)
    while not os.path.exists(path):
        time.sleep(0.3)

params = None
if comm.rank == 0:
    wait_for("/tmp/does/not/exist/preprocessing.done")
    params = {"lr": 0.1}
params = comm.bcast(params)
print(comm.rank, params)
"""
        },
        wanted=("waiting for /tmp/does/not/exist/preprocessing.done", "wait_for", "time.sleep(0.3)"),
        helpful=(r"preprocessing\.done|driver\.py|file",),
        misleading=(r"firewall|memory|interface",),
    ),
    Mpi(
        name="v-mpi-scatter-wrong-count",
        way="the list for scatter has three parts for four ranks",
        code="exception",
        rank=0,
        command="python -m mpi4py scatter.py",
        files={
            "scatter.py": """from mpi4py import MPI

comm = MPI.COMM_WORLD
parts = None
if comm.rank == 0:
    parts = [["img1", "img2"], ["img3"], ["img4", "img5"]]
    print("scattering", sum(map(len, parts)), "images", flush=True)
mine = comm.scatter(parts, root=0)
print(comm.rank, "has", mine)
"""
        },
        wanted="ValueError: expecting 4 items, got 3",
        helpful=(r"scatter\.py|items|parts",),
        misleading=(r"firewall|memory|interface",),
    ),
    Mpi(
        name="v-mpi-division-on-empty-shard",
        way="the last rank has no files and divides by their number",
        code="exception",
        rank=4,
        processes=5,
        command="python -m mpi4py mean.py 4",
        files={
            "mean.py": """import sys
from mpi4py import MPI

def shard(files, rank, size):
    return files[rank::size]

def main():
    comm = MPI.COMM_WORLD
    files = [f"img_{i}.raw" for i in range(int(sys.argv[1]))]
    mine = shard(files, comm.rank, comm.size)
    print(f"{comm.rank}/{comm.size}: {len(mine)} files", flush=True)
    mean = sum(len(f) for f in mine) / len(mine)
    print("mean", comm.allreduce(mean) / comm.size)

if __name__ == "__main__":
    main()
"""
        },
        wanted="ZeroDivisionError: division by zero",
        helpful=(r"mean\.py|files|fewer ranks|empty",),
        misleading=(r"firewall|memory|interface",),
    ),
]
