"""Gangs without torch: rings, hubs, marker files, ranks that work alone."""

from functools import partial

from recorder import Failure
from v_wire import WIRE

Gang = partial(Failure, convention="process", processes=4)

FAILURES = [
    Gang(
        name="v-own-ring-peer-disk-full",
        way="a ring of sockets; one rank cannot write its spill file and the ring breaks",
        code="disk_full",
        rank=1,
        command="unshare -m ./node.sh",
        files={
            "wire.py": WIRE,
            "node.sh": """#!/bin/bash
set -e
mkdir -p spill$RANK
if [ "$RANK" = 1 ]; then mount -t tmpfs -o size=2m spill spill$RANK; fi
exec python -u ring.py
""",
            "ring.py": """import os, socket, time
from wire import connect, receive, send

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
base = int(os.environ["MASTER_PORT"])
port = lambda r: 21000 + (base + r) % 20000
server = socket.create_server(("127.0.0.1", port(rank)))
right = connect("127.0.0.1", port((rank + 1) % world))
left, _ = server.accept()
with open(f"spill{rank}/buckets.bin", "wb", buffering=0) as spill:
    for turn in range(60):
        send(right, [turn] * 10)
        got = receive(left)
        spill.write(b"\\0" * 100_000)
        if turn % 10 == 0:
            print(f"node {rank}: turn {turn}")
        time.sleep(0.02)
""",
        },
        wanted="No space left on device",
        helpful=(r"disk|space|spill",),
        misleading=(r"firewall|interface",),
    ),
    Gang(
        name="v-own-file-barrier-crashed-peer",
        way="a barrier of marker files; one rank raises before it writes its marker, others time out later",
        code="exception",
        rank=2,
        command="bash -c 'python -u steps.py || { sleep 4; exit 1; }'",
        files={
            "steps.py": """import os, pathlib, sys, time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
meet = pathlib.Path("sync")
meet.mkdir(exist_ok=True)

def barrier(name, patience=2.5):
    (meet / f"{name}.{rank}").touch()
    end = time.time() + patience
    while True:
        missing = [r for r in range(world) if not (meet / f"{name}.{r}").exists()]
        if not missing:
            return
        if time.time() > end:
            print(f"[rank {rank}] TIMEOUT in barrier {name!r}: ranks {missing} are missing", file=sys.stderr)
            sys.exit(3)
        time.sleep(0.05)

barrier("start", 20)
lines = ["1.0 2.0 3.0", "4.0 5,0 6.0" if rank == 2 else "4.0 5.0 6.0"]
matrix = [[float(v) for v in line.split()] for line in lines]
barrier("loaded")
print("rank", rank, "sum", sum(map(sum, matrix)))
barrier("end")
"""
        },
        wanted="could not convert string to float: '5,0'",
        helpful=(r"steps\.py|5,0|decimal|comma|float|data",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-own-stop-on-nan-sigterm",
        way="rank 0 sees a NaN, logs it and ends the others with a message",
        code="exit_code",
        also_codes=("exception",),
        rank=1,
        also=(0,),
        processes=3,
        command="python sync.py",
        files={
            "wire.py": WIRE,
            "sync.py": """import logging, math, os, socket, sys
from wire import connect, receive, send

logging.basicConfig(level="INFO", format="%(asctime)s %(process)d %(levelname)s %(message)s")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
addr = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
if rank == 0:
    srv = socket.create_server(addr)
    peers = [srv.accept()[0] for _ in range(world - 1)]
    for step in range(30):
        losses = dict(receive(p) for p in peers)
        bad = [r for r, loss in losses.items() if not math.isfinite(loss)]
        for p in peers:
            send(p, "stop" if bad else "go")
        if bad:
            logging.critical("step %d: loss of rank %s is not finite, stopping all", step, bad)
            sys.exit(1)
        logging.info("step %d mean loss %.3f", step, sum(losses.values()) / len(losses))
else:
    sock = connect(*addr)
    loss = 4.0
    for step in range(30):
        loss = float("nan") if rank == 1 and step == 11 else loss * 0.95
        send(sock, (rank, loss))
        if receive(sock) == "stop":
            logging.info("asked to stop")
            sys.exit(1)
""",
        },
        wanted=("step 11: loss of rank [1] is not finite",),
        helpful=(r"loss|learning rate|nan|finite|sync\.py",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-own-unpickle-version",
        way="a worker runs other code and sends a class that the server does not have",
        code="exception",
        rank=0,
        also=(2,),
        processes=3,
        command='if [ "$RANK" = 2 ]; then python worker_v2.py; else python hub.py; fi',
        files={
            "wire.py": WIRE,
            "msgs.py": "class Update:\n    def __init__(self, n):\n        self.n = n\n",
            "hub.py": """import os, socket
import msgs
from wire import connect, receive, send
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
addr = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
if rank == 0:
    s = socket.create_server(addr)
    cs = [s.accept()[0] for _ in range(world - 1)]
    for c in cs:
        u = receive(c)
        print("update", type(u).__name__, u.n, flush=True)
    for c in cs:
        send(c, "ok")
else:
    c = connect(*addr)
    send(c, msgs.Update(1))
    print("server says", receive(c))
""",
            "worker_v2.py": """import os, sys, types
from wire import connect, receive, send
import msgs

class SparseUpdate(msgs.Update):
    pass

SparseUpdate.__module__ = "msgs"
msgs.SparseUpdate = SparseUpdate
c = connect("127.0.0.1", int(os.environ["MASTER_PORT"]))
print("worker v2 of", sys.argv[0], flush=True)
send(c, SparseUpdate(5))
print(receive(c))
""",
        },
        wanted="Can't get attribute 'SparseUpdate' on <module 'msgs'",
        helpful=(r"SparseUpdate|msgs|version|same code",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-own-wrong-number-of-workers",
        way="the server waits for eight workers, three were started; accept times out",
        code="rendezvous",
        rank=None,
        also=(0,),
        command="python -u master.py --workers 8",
        files={
            "wire.py": WIRE,
            "master.py": """import argparse, os, socket, sys
from wire import connect, receive, send

cli = argparse.ArgumentParser()
cli.add_argument("--workers", type=int, default=3)
args = cli.parse_args()
rank = int(os.environ["RANK"])
addr = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(addr)
    server.settimeout(5)
    joined = []
    try:
        while len(joined) < args.workers:
            joined.append(server.accept()[0])
            print(f"{len(joined)}/{args.workers} workers joined")
    except TimeoutError:
        sys.exit(f"only {len(joined)} of {args.workers} workers joined within 5 s")
else:
    print("worker", rank, "joins")
    print(receive(connect(*addr)))
""",
        },
        wanted="only 3 of 8 workers joined within 5 s",
        helpful=(r"--workers|number of|world|8",),
        misleading=(r"memory|interface",),
    ),
    Gang(
        name="v-own-actor-stuck-in-env",
        way="an actor's simulator never ends its episode; the limit passes",
        code="timeout",
        rank=2,
        processes=4,
        limit_s=12,
        command="python -u actors.py",
        files={
            "wire.py": WIRE,
            "actors.py": """import os, random, socket, time
from wire import connect, receive, send

class Env:
    def __init__(self, seed): self.rng, self.x = random.Random(seed), 0
    def step(self, sticky):
        self.x += 0 if sticky else self.rng.randint(0, 2)
        return self.x > 20

def episode(rank, n):
    env, steps = Env(rank), 0
    while not env.step(sticky=rank == 2 and n == 3):
        steps += 1
        time.sleep(0.001)
    return steps

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
addr = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
if rank == 0:
    srv = socket.create_server(addr)
    actors = [srv.accept()[0] for _ in range(world - 1)]
    for rollout in range(10):
        lengths = [receive(a) for a in actors]
        print("learner: rollout", rollout, "lengths", lengths)
        for a in actors: send(a, rollout)
else:
    link = connect(*addr)
    link.settimeout(None)
    for n in range(10):
        print("actor", rank, "starts episode", n)
        send(link, episode(rank, n))
        receive(link)
""",
        },
        wanted=("actor 2 starts episode 3", "in episode", "env.step", "time.sleep(0.001)"),
        helpful=(r"actors\.py|episode|step|max",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-own-preprocess-divided-work",
        way="independent ranks convert files; one has a file that is not an image",
        code="exception",
        rank=5,
        processes=8,
        command="python convert.py",
        files={
            "convert.py": """import io, os
from PIL import Image

rank = int(os.environ["RANK"])

def picture(n):
    if n == 13:
        return b"<html><body>403 Forbidden</body></html>"
    out = io.BytesIO()
    Image.new("RGB", (8, 8), (n, 0, 0)).save(out, "PNG")
    return out.getvalue()

for n in range(rank, 32, 8):
    img = Image.open(io.BytesIO(picture(n)))
    print(f"[{rank}] {n:05d}.png {img.size}", flush=True)
"""
        },
        wanted="UnidentifiedImageError: cannot identify image file",
        helpful=(r"convert\.py|image|file|13",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-own-memory-numpy",
        way="one rank loads the whole matrix instead of its part and is killed at 150 MB",
        code="host_oom",
        rank=0,
        processes=3,
        command="./run.sh",
        files={
            "run.sh": """#!/bin/bash
g=/sys/fs/cgroup/memory/v_numpy_${RANK}_$$
mkdir -p $g && echo 150M > $g/memory.limit_in_bytes && echo $$ > $g/cgroup.procs
exec python kmeans.py
""",
            "kmeans.py": """import os, time
import numpy as np

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rows = 30_000_000 if rank == 0 else 200_000
print("rank %d: allocating %d x 4" % (rank, rows), flush=True)
points = np.ones((rows, 4), dtype=np.float32)
print("rank %d: ready" % rank, flush=True)
time.sleep(5)
""",
        },
        wanted=("SIGKILL", "killed", "out of memory", "Killed", "rank 0: allocating 30000000 x 4"),
        helpful=(r"memory|rows|fewer|smaller",),
        misleading=(r"firewall|interface|MASTER_PORT",),
    ),
    Gang(
        name="v-own-thread-dies-quietly",
        way="a receiving thread dies with a traceback, the main thread waits for ever",
        code="exception",
        also_codes=("timeout",),
        rank=1,
        processes=3,
        limit_s=10,
        command="python -u threads.py",
        files={
            "threads.py": """import json, os, queue, threading, time

rank = int(os.environ["RANK"])
inbox = queue.Queue()

def reader():
    messages = ['{"loss": 1.0}', '{"loss": 0.7}', '{"loss": NULL}' if rank == 1 else '{"loss": 0.5}']
    for text in messages:
        inbox.put(json.loads(text)["loss"])
        time.sleep(0.2)

threading.Thread(target=reader, name="reader", daemon=True).start()
history = [inbox.get() for _ in range(3)]
print("rank", rank, "history", history)
"""
        },
        wanted="JSONDecodeError: Expecting value",
        helpful=(r"threads\.py|json|NULL|reader",),
        misleading=(r"firewall|memory|interface|increase the limit",),
    ),
    Gang(
        name="v-own-token-expired",
        way="one rank's access token has run out when it asks for its shard",
        code="data_unavailable",
        also_codes=("exception",),
        rank=3,
        command="python fetch_and_train.py",
        files={
            "fetch_and_train.py": """import http.server, os, threading, urllib.request

rank = int(os.environ["RANK"])


class Bucket(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        expired = "shard-3.npy" in self.path
        self.send_response(403 if expired else 200, "Server failed to authenticate the request" if expired else "OK")
        self.end_headers()
        self.wfile.write(b"" if expired else b"data")

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/container/shard-{rank}.npy?sv=2024&sig=abc"
print(f"rank {rank}: GET {url.split('?')[0]}", flush=True)
body = urllib.request.urlopen(url).read()
print(f"rank {rank}: {len(body)} bytes", flush=True)
"""
        },
        wanted="HTTP Error 403: Server failed to authenticate the request",
        helpful=(r"token|sas|credential|authenticat|permission|shard-3|expired|sign",),
        misleading=(r"firewall between|out of memory|interface",),
    ),
    Gang(
        name="v-own-redis-like-store-missing",
        way="every rank wants a redis that nobody started",
        code="exception",
        also_codes=("rendezvous", "collective"),
        rank=0,
        also=(1, 2),
        processes=3,
        command="python tune.py",
        files={
            "tune.py": """import os, socket

class Store:
    def __init__(self, url):
        host, port = url.removeprefix("redis://").split(":")
        self.sock = socket.create_connection((host, int(port)), timeout=3)

    def get(self, key):
        self.sock.sendall(f"GET {key}\\r\\n".encode())
        return self.sock.recv(1024)

store = Store(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
print("trial", store.get("next_trial"))
"""
        },
        wanted="ConnectionRefusedError: [Errno 111] Connection refused",
        helpful=(r"6379|redis|REDIS_URL|tune\.py",),
        misleading=(r"out of memory|MASTER_PORT|firewall between",),
    ),
    Gang(
        name="v-own-cascade-of-retries",
        way="one rank fails at once but lingers in cleanup; the others' retries fill their logs and end first",
        code="exception",
        rank=1,
        command="python -u mesh.py",
        files={
            "wire.py": WIRE,
            "mesh.py": """import atexit, os, socket, sys, time
from wire import connect, receive, send

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
port = int(os.environ["MASTER_PORT"])


def serve():
    labels = ["cat", "dog"]
    srv = socket.create_server(("127.0.0.1", port))
    conns = [srv.accept()[0] for _ in range(world - 1)]
    try:
        for c in conns:
            send(c, "welcome")
        for c in conns:
            want = receive(c)
            send(c, labels[want])
    finally:
        for c in conns:
            c.close()


def ask():
    c = connect("127.0.0.1", port)
    print(f"node {rank} <- {receive(c)}")
    send(c, rank)
    for attempt in range(8):
        try:
            print(f"node {rank} label {receive(c)}")
            return
        except Exception as e:
            print(f"WARN  node {rank}: fetch failed ({e}), retry {attempt + 1}/8")
            time.sleep(0.2)
    print(f"ERROR node {rank}: giving up after 8 retries")
    sys.exit(1)


if rank == 1:
    atexit.register(lambda: (print("node 1: archiving logs"), time.sleep(6), print("node 1: archived")))
    serve()
else:
    ask()
""",
        },
        wanted="IndexError: list index out of range",
        helpful=(r"mesh\.py|labels|index",),
        misleading=(r"firewall|memory|interface",),
    ),
]
