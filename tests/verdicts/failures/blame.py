"""Gangs in which somebody else than the one that fails is to blame: servers that fail for their clients, meetings at two
places, calls out of order, locks that are held, rings, and peers that leave or hang in programs of their own."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "was at", "stayed", "had ended", "another call", "waiting in")
SET_UP = """\
import datetime, os, pickle, socket, sys, threading, time
RANK, WORLD, PORT = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["MASTER_PORT"])

"""
TORCH = """\
import torch
import torch.distributed as dist

"""


def gang(name: str, script: str, rank: int | None, count: int = 3, nodes: int = 1, **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"blame-{name}",
        "code": "collective",
        "command": "python -u job.py",
        "files": {"job.py": SET_UP + script},
        "wanted": HUNG,
        "helpful": (rf"rank {rank}", r"job\.py"),
        "misleading": (r"\bpip\b", "firewall", "memory"),
        "rank": rank,
        "convention": "process",
        "processes": count,
        "nodes": nodes,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


MANAGER = """\
from multiprocessing.managers import BaseManager

class Plan:
    shards = {0: "a", 1: "b"}
    def shard(self, number):
        return self.shards[number]

class Plans(BaseManager):
    pass

if RANK == 0:
    Plans.register("plan", Plan)
    Plans(("127.0.0.1", PORT), b"secret").get_server().serve_forever()
else:
    Plans.register("plan")
    manager = Plans(("127.0.0.1", PORT), b"secret")
    for attempt in range(100):
        try:
            manager.connect()
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    for step in range(5):
        print("worker", RANK, "works on", manager.plan().shard(step), flush=True)
        time.sleep(0.2 * RANK)
"""

HTTP = """\
import http.server, json, urllib.request

class Weights(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        step = int(self.path.rpartition("/")[2])
        {handle}
    def log_message(self, *words):
        pass

if RANK == 0:
    http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Weights).serve_forever()
time.sleep(1)
for step in range(6):
    with urllib.request.urlopen(f"http://127.0.0.1:{{PORT}}/step/{{step}}", timeout=10) as answer:
        print("rank", RANK, "step", step, json.load(answer), flush=True)
    time.sleep(0.2)
"""
BREAKS = """body = json.dumps({"rate": 1.0 / (3 - step)}).encode()
        self.send_response(200); self.end_headers(); self.wfile.write(body)"""
ANSWERS_500 = """try:
            body, status = json.dumps({"rate": 1.0 / (3 - step)}).encode(), 200
        except ZeroDivisionError as error:
            body, status = str(error).encode(), 500
        self.send_response(status, "schedule: " + body.decode()[:40] if status == 500 else None)
        self.end_headers(); self.wfile.write(body)"""

RPC = (
    TORCH
    + """\
import torch.distributed.rpc as rpc

TABLE = torch.arange(6.0)

def look_up(index):
    return TABLE[index].item()

rpc.init_rpc(f"stage{RANK}", rank=RANK, world_size=WORLD)
if RANK == 0:
    for index in (1, 3, 9):
        print("row", index, rpc.rpc_sync("stage2", look_up, args=(index,)), flush=True)
else:
    time.sleep(60)
rpc.shutdown()
"""
)

ABORTS = """\
from concurrent import futures
import grpc

def serve():
    def fetch(request, context):
        key = request.decode()
        if key.endswith("4"):
            context.abort(grpc.StatusCode.INTERNAL, f"bucket {key} has no manifest")
        return b"x" * 8
    handler = grpc.method_handlers_generic_handler(
        "Buckets", {"Fetch": grpc.unary_unary_rpc_method_handler(fetch)})
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"127.0.0.1:{PORT}")
    server.start()
    server.wait_for_termination()

if RANK == 0:
    serve()
fetch = grpc.insecure_channel(f"127.0.0.1:{PORT}").unary_unary("/Buckets/Fetch")
for number in range(8):
    fetch(f"b{number}".encode(), timeout=15, wait_for_ready=True)
    print("reader", RANK, "has bucket", number, flush=True)
    time.sleep(0.1 + 0.1 * RANK)
"""

OTHER_PORT = (
    TORCH
    + """\
port = PORT + 7 if RANK == 1 else PORT
print(f"worker {RANK}: head is 127.0.0.1:{port}", flush=True)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=RANK, world_size=WORLD,
                        timeout=datetime.timedelta(seconds=6))
"""
)

FILE_ELSEWHERE = (
    TORCH
    + """\
