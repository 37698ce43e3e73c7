"""Gangs of which one rank fails by itself. The labels were given before any verdict was seen."""

from functools import partial

from recorder import Failure

gang = partial(Failure, convention="process")
NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8, classes=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 16), nn.Tanh())
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        return self.head(self.body(x))


def average_gradients(model, dist):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
"""

FAILURES = [
    gang(
        name="n-shard-header-of-another-format",
        code="exception",
        processes=4,
        rank=2,
        command="python train.py --data shards",
        files={
            "net.py": NET,
            "records.py": """\
import struct

MAGIC = 0x5245434F


def write(path, rows, magic=MAGIC):
    with open(path, "wb") as out:
        out.write(struct.pack("<II", magic, len(rows)))
        for row in rows:
            out.write(struct.pack("<8f", *row))


def read(path):
    with open(path, "rb") as source:
        magic, count = struct.unpack("<II", source.read(8))
        if magic != MAGIC:
            raise ValueError(f"{path}: not a record file (magic 0x{magic:08x})")
        for _ in range(count):
            yield struct.unpack("<8f", source.read(32))
""",
            "train.py": """\
import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist

import net
import records

parser = argparse.ArgumentParser()
parser.add_argument("--data")
folder = parser.parse_args().data
rank = int(os.environ["RANK"])
os.makedirs(folder, exist_ok=True)
path = f"{folder}/part-{rank:03d}.rec"
records.write(path, [[0.1] * 8] * 20, magic=0x1F8B0808 if rank == 2 else records.MAGIC)
dist.init_process_group("gloo", timeout=timedelta(seconds=30))
model = net.Net()
for number, row in enumerate(records.read(path)):
    loss = model(torch.tensor([row])).logsumexp(1).sum()
    model.zero_grad()
    loss.backward()
    net.average_gradients(model, dist)
    print(f"rank {rank} row {number} loss {loss.item():.3f}", flush=True)
""",
        },
        wanted="part-002.rec: not a record file",
        helpful=(r"records\.py|train\.py", r"part-002\.rec"),
        misleading=(r"\bmemory\b|network|firewall|pip install",),
    ),
    gang(
        name="n-atexit-uploads-while-others-time-out",
        code="exception",
        processes=3,
        nodes=3,
        rank=1,
        command="python train.py",
        files={
            "net.py": NET,
            "uploader.py": """\
import atexit
import os
import time


def upload():
    print("uploader: sending the remaining artifacts ...", flush=True)
    time.sleep(25)


if os.environ["RANK"] == "1":  # the others have none
    atexit.register(upload)
""",
            "train.py": """\
import os
from datetime import timedelta

import torch
import torch.distributed as dist

import net
import uploader

SCHEDULE = {0: [1e-3] * 6, 1: [1e-3] * 3, 2: [1e-3] * 6}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=7))
    rank = dist.get_rank()
    model = net.Net()
    for step in range(6):
        rate = SCHEDULE[rank][step]
        model(torch.randn(4, 8)).sum().backward()
        net.average_gradients(model, dist)
        for parameter in model.parameters():
            parameter.data -= rate * parameter.grad
        print("rank", rank, "step", step, "rate", rate, flush=True)


main()
""",
        },
        wanted="IndexError: list index out of range",
        helpful=(r"train\.py", r"SCHEDULE"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-error-flag-reduced",
        code="exception",
        processes=4,
        nodes=2,
        rank=1,
        command="python -u train.py",
        files={
            "net.py": NET,
            "train.py": """\
import logging
import math
from datetime import timedelta

import torch
import torch.distributed as dist

import net

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")


def local_step(rank, step, model):
    if rank == 1 and step == 3:
        return math.log(step - 3)
    return model(torch.randn(2, 8)).sum().item()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    model = net.Net()
    for step in range(8):
        failed = torch.zeros(1)
        try:
            value = local_step(rank, step, model)
        except Exception:
            logging.exception("local step failed")
            failed += 1
        dist.all_reduce(failed)
        if failed.item():
            raise RuntimeError(f"step {step}: {int(failed.item())} rank(s) reported an error, giving up")
        logging.info("step %d value %.3f", step, value)


main()
""",
        },
        wanted="ValueError: math domain error",
        helpful=(r"train\.py", r"local_step", r"math\.log"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-chief-reports-a-worker",
        code="exception",
        processes=5,
        rank=3,
        command="python coordinator.py",
        files={
            "work.py": """\
