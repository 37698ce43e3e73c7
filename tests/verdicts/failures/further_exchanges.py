"""Gangs of plain processes with exchanges of their own: queues, datagrams, rings, files, gRPC, ZeroMQ, databases."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "was at", "stayed", "still at", "had ended")
SET_UP = """\
import asyncio, fcntl, glob, hashlib, json, os, pathlib, pickle, queue, random, select, signal, socket, struct, sys
import threading, time
R, W, PORT = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["MASTER_PORT"])

"""


def gang(name: str, script: str, rank: int | None, count: int = 3, **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"further-{name}",
        "code": "collective",
        "also_codes": ("exception",),
        "command": "python -u main.py",
        "files": {"main.py": SET_UP + script},
        "wanted": HUNG,
        "helpful": (rf"rank {rank}\b", r"main\.py"),
        "misleading": (r"\bpip\b", "firewall", "memory"),
        "rank": rank,
        "convention": "process",
        "processes": count,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


STAR = """\
def dial(port=PORT, tries=150):
    for _ in range(tries):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.1)
    sys.exit("no hub")

def put(link, thing):
    data = pickle.dumps(thing)
    link.sendall(struct.pack("!I", len(data)) + data)

def exactly(link, count):
    data = b""
    while len(data) < count:
        more = link.recv(count - len(data))
        if not more:
            raise EOFError(f"{count - len(data)} bytes short")
        data += more
    return data

def take(link):
    return pickle.loads(exactly(link, struct.unpack("!I", exactly(link, 4))[0]))

def hub():
    server = socket.create_server(("127.0.0.1", PORT))
    links = {}
    while len(links) < W - 1:
        link, _ = server.accept()
        links[take(link)] = link
    return links

"""

MANAGER_QUEUE = """\
from multiprocessing.managers import BaseManager
inbox = queue.Queue()
class Board(BaseManager):
    pass
Board.register("inbox", callable=lambda: inbox)
if R == 0:
    board = Board(("127.0.0.1", PORT), b"k")
    board.start()
    mine = board.inbox()
    for n in range(W - 1):
        who, loss = mine.get(timeout=8)
        print(f"(chief) loss {loss} by {who}")
    sys.exit()
board = Board(("127.0.0.1", PORT), b"k")
for _ in range(80):
    try:
        board.connect()
        break
    except OSError:
        time.sleep(0.1)
print(f"({R}) connected")
if R == 2:
    print(f"({R}) building feature cache")
    while True:
        time.sleep(1)
board.inbox().put((R, 0.5 * R))
time.sleep(60)
"""

DATAGRAMS = """\
box = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if R == 0:
    box.bind(("127.0.0.1", PORT))
    box.settimeout(0.2)
    seen = {n: time.time() + 2 for n in range(1, W)}
    while True:
        try:
            seen[int(box.recv(8))] = time.time()
        except TimeoutError:
            pass
        for n, at in seen.items():
            if time.time() - at > 4:
                raise RuntimeError(f"lost contact with {n}: last beat {time.time() - at:.1f} s ago")
for beat in range(1000):
    box.sendto(str(R).encode(), ("127.0.0.1", PORT))
    if R == 3 and beat == 4:
        print("compiling kernels")
        sum(i * i for i in range(10 ** 12))
    time.sleep(0.3)
"""

BAD_HELLO = (
    STAR
    + """\
if R == 0:
    links = hub()
    for n, link in sorted(links.items()):
        version = take(link)
        if version != "v2":
            raise ValueError(f"hello of worker {n} has version {version!r}, need 'v2'")
    time.sleep(30)
link = dial()
put(link, R)
put(link, "v1" if R == 1 else "v2")
take(link)
"""
)

RING_DIES = (
    STAR
    + """\
server = socket.create_server(("127.0.0.1", PORT + R + 1))
right = dial(PORT + (R + 1) % W + 1)
left, _ = server.accept()
total = 0
for turn in range(40):
    put(right, {"turn": turn, "value": "x" if (R, turn) == (3, 5) else turn})
    got = take(left)
    if R == 3 and turn == 5:
        total += int("12,5")
    total += turn
    print(f"ring {R} turn {turn}")
    time.sleep(0.1)