folder = os.path.abspath("scratch-a" if RANK != 3 else "scratch-b")
os.makedirs(folder, exist_ok=True)
print("store in", os.path.basename(folder), flush=True)
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=RANK, world_size=WORLD,
                        timeout=datetime.timedelta(seconds=6))
dist.barrier()
"""
)

OTHER_WORLD = (
    TORCH
    + """\
world = 3 if RANK == 2 else WORLD
print(f"[{RANK}] one of {world}", flush=True)
dist.init_process_group("gloo", rank=RANK, world_size=world, timeout=datetime.timedelta(seconds=6))
x = torch.ones(2); dist.all_reduce(x); print("sum", x, flush=True)
dist.barrier()
"""
)

FINGERPRINT = (
    TORCH
    + """\
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))

def close_epoch(loss, seen):
    if RANK == 2:
        dist.broadcast(seen, src=0)
        dist.all_reduce(loss)
    else:
        dist.all_reduce(loss)
        dist.broadcast(seen, src=0)

for epoch in range(3):
    print("epoch", epoch, flush=True)
    if epoch == 1:
        close_epoch(torch.ones(4), torch.ones(2))
    else:
        dist.barrier()
"""
)

OTHER_ORDER = (
    TORCH
    + """\
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
for step in range(3):
    x = torch.ones(1000)
    if RANK == 1 and step == 2:
        dist.barrier()
    dist.broadcast(x, src=0)
    dist.barrier()
    print("step", step, flush=True)
"""
)

LOCK = """\
from filelock import FileLock
lock = FileLock("cache.lock", timeout=3)

def tokenize(step):
    with lock:
        if RANK == 2 and step == 1:
            print("rank 2 rebuilds the cache", flush=True)
            time.sleep(600)
        open("cache.bin", "a").write(f"{RANK} {step}\\n")

for step in range(30):
    tokenize(step)
    print("rank", RANK, "step", step, flush=True)
    time.sleep(0.15 + 0.05 * RANK)
"""

RING = """\
server = socket.create_server(("127.0.0.1", PORT + RANK))
time.sleep(1)
after = socket.create_connection(("127.0.0.1", PORT + (RANK + 1) % WORLD), timeout=20)
before, _ = server.accept()
before.settimeout({timeout})

def pass_on(lap):
    after.sendall(bytes([lap]) * 64)
    got = b""
    while len(got) < 64:
        got += before.recv(64 - len(got))
    return got[0]

for lap in range(6):
    if RANK == 2 and lap == 4:
        {fault}
    print(f"rank {{RANK}}: lap {{pass_on(lap)}}", flush=True)
"""

STAR = """\
if RANK == 0:
    server = socket.create_server(("127.0.0.1", PORT))
    executors = {}
    while len(executors) < WORLD - 1:
        conn, _ = server.accept()
        conn.settimeout(4)
        executors[conn.recv(1)[0]] = conn
    for wave in range(6):
        late = []
        for number, conn in sorted(executors.items()):
            try:
                conn.sendall(b"go")
                if not conn.recv(4):
                    late.append(number)
            except OSError:
                late.append(number)
        if late:
            print(f"driver: wave {wave}: nothing came back from executors {late}", file=sys.stderr, flush=True)
            sys.exit(1)
        print("driver: wave", wave, flush=True)
else:
    time.sleep(1)
    conn = socket.create_connection(("127.0.0.1", PORT), timeout=20)
    conn.sendall(bytes([RANK]))
    for wave in range(6):
        if RANK == 2 and wave == 3:
            %s
        if conn.recv(2) == b"go":
            conn.sendall(b"done")
"""

COORDINATOR = """\
import pathlib
def mark(step):
    pathlib.Path(f"done-{RANK}-{step}").touch()
for step in range(8):
    if RANK == 1 and step == 4:
        while True:
            time.sleep(1)
    mark(step)
    if RANK == 0:
        until = time.monotonic() + 3
        while missing := {n for n in range(WORLD) if not pathlib.Path(f"done-{n}-{step}").exists()}:
            if time.monotonic() > until:
                sys.exit(f"giving up at step {step}: replicas {missing} are missing")
            time.sleep(0.05)
        pathlib.Path(f"go-{step}").touch()
    else:
        while not pathlib.Path(f"go-{step}").exists():
            time.sleep(0.05)
"""

JSON_LINES = """\
import json
from multiprocessing.connection import Client, Listener
if RANK == 0:
    listener = Listener(("127.0.0.1", PORT))
    peers = {}
    while len(peers) < WORLD - 1:
        peer = listener.accept()
        peers[peer.recv()] = peer
    for beat in range(20):
        for number, peer in peers.items():
            if not peer.poll(3):
                print(json.dumps({"level": "error", "msg": "no heartbeat", "peer": number, "beat": beat}), flush=True)
                sys.exit(4)
            peer.recv()
