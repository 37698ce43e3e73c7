"""Gangs that talk over sockets, HTTP, queues and files of their own, without torch or MPI."""

from recorder import Failure

FAILURES = [
    Failure(
        name="s-star-one-host-old-python-protocol",
        code="exception",
        way="one node has older code that speaks another protocol",
        convention="process",
        processes=4,
        nodes=2,
        command="python -u client.py",
        files={
            "client.py": r"""import json, os, socket, sys, time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PROTOCOL = 4 if os.environ["NODE_RANK"] == "0" else int(open("deploy/node1.version").read())
addr = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
print(f"trainer build protocol={PROTOCOL} rank={rank}", flush=True)
if rank == 0:
    srv = socket.create_server(addr)
    peers = []
    while len(peers) < world - 1:
        c, _ = srv.accept()
        f = c.makefile("rw")
        hello = json.loads(f.readline())
        f.write(json.dumps({"ok": hello["protocol"] == PROTOCOL, "server": PROTOCOL}) + "\n")
        f.flush()
        peers.append(f)
    for f in peers:
        f.readline()
else:
    while True:
        try:
            c = socket.create_connection(addr)
            break
        except ConnectionRefusedError:
            time.sleep(0.2)
    f = c.makefile("rw")
    f.write(json.dumps({"rank": rank, "protocol": PROTOCOL}) + "\n")
    f.flush()
    answer = json.loads(f.readline())
    if not answer["ok"]:
        raise RuntimeError(f"coordinator speaks protocol {answer['server']}, this build speaks {PROTOCOL}")
    time.sleep(30)
""",
            "deploy/node1.version": "3\n",
        },
        wanted="RuntimeError: coordinator speaks protocol 4, this build speaks 3",
        helpful=(r"client\.py", r"version|protocol|build"),
        misleading=(r"network|port is|memory",),
        rank=2,
        also=(3,),
        also_codes=("environment",),
    ),
    Failure(
        name="s-http-work-server-500",
        code="exception",
        way="the handler on rank 0 fails; a worker sees HTTP 500",
        convention="process",
        processes=3,
        command="python -u node.py",
        files={
            "node.py": r"""import json, os, threading, time, urllib.request, urllib.error
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

RANK = int(os.environ["RANK"])
URL = f"http://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
SCHEDULE = {"lr": 3e-4, "decay": 0.98}


class Work(BaseHTTPRequestHandler):
    def do_GET(self):
        step = int(self.path.rsplit("/", 1)[1])
        try:
            lr = SCHEDULE["lr"] * min(1, step / SCHEDULE["warmup_steps"]) if step >= 20 else SCHEDULE["lr"]
        except Exception:
            self.send_error(500)
            raise
        body = json.dumps({"lr": lr}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, fmt, *args):
        pass


if RANK == 0:
    ThreadingHTTPServer(("", int(os.environ["MASTER_PORT"])), Work).serve_forever()

time.sleep(1.5)
for step in range(50 if RANK == 1 else 10):
    with urllib.request.urlopen(f"{URL}/step/{step}", timeout=20) as r:
        lr = json.load(r)["lr"]
    print(f"worker {RANK} step {step} lr {lr:.2e}")
    time.sleep(0.02)
time.sleep(20)
""",
        },
        wanted="KeyError: 'warmup_steps'",
        helpful=(r"warmup_steps", r"node\.py"),
        misleading=(r"network|firewall|memory",),
        rank=0,
    ),
    Failure(
        name="s-manager-authkey-differs",
        code="exception",
        way="the second node has another secret",
        convention="process",
        processes=4,
        nodes=2,
        command=". ./env.node$NODE_RANK && python -u shared_queue.py",
        files={
            "env.node0": "export QUEUE_SECRET=b2xkLXNlY3JldA\n",
            "env.node1": "export QUEUE_SECRET=bmV3LXNlY3JldA\n",
            "shared_queue.py": r"""import os, queue, time
from multiprocessing.managers import BaseManager

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
tasks = queue.Queue()


class Shared(BaseManager):
    pass


if rank == 0:
    for n in range(1000):
        tasks.put(n)
    Shared.register("tasks", callable=lambda: tasks)
    print("task server up with", tasks.qsize(), "tasks", flush=True)
    Shared(address, os.environ["QUEUE_SECRET"].encode()).get_server().serve_forever()

Shared.register("tasks")
manager = Shared(address, os.environ["QUEUE_SECRET"].encode())
for attempt in range(50):
    try:
        manager.connect()
        break
    except ConnectionRefusedError:
        time.sleep(0.2)
todo = manager.tasks()
while True:
    n = todo.get()
    time.sleep(0.05)
    if n % 10 == 0:
        print(f"rank {rank} did task {n}", flush=True)
""",
        },
        wanted="AuthenticationError: digest sent was rejected",
        helpful=(r"QUEUE_SECRET|secret|authkey", r"shared_queue\.py", r"env\.node1"),
        misleading=(r"firewall|memory",),
        rank=2,
        also=(3,),
    ),
    Failure(
        name="s-asyncio-vocab-not-utf8",
        code="exception",
        way="the file of one rank is Latin-1",
        convention="process",
        processes=4,
        command="python -u stream.py --vocab vocab",
        files={
            "stream.py": r"""import argparse, asyncio, os, pathlib

p = argparse.ArgumentParser()
p.add_argument("--vocab", type=pathlib.Path)
args = p.parse_args()
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
HOST, PORT = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def load_vocab():
    path = args.vocab / f"{RANK}.txt"
    words = ["hello", "world"] if RANK != 2 else ["stra\xdfe", "gr\xfc\xdfe"]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes("\n".join(words).encode("latin-1"))
    return path.read_text(encoding="utf-8").splitlines()


async def serve():
    counts, done = {}, asyncio.Event()

    async def on(reader, writer):
        who = int((await reader.readexactly(4)).decode())
        counts[who] = int((await reader.readexactly(8)).decode())
        if len(counts) == WORLD - 1:
            done.set()

    server = await asyncio.start_server(on, HOST, PORT)
    async with server:
        await done.wait()
        print("vocab sizes", counts)


async def send(words):
    while True:
        try:
            _, writer = await asyncio.open_connection(HOST, PORT)
            break
        except OSError:
            await asyncio.sleep(0.1)
    writer.write(f"{RANK:04d}".encode())
    await writer.drain()
    writer.write(f"{len(words):08d}".encode())
    await writer.drain()
    await asyncio.sleep(30)


asyncio.run(serve() if RANK == 0 else send(load_vocab()))
""",
        },
        wanted="UnicodeDecodeError: 'utf-8' codec can't decode byte 0xdf in position 4",
        helpful=(r"stream\.py", r"encoding|latin|utf-8", r"vocab"),
        misleading=(r"network|\bport\b|memory",),
        rank=2,
    ),
    Failure(
        name="s-file-barrier-swallowed-error",
        code="exception",
        way="one rank logs its error and ends with 0; the others give up waiting for its file",
        convention="process",
        processes=4,
        command="python -u stage.py",
        files={
            "stage.py": r"""import os, pathlib, sys, time, traceback

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
flags = pathlib.Path("flags")
flags.mkdir(exist_ok=True)


def tokenize():
    lengths = [len(x.split()) for x in ["a b", "c d e", ""]]
    if RANK == 1:
        lengths.append(int("1O24"))
    return sum(lengths)


def barrier(name, patience=8):
    (flags / f"{name}.{RANK}").touch()
    end = time.time() + patience
    while True:
        missing = [r for r in range(WORLD) if not (flags / f"{name}.{r}").exists()]
        if not missing:
            return
        if time.time() > end:
            raise TimeoutError(f"barrier {name!r}: gave up after {patience} s")
        time.sleep(0.1)


try:
    n = tokenize()
    print(f"rank {RANK}: {n} tokens")
except Exception:
    traceback.print_exc()
    print(f"rank {RANK}: tokenizing failed, leaving")
    sys.exit(0)
barrier("tokenized")
""",
        },
        wanted="ValueError: invalid literal for int() with base 10: '1O24'",
        helpful=(r"stage\.py", r"1O24"),
        misleading=(r"memory|firewall|\bport\b",),
        rank=1,
        also_codes=("collective",),
    ),
    Failure(
        name="s-udp-heartbeat-missed",
        code="collective",
        way="one rank reads a pipe that nobody writes to; rank 0 misses its heartbeat",
        convention="process",
        processes=4,
        command="python -u beat.py",
        files={
            "beat.py": r"""import os, socket, sys, time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDR = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def next_batch(i):
    if RANK == 2 and i == 4:
        os.mkfifo("augment.pipe")
        return open("augment.pipe").read()
    return "x" * 10


if RANK == 0:
    s.bind(ADDR)
    s.settimeout(1)
    seen = {r: time.time() + 10 for r in range(1, WORLD)}
    while True:
        try:
            msg, _ = s.recvfrom(64)
            r, step = msg.decode().split()
            seen[int(r)] = time.time()
        except TimeoutError:
            pass
        for r, t in seen.items():
            if time.time() - t > 6:
                print(f"ERROR no heartbeat from rank {r} for 6 s, giving up", flush=True)
                sys.exit(1)

for i in range(10000):
    next_batch(i)
    s.sendto(f"{RANK} {i}".encode(), ADDR)
    time.sleep(0.25)
""",
        },
        wanted=("no heartbeat from rank 2", "augment.pipe"),
        helpful=(r"rank 2|augment|beat\.py",),
        misleading=(r"memory",),
        rank=2,
        also_codes=("exit_code",),
    ),
    Failure(
        name="s-zmq-worker-regex-forever",
        code="timeout",
        way="one worker is caught in a regular expression",
        convention="process",
        processes=4,
        command="python -u collect.py",
        limit_s=15,
        files={
            "collect.py": r"""import os, re, sys
import zmq

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
end = f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"
ctx = zmq.Context()
if rank == 0:
    sink = ctx.socket(zmq.PULL)
    sink.bind(end)
    got = 0
    while got < world - 1:
        who, n = sink.recv_json()
        got += 1
        print(f"worker {who}: {n} documents clean ({got}/{world - 1})")
    print("all clean, writing index")
    sys.exit(0)

docs = ["lorem ipsum dolor"] * 500
if rank == 3:
    docs.append("a" * 48 + "!")
clean = [d for d in docs if re.match(r"^(a+)+$|^[\w ]+$", d)]
out = ctx.socket(zmq.PUSH)
out.connect(end)
out.send_json([rank, len(clean)])
""",
        },
        wanted=("did not", "hung", "stuck", "re.match", "clean = "),
        helpful=(r"collect\.py", r"re\.match|regular|rank 3"),
        misleading=(r"firewall|memory|raise the limit only",),
        rank=3,
    ),
    Failure(
        name="s-both-send-before-receive",
        code="timeout",
        way="two ranks send large blocks at the same time and neither reads",
        convention="process",
        processes=2,
        command="python -u swap.py",
        limit_s=12,
        files={
            "swap.py": r"""import os, socket, time
import numpy as np

rank = int(os.environ["RANK"])
addr = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
if rank == 0:
    conn, _ = socket.create_server(addr).accept()
else:
    while True:
        try:
            conn = socket.create_connection(addr)
            break
        except OSError:
            time.sleep(0.1)
    conn.settimeout(None)
halo = np.full((4096, 2048), rank, dtype=np.float64)
print("swapping halos of", halo.nbytes >> 20, "MiB", flush=True)
conn.sendall(halo.tobytes())
got = b""
while len(got) < halo.nbytes:
    got += conn.recv(1 << 20)
print("swapped")
""",
        },
        wanted=("did not", "hung", "stuck", "sendall", "blocked"),
        helpful=(r"swap\.py", r"sendall|deadlock|receive"),
        misleading=(r"memory|disk",),
        rank=0,
        also=(1,),
        also_codes=("collective",),
    ),
    Failure(
        name="s-hosts-file-typo-on-node-one",
        code="rendezvous",
        way="the second node takes a wrong host name from a file",
        convention="process",
        processes=4,
        nodes=2,
        command="python -u meet.py",
        files={
            "hosts/node0": "127.0.0.1\n",
            "hosts/node1": "trainhead-01.cluster.internl\n",
            "meet.py": r"""import os, socket, time

rank, world, node = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "NODE_RANK"))
head = open(f"hosts/node{node}").read().strip()
port = int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server((head, port))
    server.settimeout(40)
    for _ in range(world - 1):
        c, _ = server.accept()
        print("hello from", c.recv(16).decode())
else:
    print(f"rank {rank} dials {head}:{port}", flush=True)
    for i in range(20):
        try:
            c = socket.create_connection((head, port), timeout=20)
            break
        except ConnectionRefusedError:
            time.sleep(0.5)
    c.send(str(rank).encode())
    time.sleep(30)
""",
        },
        wanted=("Name or service not known", "Temporary failure in name resolution", "gaierror"),
        helpful=(r"hosts/node1|trainhead-01|host name|MASTER_ADDR", r"meet\.py"),
        misleading=(r"memory|disk",),
        rank=2,
        also=(3,),
        also_codes=("exception",),
    ),
]
