"""More jobs of torch: checkpoints, loaders, stores and nodes that differ."""

from recorder import Failure

ONE = "torchrun --standalone --nproc-per-node"
TWO = (
    "torchrun --nnodes 2 --node-rank $NODE_RANK --master-addr $MASTER_ADDR --master-port $MASTER_PORT --nproc-per-node"
)

FAILURES = [
    Failure(
        name="s-tr-fsdp-shapes-of-batch",
        code="exception",
        convention="torchrun",
        num_ranks=2,
        command=f"{ONE} 2 fsdp.py",
        files={
            "fsdp.py": r"""import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cpu", (2,))
rank = dist.get_rank()
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
fully_shard(model, mesh=mesh)
print(f"rank {rank} sharded", flush=True)
x = torch.randn(4, 32 if rank == 0 else 31)
model(x).sum().backward()
""",
        },
        wanted="mat1 and mat2 shapes cannot be multiplied (4x31 and 32x64)",
        helpful=(r"fsdp\.py|shape",),
        misleading=(r"network|memory",),
        rank=1,
    ),
    Failure(
        name="s-tr-node-two-older-module",
        code="environment",
        convention="torchrun",
        processes=2,
        nodes=2,
        num_ranks=2,
        command=f"PYTHONPATH=$PYTHONPATH:$PWD/site$NODE_RANK {TWO} 1 uses_lib.py",
        files={
            "site0/augmentlib.py": "__version__ = '2.1'\n\n\ndef mixup(x):\n    return x\n",
            "site1/augmentlib.py": "__version__ = '1.8'\n\n\ndef mix(x):\n    return x\n",
            "uses_lib.py": r"""import augmentlib

print("augmentlib", augmentlib.__version__, flush=True)
from augmentlib import mixup
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
""",
        },
        wanted="ImportError: cannot import name 'mixup' from 'augmentlib'",
        helpful=(r"augmentlib|mixup|version",),
        misleading=(r"network|memory|firewall",),
        rank=1,
        also_codes=("exception",),
    ),
    Failure(
        name="s-tr-worker-of-loader-crashes",
        code="exception",
        convention="torchrun",
        num_ranks=2,
        command=f"{ONE} 2 video.py",
        files={
            "video.py": r"""import ctypes
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        if i == 7 and dist.get_rank() == 0:
            ctypes.string_at(8)
        return torch.zeros(2)


dist.init_process_group("gloo")
for n, batch in enumerate(DataLoader(Clips(), batch_size=2, num_workers=1)):
    dist.all_reduce(batch)
    print(f"[{dist.get_rank()}] batch {n}", flush=True)
""",
        },
        wanted=("Unexpected segmentation fault encountered in worker", "is killed by signal: Segmentation fault"),
        helpful=(r"num_workers|worker|video\.py|native|FAULTHANDLER",),
        misleading=(r"network|firewall",),
        rank=0,
        also_codes=("signal",),
    ),
    Failure(
        name="s-ddp-store-key-never-set",
        code="collective",
        convention="process",
        processes=3,
        command="python -u store.py",
        files={
            "store.py": r"""import os
from datetime import timedelta
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, rank == 0)
name = f"rank{rank}/address" if rank != 2 else f"rank{rank}/addr"
store.set(name, f"10.0.0.{rank}")
print(f"rank {rank} published {name}", flush=True)
for peer in range(world):
    store.wait([f"rank{peer}/address"], timedelta(seconds=15))
    print(f"rank {rank} knows {peer}", flush=True)
""",
        },
        wanted=("rank2/address", "rank 2 published rank2/addr"),
        helpful=(r"store\.py|rank2/addr|rank 2|key",),
        misleading=(r"memory|firewall",),
        rank=2,
        also_codes=("rendezvous", "exception"),
    ),
    Failure(
        name="s-ddp-object-gather-cuda-flag",
        code="exception",
        convention="process",
        processes=2,
        command="python -u device.py --device cuda",
        files={
            "device.py": r"""import argparse
import torch
import torch.distributed as dist

p = argparse.ArgumentParser()
p.add_argument("--device", default="cpu")
a = p.parse_args()
dist.init_process_group("gloo" if a.device == "cpu" else "nccl")
print(dist.get_world_size())
""",
        },
        wanted=("Distributed package doesn't have NCCL built in", "ProcessGroupNCCL", "NCCL"),
        helpful=(r"nccl|gloo|gpu|cuda|device",),
        misleading=(r"network|memory|firewall",),
        rank=0,
        also=(1,),
        also_codes=("environment",),
    ),
    Failure(
        name="s-ddp-gradient-check-hangs-one",
        code="collective",
        convention="process",
        processes=3,
        command="python -u clip.py",
        files={
            "clip.py": r"""import os, time
from datetime import timedelta
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank = dist.get_rank()
dist.barrier()


def wait_for_gpu_lock():
    print(f"rank {rank}: waiting for /var/lock/gpu0", flush=True)
    time.sleep(500)


for step in range(5):
    if rank == 0 and step == 2:
        wait_for_gpu_lock()
    g = torch.ones(8)
    dist.all_reduce(g)
    print(f"rank {rank} step {step}", flush=True)
""",
        },
        wanted=("did not", "hung", "stuck", "waiting for /var/lock/gpu0", "time.sleep(500)"),
        helpful=(r"clip\.py|rank 0|wait_for_gpu_lock|lock",),
        misleading=(r"out of memory|firewall",),
        rank=0,
    ),
    Failure(
        name="s-ddp-dataset-len-zero-on-node",
        code="exception",
        convention="process",
        processes=4,
        nodes=2,
        command="python -u shards.py",
        files={
            "data/node0/a.txt": "1 2 3\n",
            "data/node0/b.txt": "4 5 6\n",
            "data/node1/.keep": "",
            "shards.py": r"""import os, pathlib
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
node = os.environ["NODE_RANK"]
files = sorted(pathlib.Path("data", f"node{node}").glob("*.txt"))
print(f"node {node}: {len(files)} files", flush=True)
rows = torch.tensor([[float(n) for n in f.read_text().split()] for f in files])
loader = DataLoader(TensorDataset(rows), batch_size=1, shuffle=True)
for (batch,) in loader:
    dist.all_reduce(batch)
dist.barrier()
""",
        },
        wanted=("num_samples should be a positive integer value, but got num_samples=0", "node 1: 0 files"),
        helpful=(r"data/node1|shards\.py|empty",),
        misleading=(r"network|out of memory",),
        rank=2,
        also=(3,),
        also_codes=("data_unavailable",),
    ),
]
