"""Gangs without torch: parameter servers by hand, zmq, gRPC."""

from functools import partial

from recorder import Failure
from v_wire import WIRE

Gang = partial(Failure, convention="process", processes=4)

FAILURES = [
    Gang(
        name="v-ps-worker-bad-gradient",
        way="a worker's gradient has another shape; the server raises, the workers lose it",
        code="exception",
        rank=2,
        also=(0,),
        command="python ps.py",
        files={
            "wire.py": WIRE,
            "ps.py": """import os, socket, sys
import numpy as np
from wire import connect, receive, send

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
HOST, PORT = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def server():
    weights = np.zeros(10)
    listener = socket.create_server((HOST, PORT))
    socks = [listener.accept()[0] for _ in range(WORLD - 1)]
    for step in range(20):
        for sock in socks:
            who, grad = receive(sock)
            if grad.shape != weights.shape:
                raise ValueError(f"worker {who} pushed a gradient of shape {grad.shape}, weights have {weights.shape}")
            weights -= 0.1 * grad
        for sock in socks:
            send(sock, weights)
        print("server: step", step, "norm", np.linalg.norm(weights), flush=True)


def worker():
    sock = connect(HOST, PORT)
    for step in range(20):
        size = 12 if RANK == 2 and step == 3 else 10
        send(sock, (RANK, np.random.randn(size)))
        receive(sock)
    print("worker", RANK, "done")


server() if RANK == 0 else worker()
""",
        },
        wanted="worker 2 pushed a gradient of shape (12,), weights have (10,)",
        helpful=(r"ps\.py|shape|gradient|worker 2",),
        misleading=(r"firewall|out of memory|interface",),
    ),
    Gang(
        name="v-ps-server-overflows",
        way="the server fails at its own update; workers report a closed connection first",
        code="exception",
        rank=0,
        command="python -u cluster.py",
        files={
            "wire.py": WIRE,
            "cluster.py": """import logging, math, os, socket
from wire import connect, receive, send

logging.basicConfig(format="%(levelname).1s%(asctime)s.%(msecs)03d %(filename)s:%(lineno)d] %(message)s",
                    datefmt="%m%d %H:%M:%S", level=logging.INFO)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
addr = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))

if rank == 0:
    srv = socket.create_server(addr)
    conns = [srv.accept()[0] for _ in range(world - 1)]
    logging.info("all %d workers connected", len(conns))
    log_scale = 700.0
    for step in range(50):
        total = sum(receive(c) for c in conns)
        log_scale += total
        scale = math.exp(log_scale)
        for c in conns:
            send(c, scale)
        logging.info("step %d scale %.3e", step, scale)
else:
    c = connect(*addr)
    for step in range(50):
        send(c, 1.5)
        try:
            scale = receive(c)
        except ConnectionError as e:
            logging.error("lost parameter server at step %d: %s", step, e)
            raise SystemExit(1)
""",
        },
        wanted="OverflowError: math range error",
        helpful=(r"cluster\.py|overflow|scale",),
        misleading=(r"firewall|interface",),
    ),
    Gang(
        name="v-ps-worker-silent-heartbeat",
        way="a worker is in a long sort; the server gives up after missing heartbeats",
        code="collective",
        also_codes=("exit_code",),
        rank=3,
        command="python -u hb.py",
        files={
            "wire.py": WIRE,
            "hb.py": """import os, select, socket, sys, time
from wire import connect, receive, send

rank = int(os.environ["RANK"]); n = int(os.environ["WORLD_SIZE"])
addr = ("127.0.0.1", int(os.environ["MASTER_PORT"]))

def coordinator():
    s = socket.create_server(addr)
    conns = {}
    while len(conns) < n - 1:
        c, _ = s.accept()
        conns[receive(c)] = c
    seen = {r: time.time() for r in conns}
    while True:
        ready, _, _ = select.select(list(conns.values()), [], [], 0.5)
        for r, c in conns.items():
            if c in ready:
                receive(c)
                seen[r] = time.time()
            if time.time() - seen[r] > 3:
                print(f"coordinator: no heartbeat from worker {r} for 3 s, giving up")
                sys.exit(1)

def worker():
    c = connect(*addr)
    send(c, rank)
    for epoch in range(100):
        print(f"worker {rank}: epoch {epoch}")
        if rank == 3 and epoch == 4:
            rebuild_index()
        send(c, "beat")
        time.sleep(0.3)

def rebuild_index():
    print("worker 3: rebuilding index of 4.1M samples")
    end = time.time() + 60
    while time.time() < end:
        sorted(range(20000), key=lambda i: -i)

coordinator() if rank == 0 else worker()
""",
        },
        wanted=("no heartbeat from worker 3", "rebuilding index"),
        helpful=(r"hb\.py|heartbeat|rebuild|worker 3|rank 3|timeout",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-ps-server-port-taken",
        way="the parameter server's fixed port is in use",
        code="port_trouble",
        rank=0,
        processes=3,
        command="python serve.py",
        files={
            "wire.py": WIRE,
            "serve.py": """import os, socket, sys, time
from wire import connect, receive, send

PORT = 47391
rank = int(os.environ["RANK"])
if rank == 0:
    squatter = socket.create_server(("127.0.0.1", PORT)) if not os.environ.get("CLEAN") else None  # a zombie of the last run
    print("parameter server on port", PORT, flush=True)
    server = socket.socket()
    server.bind(("127.0.0.1", PORT))
    server.listen()
else:
    conn = connect("127.0.0.1", PORT)
    conn.settimeout(15)
    print("worker", rank, "connected", flush=True)
    print(receive(conn))
""",
        },
        wanted="Address already in use",
        helpful=(r"47391|port",),
        misleading=(r"memory|dataset",),
    ),
    Gang(
        name="v-ps-worker-cannot-connect",
        way="the server is started with a debug flag and listens on another port",
        code="rendezvous",
        also_codes=("exception",),
        rank=0,
        also=(1, 2),
        processes=3,
        command='if [ "$RANK" = 0 ]; then python server.py --port 7070; else python client.py --server 127.0.0.1:7077; fi',
        files={
            "server.py": """import argparse, socket
a = argparse.ArgumentParser(); a.add_argument("--port", type=int); o = a.parse_args()
s = socket.create_server(("127.0.0.1", o.port))
print("listening on", o.port, flush=True)
while True:
    c, peer = s.accept()
    print("hello", peer, flush=True)
""",
            "client.py": """import argparse, socket, time
a = argparse.ArgumentParser(); a.add_argument("--server"); o = a.parse_args()
host, port = o.server.split(":")
for attempt in range(1, 6):
    try:
        s = socket.create_connection((host, int(port)), 2)
        break
    except ConnectionRefusedError as e:
        print(f"attempt {attempt}/5: {e}", flush=True)
        time.sleep(0.5)
else:
    raise RuntimeError(f"could not reach parameter server at {o.server} after 5 attempts")
""",
        },
        wanted=("could not reach parameter server at 127.0.0.1:7077", "Connection refused"),
        helpful=(r"7077|7070|--port|--server|port",),
        misleading=(r"memory|dataset",),
    ),
    Gang(
        name="v-zmq-worker-no-reply",
        way="zmq requests time out because the rank that answers is in input/output",
        code="collective",
        also_codes=("exception", "rendezvous"),
        rank=0,
        processes=3,
        command="python rpc.py",
        files={
            "rpc.py": """import os, time, zmq

ctx = zmq.Context()
rank = int(os.environ["RANK"])
url = f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"
if rank == 0:
    rep = ctx.socket(zmq.REP)
    rep.bind(url)
    served = 0
    while True:
        request = rep.recv_json()
        served += 1
        if served == 7:
            print("flushing replay buffer to /mnt/slow/replay.bin", flush=True)
            time.sleep(90)
        rep.send_json({"version": served})
else:
    req = ctx.socket(zmq.REQ)
    req.setsockopt(zmq.RCVTIMEO, 4000)
    req.connect(url)
    for i in range(20):
        req.send_json({"actor": rank, "episode": i})
        answer = req.recv_json()
        print("actor", rank, "got weights", answer["version"], flush=True)
"""
        },
        wanted=("flushing replay buffer to /mnt/slow/replay.bin", "time.sleep(90)"),
        helpful=(r"rpc\.py|replay|flush|timeout|RCVTIMEO",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-grpc-deadline",
        way="the learner's handler raises; actors see StatusCode.UNKNOWN",
        code="exception",
        rank=0,
        processes=3,
        command="python rl.py",
        files={
            "rl.py": """import logging, os, sys, time
from concurrent import futures
import grpc

logging.basicConfig()

RANK = int(os.environ["RANK"])
TARGET = "127.0.0.1:" + os.environ["MASTER_PORT"]


def push(request, context):
    name, _, size = request.decode().partition(":")
    buffers = {"actor-1": []}
    buffers[name].extend([0] * int(size))
    return b"ok"


def learner():
    handler = grpc.unary_unary_rpc_method_handler(push)
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("rl.Learner", {"Push": handler}),))
    server.add_insecure_port(TARGET)
    server.start()
    server.wait_for_termination(timeout=30)


def actor():
    with grpc.insecure_channel(TARGET) as channel:
        call = channel.unary_unary("/rl.Learner/Push")
        for episode in range(10):
            call(f"actor-{RANK}:{128}".encode(), wait_for_ready=True, timeout=20)
            print(f"actor-{RANK} episode {episode}", flush=True)
            time.sleep(0.1)


learner() if RANK == 0 else actor()
"""
        },
        wanted="KeyError: 'actor-2'",
        helpful=(r"rl\.py|actor-2|buffers",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-grpc-unavailable",
        way="the head node's service never starts because its config file is missing",
        code="exception",
        also_codes=("data_unavailable", "bad_input"),
        rank=0,
        processes=3,
        command="python node.py --config configs/prod.yaml",
        files={
            "configs/production.yaml": "port: 5000\n",
            "node.py": """import argparse, os, sys, time
import grpc, yaml
p = argparse.ArgumentParser()
p.add_argument("--config", required=True)
args = p.parse_args()
rank = int(os.environ["RANK"])
target = "127.0.0.1:" + os.environ["MASTER_PORT"]
if rank == 0:
    config = yaml.safe_load(open(args.config))
    print("head started with", config)
else:
    channel = grpc.insecure_channel(target)
    for i in range(3):
        try:
            channel.unary_unary("/pool.Head/Join")(b"hi", timeout=1)
        except grpc.RpcError as e:
            print("join failed:", e.code(), e.details(), file=sys.stderr, flush=True)
            time.sleep(0.2)
    sys.exit("head not available after 3 tries")
""",
        },
        wanted="No such file or directory: 'configs/prod.yaml'",
        helpful=(r"prod\.yaml|--config|config",),
        misleading=(r"firewall|memory|interface",),
    ),
]
