"""Torch gangs in which one rank or one node does something else than the others."""

from recorder import Failure

TWO = (
    "torchrun --nnodes 2 --node-rank $NODE_RANK --master-addr $MASTER_ADDR --master-port $MASTER_PORT --nproc-per-node"
)

FAILURES = [
    Failure(
        name="s-ddp-other-collective-on-one",
        code="collective",
        convention="process",
        processes=3,
        command="python -u metrics.py",
        variables={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
        files={
            "metrics.py": r"""import os
from datetime import timedelta
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank = dist.get_rank()
loss = torch.tensor([0.5 + rank])
dist.all_reduce(loss)
if os.environ.get("EVAL_RANK", "1") == str(rank):
    scores = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(scores, loss)
else:
    dist.all_reduce(loss)
print(f"rank {rank}: {loss.item()}", flush=True)
dist.barrier()
""",
        },
        wanted=("Detected mismatch between collectives on ranks", "ALLGATHER"),
        helpful=(r"metrics\.py|collective|all_gather|rank 1|same order",),
        misleading=(r"firewall|out of memory",),
        rank=1,
        also_codes=("exception",),
    ),
    Failure(
        name="s-tr-node-check-refuses",
        code="exit_code",
        convention="torchrun",
        processes=2,
        nodes=2,
        num_ranks=4,
        command=f"./node_check.sh && {TWO} 2 train.py",
        files={
            "node_check.sh": (
                '#!/bin/bash\necho "node check on node $NODE_RANK"\n'
                'if [ "$NODE_RANK" = 1 ]; then\n  echo "node check FAILED: driver 470.82 is older than 525.60" >&2\n'
                '  exit 3\nfi\necho "node check passed"\n'
            ),
            "train.py": "import torch.distributed as dist\ndist.init_process_group('gloo')\nprint('ok')\n",
        },
        wanted="node check FAILED: driver 470.82 is older than 525.60",
        helpful=(r"driver|node_check|525",),
        misleading=(r"firewall|out of memory|pip install",),
        rank=2,
        also=(3,),
        also_codes=("environment",),
    ),
    Failure(
        name="s-ddp-interface-of-node-one",
        code="bad_input",
        convention="process",
        processes=4,
        nodes=2,
        command="source ./net.$NODE_RANK && exec python -u net.py",
        files={
            "net.0": "export GLOO_SOCKET_IFNAME=lo\n",
            "net.1": "export GLOO_SOCKET_IFNAME=ib0\n",
            "net.py": r"""import os
import torch.distributed as dist

print("interface", os.environ["GLOO_SOCKET_IFNAME"], flush=True)
dist.init_process_group("gloo")
dist.barrier()
print("ok", flush=True)
""",
        },
        wanted=("ib0", "Unable to find address for: ib0"),
        helpful=(r"GLOO_SOCKET_IFNAME|ib0|interface",),
        misleading=(r"out of memory|pip install",),
        rank=2,
        also=(3,),
        also_codes=("exception", "rendezvous"),
    ),
    Failure(
        name="s-ddp-killed-for-memory",
        code="host_oom",
        convention="process",
        processes=3,
        command="bash slice.sh",
        files={
            "slice.sh": (
                'if [ "$RANK" = 1 ]; then\n  g=/sys/fs/cgroup/memory/s-ddp-slice; mkdir -p $g\n'
                "  echo 600M > $g/memory.limit_in_bytes; echo $$ > $g/cgroup.procs\nfi\nexec python -u replay.py\n"
            ),
            "replay.py": r"""import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
buffer = []
for step in range(200):
    if rank == 1:
        buffer.append(torch.rand(2_500_000))
    t = torch.ones(1)
    dist.all_reduce(t)
    if step % 10 == 0:
        print(f"rank {rank} step {step} replay {len(buffer)}", flush=True)
""",
        },
        wanted=("out of memory", "killed", "SIGKILL", "OOM", "ran out of memory"),
        helpful=(r"memory",),
        misleading=(r"firewall|pip install",),
        rank=1,
    ),
    Failure(
        name="s-ddp-dcp-part-lost",
        code="exception",
        convention="process",
        processes=2,
        command="python -u sharded.py",
        files={
            "sharded.py": r"""import os
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

dist.init_process_group("gloo")
rank = dist.get_rank()
state = {f"expert{rank}": torch.full((4,), float(rank))}
dcp.save(state, checkpoint_id="ckpt/step100")
dist.barrier()
if rank == 1:
    os.remove("ckpt/step100/__1_0.distcp")  # the disk of this node was replaced
dist.barrier()
dcp.load(state, checkpoint_id="ckpt/step100")
print("restored", flush=True)
""",
        },
        wanted=("No such file or directory", "__1_0.distcp"),
        helpful=(r"__1_0\.distcp|ckpt|checkpoint|sharded\.py",),
        misleading=(r"firewall|out of memory",),
        rank=1,
        also_codes=("data_unavailable",),
    ),
    Failure(
        name="s-tr-evaluation-outlasts-barrier",
        code="collective",
        convention="torchrun",
        num_ranks=3,
        command="torchrun --standalone --nproc-per-node 3 evalzero.py",
        files={
            "evalzero.py": r"""import time
from datetime import timedelta
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank = dist.get_rank()
dist.barrier()


def evaluate():
    for sample in range(100000):
        if sample % 20 == 0:
            print(f"evaluated {sample} of 100000", flush=True)
        time.sleep(0.2)


if rank == 0:
    evaluate()
dist.all_reduce(torch.ones(1))
""",
        },
        wanted=("did not", "hung", "stuck", "evaluate()", "evaluated"),
        helpful=(r"evalzero\.py|evaluat|timeout|rank 0",),
        misleading=(r"firewall|out of memory",),
        rank=0,
    ),
]