"""
)

RING_STALLS = (
    STAR
    + """\
server = socket.create_server(("127.0.0.1", PORT + R + 1))
right = dial(PORT + (R + 1) % W + 1)
left, _ = server.accept()
left.settimeout(6)
for turn in range(40):
    put(right, turn)
    take(left)
    if R == 2 and turn == 3:
        print("rotating the log file")
        threading.Event().wait()
"""
)

OTHER_FILE_NAME = """\
out = pathlib.Path("stats")
out.mkdir(exist_ok=True)
name = f"stats-{R}.json" if R == 2 else f"stats_{R}.json"
(out / name).write_text(json.dumps({"rows": 10 * R}))
print(f"wrote {name}")
deadline = time.time() + 5
if R == 0:
    for n in range(W):
        while not (out / f"stats_{n}.json").exists():
            if time.time() > deadline:
                raise FileNotFoundError(f"stats/stats_{n}.json did not appear in 5 s")
            time.sleep(0.1)
while not (out / "merged.json").exists():
    time.sleep(0.1)
"""

DONE_FILES = """\
import subprocess
done = pathlib.Path("done")
done.mkdir(exist_ok=True)
if R == 1:
    subprocess.run(["sleep", "300"])
(done / str(R)).touch()
until = time.monotonic() + 6
while (count := len(list(done.iterdir()))) < W:
    if time.monotonic() > until:
        raise TimeoutError(f"{count}/{W} done files after 6 s")
    time.sleep(0.2)
"""

GRPC = """\
import grpc
from concurrent import futures
text = (lambda s: s.encode(), lambda b: b.decode())
"""
GRPC_REFUSES = (
    GRPC
    + """\
if R == 0:
    def join(request, context):
        who, size = request.split()
        if size != "32000":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"vocabulary of size {size}, expected 32000")
        return "ok"
    handler = grpc.method_handlers_generic_handler("Hub", {
        "Join": grpc.unary_unary_rpc_method_handler(join, text[1], text[0])})
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[handler])
    server.add_insecure_port(f"127.0.0.1:{PORT}")
    server.start()
    server.wait_for_termination()
channel = grpc.insecure_channel(f"127.0.0.1:{PORT}")
grpc.channel_ready_future(channel).result(20)
size = 31999 if R == 2 else 32000
print(f"tokenizer has {size} entries")
print(channel.unary_unary("/Hub/Join", text[0], text[1])(f"{R} {size}"))
time.sleep(60)
"""
)
GRPC_HANDLER = (
    GRPC
    + """\
SHARDS = {"1": "a", "3": "c"}
if R == 0:
    def lease(request, context):
        return SHARDS[request]
    handler = grpc.method_handlers_generic_handler("Data", {
        "Lease": grpc.unary_unary_rpc_method_handler(lease, text[1], text[0])})
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[handler])
    server.add_insecure_port(f"127.0.0.1:{PORT}")
    server.start()
    server.wait_for_termination()
channel = grpc.insecure_channel(f"127.0.0.1:{PORT}")
grpc.channel_ready_future(channel).result(20)
print(channel.unary_unary("/Data/Lease", text[0], text[1])(str(R)))
time.sleep(60)
"""
)

ZMQ_PULL = """\
import zmq
context = zmq.Context()
if R == 0:
    pull = context.socket(zmq.PULL)
    pull.bind(f"tcp://127.0.0.1:{PORT}")
    got = set()
    while len(got) < W - 1:
        if not pull.poll(6000):
            print(f"FATAL: expected {W - 1} gradients, got {len(got)}, from {sorted(got)}")
            sys.exit(3)
        got.add(pull.recv_pyobj()["rank"])
push = context.socket(zmq.PUSH)
push.connect(f"tcp://127.0.0.1:{PORT}")
if R == 2:
    open("/dev/stdin").read()
    signal.pause()
