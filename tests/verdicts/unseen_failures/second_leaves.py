"""Gangs in which a rank leaves or calls something else. The labels were given before any verdict was seen."""

from functools import partial

from recorder import Failure

gang = partial(Failure, convention="process")
GONE = ("exited", "code 0", "left early", "finished early", "did not")
OTHER = ("different", "mismatch", "other collective", "does not match", "not the same", "did not", "waiting in")

FAILURES = [
    gang(
        name="n-uneven-shards-leave",
        code="collective",
        processes=3,
        rank=2,
        command="python train.py",
        files={
            "data.py": """\
SIZES = {0: 40, 1: 40, 2: 31}


def batches(rank, size=8):
    for start in range(0, SIZES[rank] - size + 1, size):
        yield [float(n % 7) for n in range(start, start + size)]
""",
            "train.py": """\
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from data import batches

dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank = dist.get_rank()
net = DDP(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for number, batch in enumerate(batches(rank)):
    optimizer.zero_grad()
    loss = net(torch.tensor(batch)).sum()
    loss.backward()
    optimizer.step()
    print(f"rank={rank} batch={number} loss={loss.item():.4f}", flush=True)
print(f"rank={rank} epoch done", flush=True)
""",
        },
        wanted=GONE,
        helpful=(r"\bjoin\b|drop_last|DistributedSampler|uneven|fewer|same number", r"data\.py|train\.py", r"rank 2"),
        misleading=(r"\bmemory\b|install|firewall",),
    ),
    gang(
        name="n-early-stopping-first-rank",
        code="collective",
        processes=4,
        nodes=2,
        rank=0,
        command="python train.py --patience 2",
        files={
            "train.py": """\
import argparse
import logging
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s | %(levelname)s | %(message)s")


class EarlyStopping:
    def __init__(self, patience):
        self.best, self.bad, self.patience = float("inf"), 0, patience

    def should_stop(self, loss):
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(loss, self.best)
        return self.bad >= self.patience


def fit(rank, patience):
    stopping = EarlyStopping(patience)
    for epoch in range(50):
        loss = 1 / (epoch + 1) if rank or epoch < 3 else 0.5
        total = torch.tensor([loss])
        dist.all_reduce(total)
        logging.info("epoch %d: loss %.4f", epoch, loss)
        if stopping.should_stop(loss):
            logging.info("no improvement in %d epochs, stopping early", patience)
            return
    dist.barrier()


parser = argparse.ArgumentParser()
parser.add_argument("--patience", type=int, default=3)
dist.init_process_group("gloo", timeout=timedelta(seconds=30))
fit(dist.get_rank(), parser.parse_args().patience)
""",
        },
        wanted=("stopping early", *GONE),
        helpful=(r"train\.py", r"early|stop", r"every rank|all ranks", r"rank 0"),
        misleading=(r"\bmemory\b|install|firewall",),
    ),
    gang(
        name="n-extra-broadcast-in-one-branch",
        code="collective",
        processes=2,
        rank=1,
        command="python -u steps.py",
        files={
            "steps.py": """\
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=7))
rank = dist.get_rank()
scale = torch.ones(1)
weights = torch.zeros(1024)


def overflow(gradient):
    return bool(gradient.abs().max() > 50)


for step in range(10):
    gradient = torch.full((1024,), 99.0 if (rank, step) == (1, 4) else 1.0)
    if overflow(gradient):
        print(f"rank {rank}: overflow at step {step}, halving the loss scale", flush=True)
        scale /= 2
        dist.broadcast(scale, src=rank)
    dist.all_reduce(gradient)
    weights -= gradient * scale
    print(f"rank {rank}: step {step} done", flush=True)
dist.destroy_process_group()
""",
        },
        wanted=(*OTHER, "overflow at step 4"),
        helpful=(r"steps\.py", r"\bbroadcast\b", r"same order|same collective", r"rank 1"),
        misleading=(r"\bmemory\b|install|firewall",),
    ),
    gang(
        name="n-debug-detail-fingerprint",
        code="collective",
        processes=4,
        rank=3,
        command="python evaluate.py",
        variables={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
        files={
            "evaluate.py": """\
import os
from datetime import timedelta

import torch
import torch.distributed as dist


def gather_scores(rank, scores):
    # the last rank has one sample more
    if rank == 3:
        scores = torch.cat([scores, scores[-1:]])
    parts = [torch.zeros_like(scores) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, scores)
    return torch.cat(parts)


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    rank = dist.get_rank()
    torch.manual_seed(rank)
    for split in ("dev", "test"):
        scores = torch.rand(25 if split == "dev" else 30)
        if split == "dev":
            mean = scores.mean()
            dist.all_reduce(mean)
            print(split, "mean", round(mean.item() / 4, 3), flush=True)
        else:
            print(split, gather_scores(rank, scores).mean().item(), flush=True)


main()
""",
        },
        wanted=("Detected mismatch between collectives", *OTHER),
        helpful=(r"evaluate\.py", r"shape|size", r"gather_scores|all_gather", r"rank 3"),
        misleading=(r"\bmemory\b|pip install|firewall",),
    ),
    gang(
        name="n-subgroup-of-wrong-members",
        code="collective",
        processes=6,
        nodes=2,
        rank=5,
        command="python tensor_parallel.py",
        files={
            "groups.py": """\
import os

import torch.distributed as dist


def build():
    rank = int(os.environ["RANK"])
    pairs = [[0, 1], [2, 3], [4, 5]]
    made = [dist.new_group(pair) for pair in pairs]
    if rank == 5:
        return made[(rank - 1) // 2 - 2], [0, 1]
    return made[rank // 2], pairs[rank // 2]
""",
            "tensor_parallel.py": """\
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from groups import build

dist.init_process_group("gloo", timeout=timedelta(seconds=12))
rank = dist.get_rank()
group, members = build()
print(f"rank {rank} works with {members}", flush=True)
shard = torch.randn(4, 4)
for layer in range(3):
    if rank in members:
        dist.all_reduce(shard, group=group)
    print(f"rank {rank} layer {layer}", flush=True)
dist.barrier()
print("done")
""",
        },
        wanted=(*OTHER, "works with [0, 1]"),
        helpful=(r"groups\.py", r"new_group|\bgroup\b", r"rank 5"),
        misleading=(r"\bmemory\b|install|firewall",),
    ),
    gang(
        name="n-skips-batch-without-labels",
        code="collective",
        processes=3,
        nodes=3,
        rank=1,
        command="python train.py",
        files={
            "train.py": """\
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=9))
rank = dist.get_rank()
model = torch.nn.Linear(3, 2)
loss_function = torch.nn.CrossEntropyLoss()


def load(step):
    labels = torch.tensor([0, 1, 1, 0])
    if rank == 1 and step == 5:
        labels = torch.full((4,), -100)
    return torch.randn(4, 3), labels


for step in range(12):
    features, labels = load(step)
    if bool((labels == -100).all()):
        print(f"[{rank}] step {step}: batch without labels, skipping", flush=True)
        continue
    loss = loss_function(model(features), labels)
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.data.add_(parameter.grad, alpha=-0.1)
        parameter.grad = None
    print(f"[{rank}] step {step}: {loss.item():.3f}", flush=True)
dist.barrier()
""",
        },
        wanted=("batch without labels, skipping", *GONE),
        helpful=(r"train\.py", r"skip|continue", r"rank 1", r"every rank|same number"),
        misleading=(r"\bmemory\b|install|firewall",),
    ),
    gang(
        name="n-limit-all-are-training",
        code="timeout",
        processes=3,
        rank=None,
        limit_s=11,
        command="python train.py --epochs 100000",
        files={
            "train.py": """\
import argparse
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
epochs = parser.parse_args().epochs
dist.init_process_group("gloo")
rank = dist.get_rank()
w = torch.zeros(10)
for epoch in range(epochs):
    gradient = torch.randn(10)
    time.sleep(0.02)
    dist.all_reduce(gradient)
    w -= 1e-3 * gradient
    if epoch % 25 == 0 and rank == 0:
        print(f"epoch {epoch}/{epochs} |w|={w.norm():.4f}", flush=True)
""",
        },
        wanted=("time limit", "limits.timeout", "passed"),
        helpful=(r"timeout|time limit|--timeout|checkpoint|epochs",),
        misleading=(r"\bmemory\b|install|firewall|deadlock",),
    ),
    gang(
        name="n-pipeline-stage-polls-for-file",
        code="timeout",
        processes=6,
        rank=2,
        limit_s=18,
        command="python -u pipeline.py",
        files={
            "stages.py": """\
import os
import time

import torch


class Stage:
    def __init__(self, number):
        self.number = number
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x, micro):
        if self.number == 2 and micro == 1:
            while not os.path.exists("stage2.weights.ok"):
                time.sleep(0.2)
        return self.layer(x).detach()
""",
            "pipeline.py": """\
import torch
import torch.distributed as dist

from stages import Stage

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
stage = Stage(rank)
for micro in range(4):
    x = torch.ones(2, 4)
    if rank > 0:
        dist.recv(x, src=rank - 1)
    x = stage.forward(x, micro)
    if rank < world - 1:
        dist.send(x, dst=rank + 1)
    print(f"stage {rank}: micro-batch {micro} done")
dist.barrier()
""",
        },
        wanted=("stages.py", "time.sleep", "time limit", *GONE),
        helpful=(r"stages\.py", r"stage2\.weights\.ok", r"rank 2"),
        misleading=(r"\bmemory\b|install|firewall",),
    ),
    gang(
        name="n-gather-object-other-destination",
        code="collective",
        processes=4,
        nodes=2,
        rank=3,
        command="python report.py",
        files={
            "settings.yaml": "chief: 0\nnode_overrides:\n  '3': {chief: 2}\n",
            "report.py": """\
import os
from datetime import timedelta

import torch.distributed as dist
import yaml

rank = int(os.environ["RANK"])
settings = yaml.safe_load(open("settings.yaml"))
settings |= settings["node_overrides"].get(str(rank), {})
dist.init_process_group("gloo", timeout=timedelta(seconds=8))
print(f"rank {rank}: chief is {settings['chief']}", flush=True)
row = {"rank": rank, "samples": 100 * rank, "seconds": 1.5}
rows = [None] * 4 if rank == settings["chief"] else None
dist.gather_object(row, rows, dst=settings["chief"])
if rows:
    print("samples:", sum(entry["samples"] for entry in rows), flush=True)
dist.barrier()
dist.destroy_process_group()
""",
        },
        wanted=("chief is 2", *OTHER),
        helpful=(r"settings\.yaml|report\.py", r"\bdst\b|chief", r"rank 3"),
        misleading=(r"\bmemory\b|install|firewall",),
    ),
    Failure(
        name="n-store-key-never-set",
        way="others wait for a key of the store",
        code="collective",
        convention="process",
        processes=3,
        rank=0,
        command="python prepare_then_train.py",
        files={
            "prepare_then_train.py": """\
import os
import random
import sys
import time
from datetime import timedelta

import torch.distributed as dist


def quota_left():
    return 0


def build_index():
    attempt = 0
    while quota_left() < 10:
        attempt += 1
        if attempt == 1:
            print("build_index: waiting for quota", flush=True)
        time.sleep(min(60, 2**attempt))
    return list(range(100))


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    port = int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(os.environ["MASTER_ADDR"], port, world, rank == 0, timeout=timedelta(seconds=40))
    if rank == 0:
        index = build_index()
        store.set("index/ready", str(len(index)))
    else:
        print(f"rank {rank} waits for the index", flush=True)
        store.wait(["index/ready"], timedelta(seconds=5))
        print("entries:", store.get("index/ready").decode())


main()
""",
        },
        wanted=("waiting for quota", "did not", "hung", "stuck", "time.sleep"),
        helpful=(r"prepare_then_train\.py", r"quota", r"build_index", r"rank 0"),
        misleading=(r"\bmemory\b|pip install|firewall",),
    ),
]