else:
    time.sleep(1)
    peer = Client(("127.0.0.1", PORT))
    peer.send(RANK)
    for beat in range(20):
        if RANK == 3 and beat == 5:
            sum(1 for _ in iter(lambda: time.sleep(0.5), 1))
        peer.send(beat)
        time.sleep(0.1)
    time.sleep(5)
"""

ASYNC = """\
import asyncio

async def answer(reader, writer):
    while True:
        size = int.from_bytes(await reader.readexactly(4), "big")
        text = (await reader.readexactly(size)).decode()
        name, _, value = text.partition("=")
        total[name] = total.get(name, 0.0) + float(value)
        writer.write(b"ok"); await writer.drain()

async def serve():
    server = await asyncio.start_server(answer, "127.0.0.1", PORT)
    await server.serve_forever()

async def work():
    await asyncio.sleep(1)
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    for step in range(6):
        value = "n/a" if RANK == 2 and step == 4 else step
        said = f"loss={value}".encode()
        writer.write(len(said).to_bytes(4, "big") + said); await writer.drain()
        await reader.readexactly(2)
        print("rank", RANK, "step", step, flush=True)
        await asyncio.sleep(0.1)

total = {}
asyncio.run(serve() if RANK == 0 else work())
"""

BOTH = """\
if RANK == 0:
    conn, _ = socket.create_server(("127.0.0.1", PORT)).accept()
else:
    time.sleep(1)
    conn = socket.create_connection(("127.0.0.1", PORT))
    conn.settimeout(None)

def exchange(step):
    theirs = conn.recv(8)
    conn.sendall(step.to_bytes(8, "big"))
    return theirs

for step in range(4):
    print("rank", RANK, "exchanges step", step, flush=True)
    exchange(step)
"""

BEHIND = (
    TORCH
    + """\
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
for step in range(6):
    if RANK == 3 and step == 3:
        continue
    x = torch.ones(8)
    dist.all_reduce(x)
    print("rank", RANK, "step", step, flush=True)
dist.barrier()
print("evaluating", flush=True)
y = torch.ones(3)
dist.all_reduce(y)
"""
)

TORCHRUN_PORT = (
    'port=$MASTER_PORT; if [ "$NODE_RANK" = 1 ]; then port=29777; fi; echo "endpoint 127.0.0.1:$port"; '
    "torchrun --nnodes 2 --node-rank $NODE_RANK --nproc-per-node 2 --master-addr 127.0.0.1 --master-port $port job.py"
)

DISAGREE = """\
from pathlib import Path
shape = 128 if RANK == 1 else 64
Path(f"shape-{RANK}").write_text(str(shape))
print(f"rank {RANK}: hidden size {shape}", flush=True)
until = time.monotonic() + 10
while any(not Path(f"shape-{n}").exists() for n in range(WORLD)) and time.monotonic() < until:
    time.sleep(0.1)
shapes = {Path(f"shape-{n}").read_text() for n in range(WORLD)}
if len(shapes) > 1:
    raise ValueError(f"hidden sizes differ between ranks: this one has {shape}")
"""

MPI = """\
from mpi4py import MPI
import time
comm = MPI.COMM_WORLD
rank = comm.Get_rank()

def halo(step):
    left, right = (rank - 1) % comm.size, (rank + 1) % comm.size
    comm.send(step, dest=right, tag=3)
    return comm.recv(source=left, tag=7 if rank == 2 and step == 2 else 3)

for step in range(5):
    halo(step)
    print("rank", rank, "step", step, flush=True)
    comm.Barrier()
