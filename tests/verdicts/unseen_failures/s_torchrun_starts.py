"""Jobs behind torchrun: options, ports, nodes that disagree, noise."""

from recorder import Failure

ONE = "torchrun --standalone --nproc-per-node"
TWO = (
    "torchrun --nnodes 2 --node-rank $NODE_RANK --master-addr $MASTER_ADDR --master-port $MASTER_PORT --nproc-per-node"
)

FAILURES = [
    Failure(
        name="s-tr-hangs-reading-socket-until-limit",
        code="timeout",
        convention="torchrun",
        num_ranks=3,
        command=f"{ONE} 3 feed.py",
        limit_s=100,
        files={
            "feed.py": r"""import socket, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
feature_server = socket.create_server(("127.0.0.1", 0))


def fetch_features(step):
    c = socket.create_connection(feature_server.getsockname())
    c.sendall(f"GET {step}\n".encode())
    return c.recv(100)


for step in range(200):
    if rank == 1 and step == 30:
        fetch_features(step)
    t = torch.ones(4)
    dist.all_reduce(t)
    if step % 10 == 0:
        print(f"rank {rank} step {step}", flush=True)
print("done")
""",
        },
        wanted=("did not", "hung", "stuck", "fetch_features", "c.recv"),
        helpful=(r"feed\.py", r"fetch_features|recv|rank 1|timeout on the socket"),
        misleading=(r"memory|gpu",),
        rank=1,
    ),
    Failure(
        name="s-tr-hydra-unknown-key",
        code="bad_input",
        convention="torchrun",
        num_ranks=2,
        command=f"{ONE} 2 app.py optimizer.lr=0.1 optimizer.nesterow=true",
        files={
            "app.py": r"""import hydra
from omegaconf import DictConfig


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    print(cfg.optimizer.lr)


if __name__ == "__main__":
    main()
""",
            "conf/config.yaml": "optimizer:\n  name: sgd\n  lr: 0.01\n  nesterov: false\n",
        },
        wanted="Key 'nesterow' is not in struct",
        helpful=(r"nesterow|nesterov|override",),
        misleading=(r"network|memory",),
        rank=0,
        also=(1,),
    ),
    Failure(
        name="s-tr-endpoint-port-taken",
        code="port_trouble",
        convention="torchrun",
        num_ranks=2,
        command="./both.sh",
        files={
            "both.sh": (
                "#!/bin/bash\npython -u dashboard.py &\npage=$!\nsleep 3\n"
                "torchrun --nnodes 1 --nproc-per-node 2 --master-port 29871 t.py\ncode=$?\nkill $page\nexit $code\n"
            ),
            "dashboard.py": r"""import http.server

server = http.server.HTTPServer(("", 29871), http.server.SimpleHTTPRequestHandler)
print("dashboard on 29871", flush=True)
server.serve_forever()
""",
            "t.py": "import torch.distributed as dist\ndist.init_process_group('gloo')\nprint('ok')\n",
        },
        wanted=("EADDRINUSE", "address already in use"),
        helpful=(r"\bport\b|29871",),
        misleading=(r"memory|firewall",),
        rank=None,
    ),
    Failure(
        name="s-tr-node-configs-disagree",
        code="exception",
        convention="torchrun",
        processes=2,
        nodes=2,
        num_ranks=4,
        command=f"CONFIG=conf/node$NODE_RANK.yaml {TWO} 2 model.py",
        files={
            "conf/node0.yaml": "width: 128\ndepth: 2\n",
            "conf/node1.yaml": "width: 192\ndepth: 2\n",
            "model.py": r"""import os
import torch
import torch.distributed as dist
import yaml

cfg = yaml.safe_load(open(os.environ["CONFIG"]))
dist.init_process_group("gloo")
print("rank", dist.get_rank(), os.environ["CONFIG"], cfg, flush=True)
net = torch.nn.Sequential(*[torch.nn.Linear(cfg["width"], cfg["width"]) for _ in range(cfg["depth"])])
net = torch.nn.parallel.DistributedDataParallel(net)
net(torch.ones(1, cfg["width"])).sum().backward()
dist.barrier()
""",
        },
        wanted=("appears not to match sizes of the same param in process", "width: 192", "'width': 192"),
        helpful=(r"width|node1\.yaml|conf|model|shape|size",),
        misleading=(r"firewall|memory",),
        rank=2,
        also=(3,),
        also_codes=("collective",),
    ),
    Failure(
        name="s-tr-three-nodes-promised",
        code="rendezvous",
        convention="torchrun",
        processes=2,
        nodes=2,
        num_ranks=4,
        command=(
            "torchrun --nnodes 3 --nproc-per-node 2 --rdzv-backend c10d --rdzv-id exp7 --rdzv-conf join_timeout=12"
            " --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT job.py"
        ),
        files={"job.py": "import torch.distributed as dist\ndist.init_process_group('gloo')\nprint('ok')\n"},
        wanted=("RendezvousTimeoutError", "join_timeout", "did not"),
        helpful=(r"nnodes|third|3 nodes|number of nodes|2 of 3",),
        misleading=(r"memory|pip install",),
        rank=None,
    ),
    Failure(
        name="s-tr-metric-file-is-a-folder",
        code="exception",
        convention="torchrun",
        num_ranks=4,
        command=f"{ONE} 4 --tee 3 finetune.py 2>&1",
        files={
            "results/metrics.json/.keep": "",
            "finetune.py": r"""import json, time
import torch
import torch.distributed as dist
from tqdm import tqdm

dist.init_process_group("gloo")
rank = dist.get_rank()
loss = torch.tensor(4.0)
for _ in tqdm(range(40), desc="train", disable=rank != 0, mininterval=0.1):
    loss *= 0.97
    time.sleep(0.01)
dist.all_reduce(loss)
if rank == 0:
    with open("results/metrics.json", "w") as f:
        json.dump({"loss": loss.item()}, f)
dist.barrier()
dist.destroy_process_group()
""",
        },
        wanted="IsADirectoryError: [Errno 21] Is a directory: 'results/metrics.json'",
        helpful=(r"metrics\.json", r"finetune\.py"),
        misleading=(r"network|memory|disk is full",),
        rank=0,
    ),
    Failure(
        name="s-tr-loguru-and-goodbye-noise",
        code="exception",
        convention="torchrun",
        num_ranks=3,
        command=f"{ONE} 3 serve_train.py",
        files={
            "serve_train.py": r"""import atexit, os, sys
import torch
import torch.distributed as dist
from loguru import logger

rank = int(os.environ["RANK"])


@atexit.register
def goodbye():
    for i in range(12):
        logger.error("uploader: could not flush event {} (queue closed)", i)
    logger.warning("uploader: 12 events lost, run will show as crashed")


@logger.catch(reraise=True)
def main():
    dist.init_process_group("gloo")
    dist.barrier()
    a = torch.randn(4, 6)
    b = torch.randn(6 if rank != 2 else 5, 3)
    logger.info("rank {} product {}", rank, (a @ b).shape)
    dist.barrier()


main()
""",
        },
        wanted="RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x6 and 5x3)",
        helpful=(r"serve_train\.py", r"shape|mat"),
        misleading=(r"network|uploader|memory",),
        rank=2,
    ),
    Failure(
        name="s-tr-cuda-device-on-cpu-build",
        code="environment",
        convention="torchrun",
        num_ranks=2,
        command=f"{ONE} 2 gpu_train.py",
        files={
            "gpu_train.py": r"""import os
import torch
import torch.distributed as dist

local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl")
model = torch.nn.Linear(4, 4).cuda(local)
print(model)
""",
        },
        wanted=("Torch not compiled with CUDA enabled", "_cuda_setDevice"),
        helpful=(r"cuda|gpu|cpu",),
        misleading=(r"network|out of memory|smaller batch",),
        rank=0,
        also=(1,),
        also_codes=("exception",),
    ),
    Failure(
        name="s-tr-finally-hides-the-first",
        code="exception",
        convention="torchrun",
        num_ranks=2,
        command=f"{ONE} 2 cleanup.py",
        files={
            "cleanup.py": r"""import os
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
writer = None
try:
    table = open("labels.csv").read().splitlines() if rank == 0 else []
    header = dict(zip(table[0].split(","), range(9))) if rank == 0 else {}
    if rank == 0:
        column = header["category_id"]
    writer = open(f"log{rank}.txt", "w")
    dist.barrier()
finally:
    writer.close()
    dist.destroy_process_group()
""",
            "labels.csv": "image,category,width\n1.jpg,3,640\n",
        },
        wanted="KeyError: 'category_id'",
        helpful=(r"category_id|labels\.csv|cleanup\.py",),
        misleading=(r"network|memory",),
        rank=0,
    ),
    Failure(
        name="s-tr-nproc-gpu-without-gpu",
        code="bad_input",
        convention="torchrun",
        num_ranks=1,
        command="torchrun --standalone --nproc-per-node gpu train.py",
        files={"train.py": "print('never')\n"},
        wanted="Cuda is not available",
        helpful=(r"nproc|gpu|cpu",),
        misleading=(r"network|memory",),
        rank=0,
        also_codes=("exception",),
    ),
    Failure(
        name="s-tr-forgot-local-rank-argument",
        code="exception",
        convention="torchrun",
        num_ranks=2,
        command=f"{ONE} 2 old_style.py",
        files={
            "old_style.py": r"""import argparse
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=None)
args = parser.parse_args()
dist.init_process_group("gloo")
slots = ["cpu:0", "cpu:1"]
print("using", slots[args.local_rank])
""",
        },
        wanted="TypeError: list indices must be integers or slices, not NoneType",
        helpful=(r"old_style\.py", r"LOCAL_RANK|local_rank"),
        misleading=(r"network|memory",),
        rank=0,
        also=(1,),
    ),
]