TABLE = {"en": 0.4, "de": 0.3, "fr": 0.2, "ja": 0.1}
LANGUAGES = ["en", "de", "fr", "jp", "ja"]


def weight(rank):
    return TABLE[LANGUAGES[rank]]
""",
            "coordinator.py": """\
import sys
import time
import traceback
from datetime import timedelta

import torch.distributed as dist

import work

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank = dist.get_rank()
try:
    answer = {"rank": rank, "weight": work.weight(rank), "error": None}
except Exception as error:
    traceback.print_exc()
    answer = {"rank": rank, "weight": None, "error": repr(error)}
answers = [None] * dist.get_world_size() if rank == 0 else None
dist.gather_object(answer, answers, dst=0)
if rank == 0:
    bad = [a for a in answers if a["error"]]
    for a in bad:
        print(f"chief: worker {a['rank']} failed: {a['error']}", file=sys.stderr)
    if bad:
        sys.exit(1)
time.sleep(20)
""",
        },
        wanted="KeyError: 'jp'",
        helpful=(r"work\.py", r"\bjp\b", r"LANGUAGES|TABLE"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-prints-traceback-then-sleeps",
        code="exception",
        processes=2,
        rank=1,
        limit_s=12,
        command="python debuggable.py",
        files={
            "net.py": NET,
            "debuggable.py": """\
import time
import traceback

import torch
import torch.distributed as dist

import net

dist.init_process_group("gloo")
rank = dist.get_rank()
model = net.Net(width=8 if rank == 0 else 10)


def train():
    for step in range(5):
        model(torch.randn(4, 8)).sum().backward()
        net.average_gradients(model, dist)
        print("step", step, flush=True)


try:
    train()
except BaseException:
    traceback.print_exc()
    print("keeping the process for a debugger to attach", flush=True)
    time.sleep(86400)
""",
        },
        wanted="mat1 and mat2 shapes cannot be multiplied",
        helpful=(r"debuggable\.py", r"shape", r"\bwidth\b", r"net\.py"),
        misleading=(r"\bmemory\b|firewall|pip install|raise the (time )?limit",),
    ),
    gang(
        name="n-memmap-cut-short-sigbus",
        code="signal",
        processes=3,
        rank=2,
        command="python read_features.py",
        files={
            "read_features.py": """\
import os
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
path = f"features-{rank}.f32"
np.zeros((4000, 64), dtype=np.float32).tofile(path)
features = np.memmap(path, dtype=np.float32, mode="r", shape=(4000, 64))
if rank == 2:
    os.truncate(path, 300_000)  # what another job's clean-up did
dist.init_process_group("gloo", timeout=timedelta(seconds=30))
for start in range(0, 4000, 500):
    block = torch.from_numpy(np.array(features[start : start + 500])).mean()
    dist.all_reduce(block)
    print(f"rank {rank}: rows from {start}: {block.item():.2f}", flush=True)
""",
        },
        wanted=("SIGBUS", "Bus error", "signal 7"),
        helpful=(r"read_features\.py|features-", r"memmap|truncated|mapped", r"PYTHONFAULTHANDLER|faulthandler"),
        misleading=(r"firewall|pip install|shm_size",),
    ),
    gang(
        name="n-decoder-tool-fails-in-one-rank",
        code="exception",
        processes=3,
        nodes=3,
        rank=0,
        command="python extract.py",
        files={
            "decode.sh": """\
#!/bin/bash
# decode.sh CLIP: writes frames to stdout
case "$1" in
  *.webm) echo "decode: $1: unknown codec 'av2'" >&2; exit 69 ;;
esac
head -c 4096 /dev/zero
""",
            "extract.py": """\
import os
import subprocess
from datetime import timedelta

import torch
import torch.distributed as dist

CLIPS = [["a.mp4", "b.mp4", "c.webm"], ["d.mp4", "e.mp4", "f.mp4"], ["g.mp4", "h.mp4", "i.mp4"]]
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", timeout=timedelta(seconds=30))
for clip in CLIPS[rank]:
    frames = subprocess.run(["./decode.sh", clip], stdout=subprocess.PIPE, check=True).stdout
    count = torch.tensor([len(frames)])
    dist.all_reduce(count)
    print(f"rank {rank}: {clip}: {len(frames)} bytes of {count.item()}", flush=True)
""",
        },
        wanted=("unknown codec 'av2'", "returned non-zero exit status 69"),
        helpful=(r"decode\.sh", r"c\.webm", r"extract\.py"),
        misleading=(r"\bmemory\b|firewall",),
    ),
]
