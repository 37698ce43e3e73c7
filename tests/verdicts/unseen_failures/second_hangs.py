"""Gangs in which one rank hangs or leaves. The labels were given before any verdict was seen."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "blocked", "waiting", "not respond", "no answer")

FAILURES = [
    Failure(
        name="n-metrics-lock-taken-twice",
        way="deadlock on a lock of its own",
        code="collective",
        convention="process",
        processes=4,
        nodes=2,
        rank=2,
        command="python train.py --epochs 3",
        files={
            "metrics.py": """\
import threading


class Meter:
    def __init__(self):
        self.lock = threading.Lock()
        self.values = []

    def add(self, value):
        with self.lock:
            self.values.append(value)
            if value > 3.0:
                self.flush()

    def flush(self):
        with self.lock:
            self.values.clear()
""",
            "train.py": """\
import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist

from metrics import Meter


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    dist.init_process_group("gloo", timeout=timedelta(seconds=9))
    rank = dist.get_rank()
    torch.manual_seed(rank)
    meter = Meter()
    weights = torch.zeros(16)
    for epoch in range(options.epochs):
        loss = torch.rand(()).item() + (3.0 if rank == 2 and epoch == 1 else 0.0)
        meter.add(loss)
        gradient = torch.randn(16)
        dist.all_reduce(gradient)
        weights -= 0.01 * gradient
        print(f"[rank {rank}] epoch {epoch} loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
""",
        },
        wanted=(*HUNG, "self.lock", "metrics.py"),
        helpful=(r"metrics\.py", r"\block", r"\bflush\b", r"rank 2"),
        misleading=(r"firewall|interface|memory|install|retry",),
    ),
    Failure(
        name="n-fifo-without-writer",
        way="opens a named pipe that nobody writes",
        code="collective",
        convention="process",
        processes=3,
        nodes=3,
        rank=2,
        command="python -u finetune.py",
        files={
            "tokens.py": """\
import os


def stream(rank):
    path = f"tokens.{rank}.fifo"
    if rank == 2:
        os.mkfifo(path)
    else:
        with open(path, "w") as out:
            out.write("1 2 3 4 5 6 7 8" * 20)
    with open(path) as source:
        for line in source:
            yield [int(part) for part in line.split() if part.isdigit()]
""",
            "finetune.py": """\
import logging
from datetime import timedelta

import torch
import torch.distributed as dist

from tokens import stream

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("finetune")

dist.init_process_group("gloo", timeout=timedelta(seconds=8))
rank, world = dist.get_rank(), dist.get_world_size()
log.info("rank %d of %d is up", rank, world)
seen = 0
for tokens in stream(rank):
    seen += len(tokens)
log.info("rank %d read %d tokens", rank, seen)
dist.barrier()
total = torch.tensor([seen])
dist.all_reduce(total)
log.info("the corpus has %d tokens", total.item())
dist.destroy_process_group()
""",
        },
        wanted=(*HUNG, "open(path)"),
        helpful=(r"tokens\.py", r"fifo|named pipe", r"rank 2"),
        misleading=(r"firewall|interface|\bmemory\b|pip install",),
    ),
    Failure(
        name="n-waits-for-copy-tool",
        way="waits for a child process",
        code="collective",
        convention="process",
        processes=5,
        rank=1,
        command="python run.py conf.json",
        files={
            "conf.json": '{"steps": 20, "lr": 0.05, "mirror": "scratch", "mirror_rank": 1}\n',
            "mirror.sh": """\
#!/bin/bash
# copies what a node needs; waits for the storage
while [ ! -e /mnt/store/ready ]; do sleep 1; done
cp -r /mnt/store/$1 .
""",
            "run.py": """\
import json
import subprocess
import sys
from datetime import timedelta

import torch
import torch.distributed as dist


def mirror(conf):
    return subprocess.run(["./mirror.sh", conf["mirror"]], capture_output=True, check=True)


def main():
    conf = json.load(open(sys.argv[1]))
    dist.init_process_group("gloo", timeout=timedelta(seconds=12))
    rank = dist.get_rank()
    model = torch.nn.Linear(8, 8)
    for step in range(conf["steps"]):
        for parameter in model.parameters():
            dist.broadcast(parameter.data, src=0)
        if step == 3 and rank == conf["mirror_rank"]:
            mirror(conf)
        loss = model(torch.ones(2, 8)).sum()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data -= conf["lr"] * parameter.grad
        print("rank", rank, "step", step, flush=True)


main()
""",
        },
        wanted=(*HUNG, "subprocess.run", "mirror"),
        helpful=(r"mirror\.sh", r"run\.py", r"child process|subprocess", r"rank 1"),
        misleading=(r"firewall|interface|\bmemory\b|install",),
    ),
    Failure(
        name="n-trickling-download-limit",
        way="a download that trickles until the limit",
        code="timeout",
        convention="process",
        processes=4,
        nodes=2,
        rank=0,
        limit_s=16,
        command="python train.py",
        files={
            "slow_mirror.py": """\
import http.server
import threading
import time


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "400000000")
        self.end_headers()
        while True:
            self.wfile.write(b"x")
            time.sleep(0.3)

    def log_message(self, *args):
        pass