"""

FAILURES = [
    gang("manager-lacks-shard", MANAGER, 0, code="exception", wanted=("KeyError: 2",), helpful=(r"job\.py", "shard")),
    gang(
        "http-handler-raises",
        HTTP.format(handle=BREAKS),
        0,
        code="exception",
        wanted=("division by zero",),
        helpful=(r"job\.py", "do_GET"),
    ),
    gang(
        "http-answers-500",
        HTTP.format(handle=ANSWERS_500),
        0,
        code="exception",
        wanted=("division by zero",),
        helpful=(r"job\.py", "rank 0"),
    ),
    gang("rpc-index", RPC, 2, code="exception", wanted=("index 9 is out of bounds",), helpful=(r"job\.py", "look_up")),
    gang("grpc-aborts", ABORTS, 0, nodes=3, code="exception", wanted=("has no manifest",), helpful=(r"job\.py", "b4")),
    gang(
        "other-port",
        OTHER_PORT,
        1,
        nodes=3,
        code="rendezvous",
        wanted=("did not", "elsewhere", "clients joined", "rank 1"),
        helpful=("rank 1", "MASTER_PORT"),
    ),
    gang(
        "file-elsewhere",
        FILE_ELSEWHERE,
        3,
        4,
        2,
        code="rendezvous",
        wanted=("did not", "elsewhere", "scratch-b"),
        helpful=("rank 3", "scratch", r"job\.py"),
    ),
    gang(
        "other-world-size",
        OTHER_WORLD,
        2,
        4,
        2,
        code="rendezvous",
        also_codes=("collective",),
        wanted=("did not", "world size", "elsewhere", "one of 3", "clients joined", "wait timeout", "losed by peer"),
        helpful=("rank 2", "world.?size", r"job\.py"),
    ),
    gang(
        "fingerprint-order",
        FINGERPRINT,
        2,
        4,
        variables={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
        wanted=("mismatch", "another call", "BROADCAST"),
    ),
    gang("other-order", OTHER_ORDER, 1, 4, 2),
    gang("lock-held", LOCK, 2, 4, also_codes=("exception",), wanted=(*HUNG, "could not be acquired")),
    gang("ring-sleeps", RING.format(timeout=3, fault="time.sleep(600)"), 2, 5),
    gang("ring-leaves", RING.format(timeout=3, fault="sys.exit(0)"), 2, 5, wanted=(*HUNG, "ended")),
    gang(
        "ring-waits-for-ever",
        RING.format(timeout="None if RANK == 2 else 3", fault="before.recv(9)"),
        2,
        5,
        code="timeout",
        also_codes=("collective",),
        limit_s=9,
    ),
    gang(
        "star-leaves",
        STAR % "sys.exit(0)",
        2,
        4,
        also_codes=("exit_code",),
        wanted=("had ended", "nothing came back from executors [2]"),
    ),
    gang(
        "star-sleeps",
        STAR % "time.sleep(600)",
        2,
        4,
        2,
        also_codes=("exit_code",),
        wanted=(*HUNG, "nothing came back from executors [2]"),
    ),
    gang("replicas-missing", COORDINATOR, 1, 3, also_codes=("exit_code",), wanted=(*HUNG, "are missing")),
    gang("heartbeat-as-json", JSON_LINES, 3, 4, also_codes=("exit_code",), wanted=(*HUNG, "no heartbeat")),
    gang(
        "asyncio-server-float",
        ASYNC,
        0,
        code="exception",
        wanted=("could not convert string to float",),
        helpful=(r"job\.py",),
        also=(2,),
    ),
    gang(
        "both-receive",
        BOTH,
        0,
        2,
        code="timeout",
        also=(1,),
        also_codes=("collective",),
        limit_s=6,
        wanted=("recv", "waits", "time limit"),
        helpful=(r"job\.py", "each other"),
    ),
    gang("skips-one", BEHIND, 3, 4, 2),
    gang(
        "hidden-size",
        DISAGREE,
        1,
        3,
        code="exception",
        wanted=("this one has 128",),
        helpful=(r"job\.py",),
    ),
    gang(
        "torchrun-other-port",
        "",
        2,
        2,
        2,
        code="rendezvous",
        also=(3,),
        also_codes=("timeout",),
        convention="torchrun",
        num_ranks=4,
        command=TORCHRUN_PORT,
        files={"job.py": SET_UP + TORCH + "dist.init_process_group('gloo')\n"},
        limit_s=20,
        wanted=("29777", "did not", "elsewhere"),
        helpful=("29777", "MASTER_PORT"),
    ),
    gang(
        "torchrun-fingerprint",
        "",
        2,
        1,
        1,
        convention="torchrun",
        num_ranks=3,
        command="torchrun --standalone --nproc-per-node 3 job.py",
        files={"job.py": SET_UP + FINGERPRINT},
        variables={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
        wanted=("mismatch", "another call", "BROADCAST"),
    ),
    gang(
        "mpi-other-tag",
        "",
        2,
        4,
        code="timeout",
        also_codes=("collective",),
        convention="mpi",
        files={"job.py": MPI},
        limit_s=8,
        wanted=(*HUNG, "tag=7"),
        helpful=("rank 2", r"job\.py"),
    ),
]
