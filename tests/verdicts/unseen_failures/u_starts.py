"""Gangs that do not come together: worlds, ports, addresses, late ranks, what differs between nodes."""

from functools import partial

from recorder import Failure

Gang = partial(Failure, convention="process", processes=3)
Two = partial(Failure, convention="process", processes=4, nodes=2)

FAILURES = [
    Gang(
        name="u-st-world-size-in-config",
        way="the configuration says 4 processes, 3 are there",
        code="rendezvous",
        also_codes=("bad_input",),
        rank=None,
        command="python train.py --config cluster.json",
        files={
            "cluster.json": '{"backend": "gloo", "world_size": 4, "timeout_s": 15}',
            "train.py": """import argparse, datetime, json, os
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--config", type=argparse.FileType())
cluster = json.load(parser.parse_args().config)
rank = int(os.environ["RANK"])
print(f"rank {rank}: joining a world of {cluster['world_size']}", flush=True)
dist.init_process_group(
    cluster["backend"],
    rank=rank,
    world_size=cluster["world_size"],
    timeout=datetime.timedelta(seconds=cluster["timeout_s"]),
)
print("joined")
""",
        },
        wanted=("3/4 clients joined", "joining a world of 4"),
        helpful=(r"world_size|world size|WORLD_SIZE|4 |clients|processes",),
        misleading=(r"memory|disk",),
    ),
    Gang(
        name="u-st-late-because-of-download",
        way="one rank unpacks its data before it joins, the others give up",
        code="rendezvous",
        rank=1,
        command="python -u main.py",
        files={
            "main.py": """import datetime, os, time
rank = int(os.environ["RANK"])


def stage_data():
    total = 90 if rank == 1 else 1
    for n in range(total):
        if n % 10 == 0:
            print(f"rank {rank}: unpacked {n}/{total} archives", flush=True)
        time.sleep(1)


stage_data()
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=15))
print("all ranks are here")
"""
        },
        wanted=("rank 1: unpacked", "stage_data", "2/3 clients joined"),
        helpful=(r"main\.py", r"stage_data|archive|unpack|before|timeout"),
        misleading=(r"memory|disk full|firewall",),
    ),
    Gang(
        name="u-st-own-port-taken",
        way="the script sets MASTER_PORT itself, another program has it",
        code="port_trouble",
        rank=0,
        command="bash entry.sh",
        files={
            "entry.sh": """#!/bin/bash
export MASTER_PORT=29719
if [ "$RANK" = 0 ]; then
  python -m http.server 29719 --bind 127.0.0.1 >/dev/null 2>&1 &   # somebody's notebook server
  sleep 3
else
  sleep 4
fi
exec python ddp.py
""",
            "ddp.py": """import torch.distributed as dist
from datetime import timedelta
dist.init_process_group("gloo", timeout=timedelta(seconds=40))
""",
        },
        wanted=("EADDRINUSE", "address already in use"),
        helpful=(r"29719|MASTER_PORT|port",),
        misleading=(r"memory|disk|firewall",),
    ),
    Gang(
        name="u-st-rank-is-world",
        way="the script computes ranks from 1",
        code="exception",
        also_codes=("bad_input",),
        rank=2,
        command="python go.py",
        files={
            "go.py": """import os
import torch
import torch.distributed as dist

node, local, per_node = int(os.environ["NODE_RANK"]), int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
world = int(os.environ["WORLD_SIZE"])
rank = node * per_node + local + 1 if local else 0      # rank 0 is the chief
rank = rank if rank != 2 else 1
os.environ["RANK"] = str(rank)
print(f"local {local} -> rank {rank} of {world}", flush=True)
assert rank < world, f"computed rank {rank} does not exist in a world of {world}"
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
"""
        },
        wanted="computed rank 3 does not exist in a world of 3",
        helpful=(r"go\.py", r"rank|off by one"),
        misleading=(r"memory|disk|firewall",),
    ),
    Gang(
        name="u-st-master-addr-typo",
        way="the script overrides MASTER_ADDR with a name that nobody knows",
        code="rendezvous",
        also_codes=("bad_input", "exception"),
        rank=0,
        also=(1, 2),
        command="export MASTER_ADDR=head-node.trainig.internal; exec unshare -n python train.py",
        files={
            "train.py": """import os
from datetime import timedelta
import torch.distributed as dist

print("connecting to", os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"], flush=True)
dist.init_process_group("gloo", timeout=timedelta(seconds=12))
print("connected")
"""
        },
        wanted=("head-node.trainig.internal",),
        helpful=(r"head-node\.trainig\.internal|MASTER_ADDR|host name|DNS",),
        misleading=(r"memory|disk",),
    ),
    Two(
        name="u-no-config-path-on-second-node",
        way="the second node's mount has no configuration",
        code="exception",
        also_codes=("bad_input",),
        rank=2,
        also=(3,),
        command="bash node.sh",
        files={
            "node.sh": """#!/bin/bash
root=mnt/node$NODE_RANK
mkdir -p $root
[ "$NODE_RANK" = 0 ] && echo "steps: 50" > $root/train.yaml
sleep 1
CONFIG=$root/train.yaml exec python -u train.py
""",
            "train.py": """import os
import torch, yaml
import torch.distributed as dist

dist.init_process_group("gloo")
with open(os.environ["CONFIG"]) as f:
    cfg = yaml.safe_load(f)
t = torch.zeros(1)
for s in range(cfg["steps"]):
    dist.all_reduce(t)
    print("step", s)
""",
        },
        wanted="No such file or directory: 'mnt/node1/train.yaml'",
        helpful=(r"train\.yaml|CONFIG", r"node|mount|copy"),
        misleading=(r"memory|firewall",),
    ),
    Two(
        name="u-no-versions-differ-guard",
        way="a guard compares package versions over all ranks",
        code="exception",
        also_codes=("environment",),
        rank=2,
        also=(0, 1, 3),
        command="PYTHONPATH=site$NODE_RANK python -u guard.py",
        files={
            "site0/fastops.py": "__version__ = '1.4.2'\n",
            "site1/fastops.py": "__version__ = '1.3.0'\n",
            "guard.py": """import os, socket
import torch.distributed as dist
import fastops


def versions_must_agree():
    mine = (int(os.environ["NODE_RANK"]), "fastops", fastops.__version__)
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    if len({v for _, _, v in found}) > 1:
        table = ", ".join(f"rank {r} (node {n}): {p} {v}" for r, (n, p, v) in enumerate(found))
        raise RuntimeError("package versions differ between ranks: " + table)


dist.init_process_group("gloo")
versions_must_agree()
print("all fine")
""",
        },
        wanted="package versions differ between ranks",
        helpful=(r"fastops|version", r"node|environment|install"),
        misleading=(r"memory|firewall",),
    ),
    Two(
        name="u-no-import-fails-on-old-package",
        way="the second node's package lacks a name",
        code="environment",
        also_codes=("exception",),
        rank=2,
        also=(3,),
        command="PYTHONPATH=image_$NODE_RANK python train.py",
        files={
            "image_0/losses/__init__.py": "from .focal import FocalLoss\n",
            "image_0/losses/focal.py": "class FocalLoss:\n    pass\n",
            "image_1/losses/__init__.py": "",
            "train.py": """import time
import torch.distributed as dist

dist.init_process_group("gloo")
from losses import FocalLoss

print("criterion", FocalLoss())
dist.barrier()
time.sleep(60)
""",
        },
        wanted="cannot import name 'FocalLoss' from 'losses'",
        helpful=(r"losses|FocalLoss", r"node|version|install"),
        misleading=(r"memory|firewall",),
    ),
    Two(
        name="u-no-memory-limit-one-rank",
        way="one rank of the second node goes past its memory cgroup",
        code="host_oom",
        rank=3,
        command="bash slot.sh",
        files={
            "slot.sh": """#!/bin/bash
[ "$RANK" != 3 ] && exec python -u train.py
g=/sys/fs/cgroup/memory/u-slot-$$
mkdir $g; echo 700M > $g/memory.limit_in_bytes
( echo $BASHPID > $g/tasks; exec python -u train.py )
rc=$?
sleep 0.2; rmdir $g
exit $rc
""",
            "train.py": """import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
cache = []
t = torch.zeros(1)
for step in range(400):
    n = 5_000_000 if rank == 3 else 1000
    cache.append(torch.ones(n))          # TODO evict
    dist.all_reduce(t)
    if step % 5 == 0:
        print(f"rank {rank} step {step} cache {sum(c.numel() for c in cache) * 4 >> 20} MiB", flush=True)
""",
        },
        wanted=("Killed", "SIGKILL", "cache", "memory"),
        helpful=(r"memory|cache|train\.py",),
        misleading=(r"firewall|port\b|MASTER_ADDR",),
    ),
    Two(
        name="u-no-store-server-leaves",
        way="rank 0 of the first node ends well while others still use its store",
        code="collective",
        rank=0,
        command="python -u eval_after.py",
        files={
            "eval_after.py": """import sys, time
from datetime import timedelta
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank = dist.get_rank()
t = torch.ones(1)
for epoch in range(3):
    dist.all_reduce(t)
    print(f"rank {rank}: epoch {epoch} done", flush=True)
if rank == 0:
    print("rank 0: metrics written, bye", flush=True)
    sys.exit(0)
time.sleep(6)
group = dist.new_group([1, 2, 3])        # evaluation runs on everybody but rank 0
dist.all_reduce(t, group=group)
print(f"rank {rank}: evaluation done")
""",
        },
        wanted=("metrics written, bye",),
        helpful=(r"eval_after\.py", r"rank 0|destroy_process_group|barrier|new_group"),
        misleading=(r"memory|firewall",),
    ),
    Two(
        name="u-no-clock-check",
        way="a clock check of the program refuses one rank's node and says so on rank 0",
        code="exit_code",
        also_codes=("exception",),
        rank=2,
        also=(0, 3),
        command="python preflight.py",
        files={
            "preflight.py": """import os, sys, time
import torch
import torch.distributed as dist

SKEW = {"0": 0.0, "1": 311.0}[os.environ["NODE_RANK"]]   # /etc/chrony was never deployed there
dist.init_process_group("gloo")
clocks = [torch.zeros(1, dtype=torch.float64) for _ in range(dist.get_world_size())]
dist.all_gather(clocks, torch.tensor([time.time() + SKEW], dtype=torch.float64))
if dist.get_rank() == 0:
    ref = clocks[0].item()
    bad = [(r, c.item() - ref) for r, c in enumerate(clocks) if abs(c.item() - ref) > 30]
    if bad:
        raise SystemExit("preflight failed: clock of " + ", ".join(f"rank {r} is {d:+.0f} s off" for r, d in bad))
dist.barrier()
print("preflight ok")
"""
        },
        wanted="preflight failed: clock of rank 2 is +311 s off",
        helpful=(r"clock|chrony|ntp|time", r"preflight\.py"),
        misleading=(r"memory|firewall|port\b",),
    ),
    Two(
        name="u-no-fsdp-state-dict-on-rank0-only",
        way="only rank 0 saves the sharded state: the rest is already at the next step",
        code="timeout",
        also_codes=("collective",),
        rank=0,
        limit_s=45,
        command="python -u fsdp_save.py",
        files={
            "fsdp_save.py": """import torch
import torch.distributed as dist
from torch import nn


class Sharded(nn.Module):
    \"\"\"Each rank keeps its slice of the weight.\"\"\"

    def __init__(self, n):
        super().__init__()
        self.piece = nn.Parameter(torch.ones(n // dist.get_world_size()))

    def full_state_dict(self):
        pieces = [torch.empty_like(self.piece) for _ in range(dist.get_world_size())]
        dist.all_gather(pieces, self.piece.detach())
        return {"weight": torch.cat(pieces)}


dist.init_process_group("gloo")
rank = dist.get_rank()
model = Sharded(64)
for step in range(1, 9):
    loss = model.piece.sum() * step
    total = loss.detach().clone().reshape(1)
    dist.barrier()
    if step == 5 and rank == 0:
        print("saving step 5", flush=True)
        torch.save(model.full_state_dict(), "step5.pt")
        print("saved", flush=True)
    dist.reduce(total, dst=1)
    print(f"rank {rank} step {step}", flush=True)
"""
        },
        wanted=("full_state_dict", "dist.all_gather(pieces", "saving step 5"),
        helpful=(r"fsdp_save\.py", r"full_state_dict|all ranks|every rank|rank 0"),
        misleading=(r"memory|firewall",),
    ),
]