def serve():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/weights.bin"
""",
            "train.py": """\
import os
import urllib.request
from datetime import timedelta

import torch
import torch.distributed as dist

import slow_mirror


def fetch_pretrained(url):
    print("downloading", url.rsplit("/", 1)[1], flush=True)
    with urllib.request.urlopen(url) as response:
        return response.read()


dist.init_process_group("gloo", timeout=timedelta(minutes=30))
rank = dist.get_rank()
print(f"rank {rank} ready", flush=True)
weights = torch.zeros(1000)
if rank == 0:
    data = fetch_pretrained(slow_mirror.serve())
    weights = torch.frombuffer(bytearray(data[:4000]), dtype=torch.float32)
dist.broadcast(weights, src=0)
for epoch in range(5):
    dist.all_reduce(weights)
    print("epoch", epoch)
""",
        },
        wanted=(*HUNG, "time limit", "response.read", "fetch_pretrained"),
        helpful=(r"train\.py", r"download", r"fetch_pretrained", r"\burlopen\b", r"rank 0"),
        misleading=(r"\bmemory\b|pip install|firewall",),
    ),
    Failure(
        name="n-prefetch-thread-dies-queue-waits",
        way="a thread of one rank fails, its queue stays empty",
        code="exception",
        convention="process",
        processes=6,
        nodes=3,
        rank=3,
        command="python main.py",
        files={
            "feeder.py": """\
import queue
import threading

RECORDS = [f"{n};{n * 0.5}" for n in range(200)]


class Feeder:
    def __init__(self, rank):
        self.rows = RECORDS[rank::6]
        if rank == 3:
            self.rows[2] = "153;n/a"
        self.ready = queue.Queue(maxsize=1)
        threading.Thread(target=self.fill, name="feeder", daemon=True).start()

    def fill(self):
        for row in self.rows:
            key, value = row.split(";")
            self.ready.put((int(key), float(value)))
        self.ready.put(None)

    def __iter__(self):
        return iter(self.ready.get, None)
""",
            "main.py": """\
from datetime import timedelta

import torch
import torch.distributed as dist

from feeder import Feeder

dist.init_process_group("gloo", timeout=timedelta(seconds=10))
rank = dist.get_rank()
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step, (key, value) in enumerate(Feeder(rank)):
    loss = (model(torch.tensor([float(key)])) - value).pow(2).sum()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    if step % 2 == 0:
        print(f"rank {rank} step {step} loss {loss.item():.2f}", flush=True)
dist.destroy_process_group()
""",
        },
        wanted="could not convert string to float: 'n/a'",
        helpful=(r"feeder\.py", r"n/a", r"\bfill\b"),
        misleading=(r"firewall|interface|\bmemory\b|install",),
    ),
    Failure(
        name="n-tokenizer-loop-never-advances",
        way="an endless loop in one rank, DDP waits",
        code="collective",
        convention="process",
        processes=2,
        nodes=2,
        rank=1,
        command="python ddp.py",
        files={
            "segment.py": """\
