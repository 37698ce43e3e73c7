"""Gangs below torchrun. The labels were given before any verdict was seen."""

from functools import partial

from recorder import Failure

torchrun = partial(Failure, convention="torchrun")
TWO_NODES = (
    "torchrun --nnodes 2 --nproc-per-node 2 --node-rank $RANK --master-addr $MASTER_ADDR --master-port $MASTER_PORT"
)
HUNG = ("did not", "hung", "stuck", "blocked", "waiting", "not respond", "no answer")

FAILURES = [
    torchrun(
        name="n-torchrun-label-map-lacks-class",
        code="exception",
        num_ranks=4,
        rank=1,
        command="torchrun --standalone --nproc-per-node 4 train.py",
        files={
            "labels.py": 'NAMES = ["cat", "dog", "bird"]\nIDS = {name: number for number, name in enumerate(NAMES)}\n',
            "train.py": """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from labels import IDS

SAMPLES = [["cat", "dog"], ["bird", "lizard"], ["dog", "cat"], ["bird", "bird"]]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(torch.nn.Linear(6, len(IDS)))
    for name in SAMPLES[rank]:
        target = torch.tensor([IDS[name]])
        loss = torch.nn.functional.cross_entropy(model(torch.randn(1, 6)), target)
        loss.backward()
        print(f"[{rank}] {name}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
""",
        },
        wanted="KeyError: 'lizard'",
        helpful=(r"labels\.py|train\.py", r"lizard", r"\bIDS\b"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    torchrun(
        name="n-torchrun-child-stuck-in-condition",
        code="collective",
        num_ranks=4,
        rank=3,
        command="torchrun --standalone --nproc-per-node=4 serve_and_train.py",
        files={
            "serve_and_train.py": """\
import threading
from datetime import timedelta

import torch
import torch.distributed as dist

ready = threading.Condition()


def wait_for_batch(rank, step):
    if rank == 3 and step == 2:
        with ready:
            ready.wait()
    return torch.ones(5) * step


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    rank = dist.get_rank()
    for step in range(5):
        batch = wait_for_batch(rank, step)
        dist.monitored_barrier(timeout=timedelta(seconds=5), wait_all_ranks=True)
        dist.all_reduce(batch)
        print(f"rank {rank} step {step} {batch[0].item()}", flush=True)


main()
""",
        },
        wanted=(*HUNG, "ready.wait", "Ranks 3 failed to pass monitoredBarrier"),
        helpful=(r"serve_and_train\.py", r"wait_for_batch|ready\.wait|Condition", r"rank 3"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    torchrun(
        name="n-torchrun-validation-only-on-main",
        code="collective",
        num_ranks=3,
        rank=0,
        command="torchrun --standalone --nproc-per-node 3 fit.py --dry-run",
        files={
            "fit.py": """\
import argparse
import time
from datetime import timedelta

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--dry-run", action="store_true")
options = parser.parse_args()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=9))
    rank = dist.get_rank()
    loss = torch.rand(1)
    dist.all_reduce(loss)
    if rank == 0:
        print(f"mean loss {loss.item() / 3:.3f}", flush=True)
        if options.dry_run:
            print("dry run: not writing the report", flush=True)
            return
        open("report.txt", "w").write("done")
    dist.broadcast(loss, src=0)
    dist.barrier()
    dist.destroy_process_group()


main()
""",
        },
        wanted=("dry run: not writing the report", "exited", "code 0", "left early"),
        helpful=(r"fit\.py", r"dry.run", r"rank 0", r"every rank|all ranks"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    torchrun(
        name="n-torchrun-two-nodes-cache-missing",
        code="exception",
        processes=2,
        nodes=2,
        num_ranks=4,
        rank=3,
        command=f"{TWO_NODES} train.py",
        files={
            "train.py": """\
import json
import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def index_of(rank):
    path = Path("cache") / f"index-{rank}.json"
    if rank != 3:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(list(range(rank * 10, rank * 10 + 10))))
    return json.loads(path.read_text())


dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank = dist.get_rank()
total = torch.tensor([0])
dist.all_reduce(total)
for entry in index_of(rank):
    total = torch.tensor([entry])
    dist.all_reduce(total)
    if rank == 0:
        print("sum", total.item(), flush=True)
""",
        },
        wanted="No such file or directory: 'cache/index-3.json'",
        helpful=(r"train\.py", r"index-3\.json"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    torchrun(
        name="n-torchrun-second-node-under-maintenance",
        code="rendezvous",
        processes=2,
        nodes=2,
        num_ranks=2,
        rank=1,
        limit_s=60,
        command="bash launch.sh",
        files={
            "launch.sh": """\
#!/bin/bash
# nodes that the site has taken out do not take part
drained="1 5 9"
for node in $drained; do
  if [ "$node" = "$NODE_RANK" ]; then
    echo "node $NODE_RANK is drained, not joining"
    exit 0
  fi
done
exec torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-id exp12 \\
  --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT --rdzv-conf join_timeout=8,last_call_timeout=2 train.py
""",
            "train.py": """\
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=10))
x = torch.ones(1)
dist.all_reduce(x)
print("world", int(x.item()), flush=True)
dist.destroy_process_group()
""",
        },
        wanted=("is drained, not joining", "did not", "RendezvousTimeoutError", "exited", "not joined"),
        helpful=(r"launch\.sh", r"drained", r"nnodes", r"node.1|rank 1"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    torchrun(
        name="n-torchrun-second-node-wrong-port",
        code="rendezvous",
        also_codes=("timeout",),
        processes=2,
        nodes=2,
        num_ranks=2,
        rank=1,
        limit_s=22,
        command="./start_node.sh",
        files={
            "start_node.sh": """\
#!/bin/bash
set -euo pipefail
port=$MASTER_PORT
if [ "$NODE_RANK" -ne 0 ]; then
  port=29511   # default of the old cluster
fi
echo "node $NODE_RANK joins $MASTER_ADDR:$port"
torchrun --nnodes 2 --nproc-per-node 1 --node-rank "$NODE_RANK" \\
  --master-addr "$MASTER_ADDR" --master-port "$port" work.py
""",
            "work.py": """\
import os
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=8))
t = torch.arange(4.0)
dist.all_reduce(t)
print(os.environ["RANK"], t)
""",
        },
        wanted=("did not", "29511", "timed out", "clients joined"),
        helpful=(r"start_node\.sh", r"29511|MASTER_PORT|--master-port", r"node.1|rank 1"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    torchrun(
        name="n-torchrun-all-lack-tokenizer-package",
        code="environment",
        num_ranks=2,
        rank=0,
        also=(1,),
        command="torchrun --standalone --nproc-per-node 2 -m recipes.pretrain --config base",
        files={
            "recipes/__init__.py": "",
            "recipes/text.py": """\
import sentencepiece as spm


def load(path):
    return spm.SentencePieceProcessor(path)
""",
            "recipes/pretrain.py": """\
import argparse
import logging

logging.basicConfig(level=logging.INFO)
logging.info("reading the recipe")

from recipes import text  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    options = parser.parse_args()
    tokenizer = text.load(f"{options.config}.model")
    print(tokenizer.encode("hello"))


main()
""",
        },
        wanted="No module named 'sentencepiece'",
        helpful=(r"sentencepiece", r"pip install|environment"),
        misleading=(r"\bmemory\b|firewall|network",),
    ),
    torchrun(
        name="n-torchrun-native-kernel-crashes",
        code="signal",
        num_ranks=3,
        rank=0,
        command="g++ -shared -fPIC -o libfast.so fast.cpp && torchrun --standalone --nproc-per-node 3 infer.py",
        files={
            "fast.cpp": """\
#include <cstddef>
extern "C" float dot(const float* a, const float* b, size_t n) {
    float sum = 0;
    for (size_t i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
}
""",
            "infer.py": """\
import ctypes
import os
import time

import torch
import torch.distributed as dist

library = ctypes.CDLL("./libfast.so")
library.dot.restype = ctypes.c_float


def dot(a, b):
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (a, b)]
    return library.dot(*pointers, ctypes.c_size_t(a.numel()))


dist.init_process_group("gloo")
rank = dist.get_rank()
for number in range(10):
    a = torch.rand(100)
    b = torch.rand(100) if (rank, number) != (0, 4) else torch.rand(100).to("meta")
    print(f"rank {rank}: {dot(a, b):.3f}", flush=True)
    score = torch.tensor([1.0])
    dist.all_reduce(score)
""",
        },
        wanted=("SIGSEGV", "Signal 11", "Segmentation"),
        helpful=(r"infer\.py|fast\.cpp|libfast", r"faulthandler", r"\bdot\b"),
        misleading=(r"\bmemory limit\b|firewall|pip install|smaller batch",),
    ),
    torchrun(
        name="n-torchrun-recorded-error-file",
        code="exception",
        num_ranks=5,
        rank=4,
        command="torchrun --standalone --nproc-per-node 5 --log-dir logs --redirects 0 main.py",
        files={
            "main.py": """\
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


class Sampler:
    def __init__(self, weights):
        self.weights = torch.tensor(weights)

    def draw(self):
        return torch.multinomial(self.weights, 2)


@record
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weights = [0.2, 0.3, 0.5] if rank < 4 else [0.2, -0.3, 0.5]
    sampler = Sampler(weights)
    for step in range(4):
        chosen = sampler.draw().float()
        dist.all_reduce(chosen)
        print(f"{rank=} {step=} {chosen.tolist()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
""",
        },
        wanted="probability tensor contains either",
        helpful=(r"main\.py", r"\bweights\b", r"\bdraw\b|multinomial"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    torchrun(
        name="n-torchrun-usage-error-in-children",
        code="bad_input",
        also_codes=("exit_code",),
        num_ranks=2,
        rank=0,
        also=(1,),
        command="torchrun --standalone --nproc-per-node 2 train.py --learning-rate fast --epochs 2",
        files={
            "train.py": """\
import argparse

parser = argparse.ArgumentParser(description="trains the tagger")
parser.add_argument("--learning-rate", type=float, default=1e-3)
parser.add_argument("--epochs", type=int, default=1)
options = parser.parse_args()

import torch.distributed as dist  # noqa: E402

dist.init_process_group("gloo")
print("training with", options)
""",
        },
        wanted="argument --learning-rate: invalid float value: 'fast'",
        helpful=(r"--learning-rate", r"\bfast\b"),
        misleading=(r"\bmemory\b|firewall|pip install|network",),
    ),
]