push.send_pyobj({"rank": R})
time.sleep(60)
"""

BEAT_FILES = """\
import re
beats = pathlib.Path("hb")
beats.mkdir(exist_ok=True)
def beat():
    (beats / str(R)).write_text(str(time.time()))
def watch():
    time.sleep(3)
    while True:
        for n in range(W):
            age = time.time() - (beats / str(n)).stat().st_mtime
            if n != R and age > 4:
                print(f"stale heartbeat: hb/{n} is {age:.1f} s old, leaving")
                os._exit(7)
        time.sleep(0.3)
beat()
threading.Thread(target=watch, daemon=True).start()
for step in range(1000):
    beat()
    if R == 3 and step == 3:
        re.match(r"(a+)+$", "a" * 60 + "b")
    time.sleep(0.3)
"""

SQLITE_PHASE = """\
import sqlite3
db = sqlite3.connect("progress.db", timeout=20)
db.execute("create table if not exists done (rank int, phase int)")
db.commit()
rows = [] if R == 2 else list(range(10))
if not rows:
    print("shard is empty, nothing to do")
    sys.exit(0)
db.execute("insert into done values (?, 1)", (R,))
db.commit()
until = time.time() + 6
while db.execute("select count(*) from done where phase = 1").fetchone()[0] < W:
    if time.time() > until:
        raise TimeoutError("phase 1 is not complete")
    time.sleep(0.2)
"""

SHAPES_AT_HUB = (
    STAR
    + """\
import numpy as np
features = np.zeros((3, 4 if R == 2 else 5))
print(f"worker {R}: features {features.shape}")
if R == 0:
    total = features
    for n, link in sorted(hub().items()):
        total = total + take(link)
    sys.exit()
link = dial()
put(link, R)
put(link, features)
take(link)
"""
)

DIGESTS_AT_HUB = (
    STAR
    + """\
config = {"lr": 0.1, "depth": 12 if R != 2 else 24}
digest = hashlib.sha1(json.dumps(config).encode()).hexdigest()[:6]
if R == 0:
    digests = {0: digest, **{n: take(link) for n, link in sorted(hub().items())}}
    if len(set(digests.values())) > 1:
        print(f"config mismatch: {digests}")
        sys.exit(3)
link = dial()
put(link, R)
put(link, digest)
take(link)
"""
)

THREAD_RAISES = (
    STAR
    + """\
batches = queue.Queue()
def prefetch():
    for n in range(100):
        if (R, n) == (2, 4):
            raise OSError("frame 4 of clip 2 cannot be decoded")
        batches.put(n)
        time.sleep(0.05)
threading.Thread(target=prefetch, daemon=True).start()
if R == 0:
    links = hub()
    for link in links.values():
        link.settimeout(6)
    for step in range(20):
        for n, link in sorted(links.items()):
            take(link)
link = dial()
put(link, R)
for step in range(20):
    put(link, batches.get())
time.sleep(60)
"""
)

RETRIES = """\
if R == 0:
    print("building the index")
    time.sleep(300)
for attempt in range(1, 6):
    try:
        link = socket.create_connection(("127.0.0.1", PORT), timeout=2)
        break
    except OSError as error:
        print(f"connect attempt {attempt} failed: {error}")
        time.sleep(1)
else:
    sys.exit("gave up after 5 attempts: coordinator unreachable")
"""

ONE_WRONG_PORT = (
    STAR
    + """\
if R == 0:
    links = hub()
    sys.exit()
port = PORT + 1 if R == 2 else PORT
for attempt in range(10):
    try:
        link = socket.create_connection(("127.0.0.1", port))
        break
    except OSError:
        time.sleep(0.3)
else:
    print(f"worker {R}: no coordinator at 127.0.0.1:{port}", file=sys.stderr)
    sys.exit(1)
put(link, R)
take(link)
"""
)

TWICE = (
    STAR
    + """\
me = 1 if R == 2 else R
if R == 0:
    server = socket.create_server(("127.0.0.1", PORT))
    links = {}
    while len(links) < W - 1:
        link, _ = server.accept()
        n = take(link)
        if n in links:
            raise RuntimeError(f"worker {n} registered twice")
        links[n] = link
