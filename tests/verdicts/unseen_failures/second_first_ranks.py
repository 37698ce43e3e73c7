"""Gangs whose first ranks fail, and larger ones. The labels were given before any verdict was seen."""

from functools import partial

from recorder import Failure

gang = partial(Failure, convention="process")
torchrun = partial(Failure, convention="torchrun")
mpi = partial(Failure, convention="mpi")
mpirun = partial(Failure, convention="mpirun")
HUNG = ("did not", "hung", "stuck", "blocked", "waiting", "not respond", "no answer")

FAILURES = [
    gang(
        name="n-eight-clients-of-a-stuck-head",
        code="collective",
        processes=8,
        nodes=4,
        rank=0,
        command="python board.py",
        files={
            "board.py": """\
import os
import socket
import subprocess
import time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))


def next_task(step):
    if step < 3:
        return str(step)
    planner = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    planner.stdin.write("plan")  # never flushed nor closed
    return planner.stdout.readline()


def head():
    with socket.create_server(address, backlog=16) as server:
        clients = [server.accept()[0] for _ in range(world - 1)]
        for step in range(10):
            task = next_task(step).encode()
            for client in clients:
                client.sendall(task)
            for client in clients:
                client.recv(8)
            print("head: step", step, "done", flush=True)


def client():
    for _ in range(100):
        try:
            connection = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    connection.settimeout(5)
    while task := connection.recv(64):
        print(f"client {rank}: task {task.decode()}", flush=True)
        connection.sendall(b"ok")


head() if rank == 0 else client()
""",
        },
        wanted=("planner.stdout.readline", "next_task", *HUNG),
        helpful=(r"board\.py", r"next_task|planner|readline|subprocess", r"rank 0"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    gang(
        name="n-head-lacks-vocabulary-before-init",
        code="exception",
        processes=6,
        nodes=3,
        rank=0,
        command="python train.py --vocab vocab.txt",
        files={
            "train.py": """\
import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--vocab")
options = parser.parse_args()
rank = int(os.environ["RANK"])
words = []
if rank == 0:
    with open(options.vocab) as source:
        words = source.read().split()
print(f"rank {rank} joins", flush=True)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
size = torch.tensor([len(words)])
dist.broadcast(size, src=0)
print(f"rank {rank}: vocabulary of {size.item()}", flush=True)
""",
        },
        wanted="No such file or directory: 'vocab.txt'",
        helpful=(r"vocab\.txt|--vocab", r"train\.py"),
        misleading=(r"\bmemory\b|pip install|firewall",),
    ),
    gang(
        name="n-xmlrpc-service-fault",
        code="exception",
        processes=4,
        rank=0,
        command="python tuner.py",
        files={
            "tuner.py": """\
import os
import time
import xmlrpc.client
from xmlrpc.server import SimpleXMLRPCServer

rank = int(os.environ["RANK"])
port = int(os.environ["MASTER_PORT"])
SPACE = [{"lr": 0.1}, {"lr": 0.01}, {"lr": 0.001}]


def suggest(worker, trial):
    return SPACE[trial]["lr"] / worker


if rank == 0:
    server = SimpleXMLRPCServer(("127.0.0.1", port), logRequests=False, allow_none=True)
    server.register_function(suggest)
    print("tuner is up", flush=True)
    server.serve_forever()
time.sleep(1)
proxy = xmlrpc.client.ServerProxy(f"http://127.0.0.1:{port}")
for trial in range(5):
    rate = proxy.suggest(rank, trial)
    print(f"worker {rank} trial {trial} lr {rate}", flush=True)
    time.sleep(0.2 * rank)
""",
        },
        wanted="list index out of range",
        helpful=(r"tuner\.py", r"suggest|SPACE"),
        misleading=(r"\bmemory\b|pip install|firewall",),
    ),
    gang(
        name="n-lock-file-left-by-first",
        code="collective",
        processes=6,
        rank=0,
        command="python -u build_cache.py",
        files={
            "build_cache.py": """\
import os
import sys
import time

rank = int(os.environ["RANK"])
LOCK = "cache.lock"


def acquire(patience):
    deadline = time.monotonic() + patience
    while True:
        try:
            return os.close(os.open(LOCK, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{LOCK} is held by another rank for more than {patience} s") from None
            time.sleep(0.05)


if rank:
    time.sleep(0.5)
print(f"rank {rank} wants the cache")
acquire(4)
if rank == 0:
    print("rank 0: cache is fresh, nothing to build")
    sys.exit(0)
print(f"rank {rank} reads the cache")
os.unlink(LOCK)
""",
        },
        wanted=("cache is fresh, nothing to build", "cache.lock is held", "exited"),
        helpful=(r"build_cache\.py", r"cache\.lock|\bLOCK\b|unlink|release", r"rank 0"),
        misleading=(r"\bmemory\b|pip install|firewall",),
    ),
    gang(
        name="n-overflow-raises-in-first-of-two",
        code="exception",
        processes=2,
        nodes=2,
        rank=0,
        command="python average.py",
        files={
            "average.py": """\
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

np.seterr(over="raise")
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank = dist.get_rank()
weights = np.full(8, 200.0 if rank == 0 else 2.0, dtype=np.float32)


def softmax(values):
    powers = np.exp(values)
    return powers / powers.sum()


for step in range(4):
    shared = torch.from_numpy(softmax(weights))
    dist.all_reduce(shared)
    weights = weights - shared.numpy()
    print(f"rank {rank} step {step}", flush=True)
dist.destroy_process_group()
""",
        },
        wanted="overflow encountered in exp",
        helpful=(r"average\.py", r"softmax|np\.exp"),
        misleading=(r"\bmemory\b|pip install|firewall",),
    ),
    gang(
        name="n-both-receive-first",
        code="timeout",
        also_codes=("collective",),
        processes=2,
        rank=0,
        also=(1,),
        limit_s=10,
        command="python swap.py",
        files={
            "swap.py": """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
other = 1 - rank
mine, theirs = torch.full((1000,), float(rank)), torch.empty(1000)
for round_number in range(3):
    print(f"rank {rank} round {round_number}: swapping with {other}", flush=True)
    dist.recv(theirs, src=other)
    dist.send(mine, dst=other)
    mine = 0.5 * (mine + theirs)
dist.destroy_process_group()
""",
        },
        wanted=("dist.recv", "recv", "time limit", *HUNG),
        helpful=(r"swap\.py", r"\brecv\b|\bsend\b|isend|order"),
        misleading=(r"\bmemory\b|pip install|firewall",),
    ),
    gang(
        name="n-tensorflow-collective-head-sleeps",
        code="timeout",
        venv="tf",
        processes=2,
        nodes=2,
        rank=0,
        limit_s=28,
        command="python multi.py",
        variables={"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"},
        files={
            "multi.py": """\
import json
import os
import time

rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
workers = [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})

import tensorflow as tf  # noqa: E402

strategy = tf.distribute.MultiWorkerMirroredStrategy()
print("worker", rank, "has", strategy.num_replicas_in_sync, "replicas", flush=True)


@tf.function
def total():
    losses = strategy.run(lambda: tf.random.uniform([]) + 1.0)
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


def refresh_index(step):
    if rank == 0 and step == 2:
        time.sleep(3600)


for step in range(5):
    refresh_index(step)
    print("worker", rank, "step", step, float(total()), flush=True)
""",
        },
        wanted=("time.sleep", "refresh_index", "time limit", *HUNG),
        helpful=(r"multi\.py", r"refresh_index|time\.sleep", r"rank 0|worker 0"),
        misleading=(r"\bmemory\b|pip install|firewall",),
    ),
    torchrun(
        name="n-torchrun-first-child-reads-pipe",
        code="collective",
        num_ranks=4,
        rank=0,
        command="torchrun --standalone --nproc-per-node 4 sync.py",
        files={
            "sync.py": """\
import os
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=8))
rank = dist.get_rank()
read_end, write_end = os.pipe()


def control(epoch):
    # the first rank asks the operator's console whether to go on
    if rank == 0 and epoch == 1:
        return os.read(read_end, 1)
    return b"y"


for epoch in range(3):
    go_on = control(epoch)
    flags = [None] * 4
    dist.all_gather_object(flags, go_on == b"y")
    print(f"rank {rank} epoch {epoch} {flags}", flush=True)
dist.destroy_process_group()
""",
        },
        wanted=("os.read", "control", *HUNG),
        helpful=(r"sync\.py", r"os\.read|control|pipe", r"rank 0"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    mpi(
        name="n-mpi-first-rank-fills-scratch",
        code="disk_full",
        processes=6,
        rank=0,
        command="unshare -m ./rank.sh",
        files={
            "rank.sh": """\
#!/bin/bash
# scratch of each rank, as small as the node has it
dir=scratch.$OMPI_COMM_WORLD_RANK
mkdir -p $dir && mount -t tmpfs -o size=1m none $dir && exec python -m mpi4py gatherer.py $dir
""",
            "gatherer.py": """\
import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
for step in range(6):
    block = np.full(4000, step, dtype=np.float64)
    blocks = comm.gather(block, root=0)
    if comm.rank == 0:
        np.concatenate(blocks).tofile(f"{sys.argv[1]}/step{step}.bin")
        print("wrote step", step, flush=True)
    comm.barrier()
""",
        },
        wanted=("No space left on device", "requested and"),
        helpful=(r"\bdisk\b|space|scratch", r"gatherer\.py"),
        misleading=(r"\bmemory\b|pip install|firewall",),
    ),
    mpirun(
        name="n-mpirun-first-rank-waits-for-child",
        code="timeout",
        num_ranks=3,
        rank=0,
        limit_s=7,
        command="mpirun --oversubscribe -n 3 python stage.py",
        files={
            "stage.sh": "#!/bin/bash\n# stages the input; the tape robot is slow\nsleep 900\n",
            "stage.py": """\
import subprocess

from mpi4py import MPI

comm = MPI.COMM_WORLD
if comm.rank == 0:
    print("rank 0 stages the input", flush=True)
    subprocess.check_call(["./stage.sh"])
comm.barrier()
print("rank", comm.rank, "starts", flush=True)
""",
        },
        wanted=("stages the input", "check_call", "time limit", *HUNG),
        helpful=(r"stage\.(py|sh)", r"check_call|subprocess|child", r"rank 0"),
        misleading=(r"\bmemory\b|pip install|firewall",),
    ),
]
