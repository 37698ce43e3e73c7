"""Jobs of mpi4py and of C with MPI."""

from recorder import Failure

FAILURES = [
    Failure(
        name="s-mpi-scatter-one-too-many",
        code="exception",
        convention="mpi",
        processes=4,
        command="python -u split.py",
        limit_s=20,
        also_codes=("timeout",),
        files={
            "split.py": r"""from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
files = [f"part-{i:05d}.parquet" for i in range(10)]
chunks = None
if rank == 0:
    step = len(files) // size
    chunks = [files[i:i + step] for i in range(0, len(files), step)]
    print("chunks:", [len(c) for c in chunks])
mine = comm.scatter(chunks, root=0)
print(rank, "has", mine)
comm.Barrier()
""",
        },
        wanted="ValueError: expecting 4 items, got 5",
        helpful=(r"split\.py", r"chunks|scatter"),
        misleading=(r"network|memory",),
        rank=0,
    ),
    Failure(
        name="s-mpi-last-rank-has-no-neighbour",
        code="exception",
        convention="mpi",
        processes=6,
        command="python -u -m mpi4py halo.py",
        files={
            "halo.py": r"""import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
me = comm.rank
u = np.zeros(66)
u[1:-1] = np.sin(np.linspace(me, me + 1, 64))
for it in range(50):
    left = me - 1 if me > 0 else MPI.PROC_NULL
    right = me + 1
    comm.Sendrecv(u[-2:-1], dest=right, recvbuf=u[0:1], source=left)
    comm.Sendrecv(u[1:2], dest=left, recvbuf=u[-1:], source=right)
    u[1:-1] = 0.5 * (u[:-2] + u[2:])
print(me, float(u.sum()))
""",
        },
        wanted="MPI_ERR_RANK: invalid rank",
        helpful=(r"halo\.py", r"right|neighbou?r|PROC_NULL"),
        misleading=(r"network|memory|slots",),
        rank=5,
    ),
    Failure(
        name="s-mpi-shard-missing-for-seven",
        code="exception",
        convention="mpi",
        processes=8,
        command="python -u make_shards.py && python -u -m mpi4py embed.py",
        files={
            "make_shards.py": r"""import os, pathlib
import numpy as np

rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
if rank != 7:
    pathlib.Path("shards").mkdir(exist_ok=True)
    np.save(f"shards/emb_{rank:02d}.npy", np.ones((16, 4)))
""",
            "embed.py": r"""import logging
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
logging.basicConfig(format=f"%(asctime)s [{comm.rank}/{comm.size}] %(levelname)s %(message)s", level=logging.INFO)
log = logging.getLogger("embed")
log.info("loading shard %d", comm.rank)
x = np.load(f"shards/emb_{comm.rank:02d}.npy")
total = comm.allreduce(x.sum())
log.info("sum %f", total)
""",
        },
        wanted="FileNotFoundError: [Errno 2] No such file or directory: 'shards/emb_07.npy'",
        helpful=(r"emb_07", r"shard"),
        misleading=(r"network|memory|slots",),
        rank=7,
        also_codes=("data_unavailable",),
    ),
    Failure(
        name="s-mpi-gather-unpicklable",
        code="exception",
        convention="mpi",
        processes=3,
        command="python -u stats.py",
        files={
            "stats.py": r"""import sys, threading, traceback
from mpi4py import MPI

comm = MPI.COMM_WORLD


def hook(kind, value, tb):
    traceback.print_exception(kind, value, tb)
    sys.stderr.flush()
    comm.Abort(1)


sys.excepthook = hook


class Meter:
    def __init__(self):
        self.count = 0
        if comm.rank == 2:  # the only one with a background writer
            self.guard = threading.Lock()


meter = Meter()
for _ in range(100):
    meter.count += 1
everyone = comm.gather(meter, root=0)
if comm.rank == 0:
    print("total", sum(m.count for m in everyone))
""",
        },
        wanted="TypeError: cannot pickle '_thread.lock' object",
        helpful=(r"stats\.py", r"pickle|lock|guard"),
        misleading=(r"network|memory|install",),
        rank=2,
    ),
    Failure(
        name="s-mpi-abort-bad-schedule",
        code="exit_code",
        convention="mpi",
        processes=4,
        command="python -u search.py",
        files={
            "search.py": r"""import sys
from mpi4py import MPI

comm = MPI.COMM_WORLD
space = {"lr": (1e-4, 1e-2), "momentum": (0.99, 0.8)} if comm.rank == 0 else None
if comm.rank == 0:
    for key, (low, high) in space.items():
        if low >= high:
            print(f"search space: {key}: lower bound {low} is not below upper bound {high}", file=sys.stderr, flush=True)
            comm.Abort(7)
space = comm.bcast(space)
print(comm.rank, space)
""",  # noqa: E501
        },
        wanted="momentum: lower bound 0.99 is not below upper bound 0.8",
        helpful=(r"momentum|search space|bound", r"search\.py"),
        misleading=(r"network|memory",),
        rank=0,
    ),
    Failure(
        name="s-mpi-quits-without-finalize",
        code="collective",
        convention="mpi",
        processes=4,
        command="python -u vote.py",
        files={
            "vote.py": r"""import os, time
from mpi4py import MPI

comm = MPI.COMM_WORLD
best = 1e9
for epoch in range(5):
    loss = 1.0 / (epoch + 1) + 0.01 * comm.rank
    print(f"rank {comm.rank} epoch {epoch} loss {loss:.3f}", flush=True)
    if comm.rank == 3 and loss < 0.4:
        print("rank 3: target reached, done", flush=True)
        time.sleep(0.3)
        os._exit(0)
    best = min(best, comm.allreduce(loss, op=MPI.MIN))
print("best", best)
""",
        },
        wanted=("target reached, done", 'without calling "finalize"', "exiting improperly", "exited with code 0"),
        helpful=(r"vote\.py", r"rank 3|finalize|os\._exit|left"),
        misleading=(r"memory|firewall",),
        rank=3,
    ),
    Failure(
        name="s-mpi-tags-do-not-meet",
        code="timeout",
        convention="mpi",
        processes=3,
        command="python -u pipe.py",
        limit_s=14,
        files={
            "pipe.py": r"""from mpi4py import MPI

comm = MPI.COMM_WORLD
TAG_ACT, TAG_GRAD = 11, 12
if comm.rank == 0:
    comm.send([0.1] * 10, dest=1, tag=TAG_ACT)
    print("stage 0 waits for gradients", flush=True)
    grad = comm.recv(source=1, tag=TAG_GRAD)
    print("stage 0 got", len(grad))
elif comm.rank == 1:
    act = comm.recv(source=0, tag=TAG_ACT)
    comm.send(act, dest=0, tag=TAG_ACT)
    print("stage 1 sent its gradients", flush=True)
comm.Barrier()
print("step over", comm.rank)
""",
        },
        wanted=("did not", "hung", "stuck", "grad = comm.recv", "waits for gradients"),
        helpful=(r"pipe\.py", r"tag|recv|rank 0"),
        misleading=(r"memory|disk",),
        rank=0,
        also=(1,),
        also_codes=("collective",),
    ),
    Failure(
        name="s-mpi-worker-waits-for-simulator",
        code="timeout",
        convention="mpi",
        processes=5,
        command="python -u master.py",
        limit_s=16,
        files={
            "simulate.sh": '#!/bin/bash\nif [ "$1" = 13 ]; then while :; do sleep 1; done; fi\necho "reward $1"\n',
            "master.py": r"""import subprocess
from mpi4py import MPI

comm = MPI.COMM_WORLD
if comm.rank == 0:
    status = MPI.Status()
    open_tasks, rewards = list(range(20)), []
    busy = set()
    for w in range(1, comm.size):
        comm.send(open_tasks.pop(), dest=w)
        busy.add(w)
    while busy:
        rewards.append(comm.recv(source=MPI.ANY_SOURCE, status=status))
        w = status.Get_source()
        task = open_tasks.pop() if open_tasks else None
        comm.send(task, dest=w)
        if task is None:
            busy.discard(w)
        print(f"{len(rewards)}/20 from worker {w}", flush=True)
else:
    while (task := comm.recv(source=0)) is not None:
        print(f"worker {comm.rank}: episode {task}", flush=True)
        out = subprocess.run(["./simulate.sh", str(task)], capture_output=True, text=True, check=True)
        comm.send(out.stdout, dest=0)
    print(f"worker {comm.rank}: no more work", flush=True)
comm.Barrier()
""",
        },
        wanted=("did not", "hung", "stuck", "subprocess.run", "episode 13"),
        helpful=(r"simulate\.sh|master\.py", r"subprocess|episode 13"),
        misleading=(r"memory|firewall",),
        rank=4,
    ),
    Failure(
        name="s-mpi-c-assert-on-one-rank",
        code="signal",
        convention="mpi",
        processes=4,
        command="./build.sh && ./knn.$OMPI_COMM_WORLD_RANK",
        files={
            "build.sh": "#!/bin/bash\nset -e\nmpicc -g -O1 knn.c -o knn.$OMPI_COMM_WORLD_RANK\n",
            "knn.c": r"""#include <assert.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static double mean(const double *x, int n)
{
    double s = 0;
    assert(n > 0);
    for (int i = 0; i < n; i++)
        s += x[i];
    return s / n;
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int total = 9, per = (total + size - 1) / size;
    int n = total - rank * per;
    if (n > per)
        n = per;
    double *x = calloc(per, sizeof *x), m, all;
    printf("rank %d: %d points\n", rank, n);
    fflush(stdout);
    m = mean(x, n);
    MPI_Allreduce(&m, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
""",
        },
        wanted="Assertion `n > 0' failed",
        helpful=(r"knn\.c", r"assert|points|n > 0"),
        misleading=(r"network|memory limit",),
        rank=3,
    ),
    Failure(
        name="s-mpi-c-integer-division",
        code="signal",
        convention="mpi",
        processes=3,
        command="mpicc -O0 steps.c -o steps.$OMPI_COMM_WORLD_RANK && ./steps.$OMPI_COMM_WORLD_RANK 96 12",
        files={
            "steps.c": r"""#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, size;
    volatile int batch = atoi(argv[1]), every = atoi(argv[2]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int step = 1; step < 40; step++) {
        if (rank == 1)
            every--;
        int log_now = batch % every;
        int sum;
        MPI_Allreduce(&log_now, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0)
            printf("step %d sum %d\n", step, sum);
    }
    MPI_Finalize();
    return 0;
}
""",
        },
        wanted=("Floating point exception", "SIGFPE", "signal 8"),
        helpful=(r"divi|steps\.c|FAULTHANDLER|gdb|core dump",),
        misleading=(r"network|out of memory",),
        rank=1,
    ),
]