time.sleep(R)
print(f"I am worker {me} of {W}")
link = dial()
put(link, me)
take(link)
"""
)

ASYNC_STREAM = """\
async def client():
    for _ in range(100):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
            break
        except OSError:
            await asyncio.sleep(0.1)
    for step in range(10):
        value = None if (R, step) == (1, 3) else step
        writer.write(struct.pack("!dI", value * 0.5, R))
        await writer.drain()
        await reader.readexactly(8)
async def serve():
    async def one(reader, writer):
        while True:
            value, who = struct.unpack("!dI", await reader.readexactly(12))
            writer.write(struct.pack("!d", value))
    failed = asyncio.get_running_loop().create_future()
    async def guarded(reader, writer):
        try:
            await one(reader, writer)
        except Exception as error:
            failed.set_exception(error)
    await asyncio.start_server(guarded, "127.0.0.1", PORT)
    await failed
asyncio.run(serve() if R == 0 else client())
"""

NAN_UPDATE = (
    STAR
    + """\
import math
if R == 0:
    links = hub()
    for step in range(9):
        for n, link in sorted(links.items()):
            update = take(link)
            if math.isnan(update):
                raise ValueError(f"update {step} from worker {n} is not a number")
            put(link, step)
link = dial()
put(link, R)
for step in range(9):
    put(link, float("nan") if (R, step) == (3, 4) else 0.1)
    take(link)
"""
)

ERROR_FRAME = (
    STAR
    + """\
if R == 0:
    links = hub()
    for step in range(5):
        for link in links.values():
            kind, what = take(link)
            if kind == "error":
                raise RuntimeError(f"worker failed: {what}")
link = dial()
put(link, R)
for step in range(5):
    try:
        if (R, step) == (2, 2):
            open("tokens.bin")
        put(link, ("ok", step))
    except OSError as error:
        put(link, ("error", f"{type(error).__name__}: {error}"))
        take(link)
    time.sleep(0.1)
take(link)
"""
)

KILLED_OF_12 = (
    STAR
    + """\
if R == 0:
    links = hub()
    for step in range(50):
        for n, link in sorted(links.items()):
            take(link)
        for link in links.values():
            put(link, step)
link = dial()
put(link, R)
for step in range(50):
    put(link, step)
    take(link)
    if (R, step) == (7, 6):
        os.kill(os.getpid(), signal.SIGKILL)
"""
)

MAPPED_OF_16 = (
    STAR
    + """\
if R == 0:
    links = hub()
    while True:
        for n, link in sorted(links.items()):
            take(link)
        for link in links.values():
            put(link, "next")
link = dial()
put(link, R)
for step in range(50):
    put(link, step)
    take(link)
    if (R, step) == (11, 4):
        import ctypes
        ctypes.string_at(8)
"""
)

LOCK_AT_LIMIT = """\
lock = open("cache.lock", "w")
if R == 0:
    fcntl.flock(lock, fcntl.LOCK_EX)
ready = pathlib.Path("ready")
ready.mkdir(exist_ok=True)
if R == 2:
    time.sleep(1)
    fcntl.flock(lock, fcntl.LOCK_EX)
(ready / str(R)).touch()
def all_ready():
    while len(list(ready.iterdir())) < W:
        time.sleep(0.1)
all_ready()
"""

EVALUATES = (
    STAR
    + """\
def evaluate():
    best = 0
    while True:
        best = max(best, random.random())
if R == 0:
    links = hub()
    for n, link in links.items():
        take(link)
    evaluate()
    for link in links.values():
        put(link, "go")
link = dial()
put(link, R)
put(link, "ready")
take(link)
"""
)

FIFO_PEER = """\
name = "pipe"
if R == 0:
    os.mkfifo(name)
    with open(name) as pipe:
        lines = [json.loads(line) for line in pipe]
    print(len(lines), "records")
    if len(lines) < (W - 1) * 3:
        sys.exit(f"incomplete: {len(lines)} of {(W - 1) * 3} records came")
while not os.path.exists(name):
    time.sleep(0.1)
