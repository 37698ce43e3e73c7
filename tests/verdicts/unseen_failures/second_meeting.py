"""Gangs that do not find each other. The labels were given before any verdict was seen."""

from functools import partial

from recorder import Failure

gang = partial(Failure, convention="process")
LATE = ("did not", "was late", "not joined", "never joined", "is missing", "has not")

FAILURES = [
    gang(
        name="n-builds-vocabulary-before-init",
        code="rendezvous",
        processes=4,
        nodes=2,
        rank=3,
        command="python lm.py",
        files={
            "vocab.py": """\
import collections
import time


def build(rank):
    counts = collections.Counter()
    deadline = time.monotonic() + (60 if rank == 3 else 0.1)
    while time.monotonic() < deadline:
        counts.update("the quick brown fox jumps over the lazy dog".split())
    return [word for word, _ in counts.most_common(100)]
""",
            "lm.py": """\
import logging
import os
from datetime import timedelta

import torch
import torch.distributed as dist

import vocab

logging.basicConfig(level=logging.INFO, format="%(levelname)s:%(message)s")
rank = int(os.environ["RANK"])
logging.info("rank %d builds its vocabulary", rank)
words = vocab.build(rank)
logging.info("rank %d has %d words", rank, len(words))
dist.init_process_group("gloo", timeout=timedelta(seconds=10))
table = torch.nn.Embedding(len(words), 8)
dist.broadcast(table.weight.data, src=0)
logging.info("rank %d starts", rank)
""",
        },
        wanted=LATE,
        helpful=(r"vocab\.py|lm\.py", r"rank 3", r"before .*init_process_group|timeout="),
        misleading=(r"\bmemory\b|pip install",),
    ),
    gang(
        name="n-world-size-from-config",
        code="rendezvous",
        processes=4,
        nodes=2,
        rank=None,
        command="python main.py --config cluster.yaml",
        files={
            "cluster.yaml": "cluster:\n  nodes: 3\n  processes_per_node: 2\ntrain:\n  lr: 0.1\n  steps: 10\n",
            "main.py": """\
import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
import yaml

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
config = yaml.safe_load(open(parser.parse_args().config))
world = config["cluster"]["nodes"] * config["cluster"]["processes_per_node"]
rank = int(os.environ["RANK"])
print(f"process {rank} of {world} connects", flush=True)
dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=8))
model = torch.nn.Linear(2, 2)
for step in range(config["train"]["steps"]):
    dist.all_reduce(model.weight.data)
""",
        },
        wanted=("world size", "world_size", "clients joined", "WORLD_SIZE", "6 ranks"),
        helpful=(r"WORLD_SIZE|world.?size", r"cluster\.yaml|main\.py", r"\b6\b.*\b4\b|\b4\b.*\b6\b"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    gang(
        name="n-one-rank-has-an-old-port",
        code="rendezvous",
        processes=3,
        nodes=3,
        rank=1,
        command="source ./env.sh && python train.py",
        files={
            "env.sh": """\
# settings of the cluster, generated
export NCCL_DEBUG=WARN
export TRAIN_BATCH=32
if [ "$NODE_RANK" = 1 ]; then
  export MASTER_PORT=$((MASTER_PORT - 1))
fi
""",
            "train.py": """\
import os
from datetime import timedelta

import torch
import torch.distributed as dist

print("joining", os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"], flush=True)
dist.init_process_group("gloo", timeout=timedelta(seconds=9))
batch = int(os.environ["TRAIN_BATCH"])
data = torch.randn(batch, 10)
mean = data.mean()
dist.all_reduce(mean)
print("mean", mean.item() / dist.get_world_size())
""",
        },
        wanted=(
            "did not",
            "MASTER_PORT",
            "client socket",
            "Connection refused",
            "timed out",
            "1/3 clients",
            "2/3 clients",
        ),
        helpful=(r"MASTER_PORT", r"env\.sh", r"rank 1"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    gang(
        name="n-second-node-cannot-resolve",
        code="rendezvous",
        processes=4,
        nodes=2,
        rank=2,
        also=(3,),
        command="python start.py",
        files={
            "hosts.ini": "[master]\nnode0 = 127.0.0.1\nnode1 = trainer-head.lab.invalid\n",
            "start.py": """\
import configparser
import os
import sys
from datetime import timedelta

import torch.distributed as dist

hosts = configparser.ConfigParser()
hosts.read("hosts.ini")
node = os.environ["NODE_RANK"]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = f"tcp://{hosts['master'][f'node{node}']}:{os.environ['MASTER_PORT']}"
print(f"rank {rank} on node {node}: {address}", flush=True)
dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world, timeout=timedelta(seconds=10))
dist.barrier()
print("all here")
""",
        },
        wanted=("trainer-head.lab.invalid", "Name or service not known", "did not"),
        helpful=(r"hosts\.ini|start\.py", r"trainer-head", r"MASTER_ADDR|address|host name", r"rank 2|rank 3|node.1"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    gang(
        name="n-empty-shard-does-not-join",
        code="rendezvous",
        also_codes=("collective",),
        processes=5,
        rank=2,
        command="python -u run.py",
        files={
            "shards.txt": "a.bin b.bin\nc.bin\n\nd.bin e.bin\nf.bin\n",
            "run.py": """\
import os
import sys
from datetime import timedelta

import torch.distributed as dist

rank = int(os.environ["RANK"])
with open("shards.txt") as listing:
    mine = listing.read().splitlines()[rank].split()
if not mine:
    print("no shards for this rank, nothing to do")
    sys.exit(0)
print(f"rank {rank} has {mine}")
dist.init_process_group("gloo", timeout=timedelta(seconds=10))
for name in mine:
    dist.barrier()
    print("processed", name)
""",
        },
        wanted=("nothing to do", *LATE, "exited"),
        helpful=(r"shards\.txt|run\.py", r"rank 2", r"init_process_group"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    gang(
        name="n-dashboard-takes-master-port",
        code="port_trouble",
        processes=2,
        rank=0,
        command="python train.py",
        files={
            "dashboard.py": """\
import http.server
import os
import threading


def serve():
    port = int(os.environ.get("MASTER_PORT", "6006"))
    server = http.server.ThreadingHTTPServer(("", port), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("dashboard on port", port, flush=True)
""",
            "train.py": """\
import os
from datetime import timedelta

import torch
import torch.distributed as dist

import dashboard


def main():
    if os.environ["RANK"] == "0":
        dashboard.serve()
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    t = torch.ones(3)
    dist.all_reduce(t)
    print(t)


main()
""",
        },
        wanted=("address already in use", "EADDRINUSE"),
        helpful=(r"dashboard", r"MASTER_PORT", r"\bport\b"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    gang(
        name="n-local-rank-as-rank",
        code="rendezvous",
        also_codes=("port_trouble",),
        processes=4,
        nodes=2,
        rank=0,
        also=(1, 2, 3),
        command="python train.py",
        files={
            "train.py": """\
import os
from datetime import timedelta

import torch
import torch.distributed as dist


def setup():
    rank = int(os.environ["LOCAL_RANK"])
    world = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=9))
    return rank, world


rank, world = setup()
print(f"rank {rank}/{world}")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(5, 5))
for step in range(3):
    model(torch.randn(2, 5)).sum().backward()
    print("step", step)
""",
        },
        wanted=("address already in use", "EADDRINUSE", "clients joined", "LOCAL_RANK", "did not"),
        helpful=(r"LOCAL_RANK|\bRANK\b", r"train\.py"),
        misleading=(r"\bmemory\b|pip install|Submit again",),
    ),
    gang(
        name="n-interface-name-of-another-cluster",
        code="bad_input",
        also_codes=("exception",),
        processes=3,
        nodes=3,
        rank=0,
        also=(1, 2),
        command="python worker.py",
        variables={"GLOO_SOCKET_IFNAME": "ib-bond0"},
        files={
            "worker.py": """\
import os
from datetime import timedelta

import torch
import torch.distributed as dist

print("interface:", os.environ.get("GLOO_SOCKET_IFNAME", "any"), flush=True)
dist.init_process_group("gloo", timeout=timedelta(seconds=12))
parts = [torch.zeros(2) for _ in range(dist.get_world_size())]
dist.all_gather(parts, torch.ones(2) * dist.get_rank())
print(torch.stack(parts).sum())
""",
        },
        wanted=("ib-bond0",),
        helpful=(r"GLOO_SOCKET_IFNAME", r"ib-bond0", r"interface"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    gang(
        name="n-fixed-sidecar-port-twice",
        code="port_trouble",
        processes=2,
        rank=1,
        command="python serve_metrics.py",
        files={
            "serve_metrics.py": """\
import os
import socketserver
import threading
import time
from pathlib import Path

METRICS_PORT = 41907
rank = int(os.environ["RANK"])


class Metrics(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"loss 0.1")


while rank == 1 and not Path("rank0.up").exists():
    time.sleep(0.1)
with socketserver.TCPServer(("127.0.0.1", METRICS_PORT), Metrics) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Path(f"rank{rank}.up").touch()
    for step in range(40):
        print(f"rank {rank} step {step}", flush=True)
        time.sleep(0.2)
    server.shutdown()
""",
        },
        wanted="Address already in use",
        helpful=(r"METRICS_PORT|41907", r"serve_metrics\.py", r"\bport\b"),
        misleading=(r"\bmemory\b|pip install|MASTER_PORT is taken",),
    ),
    gang(
        name="n-stale-rendezvous-file",
        code="rendezvous",
        processes=3,
        rank=2,
        command="python train.py",
        files={
            "train.py": """\
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
shared = Path.cwd() / "shared"
shared.mkdir(exist_ok=True)
run = os.environ.get("RUN_ID", "exp7")
if rank == 2:
    run = run + "-" + str(os.getpid())
print(f"rank {rank} meets at shared/{run}" if rank != 2 else "rank 2 meets elsewhere", flush=True)
dist.init_process_group(
    "gloo", init_method=f"file://{shared}/{run}", rank=rank, world_size=world, timeout=timedelta(seconds=7)
)
flag = torch.ones(1)
dist.all_reduce(flag)
print("together:", int(flag))
""",
        },
        wanted=(*LATE, "elsewhere", "rank 2", "wait timeout", "Timed out"),
        helpful=(r"RUN_ID|init_method|file://", r"train\.py", r"rank 2"),
        misleading=(r"\bmemory\b|pip install",),
    ),
]
