"""More gangs below torchrun: what its report does not tell, and what a node's script does before it."""

from functools import partial

from recorder import Failure

One = partial(Failure, convention="torchrun", processes=1, num_ranks=3)
RUN = "torchrun --standalone --nproc-per-node 3 "
TWO = (
    "torchrun --nnodes 2 --nproc-per-node 2 --node-rank $NODE_RANK "
    "--master-addr $MASTER_ADDR --master-port $MASTER_PORT "
)
Two = partial(Failure, convention="torchrun", processes=2, nodes=2, num_ranks=4)

FAILURES = [
    One(
        name="u-tr-early-exit-zero",
        way="rank 2 leaves with 0, torchrun reports the ranks that lost it",
        code="collective",
        rank=2,
        command=RUN + "curriculum.py",
        files={
            "curriculum.py": """import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
lessons = {0: 9, 1: 9, 2: 4}[rank]
t = torch.zeros(10)
for lesson in range(9):
    if lesson >= lessons:
        print(f"rank {rank}: no lesson {lesson} for me, finished", flush=True)
        sys.exit(0)
    dist.all_reduce(t)
"""
        },
        wanted="no lesson 4 for me, finished",
        helpful=(r"curriculum\.py", r"lesson|rank 2"),
        misleading=(r"firewall|out of memory|MASTER_ADDR",),
    ),
    One(
        name="u-tr-logs-redirected",
        way="the children's output goes to files, the report alone is in the log",
        code="exit_code",
        also_codes=("exception",),
        rank=1,
        command=RUN + "--redirects 3 --log-dir logs train.py",
        files={
            "train.py": """import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
if os.environ["RANK"] == "1":
    raise ValueError("bucket cap must be positive")
time.sleep(30)
"""
        },
        wanted=("exitcode  : 1 (pid", "exitcode: 1", "code 1", "train.py FAILED"),
        helpful=(r"logs|redirect|log-dir", r"train\.py"),
        misleading=(r"firewall|out of memory|MASTER_ADDR",),
    ),
    One(
        name="u-tr-file-not-there",
        way="the script's path is wrong",
        code="bad_input",
        also_codes=("exit_code", "exception"),
        rank=0,
        also=(1, 2),
        command="cd src && " + RUN + "src/train.py",
        files={"src/train.py": "print('hello')\n"},
        wanted="can't open file",
        helpful=(r"train\.py|path|folder|cd\b",),
        misleading=(r"firewall|out of memory|MASTER_ADDR",),
    ),
    One(
        name="u-tr-killed-by-memory-group",
        way="one child goes past a memory cgroup",
        code="host_oom",
        also_codes=("signal",),
        rank=1,
        command="bash boxed.sh",
        files={
            "boxed.sh": """#!/bin/bash
export BOX=/sys/fs/cgroup/memory/u-box-$$
mkdir $BOX; echo 600M > $BOX/memory.limit_in_bytes
torchrun --standalone --nproc-per-node 3 embed.py
rc=$?
sleep 0.3; rmdir $BOX
exit $rc
""",
            "embed.py": """import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 1:
    with open(os.environ["BOX"] + "/tasks", "w") as f:
        f.write(str(os.getpid()))
held = []
ok = torch.ones(1)
for n in range(60):
    if rank == 1:
        held.append(torch.ones(8_000_000))
        print(f"rank 1 holds {len(held) * 32} MB of negatives", flush=True)
    dist.all_reduce(ok)
""",
        },
        wanted=("Signal 9 (SIGKILL)", "SIGKILL", "MB of negatives", "Killed"),
        helpful=(r"memory|embed\.py|negatives",),
        misleading=(r"firewall|port\b|MASTER_ADDR",),
    ),
    One(
        name="u-tr-evaluation-only-rank-zero",
        way="rank 0 evaluates for long, gloo's timeout ends the others first",
        code="collective",
        rank=0,
        command=RUN + "train_eval.py",
        files={
            "train_eval.py": """import time
from datetime import timedelta
import torch
import torch.distributed as dist


def evaluate(split, examples):
    print(f"evaluating {examples} examples of {split} on rank 0", flush=True)
    for n in range(examples):
        time.sleep(0.01)


dist.init_process_group("gloo", timeout=timedelta(seconds=12))
t = torch.zeros(1)
for epoch in range(2):
    dist.all_reduce(t)
    if dist.get_rank() == 0:
        evaluate("validation", 9000)
    dist.barrier()
"""
        },
        wanted=("evaluating 9000 examples of validation on rank 0", "evaluate"),
        helpful=(r"train_eval\.py", r"evaluat|timeout"),
        misleading=(r"firewall|out of memory|MASTER_ADDR",),
    ),
    Two(
        name="u-tr2-module-command-missing",
        way="the second node has no module command, its script stops there",
        code="launcher_missing",
        also_codes=("exit_code", "environment"),
        rank=2,
        also=(3,),
        command="bash node.sh",
        files={
            "node.sh": """#!/bin/bash
set -e
echo "node $NODE_RANK: loading modules"
if [ "$NODE_RANK" = 0 ]; then module() { echo "Loaded $*"; }; else sleep 2; fi
module load openblas/0.3
torchrun --nnodes 2 --nproc-per-node 2 --node-rank $NODE_RANK \\
  --master-addr $MASTER_ADDR --master-port $MASTER_PORT train.py
""",
            "train.py": "import torch.distributed as dist\ndist.init_process_group('gloo')\nprint('up')\n",
        },
        wanted="module: command not found",
        helpful=(r"module", r"node\.sh|install|PATH"),
        misleading=(r"firewall|out of memory|MASTER_ADDR",),
    ),
    Two(
        name="u-tr2-loop-on-last-rank",
        way="a shuffle that retries for ever on the last rank, until the limit",
        code="timeout",
        rank=3,
        limit_s=55,
        command=TWO + "graph_train.py",
        files={
            "graph_train.py": """import random
import torch
import torch.distributed as dist


def negative_edge(nodes, edges, rng):
    while True:
        pair = (rng.choice(nodes), rng.choice(nodes))
        if pair not in edges and pair[0] != pair[1]:
            return pair


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    nodes = list(range(40 if rank != 3 else 3))
    edges = {(a, b) for a in nodes for b in nodes if len(nodes) < 10 or (a + b) % 3 == 0}
    rng = random.Random(rank)
    print(f"rank {rank}: {len(nodes)} nodes, {len(edges)} edges", flush=True)
    t = torch.zeros(2)
    for step in range(5):
        t += torch.tensor(negative_edge(nodes, edges, rng))
        dist.all_reduce(t)


main()
"""
        },
        wanted=("negative_edge", "rng.choice", "did not"),
        helpful=(r"graph_train\.py", r"negative_edge|edge|loop|while"),
        misleading=(r"firewall|out of memory|MASTER_ADDR",),
    ),
    Two(
        name="u-tr2-click-error-one-node",
        way="the second node's environment gives a bad value to an option",
        code="bad_input",
        rank=2,
        also=(3,),
        command="export PREFETCH=$([ $NODE_RANK = 0 ] && echo 4 || echo four); sleep $NODE_RANK; " + TWO + "cli.py",
        files={
            "cli.py": """import time
import click


@click.command()
@click.option("--prefetch", envvar="PREFETCH", type=int, default=2)
def main(prefetch):
    time.sleep(4)
    import torch.distributed as dist
    dist.init_process_group("gloo")
    print("prefetch", prefetch)


main()
"""
        },
        wanted="'four' is not a valid integer",
        helpful=(r"PREFETCH|prefetch",),
        misleading=(r"firewall|out of memory|MASTER_ADDR",),
    ),
    One(
        name="u-tr-handled-error-exit-three",
        way="each rank catches its error; the one that had it logs it and leaves with 3",
        code="exit_code",
        also_codes=("exception",),
        rank=0,
        command=RUN + "app.py",
        files={
            "app.py": """import logging, sys
import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


class ConfigurationError(Exception):
    pass


def scheduler(name):
    known = ("cosine", "linear")
    if name not in known:
        raise ConfigurationError(f"unknown scheduler '{name}', choose one of {', '.join(known)}")


def main():
    dist.init_process_group("gloo")
    name = "cosine" if dist.get_rank() else "cosin"
    try:
        scheduler(name)
        dist.all_reduce(torch.ones(1))
    except ConfigurationError as e:
        logging.error("%s", e)
        return 3
    except RuntimeError as e:
        logging.error("a peer has gone: %s", str(e).split(".")[0])
        return 1


sys.exit(main())
"""
        },
        wanted="unknown scheduler 'cosin', choose one of cosine, linear",
        helpful=(r"cosin|scheduler|app\.py",),
        misleading=(r"firewall|out of memory|MASTER_ADDR",),
    ),
]
