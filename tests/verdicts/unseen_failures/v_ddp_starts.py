"""Ranks that Muster starts, with torch and gloo: wrong settings, missing parts, memory and disks."""

from functools import partial

from recorder import Failure

Gang = partial(Failure, convention="process", processes=4)

FAILURES = [
    Gang(
        name="v-ddp-port-hard-coded-taken",
        way="the script uses port 29613, and a forgotten tensorboard sits on it",
        code="port_trouble",
        rank=0,
        command="python train.py",
        files={
            "train.py": """import os, socket, time
import torch.distributed as dist

os.environ["MASTER_ADDR"] = "127.0.0.1"
os.environ["MASTER_PORT"] = "29613"
if os.environ["RANK"] == "0":
    other = socket.create_server(("0.0.0.0", 29613))  # stands for somebody else's program
else:
    time.sleep(1)
print("setting up process group", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
from datetime import timedelta
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
print("process group is up")
"""
        },
        wanted=("EADDRINUSE", "address already in use", "Address already in use"),
        helpful=(r"29613|MASTER_PORT|port",),
        misleading=(r"memory|checkpoint|dataset",),
    ),
    Gang(
        name="v-ddp-master-unknown-host",
        way="a config names the head node of last week's cluster",
        code="rendezvous",
        rank=0,
        also=(1, 2, 3),
        command="source cluster.env && python train.py",
        files={
            "cluster.env": "export MASTER_ADDR=gpu-head-07.cluster.internal\nexport MASTER_PORT=29400\n",
            "train.py": """from datetime import timedelta
import torch.distributed as dist

def setup():
    dist.init_process_group(backend="gloo", init_method="env://", timeout=timedelta(seconds=6))

if __name__ == "__main__":
    setup()
    print("ready")
""",
        },
        wanted=("gpu-head-07.cluster.internal", "could not be resolved", "failed to resolve"),
        helpful=(r"MASTER_ADDR|cluster\.env|gpu-head-07|host ?name",),
        misleading=(r"memory|checkpoint|batch",),
    ),
    Gang(
        name="v-ddp-world-size-by-hand",
        way="the world size comes from a constant in the script and is one too many",
        code="rendezvous",
        rank=None,
        command="python -u pretrain.py",
        files={
            "pretrain.py": """import os
from datetime import timedelta
import torch
import torch.distributed as dist

GPUS_PER_NODE = 5
NUM_NODES = 1

rank = int(os.environ["RANK"])
print(f"[init] rank {rank} / {GPUS_PER_NODE * NUM_NODES} -> {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}")
dist.init_process_group("gloo", rank=rank, world_size=GPUS_PER_NODE * NUM_NODES, timeout=timedelta(seconds=6))
print(f"[init] rank {rank} done")
"""
        },
        wanted=("4/5 clients joined", "clients joined", "world size 5", "worker_count=4", "Timed out"),
        helpful=(r"world.?size|GPUS_PER_NODE|number of (ranks|processes)",),
        misleading=(r"memory|firewall",),
    ),
    Gang(
        name="v-ddp-everyone-is-rank-zero",
        way="the script reads SLURM_PROCID, which nobody sets here",
        code="rendezvous",
        also_codes=("port_trouble",),
        rank=None,
        also=(0, 1, 2),
        processes=3,
        command="python train.py",
        files={
            "train.py": """import os, logging
from datetime import timedelta
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="[%(levelname)s] %(message)s")
proc = int(os.environ.get("SLURM_PROCID", 0))
ntasks = int(os.environ.get("SLURM_NTASKS", os.environ["WORLD_SIZE"]))
logging.info("slurm task %d of %d", proc, ntasks)
dist.init_process_group("gloo", rank=proc, world_size=ntasks, timeout=timedelta(seconds=8))
logging.info("joined")
"""
        },
        wanted=("address already in use", "EADDRINUSE", "clients joined", "slurm task 0 of 3"),
        helpful=(r"SLURM_PROCID|\bRANK\b|same rank|rank 0",),
        misleading=(r"memory|batch",),
    ),
    Gang(
        name="v-ddp-rank-oom-killed",
        way="the kernel kills one rank whose cgroup has 220 MB",
        code="host_oom",
        rank=1,
        processes=3,
        command="./limit.sh python train.py",
        files={
            "limit.sh": """#!/bin/bash
# rank 1 sits on a small machine
if [ "$RANK" = 1 ]; then
  g=/sys/fs/cgroup/memory/v_rank_oom_$$
  mkdir -p $g && echo 420M > $g/memory.limit_in_bytes && echo $$ > $g/cgroup.procs
fi
exec "$@"
""",
            "train.py": """import os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
cache = []
for step in range(60):
    cache.append(torch.ones(1024 * 1024 * 2) * step)      # keeps the activations "for later plots"
    t = torch.tensor([float(step)])
    dist.all_reduce(t)
    if step % 5 == 0:
        print(f"rank={rank} step={step} cached={len(cache) * 8} MB", flush=True)
    if rank != 1 and len(cache) > 4:
        cache.clear()
""",
        },
        wanted=("SIGKILL", "killed", "out of memory", "Killed"),
        helpful=(r"memory|batch|cache",),
        misleading=(r"firewall|MASTER_PORT|interface",),
    ),
    Gang(
        name="v-ddp-checkpoint-disk-full",
        way="rank 0 writes checkpoints to a scratch disk that runs full",
        code="disk_full",
        rank=0,
        processes=2,
        command="unshare -m ./with_scratch.sh",
        files={
            "with_scratch.sh": """#!/bin/bash
set -eu
mkdir -p scratch-$RANK
mount -t tmpfs -o size=6m scratch scratch-$RANK
exec python train.py --out scratch-$RANK
""",
            "train.py": """import argparse, os, shutil
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--out")
args = parser.parse_args()
dist.init_process_group("gloo")
model = torch.nn.Linear(512, 800)
for step in range(0, 5000, 1000):
    dist.barrier()
    if dist.get_rank() == 0:
        path = os.path.join(args.out, f"step{step:06d}.pth")
        print("Saving checkpoint to", path, flush=True)
        torch.save(model.state_dict(), path)
print("done")
""",
        },
        wanted=("No space left on device", "PytorchStreamWriter failed", "enforce fail", "file write failed"),
        helpful=(r"disk|space|scratch|checkpoint",),
        misleading=(r"firewall|MASTER_PORT|interface",),
    ),
    Gang(
        name="v-ddp-cuda-calls-on-cpu-build",
        way="the model is moved to a GPU, but torch was built without CUDA",
        code="environment",
        also_codes=("exception",),
        rank=0,
        also=(1,),
        processes=2,
        command="python train.py",
        files={
            "train.py": """import os
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
local_rank = int(os.environ["LOCAL_RANK"])
model = nn.Linear(4, 4)
model = model.to(f"cuda:{local_rank}")
ddp = nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])
"""
        },
        wanted="Torch not compiled with CUDA enabled",
        helpful=(r"cuda|gpu|cpu",),
        misleading=(r"firewall|memory|MASTER_PORT",),
    ),
    Gang(
        name="v-ddp-nccl-on-cpu-build",
        way="the backend is nccl, torch has none",
        code="exception",
        also_codes=("environment",),
        rank=0,
        also=(1,),
        processes=2,
        command="python main.py --dist-backend nccl",
        files={
            "main.py": """import argparse
import torch.distributed as dist

p = argparse.ArgumentParser(description="PyTorch ImageNet Training")
p.add_argument("--dist-backend", default="nccl", type=str, help="distributed backend")
p.add_argument("--dist-url", default="env://", type=str)
args = p.parse_args()
print("Use backend:", args.dist_backend)
dist.init_process_group(backend=args.dist_backend, init_method=args.dist_url)
"""
        },
        wanted=("NCCL", "nccl"),
        helpful=(r"gloo|--dist-backend|gpu|cuda",),
        misleading=(r"firewall|memory|MASTER_PORT",),
    ),
    Gang(
        name="v-fsdp-layer-frozen-mix",
        way="a layer with frozen and trainable weights below FSDP",
        code="exception",
        rank=0,
        also=(1,),
        processes=2,
        command="python train_fsdp.py",
        files={
            "train_fsdp.py": """import torch
import torch.nn as nn
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def build():
    layers = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    layers[0].weight.requires_grad_(False)
    return layers

def main():
    dist.init_process_group("gloo")
    model = FSDP(build(), device_id=torch.device("cpu"))
    out = model(torch.randn(2, 8))
    out.sum().backward()
    print("ok")

main()
"""
        },
        wanted=("Must flatten tensors with uniform `requires_grad`", "uniform `requires_grad`"),
        helpful=(r"use_orig_params|requires_grad|train_fsdp\.py",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Gang(
        name="v-fsdp2-mesh-wrong-size",
        way="the device mesh is for 8 processes, 4 were started",
        code="exception",
        also_codes=("bad_input",),
        rank=0,
        also=(1, 2, 3),
        command="python parallel.py --tp 4 --dp 2",
        files={
            "parallel.py": """import argparse
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

a = argparse.ArgumentParser()
a.add_argument("--tp", type=int)
a.add_argument("--dp", type=int)
o = a.parse_args()
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (o.dp, o.tp), mesh_dim_names=("dp", "tp"))
print(mesh)
"""
        },
        wanted=("Mesh should not be bigger than default world size", "world size 4", "8 ranks"),
        helpful=(r"--tp|--dp|world size|processes|parallel\.py",),
        misleading=(r"firewall|memory|port\b",),
    ),
]
