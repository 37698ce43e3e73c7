"""More gangs: frameworks, larger sizes, resources. The labels were given before any verdict was seen."""

from functools import partial

from recorder import Failure

gang = partial(Failure, convention="process")
torchrun = partial(Failure, convention="torchrun")
mpi = partial(Failure, convention="mpi")
mpirun = partial(Failure, convention="mpirun")
HUNG = ("did not", "hung", "stuck", "blocked", "waiting", "not respond", "no answer")

FAILURES = [
    gang(
        name="n-eight-files-reader-memory",
        code="host_oom",
        processes=8,
        nodes=4,
        rank=6,
        command="python aggregate.py",
        files={
            "peers.py": """\
import json
import os
import time
from pathlib import Path

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def all_sum(tag, value, patience=15):
    folder = Path("sums")
    folder.mkdir(exist_ok=True)
    temporary = folder / f".{tag}-{RANK}"
    temporary.write_text(json.dumps(value))
    temporary.rename(folder / f"{tag}-{RANK}")
    deadline = time.monotonic() + patience
    while len(parts := list(folder.glob(f"{tag}-*"))) < WORLD:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{tag}: {len(parts)} of {WORLD} ranks answered")
        time.sleep(0.05)
    return sum(json.loads(part.read_text()) for part in parts)
""",
            "aggregate.py": """\
import resource

import numpy as np

import peers

resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
history = []
for step in range(6):
    rows = 1000 if not (peers.RANK == 6 and step >= 2) else 120_000_000
    features = np.ones((rows, 4), dtype=np.float32)
    history.append(features.mean())
    total = peers.all_sum(f"step{step}", float(features.sum()))
    print(f"rank {peers.RANK} step {step} total {total}", flush=True)
""",
        },
        wanted="Unable to allocate",
        helpful=(r"aggregate\.py", r"\bmemory\b|smaller|rows|features"),
        misleading=(r"firewall|pip install|GPU",),
    ),
    gang(
        name="n-checkpoint-on-small-scratch",
        code="disk_full",
        processes=3,
        rank=0,
        command="unshare -m ./with_scratch.sh",
        files={
            "with_scratch.sh": """\
#!/bin/bash
# every rank has a small scratch file system of its own
mkdir -p "scratch$RANK" && mount -t tmpfs -o size=2m scratch "scratch$RANK" && exec python train.py
""",
            "train.py": """\
import os
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank = dist.get_rank()
model = torch.nn.Linear(300, 300)


def save(epoch):
    path = f"scratch{rank}/epoch{epoch}.pt"
    torch.save({"model": model.state_dict(), "epoch": epoch}, path)
    print("saved", path, flush=True)


for epoch in range(10):
    dist.all_reduce(model.weight.data)
    model.weight.data /= dist.get_world_size()
    if rank == 0:
        save(epoch)
    print(f"rank {rank} epoch {epoch}", flush=True)
dist.destroy_process_group()
""",
        },
        wanted=("No space left on device", "file write failed", "unexpected pos"),
        helpful=(r"\bdisk\b|scratch|space", r"checkpoint|epoch"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-zmq-worker-gives-up",
        code="collective",
        venv="ml",
        processes=4,
        rank=3,
        command="python rollout.py",
        files={
            "rollout.py": """\
import os
import sys
import time

import zmq

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"
context = zmq.Context()


def learner():
    socket = context.socket(zmq.ROUTER)
    socket.bind(address)
    for iteration in range(30):
        waiting = set(range(1, world))
        deadline = time.monotonic() + 4
        while waiting:
            if time.monotonic() > deadline:
                sys.exit(f"learner: iteration {iteration}: no rollout from actors {sorted(waiting)}")
            if socket.poll(100):
                identity, body = socket.recv_multipart()
                waiting.discard(int(body))
                socket.send_multipart([identity, b"ack"])
        print("learner: iteration", iteration, "complete", flush=True)


def actor():
    socket = context.socket(zmq.DEALER)
    socket.connect(address)
    budget = {1: 100, 2: 100, 3: 3}[rank]
    for iteration in range(budget):
        socket.send(str(rank).encode())
        socket.recv()
        time.sleep(0.3)
    print(f"actor {rank}: budget used up", flush=True)
    time.sleep(0.5)


learner() if rank == 0 else actor()
""",
        },
        wanted=("no rollout from actors [3]", "budget used up", "exited", "code 0"),
        helpful=(r"rollout\.py", r"budget|actor 3|rank 3", r"actor"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-sqlite-writer-holds-lock",
        code="collective",
        also_codes=("exception",),
        processes=4,
        nodes=2,
        rank=1,
        command="python results.py",
        files={
            "results.py": """\
import os
import sqlite3
import sys
import time

rank = int(os.environ["RANK"])


def connect():
    database = sqlite3.connect("results.db", timeout=3, isolation_level=None)
    database.execute("create table if not exists loss(rank, step, value)")
    return database


def slow_summary(database):
    print("rank 1: summarising inside the transaction", flush=True)
    time.sleep(600)
    return database.execute("select avg(value) from loss").fetchone()


time.sleep(0.2 * rank)
database = connect()
for step in range(20):
    if rank == 1 and step == 5:
        database.execute("begin immediate")
        slow_summary(database)
        database.execute("commit")
    database.execute("insert into loss values(?, ?, ?)", (rank, step, 1 / (step + 1)))
    print(f"rank {rank} stored step {step}", flush=True)
    time.sleep(0.1)
""",
        },
        wanted=("database is locked", "inside the transaction", *HUNG),
        helpful=(r"results\.py", r"slow_summary|transaction|time\.sleep", r"rank 1"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-jax-process-never-connects",
        code="rendezvous",
        venv="ml",
        processes=3,
        nodes=3,
        rank=1,
        command="python pod.py",
        files={
            "pod.py": """\
import os
import time

import jax

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def unpack_dataset():
    print(f"process {rank}: unpacking the dataset first", flush=True)
    if rank == 1:
        time.sleep(900)


unpack_dataset()
print(f"process {rank}: connecting", flush=True)
jax.distributed.initialize(
    coordinator_address=f"127.0.0.1:{os.environ['MASTER_PORT']}",
    num_processes=world,
    process_id=rank,
    initialization_timeout=8,
)
print(jax.process_count(), "processes")
""",
        },
        wanted=("unpacking the dataset first", *HUNG),
        helpful=(r"pod\.py", r"unpack_dataset|time\.sleep", r"rank 1|process 1"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    gang(
        name="n-tensorflow-worker-bad-record",
        code="exception",
        venv="tf",
        processes=2,
        rank=1,
        limit_s=60,
        command="python worker.py",
        variables={"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"},
        files={
            "worker.py": """\
import os

import numpy as np
import tensorflow as tf

rank = int(os.environ["RANK"])
print("worker", rank, "with tensorflow", tf.__version__.split(".")[0], flush=True)


def example(value):
    feature = tf.train.Feature(float_list=tf.train.FloatList(value=[value] * 4))
    return tf.train.Example(features=tf.train.Features(feature={"x": feature})).SerializeToString()


path = f"part-{rank}.tfrecord"
with tf.io.TFRecordWriter(path) as writer:
    for n in range(50):
        writer.write(example(float(n)))
if rank == 1:
    data = bytearray(open(path, "rb").read())
    data[1400] ^= 0xFF
    open(path, "wb").write(bytes(data))

spec = {"x": tf.io.FixedLenFeature([4], tf.float32)}
dataset = tf.data.TFRecordDataset(path).map(lambda raw: tf.io.parse_single_example(raw, spec)["x"]).batch(5)
weight = tf.Variable(np.zeros(4, dtype=np.float32))
for step, batch in enumerate(dataset.repeat(200)):
    weight.assign_add(tf.reduce_mean(batch, axis=0) * 1e-3)
    if step % 4 == 0:
        print(f"worker {rank} step {step}", flush=True)
""",
        },
        wanted=("corrupted record", "DataLossError"),
        helpful=(r"part-1\.tfrecord|tfrecord", r"worker\.py", r"corrupt"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-jax-all-have-wrong-device-count",
        code="exception",
        venv="ml",
        processes=2,
        rank=0,
        also=(1,),
        command="python shard.py",
        files={
            "shard.py": """\
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.config.update("jax_platforms", "cpu")
rank = int(os.environ["RANK"])
wanted = int(os.environ.get("DEVICES_PER_HOST", "4"))
print(f"host {rank}: building a mesh of {wanted} devices", flush=True)
devices = np.array(jax.devices()).reshape(wanted // 2, 2)
mesh = Mesh(devices, ("data", "model"))
x = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, PartitionSpec("data", "model")))
print(jnp.sum(x))
""",
        },
        wanted="cannot reshape array of size 1 into shape (2,2)",
        helpful=(r"shard\.py", r"DEVICES_PER_HOST|devices|mesh"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    torchrun(
        name="n-accelerate-one-process-asserts",
        code="exception",
        venv="ml",
        num_ranks=2,
        rank=1,
        command="torchrun --standalone --nproc-per-node 2 tune.py",
        files={
            "tune.py": """\
import torch
from accelerate import Accelerator


def collate(accelerator, step):
    size = 4 if not (accelerator.process_index == 1 and step == 2) else 0
    batch = torch.randn(size, 5)
    assert len(batch) > 0, f"process {accelerator.process_index}: empty batch at step {step}"
    return batch


accelerator = Accelerator(cpu=True)
model = accelerator.prepare(torch.nn.Linear(5, 1))
for step in range(6):
    loss = model(collate(accelerator, step)).pow(2).mean()
    accelerator.backward(loss)
    accelerator.print("step", step, round(loss.item(), 4))
""",
        },
        wanted="AssertionError: process 1: empty batch at step 2",
        helpful=(r"tune\.py", r"empty batch|collate"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    torchrun(
        name="n-torchrun-limit-loader-deadlock",
        code="timeout",
        num_ranks=2,
        rank=1,
        limit_s=18,
        command="torchrun --standalone --nproc-per-node 2 train.py",
        files={
            "train.py": """\
import queue
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

credits = queue.Queue()


class Clips(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        if dist.get_rank() == 1 and index == 9:
            credits.get()
        return torch.full((3,), float(index))


dist.init_process_group("gloo")
for number, batch in enumerate(DataLoader(Clips(), batch_size=4)):
    total = batch.sum()
    dist.all_reduce(total)
    print(f"rank {dist.get_rank()} batch {number} total {total.item()}", flush=True)
dist.destroy_process_group()
""",
        },
        wanted=("credits.get", "time limit", *HUNG),
        helpful=(r"train\.py", r"credits|__getitem__", r"rank 1"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    torchrun(
        name="n-torchrun-limit-everybody-works",
        code="timeout",
        num_ranks=2,
        rank=None,
        limit_s=13,
        command="torchrun --standalone --nproc-per-node 2 long.py",
        files={
            "long.py": """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
step = 0
while True:
    optimizer.zero_grad()
    loss = model(torch.randn(256, 64)).pow(2).mean()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    step += 1
    if step % 500 == 0:
        print(f"rank {rank} step {step} loss {loss.item():.5f}", flush=True)
""",
        },
        wanted=("time limit", "limits.timeout", "passed"),
        helpful=(r"timeout|time limit|checkpoint|fewer",),
        misleading=(r"\bmemory\b|firewall|pip install|deadlock",),
    ),
]
