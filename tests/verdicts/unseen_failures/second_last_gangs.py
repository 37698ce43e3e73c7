"""The last gangs: order of ends, supervisors, wrong collectives. The labels were given before any verdict was seen."""

from functools import partial

from recorder import Failure

gang = partial(Failure, convention="process")
torchrun = partial(Failure, convention="torchrun")
mpi = partial(Failure, convention="mpi")
mpirun = partial(Failure, convention="mpirun")
HUNG = ("did not", "hung", "stuck", "blocked", "waiting", "not respond", "no answer")
BARRIER = """\
import os
import time
from pathlib import Path

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOLDER = Path("barrier")


def wait(tag, seconds):
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{tag}.{RANK}").touch()
    deadline = time.monotonic() + seconds
    while True:
        missing = [r for r in range(WORLD) if not (FOLDER / f"{tag}.{r}").exists()]
        if not missing:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"barrier {tag!r}: timed out after {seconds} s")
        time.sleep(0.02)
"""

FAILURES = [
    gang(
        name="n-finally-saves-slowly",
        code="exception",
        processes=4,
        rank=2,
        command="python -u simulate.py",
        files={
            "barrier.py": BARRIER,
            "simulate.py": """\
import logging
import time

import barrier

logging.basicConfig(level="INFO", format=f"[{barrier.RANK}] %(levelname)s %(message)s")
log = logging.getLogger()
state = {"energy": [1.0, 0.5, 0.25]}


def advance(step):
    if barrier.RANK == 2 and step == 3:
        state.pop("energy")
    return sum(state["energy"]) / (step + 1)


try:
    for step in range(8):
        log.info("step %d energy %.4f", step, advance(step))
        barrier.wait(f"s{step}", 3)
except KeyError as error:
    log.error("advance failed: %r", error)
    raise
finally:
    if barrier.RANK == 2:
        log.info("saving the trajectory before leaving")
        time.sleep(20)
""",
        },
        wanted="KeyError('energy')",
        helpful=(r"simulate\.py", r"energy", r"\badvance\b"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-supervisor-exits-for-worker-heartbeat",
        code="collective",
        processes=5,
        nodes=5,
        rank=4,
        command="python fleet.py",
        files={
            "fleet.py": """\
import os
import socket
import sys
import time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))


def supervise():
    beats = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    beats.bind(address)
    beats.settimeout(0.5)
    seen = {worker: time.monotonic() + 3 for worker in range(1, world)}
    while True:
        try:
            seen[int(beats.recv(16))] = time.monotonic()
        except TimeoutError:
            pass
        late = [worker for worker, at in seen.items() if time.monotonic() - at > 3]
        if late:
            print(f"supervisor: CRITICAL worker {late[0]} sent no heartbeat for 3 s, shutting down", flush=True)
            sys.exit(11)


def work():
    beats = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for shard in range(200):
        beats.sendto(str(rank).encode(), address)
        crunch(shard)


def crunch(shard):
    number = 27 if (rank, shard) != (4, 5) else 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
    time.sleep(0.2)


supervise() if rank == 0 else work()
""",
        },
        wanted=("worker 4 sent no heartbeat", "crunch", *HUNG),
        helpful=(r"fleet\.py", r"\bcrunch\b", r"rank 4|worker 4"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    gang(
        name="n-asserts-in-every-rank-batch-size",
        code="exception",
        processes=3,
        rank=0,
        also=(1, 2),
        command="python plan.py --global-batch 64",
        files={
            "plan.py": """\
import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--global-batch", type=int, required=True)
options = parser.parse_args()
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def local_batch(total):
    if total % world:
        raise ValueError(f"global batch {total} cannot be divided among {world} ranks")
    return total // world


print(f"rank {rank} takes batches of {local_batch(options.global_batch)}")
""",
        },
        wanted="global batch 64 cannot be divided among 3 ranks",
        helpful=(r"--global-batch|global.batch", r"plan\.py", r"ranks?|processes"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-every-node-lacks-a-package",
        code="environment",
        processes=4,
        nodes=2,
        rank=0,
        also=(1, 2, 3),
        command="python -m jobs.main",
        files={
            "jobs/__init__.py": "",
            "jobs/tracking.py": """\
import os

try:
    import neptune_tracker_sdk as sdk
except ImportError as error:
    raise ImportError("tracking needs neptune_tracker_sdk, see README") from error


def start():
    return sdk.Run(os.environ["RANK"])
""",
            "jobs/main.py": """\
import os

print("rank", os.environ["RANK"], "starts", flush=True)

from jobs import tracking  # noqa: E402

run = tracking.start()
for step in range(10):
    run.log(step)
""",
        },
        wanted="No module named 'neptune_tracker_sdk'",
        helpful=(r"neptune_tracker_sdk",),
        misleading=(r"\bmemory\b|firewall|network",),
    ),
    gang(
        name="n-ssh-like-launcher-exits-quietly",
        code="exit_code",
        processes=3,
        nodes=3,
        rank=1,
        command="bash node.sh",
        files={
            "node.sh": """\
#!/bin/bash
# prepares a node, then trains
echo "node $NODE_RANK: checking the driver"
required=535
installed=(550 470 550)
have=${installed[$NODE_RANK]}
if (( have < required )); then
  echo "node $NODE_RANK: driver $have is older than $required" >&2
  exit 93
fi
for step in 1 2 3 4 5 6; do
  echo "node $NODE_RANK: step $step"
  sleep 0.3
done
""",
        },
        wanted="driver 470 is older than 535",
        helpful=(r"node\.sh", r"driver", r"node.1|rank 1"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-eight-ranks-one-segfaults",
        code="signal",
        processes=8,
        nodes=2,
        rank=7,
        command="python mesh.py",
        files={
            "barrier.py": BARRIER,
            "mesh.py": """\
import ctypes

import barrier

libc = ctypes.CDLL(None)
libc.strlen.argtypes = [ctypes.c_void_p]
NAMES = [b"north", b"south", b"east", b"west"]


def length(step):
    if barrier.RANK == 7 and step == 4:
        return libc.strlen(1)
    return libc.strlen(NAMES[step % 4])


for step in range(8):
    total = length(step)
    barrier.wait(f"step{step}", 6)
    print(f"rank {barrier.RANK} step {step}: {total}", flush=True)
""",
        },
        wanted=("SIGSEGV", "Segmentation fault", "signal 11"),
        helpful=(r"mesh\.py", r"faulthandler|native|ctypes|strlen"),
        misleading=(r"firewall|pip install|smaller batch",),
    ),
    gang(
        name="n-limit-one-rank-holds-semaphore",
        code="timeout",
        processes=3,
        rank=0,
        limit_s=7,
        command="python -u slots.py",
        files={
            "barrier.py": BARRIER,
            "slots.py": """\
import threading

import barrier

slots = threading.BoundedSemaphore(2)


def fetch(part):
    slots.acquire()
    print(f"rank {barrier.RANK} fetches part {part}")
    if part % 2:
        slots.release()
    return part


parts = {0: [1, 2, 4, 6], 1: [1, 3, 5, 7], 2: [1, 3, 5, 9]}[barrier.RANK]
for number, part in enumerate(parts):
    fetch(part)
    barrier.wait(number, 600)
print(f"rank {barrier.RANK} has everything")
""",
        },
        wanted=("slots.acquire", "time limit", *HUNG),
        helpful=(r"slots\.py", r"acquire|semaphore|\bfetch\b", r"rank 0"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-rank-zero-gets-sigterm-from-script",
        code="signal",
        processes=2,
        nodes=2,
        rank=0,
        command="bash wrapper.sh",
        files={
            "wrapper.sh": """\
#!/bin/bash
# a clean-up of an older version ends what it finds
if [ "$RANK" = 0 ]; then
  (sleep 1.5; kill -TERM $$) &
fi
exec python loop.py
""",
            "loop.py": """\
import os
import time

for step in range(60):
    print("rank", os.environ["RANK"], "step", step, flush=True)
    time.sleep(0.1)
""",
        },
        wanted=("SIGTERM", "signal 15", "Terminated"),
        helpful=(r"SIGTERM|kill", r"wrapper\.sh|loop\.py"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    torchrun(
        name="n-torchrun-order-of-collectives-differs",
        code="collective",
        num_ranks=3,
        rank=1,
        command="torchrun --standalone --nproc-per-node 3 epoch_end.py",
        variables={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
        files={
            "epoch_end.py": """\
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=10))
rank = dist.get_rank()
loss, count = torch.tensor([0.5 * rank]), torch.tensor([float(rank)])
metrics = {"loss": loss, "count": count}
names = set(metrics) if rank != 1 else {"count"}
for name in sorted(metrics):
    if name in names:
        dist.all_reduce(metrics[name])
    else:
        dist.broadcast(metrics[name], src=0)
    print(f"rank {rank} {name} {metrics[name].item()}", flush=True)
dist.destroy_process_group()
""",
        },
        wanted=("Detected mismatch between collectives", "mismatch", "broadcast", "different"),
        helpful=(r"epoch_end\.py", r"\bbroadcast\b|all_reduce", r"rank 1"),
        misleading=(r"\bmemory\b|pip install|firewall",),
    ),
    torchrun(
        name="n-torchrun-child-exits-with-message",
        code="exit_code",
        num_ranks=2,
        rank=1,
        command="python -m torch.distributed.run --standalone --nproc_per_node 2 check.py",
        files={
            "check.py": """\
import logging
import os
import sys
import time

rank = int(os.environ["RANK"])
logging.basicConfig(level="INFO", format=f"%(asctime)s rank{rank} %(levelname)s %(message)s")
logging.info("checking the shards")
found = {0: 128, 1: 127}[rank]
if found != 128:
    logging.critical("found %d shards of 128, run prepare.py again", found)
    sys.exit(66)
time.sleep(6)
logging.info("starting")
""",
        },
        wanted="found 127 shards of 128",
        helpful=(r"check\.py|prepare\.py", r"shards"),
        misleading=(r"\bmemory\b|pip install|firewall",),
    ),
    torchrun(
        name="n-torchrun-memory-error-in-child",
        code="host_oom",
        num_ranks=2,
        rank=0,
        command="torchrun --standalone --nproc-per-node 2 cache_all.py",
        files={
            "cache_all.py": """\
import os

import numpy as np
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
ROWS = {0: 4_000_000_000_000, 1: 4_000}


def cache(rows):
    print(f"rank {rank} caches {rows} rows", flush=True)
    return np.zeros((rows, 64), dtype=np.float32)


table = cache(ROWS[rank])
total = torch.tensor([float(len(table))])
dist.all_reduce(total)
print("rows:", total.item())
dist.destroy_process_group()
""",
        },
        wanted="Unable to allocate",
        helpful=(r"cache_all\.py", r"\bmemory\b|ROWS|rows"),
        misleading=(r"pip install|firewall|\bGPU\b",),
    ),
    mpi(
        name="n-mpi-scatter-of-wrong-length",
        code="exception",
        processes=4,
        rank=0,
        command="python -m mpi4py scatter.py",
        files={
            "scatter.py": """\
from mpi4py import MPI

comm = MPI.COMM_WORLD
files = ["a.nc", "b.nc", "c.nc", "d.nc", "e.nc"]


def deal(names, size):
    return [names[start::size] for start in range(size - 1)]


work = deal(files, comm.size) if comm.rank == 0 else None
mine = comm.scatter(work, root=0)
print(f"rank {comm.rank} has {mine}", flush=True)
done = comm.reduce(len(mine), root=0)
if comm.rank == 0:
    print("files:", done)
""",
        },
        wanted="expecting 4 items, got 3",
        helpful=(r"scatter\.py", r"\bdeal\b|scatter"),
        misleading=(r"\bmemory\b|pip install|firewall",),
    ),
    mpirun(
        name="n-mpirun-one-rank-killed",
        code="signal",
        num_ranks=5,
        rank=4,
        command="mpirun --oversubscribe -n 5 python walkers.py",
        files={
            "walkers.py": """\
import os
import signal
import time

from mpi4py import MPI

comm = MPI.COMM_WORLD
position = 0
for step in range(30):
    position += 1 if (step * (comm.rank + 3)) % 5 < 3 else -1
    if comm.rank == 4 and step == 12:
        os.kill(os.getpid(), signal.SIGKILL)  # what the site's reaper does
    furthest = comm.allreduce(position, op=MPI.MAX)
    if comm.rank == 0 and step % 4 == 0:
        print("step", step, "furthest", furthest, flush=True)
    time.sleep(0.02)
""",
        },
        wanted=("signal 9", "SIGKILL", "Killed"),
        helpful=(r"SIGKILL|killed", r"rank 4", r"walkers\.py"),
        misleading=(r"pip install|firewall",),
    ),
]
