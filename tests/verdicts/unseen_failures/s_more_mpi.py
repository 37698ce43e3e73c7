"""More jobs of mpi4py: communicators, windows, hangs, messages that do not fit."""

from recorder import Failure

FAILURES = [
    Failure(
        name="s-mpi-communicator-freed",
        code="exception",
        convention="mpi",
        processes=4,
        command="python -u -m mpi4py groups.py",
        files={
            "groups.py": r"""from mpi4py import MPI

world = MPI.COMM_WORLD
pair = world.Split(color=world.rank // 2, key=world.rank)
for epoch in range(3):
    total = pair.allreduce(world.rank)
    print(f"rank {world.rank} epoch {epoch} pair sum {total}", flush=True)
    if epoch == 1 and world.rank >= 2:
        pair.Free()
world.Barrier()
""",
        },
        wanted="MPI_ERR_COMM: invalid communicator",
        helpful=(r"groups\.py|Free|communicator",),
        misleading=(r"network|memory",),
        rank=2,
        also=(3,),
    ),
    Failure(
        name="s-mpi-h5py-not-parallel",
        code="environment",
        convention="mpi",
        processes=2,
        command="python -u -m mpi4py dump.py",
        files={
            "dump.py": r"""import h5py
from mpi4py import MPI

with h5py.File("out.h5", "w", driver="mpio", comm=MPI.COMM_WORLD) as f:
    f.create_dataset("x", (10,))
""",
        },
        wanted="h5py was built without MPI support",
        helpful=(r"h5py|MPI support|parallel",),
        misleading=(r"network|memory",),
        rank=0,
        also=(1,),
        also_codes=("exception",),
    ),
    Failure(
        name="s-mpi-counts-do-not-add-up",
        code="exception",
        convention="mpi",
        processes=3,
        command="python -u -m mpi4py vector.py",
        files={
            "vector.py": r"""import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
counts = [4, 4, 3]
send = np.arange(11, dtype="d") if comm.rank == 0 else None
mine = np.empty(counts[comm.rank] if comm.rank != 2 else 2, dtype="d")
comm.Scatterv([send, counts, None, MPI.DOUBLE], mine, root=0)
print(comm.rank, mine, flush=True)
comm.Barrier()
""",
        },
        wanted="MPI_ERR_TRUNCATE: message truncated",
        helpful=(r"vector\.py|counts|Scatterv|buffer",),
        misleading=(r"network|out of memory",),
        rank=2,
        also_codes=("collective",),
    ),
    Failure(
        name="s-mpi-one-skips-a-reduction",
        code="timeout",
        convention="mpi",
        processes=4,
        command="python -u skip.py",
        limit_s=25,
        files={
            "skip.py": r"""import time
from mpi4py import MPI

comm = MPI.COMM_WORLD
for batch in range(6):
    loss = 1.0 / (batch + 1 + comm.rank)
    if comm.rank == 1 and batch == 4:
        print("rank 1: batch 4 is empty, skipping", flush=True)
        continue
    total = comm.allreduce(loss)
    print(f"rank {comm.rank} batch {batch} total {total:.3f}", flush=True)
print(f"rank {comm.rank} waits to write", flush=True)
while comm.rank == 1 and True:
    time.sleep(1)  # until the writer wakes it
""",
        },
        wanted=("did not", "hung", "stuck", "batch 4 is empty, skipping", "time.sleep"),
        helpful=(r"skip\.py|rank 1|batch 4|every rank",),
        misleading=(r"memory|firewall",),
        rank=1,
        also_codes=("collective",),
    ),
    Failure(
        name="s-mpi-ten-ranks-unknown-metric",
        code="exception",
        convention="mpi",
        processes=10,
        command="python -u -m mpi4py evaluate.py",
        files={
            "evaluate.py": r"""import math, os
from mpi4py import MPI

comm = MPI.COMM_WORLD
METRICS = ["acc", "f1", "auc", "mse", "mae", "r2", "bleu", "rouge-l", "ter", "wer"]
TABLE = {m: i for i, m in enumerate(METRICS)}
TABLE["rouge_l"] = TABLE.pop("rouge-l")
mine = METRICS[comm.rank]
print(f"rank {comm.rank} computes {mine}", flush=True)
score = 1 / (1 + TABLE[mine])
best = comm.reduce((score, mine), op=MPI.MAX)
""",
        },
        wanted="KeyError: 'rouge-l'",
        helpful=(r"evaluate\.py|rouge",),
        misleading=(r"network|memory",),
        rank=7,
    ),
    Failure(
        name="s-mpi-wrapper-kills-itself",
        code="signal",
        convention="mpi",
        processes=3,
        command="python -u guard.py",
        files={
            "guard.py": r"""import os, resource, signal, sys, time
from mpi4py import MPI

comm = MPI.COMM_WORLD
temperature = [61, 64, 97][comm.rank]
comm.Barrier()
print(f"rank {comm.rank}: {temperature} degrees", flush=True)
if temperature > 95:
    print(f"rank {comm.rank}: over 95 degrees, pulling the plug", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(1)
comm.Barrier()
""",
        },
        wanted=("over 95 degrees, pulling the plug", "SIGKILL", "signal 9"),
        helpful=(r"guard\.py|degrees|95|kill",),
        misleading=(r"network|firewall",),
        rank=2,
    ),
    Failure(
        name="s-mpi-usage-text",
        code="bad_input",
        convention="mpi",
        processes=2,
        command="python -u sweep.py --grid 4by4",
        files={
            "sweep.py": r"""import argparse
from mpi4py import MPI


def grid(text):
    rows, _, columns = text.partition("x")
    return int(rows), int(columns)


p = argparse.ArgumentParser(prog="sweep.py")
p.add_argument("--grid", type=grid, required=True, metavar="RxC")
print(p.parse_args(), MPI.COMM_WORLD.rank)
""",
        },
        wanted="argument --grid: invalid grid value: '4by4'",
        helpful=(r"--grid|grid|4by4",),
        misleading=(r"network|memory",),
        rank=0,
        also=(1,),
    ),
    Failure(
        name="s-mpi-cell-out-of-memory",
        code="host_oom",
        convention="mpi",
        processes=3,
        command="bash cell.sh",
        files={
            "cell.sh": (
                'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then\n  g=/sys/fs/cgroup/memory/s-mpi-cell; mkdir -p $g\n'
                "  echo 160M > $g/memory.limit_in_bytes; echo $$ > $g/cgroup.procs\nfi\nexec python -u table.py\n"
            ),
            "table.py": r"""import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
tables = []
for part in range(40 if comm.rank == 1 else 3):
    tables.append(np.ones(1_250_000))
    print(f"rank {comm.rank}: {10 * (part + 1)} MB of embeddings", flush=True)
comm.Barrier()
""",
        },
        wanted=("out of memory", "killed", "Killed", "SIGKILL", "MB of embeddings"),
        helpful=(r"memory",),
        misleading=(r"network|firewall",),
        rank=1,
    ),
]