with open(name, "w") as pipe:
    for n in range(3):
        print(json.dumps({"rank": R, "n": n, "value": 1 / (2 - R - n)}), file=pipe, flush=True)
        time.sleep(0.2)
"""

FAILURES = [
    gang("queue-empty", MANAGER_QUEUE, 2),
    gang("datagrams-stop", DATAGRAMS, 3, 4),
    gang("hello-version", BAD_HELLO, 1, 4, code="exception", wanted="hello of worker 1 has version 'v1', need 'v2'"),
    gang("ring-parse", RING_DIES, 3, 5, code="exception", wanted="invalid literal for int() with base 10: '12,5'"),
    gang("ring-stalls", RING_STALLS, 2, 5),
    gang("other-file-name", OTHER_FILE_NAME, 2, wanted=("stats/stats_2.json did not appear", *HUNG)),
    gang("done-files", DONE_FILES, 1, 4),
    gang("grpc-refuses", GRPC_REFUSES, 2, 4, code="exception", wanted="vocabulary of size 31999, expected 32000"),
    gang("grpc-handler", GRPC_HANDLER, 0, 4, code="exception", wanted=("KeyError", "Exception calling application")),
    gang("zmq-pull", ZMQ_PULL, 2, 4, also_codes=("exit_code",), wanted=("expected 3 gradients, got 2", *HUNG)),
    gang("beat-files", BEAT_FILES, 3, 4, also_codes=("exit_code",), wanted=("stale heartbeat: hb/3", *HUNG)),
    gang("sqlite-phase", SQLITE_PHASE, 2, 4, wanted=("phase 1 is not complete", "shard is empty", *HUNG)),
    gang("shapes-at-hub", SHAPES_AT_HUB, 2, 4, code="exception", wanted="operands could not be broadcast together"),
    gang("digests-at-hub", DIGESTS_AT_HUB, 2, 4, code="exit_code", also_codes=(), wanted="config mismatch"),
    gang("thread-raises", THREAD_RAISES, 2, 3, code="exception", wanted="frame 4 of clip 2 cannot be decoded"),
    gang(
        "retries",
        RETRIES,
        0,
        4,
        code="rendezvous",
        also_codes=("exit_code", "collective"),
        wanted=("coordinator unreachable", "building the index", *HUNG),
    ),
    gang(
        "one-wrong-port",
        ONE_WRONG_PORT,
        2,
        4,
        code="rendezvous",
        also_codes=("exit_code",),
        wanted="no coordinator at 127.0.0.1:",
    ),
    gang(
        "registered-twice",
        TWICE,
        2,
        4,
        code="exception",
        also_codes=("rendezvous",),
        wanted="worker 1 registered twice",
    ),
    gang("async-stream", ASYNC_STREAM, 1, 3, code="exception", wanted="unsupported operand type(s) for *: 'NoneType'"),
    gang("update-not-a-number", NAN_UPDATE, 3, 4, code="exception", wanted="update 4 from worker 3 is not a number"),
    gang("error-frame", ERROR_FRAME, 2, 4, code="exception", wanted="No such file or directory: 'tokens.bin'"),
    gang(
        "killed-of-12",
        KILLED_OF_12,
        7,
        12,
        code="signal",
        also_codes=(),
        wanted=("SIGKILL", "signal 9"),
        misleading=(r"\bpip\b", "firewall"),
    ),
    gang(
        "crash-of-16",
        MAPPED_OF_16,
        11,
        16,
        code="signal",
        also_codes=(),
        wanted=("SIGSEGV", "segmentation"),
        misleading=(r"\bpip\b", "firewall"),
    ),
    gang(
        "lock-at-limit",
        LOCK_AT_LIMIT,
        2,
        4,
        code="timeout",
        also_codes=(),
        limit_s=8.0,
        wanted=("limit", "flock"),
        also=(0,),
    ),
    gang("evaluates-at-limit", EVALUATES, 0, 4, code="timeout", also_codes=(), limit_s=8.0, wanted=("limit",)),
    gang("fifo-peer", FIFO_PEER, 2, 3, code="exception", wanted="ZeroDivisionError"),
]