def segment(text, limit=5):
    parts, start = [], 0
    while start < len(text):
        end = text.rfind(" ", start, start + limit)
        if end == -1:
            end = start
        parts.append(text[start:end])
        if len(parts) > 1000:
            parts.clear()
        start = end
        while start < len(text) and text[start] == " ":
            start += 1
    return parts
""",
            "ddp.py": """\
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from segment import segment

TEXTS = ["a b c d e ", "be or not to be ", "hippopotamus swims", "one two "]


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=8))
    rank = int(os.environ["RANK"])
    model = DistributedDataParallel(torch.nn.Embedding(32, 4))
    optimizer = torch.optim.Adam(model.parameters())
    for step, text in enumerate([TEXTS[0], TEXTS[rank * 2], TEXTS[1]]):
        ids = torch.tensor([len(part) for part in segment(text)])
        loss = model(ids).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} did step {step}", flush=True)
    dist.destroy_process_group()


main()
""",
        },
        wanted=(*HUNG, "segment(text)", "segment.py"),
        helpful=(r"segment\.py", r"\bsegment\b", r"rank 1"),
        misleading=(r"firewall|interface|\bmemory\b|install",),
    ),
    Failure(
        name="n-monitored-barrier-flock",
        way="waits for a file lock that it holds itself",
        code="collective",
        convention="process",
        processes=4,
        nodes=4,
        rank=1,
        command="python -u job.py",
        files={
            "cache.py": """\
import fcntl
from contextlib import contextmanager


@contextmanager
def locked(name):
    with open(name, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle


def refresh(rank):
    with locked(f"cache-{rank}.lock"):
        rebuild(rank)


def rebuild(rank):
    if rank % 2 == 1 and rank < 3:
        with locked(f"cache-{rank}.lock"):
            print("cache rebuilt")
""",
            "job.py": """\
import os
from datetime import timedelta

import torch
import torch.distributed as dist

import cache

dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank = dist.get_rank()
x = torch.ones(4) * rank
dist.all_reduce(x)
print(f"rank {rank}: sum of ranks is {x[0].item():.0f}")
cache.refresh(rank)
dist.monitored_barrier(timeout=timedelta(seconds=4))
print(f"rank {rank}: caches are ready, training starts")
for _ in range(10):
    dist.all_reduce(x)
""",
        },
        wanted=(*HUNG, "failed to pass monitoredBarrier", "flock"),
        helpful=(r"cache\.py", r"flock|\block", r"rank 1"),
        misleading=(r"firewall|interface|\bmemory\b|install",),
    ),
    Failure(
        name="n-licence-server-silent",
        way="waits for an answer on a socket",
        code="collective",
        convention="process",
        processes=5,
        rank=4,
        command="python -m app.train",
        files={
            "app/__init__.py": "",
            "app/licence.py": """\
import socket
import threading

ACCEPTED = []
SERVER = socket.create_server(("127.0.0.1", 0))


def _silent_server():
    threading.Thread(target=lambda: ACCEPTED.append(SERVER.accept()), daemon=True).start()
    return SERVER.getsockname()


def checkout(seat):
    if seat < 4:
        return f"seat-{seat}"
    with socket.create_connection(_silent_server()) as connection:
        connection.sendall(f"CHECKOUT {seat}".encode())
        return connection.recv(64).decode()
""",
            "app/train.py": """\
import logging
from datetime import timedelta

import torch.distributed as dist

from app.licence import checkout

logging.basicConfig(level="INFO", format="%(levelname)s %(name)s: %(message)s")
log = logging.getLogger("app")


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    rank = dist.get_rank()
    seat = checkout(rank)
    log.info("rank %d has %s", rank, seat)
    seats = [None] * dist.get_world_size()
    dist.all_gather_object(seats, seat)
    log.info("all seats: %s", seats)
    dist.destroy_process_group()


main()
""",
        },
        wanted=(*HUNG, "connection.recv"),
        helpful=(r"licence\.py", r"\bcheckout\b", r"\brecv\b", r"rank 4"),
        misleading=(r"\bmemory\b|pip install|shm",),
    ),
]
