"""Gangs whose peers are written by hand. The labels were given before any verdict was seen."""

from functools import partial

from recorder import Failure

gang = partial(Failure, convention="process")
WIRE = """\
import json
import os
import socket
import struct
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def send(connection, message):
    data = json.dumps(message).encode()
    connection.sendall(struct.pack("!I", len(data)) + data)


def receive(connection):
    size = struct.unpack("!I", exactly(connection, 4))[0]
    return json.loads(exactly(connection, size))


def exactly(connection, count):
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("peer closed the connection")
        data += part
    return data


def connect(timeout=10):
    deadline = time.monotonic() + timeout
    while True:
        try:
            return socket.create_connection(ADDRESS, timeout=timeout)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
"""
HUNG = ("did not", "hung", "stuck", "blocked", "waiting", "not respond", "no answer")

FAILURES = [
    gang(
        name="n-tcp-star-worker-key-error",
        code="exception",
        processes=4,
        nodes=2,
        rank=2,
        command="python star.py",
        files={
            "wire.py": WIRE,
            "star.py": """\
import socket

import wire


def serve():
    with socket.create_server(wire.ADDRESS) as server:
        peers = [server.accept()[0] for _ in range(wire.WORLD - 1)]
    for step in range(6):
        total = sum(wire.receive(peer)["gradient"] for peer in peers)
        for peer in peers:
            wire.send(peer, {"weight": 1.0 - total / 10, "step": step})
        print("server: step", step, "total", total, flush=True)


def work():
    connection = wire.connect()
    limits = {0: 1.0, 1: 0.9, 2: 0.8, 3: 0.7, 4: 0.6, 5: 0.5}
    if wire.RANK == 2:
        del limits[3]
    for step in range(6):
        wire.send(connection, {"gradient": limits[step]})
        answer = wire.receive(connection)
        print("worker", wire.RANK, answer, flush=True)


serve() if wire.RANK == 0 else work()
""",
        },
        wanted="KeyError: 3",
        helpful=(r"star\.py", r"\blimits\b"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-tcp-ring-one-reads-forever",
        code="collective",
        processes=5,
        rank=3,
        command="python ring.py",
        files={
            "ring.py": """\
import os
import socket
import time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
os.makedirs("ports", exist_ok=True)
server = socket.create_server(("127.0.0.1", 0))
with open(f"ports/{rank}.tmp", "w") as out:
    out.write(str(server.getsockname()[1]))
os.rename(f"ports/{rank}.tmp", f"ports/{rank}")
right = (rank + 1) % world
while not os.path.exists(f"ports/{right}"):
    time.sleep(0.05)
outgoing = socket.create_connection(("127.0.0.1", int(open(f"ports/{right}").read())))
incoming, _ = server.accept()
incoming.settimeout(None if rank == 3 else 4.0)
value = rank + 1
for lap in range(8):
    if not (rank == 3 and lap == 2):
        outgoing.sendall(value.to_bytes(8, "big"))
    size = 16 if rank == 3 and lap == 2 else 8
    received = b""
    while len(received) < size:
        received += incoming.recv(size - len(received))
    value = int.from_bytes(received[:8], "big") % 1000
    print(f"rank {rank} lap {lap}: {value}", flush=True)
""",
        },
        wanted=(*HUNG, "incoming.recv"),
        helpful=(r"ring\.py", r"\brecv\b|\bsize\b", r"rank 3"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    gang(
        name="n-grpc-servicer-raises",
        code="exception",
        processes=3,
        nodes=3,
        rank=0,
        command="python ps.py",
        files={
            "ps.py": """\
import os
import pickle
import time
from concurrent import futures

import grpc

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
target = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"


class Parameters(grpc.GenericRpcHandler):
    def __init__(self):
        self.values = {"layer1": 0.0, "layer2": 0.0}
        self.pushes = 0

    def service(self, details):
        if details.method == "/ps/push":
            return grpc.unary_unary_rpc_method_handler(self.push)
        return None

    def push(self, request, context):
        update = pickle.loads(request)
        self.pushes += 1
        for name, delta in update.items():
            self.values[name] = self.values[name] + delta / (7 - self.pushes)
        return pickle.dumps(self.values)


if rank == 0:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Parameters(),))
    server.add_insecure_port(target)
    server.start()
    print("parameter server is up", flush=True)
    server.wait_for_termination(20)
else:
    push = grpc.insecure_channel(target).unary_unary("/ps/push")
    for step in range(10):
        values = pickle.loads(push(pickle.dumps({"layer1": 0.5, "layer2": rank}), timeout=10, wait_for_ready=True))
        print(f"worker {rank} step {step}: {values}", flush=True)
        time.sleep(0.2)
""",
        },
        wanted="division by zero",
        helpful=(r"ps\.py", r"\bpush\b|pushes"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-grpc-deadline-one-never-reports",
        code="collective",
        processes=4,
        rank=3,
        command="python -u allreduce.py",
        files={
            "allreduce.py": """\
import json
import os
import threading
import time
from concurrent import futures

import grpc

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TARGET = f"127.0.0.1:{os.environ['MASTER_PORT']}"


class Sum(grpc.GenericRpcHandler):
    def __init__(self):
        self.barrier = threading.Barrier(WORLD)
        self.values = {}

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.reduce)

    def reduce(self, request, context):
        message = json.loads(request)
        self.values[message["rank"]] = message["value"]
        self.barrier.wait()
        return json.dumps(sum(self.values.values())).encode()


def local_gradient(step):
    value = 1.0
    while RANK == 3 and step == 2 and abs(value) > 1e-9:
        value = -value  # the line search does not converge
    return value


if RANK == 0:
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((Sum(),))
    server.add_insecure_port(TARGET)
    server.start()
call = grpc.insecure_channel(TARGET).unary_unary("/sum/reduce")
for step in range(5):
    body = json.dumps({"rank": RANK, "value": local_gradient(step)}).encode()
    print(f"rank {RANK} step {step} total {call(body, timeout=5, wait_for_ready=True).decode()}")
time.sleep(1)
""",
        },
        wanted=(*HUNG, "local_gradient"),
        helpful=(r"allreduce\.py", r"local_gradient", r"rank 3"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    gang(
        name="n-http-parameter-server-handler-fails",
        code="exception",
        processes=3,
        rank=0,
        command="python http_ps.py",
        files={
            "http_ps.py": """\
import http.server
import json
import os
import time
import urllib.request

rank = int(os.environ["RANK"])
url = f"http://127.0.0.1:{os.environ['MASTER_PORT']}/gradient"
state = {"bias": 0.0, "updates": 0}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        state["updates"] += 1
        if state["updates"] == 5:
            state["bias"] = None
        state["bias"] += body["gradient"]
        answer = json.dumps(state).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def post(gradient):
    request = urllib.request.Request(url, json.dumps({"gradient": gradient}).encode())
    for _ in range(50):
        try:
            return json.load(urllib.request.urlopen(request, timeout=5))
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            time.sleep(0.2)
    raise SystemExit("the server never came up")


if rank == 0:
    http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["MASTER_PORT"])), Handler).serve_forever()
for step in range(10):
    print(f"worker {rank}", step, post(0.1 * rank), flush=True)
    time.sleep(0.1)
""",
        },
        wanted="unsupported operand type(s) for +=: 'NoneType' and 'float'",
        helpful=(r"http_ps\.py", r"\bbias\b", r"do_POST"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-http-server-rejects-gradient",
        code="exception",
        processes=4,
        nodes=4,
        rank=1,
        command="python fed.py",
        files={
            "fed.py": """\
import http.server
import json
import math
import os
import time
import urllib.error
import urllib.request

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
port = int(os.environ["MASTER_PORT"])


class Aggregator(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        update = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not all(math.isfinite(v) for v in update["delta"]):
            return self.send_error(422, f"client {update['client']}: delta is not finite")
        self.send_response(204)
        self.end_headers()


def push(delta):
    body = json.dumps({"client": rank, "delta": delta}).encode()
    urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/", body), timeout=8)


if rank == 0:
    print("aggregator for", world - 1, "clients", flush=True)
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Aggregator).serve_forever()
time.sleep(1)
for round_number in range(12):
    scale = 0.0 if (rank, round_number) == (1, 4) else 1.0
    delta = [math.inf * scale if scale == 0 else 0.1] * 3
    try:
        push(delta)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"round {round_number}: rejected: {error.reason}") from error
    print(f"client {rank} finished round {round_number}", flush=True)
    time.sleep(0.2)
""",
        },
        wanted=("delta is not finite", "rejected", "HTTP Error 422"),
        helpful=(r"fed\.py", r"finite|nan|inf\b", r"\bdelta\b"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-manager-authkey-differs",
        code="exception",
        processes=3,
        rank=2,
        command="python shared_queue.py",
        files={
            "cluster.json": '{"authkey": "tulip", "per_rank": {"2": {"authkey": "tulips"}}}\n',
            "shared_queue.py": """\
import json
import os
import queue
import time
from multiprocessing.managers import BaseManager

rank = int(os.environ["RANK"])
conf = json.load(open("cluster.json"))
conf |= conf["per_rank"].get(str(rank), {})
address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
tasks = queue.Queue()


class Tasks(BaseManager):
    pass


if rank == 0:
    for number in range(30):
        tasks.put(number)
    Tasks.register("tasks", callable=lambda: tasks)
    Tasks(address, conf["authkey"].encode()).get_server().serve_forever()
Tasks.register("tasks")
manager = Tasks(address, conf["authkey"].encode())
time.sleep(1.5)
manager.connect()
work = manager.tasks()
while not work.empty():
    print(f"rank {rank} takes {work.get()}", flush=True)
    time.sleep(0.1)
""",
        },
        wanted=("digest sent was rejected", "AuthenticationError"),
        helpful=(r"authkey", r"cluster\.json|shared_queue\.py"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    gang(
        name="n-shared-folder-part-never-written",
        code="collective",
        processes=6,
        nodes=3,
        rank=4,
        command="python exchange.py",
        files={
            "exchange.py": """\
import os
import sys
import time
from pathlib import Path

import numpy as np

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = Path("exchange")
folder.mkdir(exist_ok=True)


def publish(step, array):
    np.save(folder / f"tmp-{rank}.npy", array)
    os.rename(folder / f"tmp-{rank}.npy", folder / f"{step}-{rank}.npy")


def collect(step, patience=6.0):
    deadline = time.monotonic() + patience
    wanted = [folder / f"{step}-{other}.npy" for other in range(world)]
    while missing := [path for path in wanted if not path.exists()]:
        if time.monotonic() > deadline:
            names = ", ".join(path.name for path in missing)
            raise TimeoutError(f"step {step}: {names} not written within {patience:g} s")
        time.sleep(0.05)
    return sum(np.load(path) for path in wanted)


def gradient(step):
    if rank == 4 and step == 3:
        time.sleep(3600)
    return np.ones(4) * rank


for step in range(6):
    publish(step, gradient(step))
    print(f"rank {rank} step {step}: {collect(step)[0]}", flush=True)
""",
        },
        wanted=("3-4.npy not written", "time.sleep", "did not", "hung"),
        helpful=(r"exchange\.py", r"\bgradient\b|time\.sleep", r"rank 4"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
]
