"""Gangs that wait for each other in many ways: in DDP, objects, stores, sockets, managers, files, HTTP and MPI."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "was at", "stayed", "had ended", "another call")
SET_UP = """\
import datetime, os, sys, time, threading, queue, subprocess
import torch
import torch.distributed as dist
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def join(seconds=6):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))

"""


def gang(name: str, script: str, rank: int | None, count: int = 3, nodes: int = 1, **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"wide-{name}",
        "code": "collective",
        "command": "python -u train.py",
        "files": {"train.py": SET_UP + script},
        "wanted": HUNG,
        "helpful": (rf"rank {rank}",),
        "misleading": (r"\bpip\b", "firewall"),
        "rank": rank,
        "convention": "process",
        "processes": count,
        "nodes": nodes,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


DDP = """\
join()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
def preprocess(step):
    if RANK == {guilty} and step == 3:
        time.sleep(300)
    return torch.randn(8, 4)
for step in range(9):
    model(preprocess(step)).sum().backward()
    print("step", step)
"""

DEADLOCK = """\
join()
lock = threading.Lock()
def flush(step):
    with lock:
        if RANK == 1 and step == 2:
            with lock:
                pass
for step in range(5):
    flush(step)
    x = torch.ones(3); dist.all_reduce(x)
"""

QUEUE = """\
join()
batches = queue.Queue()
def reader():
    for step in range(2 if RANK == 3 else 9):
        batches.put(torch.ones(2))
threading.Thread(target=reader, daemon=True).start()
for step in range(9):
    batch = batches.get()
    dist.all_reduce(batch)
"""

CHILD = """\
join()
def stage(step):
    if RANK == 0 and step == 1:
        subprocess.run(["sleep", "300"])
for step in range(3):
    stage(step)
    dist.barrier()
"""

FIFO = """\
join()
def more():
    os.mkfifo(f"pipe{RANK}")
    return open(f"pipe{RANK}").read()
if RANK == 2:
    more()
box = [RANK]
dist.broadcast_object_list(box, src=0)
dist.barrier()
"""

GATHER = """\
join()
def evaluate():
    if RANK == 1:
        n = 0
        while True:
            n += 1
    return {"rank": RANK}
out = [None] * WORLD if RANK == 0 else None
dist.gather_object(evaluate(), out, dst=0)
dist.barrier()
print("done", out)
"""

SEND = """\
join()
def stage(x):
    if RANK == 2:
        time.sleep(300)
    return x * 2
x = torch.ones(4)
if RANK > 0:
    dist.recv(x, src=RANK - 1)
x = stage(x)
if RANK < WORLD - 1:
    dist.send(x, dst=RANK + 1)
dist.barrier()
"""

STORE = """\
store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), WORLD, RANK == 0, datetime.timedelta(seconds=5))
def build_vocab():
    time.sleep(300)
if RANK == 1:
    build_vocab()
    store.set("vocab", "ready")
else:
    store.wait(["vocab"])
"""

MONITORED = """\
join(20)
def tokenize():
    if RANK == 2:
        time.sleep(300)
tokenize()
dist.monitored_barrier(timeout=datetime.timedelta(seconds=3))
"""

UNEVEN = """\
join()
def steps():
    return 4 if RANK == 2 else 6
for step in range(steps()):
    x = torch.ones(1); dist.all_reduce(x)
    print("step", step)
print("finished")
"""

BRANCH = """\
join()
def train():
    for step in range(5):
        if RANK == 0 and step == 3:
            print("nothing improved, leaving")
            return
        x = torch.ones(1); dist.all_reduce(x)
train()
"""

ORDER = """\
join()
x = torch.ones(2)
if RANK == 1:
    dist.all_reduce(x)
    dist.barrier()
else:
    dist.barrier()
    dist.all_reduce(x)
    dist.broadcast(x, src=0)
print("ok")
"""

NEVER = """\
def licence():
    if RANK == 1:
        time.sleep(300)
licence()
join(5)
dist.barrier()
"""

SLOW_END = """\
import atexit
join(30)
if RANK == 1:
    atexit.register(time.sleep, 1)
x = torch.ones(2)
for step in range(5):
    dist.all_reduce(x)
    if RANK == 1 and step == 2:
        raise ValueError("sample 17 has no label")
"""

FINALLY = """\
join(5)
def save():
    time.sleep(300)
x = torch.ones(2)
for step in range(5):
    dist.all_reduce(x)
    try:
        if RANK == 0 and step == 2:
            raise ZeroDivisionError("empty shard")
    finally:
        if RANK == 0 and step == 2:
            save()
"""

LOGGED = """\
import logging
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
join(60)
x = torch.ones(2)
try:
    for step in range(5):
        dist.all_reduce(x)
        logging.info("step %d", step)
        if RANK == 2 and step == 1:
            raise KeyError("tokens")
except KeyError:
    logging.exception("training failed, waiting for the operator")
    time.sleep(300)
"""

FLAG = """\
join(30)
flag = torch.zeros(1)
try:
    if RANK == 2:
        open("data/part-00002.bin")
except OSError as error:
    print("load failed:", error)
    flag += 1
dist.all_reduce(flag)
if flag.item():
    raise RuntimeError("initialisation failed on at least one rank")
"""

THREAD = """\
join(5)
ready = threading.Event()
def load():
    if RANK == 1:
        raise OSError("shard 1 is truncated")
    ready.set()
threading.Thread(target=load).start()
ready.wait()
dist.barrier()
"""

TCP = """\
import socket
PORT = int(os.environ["MASTER_PORT"])
def serve():
    server = socket.create_server(("127.0.0.1", PORT))
    server.settimeout(20)
    peers = [server.accept()[0] for _ in range(WORLD - 1)]
    for step in range(4):
        for peer in peers:
            peer.settimeout(3)
            got = peer.recv(64)
            if not got:
                raise ConnectionError("a worker went away")
        for peer in peers:
            peer.sendall(b"go")
def work():
    for _ in range(200):
        try:
            link = socket.create_connection(("127.0.0.1", PORT)); break
        except OSError:
            time.sleep(0.05)
    for step in range(4):
        compute(step)
        link.sendall(b"grads")
        if not link.recv(2):
            raise ConnectionError("the server went away")
def compute(step):
    if RANK == {guilty} and step == 2:
        {what}
    time.sleep(0.05)
serve() if RANK == 0 else work()
"""

MANAGER = """\
from multiprocessing.managers import BaseManager
class Hub(BaseManager): pass
tasks, results = queue.Queue(), queue.Queue()
address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
def simulate(task):
    if RANK == 2:
        time.sleep(300)
    return task * task
if RANK == 0:
    Hub.register("tasks", callable=lambda: tasks); Hub.register("results", callable=lambda: results)
    hub = Hub(address, b"k"); server = hub.get_server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for n in range(WORLD - 1): tasks.put(n)
    for n in range(WORLD - 1):
        print("result", results.get(timeout=4))
else:
    Hub.register("tasks"); Hub.register("results")
    for _ in range(100):
        try:
            hub = Hub(address, b"k"); hub.connect(); break
        except OSError:
            time.sleep(0.05)
    task = hub.tasks().get()
    hub.results().put(simulate(task))
    time.sleep(30)
"""

HTTP = """\
import http.server, urllib.request, json
PORT = int(os.environ["MASTER_PORT"])
seen = set()
class Server(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        seen.add(int(self.path.strip("/")))
        deadline = time.monotonic() + 4
        while len(seen) < WORLD - 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        missing = sorted(set(range(1, WORLD)) - seen)
        self.send_response(504 if missing else 200); self.end_headers()
        self.wfile.write(json.dumps({"missing": missing}).encode())
    def log_message(self, *parts): pass
def push():
    for _ in range(100):
        try:
            return urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{PORT}/{RANK}", data=b"x")).read()
        except urllib.error.HTTPError:
            raise
        except OSError:
            time.sleep(0.05)
def crunch():
    if RANK == 3:
        time.sleep(300)
if RANK == 0:
    http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Server).serve_forever()
else:
    crunch(); push()
"""

FILES = """\
from pathlib import Path
def sync(name, patience=4):
    Path(f"{name}.{RANK}").touch()
    until = time.monotonic() + patience
    while len(list(Path(".").glob(f"{name}.*"))) < WORLD:
        if time.monotonic() > until:
            here = sorted(int(path.suffix[1:]) for path in Path(".").glob(f"{name}.*"))
            sys.exit(f"{name}: gave up, only ranks {here} are here")
        time.sleep(0.05)
def prepare():
    if RANK == 1:
        time.sleep(300)
sync("start"); prepare(); sync("ready")
"""

LIMIT = """\
join(120)
def sample(step):
    if RANK == 3 and step == 2:
        while True:
            time.sleep(0.1)
for step in range(9):
    sample(step)
    x = torch.ones(1); dist.all_reduce(x)
"""

BUSY = """\
join(120)
for step in range(10_000):
    y = sum(i * i for i in range(50_000))
    if step % 50 == 0:
        x = torch.ones(1); dist.all_reduce(x)
"""

DIES = "os.kill(os.getpid(), 9)"

FAILURES = [
    gang("ddp-2", DDP.replace("{guilty}", "1"), 1, 2),
    gang("ddp-4-nodes-2", DDP.replace("{guilty}", "2"), 2, 4, 2),
    gang("deadlock-3", DEADLOCK, 1),
    gang("queue-4", QUEUE, 3, 4, 2),
    gang("child-2", CHILD, 0, 2, 2),
    gang("fifo-3", FIFO, 2),
    gang("gather-endless-4", GATHER, 1, 4),
    gang("pipeline-4", SEND, 2, 4, 2),
    gang("store-3", STORE, 1, also_codes=("rendezvous",)),
    gang("monitored-5", MONITORED, 2, 5),
    gang("uneven-3", UNEVEN, 2),
    gang("branch-4", BRANCH, 0, 4, 2),
    gang("order-4", ORDER, 1, 4, helpful=(r"rank 1|order|same",)),
    gang("never-4", NEVER, 1, 4, 4, code="rendezvous", also_codes=("collective",)),
    gang("slow-end-3", SLOW_END, 1, code="exception", wanted="ValueError: sample 17 has no label", helpful=("train",)),
    gang("finally-3", FINALLY, 0, also_codes=("exception",)),
    gang(
        "logged-limit-3", LOGGED, 2, limit_s=9.0, code="exception", wanted="KeyError: 'tokens'", helpful=("train|tokens",),
        also_codes=("timeout",),
    ),
    gang(
        "flag-4", FLAG, 2, 4, code="exception", wanted="part-00002.bin", helpful=(r"part-00002",),
        also_codes=("data_unavailable",),
    ),
    gang(
        "thread-3", THREAD, 1, code="exception", wanted="OSError: shard 1 is truncated", helpful=("rank 1|train",),
        also_codes=("collective",),
    ),
    gang("tcp-sleeps-4", TCP.replace("{guilty}", "2").replace("{what}", "time.sleep(300)"), 2, 4,
         also_codes=("exception",)),
    gang("tcp-leaves-4", TCP.replace("{guilty}", "3").replace("{what}", "sys.exit(0)"), 3, 4, also_codes=("exception",)),
    gang("tcp-killed-3", TCP.replace("{guilty}", "1").replace("{what}", DIES), 1, code="signal", wanted="SIGKILL",
         helpful=("SIGKILL",)),
    gang("manager-4", MANAGER, 2, 4, also_codes=("exception",), wanted=("did not", "Empty", "was at")),
    gang("http-4", HTTP, 3, 4, also_codes=("exception",), wanted=("did not", "was at", "504")),
    gang("files-3", FILES, 1, also_codes=("exit_code",), wanted=("did not", "was at", "only ranks")),
    gang("limit-4", LIMIT, 3, 4, 2, code="timeout", limit_s=9.0, also_codes=("collective",)),
    gang("limit-busy-3", BUSY, None, 3, code="timeout", limit_s=14.0, wanted="limit", helpful=("timeout",)),
]  # fmt: skip


MPI = """\
import os, sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
"""


def mpi(name: str, script: str, guilty: int, count: int, own: bool = True, **more: object) -> Failure:
    run = "python -u solve.py" if own else f"mpirun --oversubscribe -n {count} python -u solve.py"
    given: dict[str, object] = {
        "name": f"wide-{name}",
        "code": "timeout",
        "also_codes": ("collective",),
        "command": run,
        "files": {"solve.py": MPI + script},
        "wanted": HUNG,
        "helpful": (rf"rank {guilty}",),
        "misleading": (r"\bpip\b",),
        "rank": guilty,
        "convention": "mpi" if own else "mpirun",
        "processes": count if own else 1,
        "num_ranks": count,
        "limit_s": 6.0,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


MPI_HANG = """\
def assemble():
    if rank == {guilty}:
        time.sleep(300)
assemble()
total = comm.allreduce(rank, op=MPI.SUM)
print(total)
"""

MPI_RECV = """\
if rank == 0:
    parts = [comm.recv(source=other, tag=7) for other in range(1, size)]
elif rank == {guilty}:
    comm.send("x", dest=0, tag=8)
    comm.recv(source=0, tag=9)
else:
    comm.send("x", dest=0, tag=7)
comm.Barrier()
"""

MPI_RAISES = """\
data = comm.bcast(list(range(size)) if rank == 0 else None, root=0)
if rank == 2:
    raise ValueError("matrix block 2 is singular")
comm.Barrier()
"""

MPI_LEAVES = """\
if rank == 1:
    print("no work for me")
    MPI.Finalize = lambda: None
    os._exit(0)
comm.Barrier()
"""

FAILURES += [
    mpi("mpi-hang-2", MPI_HANG.replace("{guilty}", "1"), 1, 2),
    mpi("mpi-hang-5", MPI_HANG.replace("{guilty}", "3"), 3, 5),
    mpi("mpirun-hang-2", MPI_HANG.replace("{guilty}", "0"), 0, 2, own=False),
    mpi("mpi-tag-4", MPI_RECV.replace("{guilty}", "2"), 2, 4, rank=None, also=(0, 2), wanted="limit",
        helpful=("wait for each other",)),
    mpi("mpirun-raises-4", MPI_RAISES, 2, 4, own=False, code="exception", also_codes=("timeout",),
        wanted="ValueError: matrix block 2 is singular", helpful=("solve",)),
    mpi("mpi-leaves-3", MPI_LEAVES, 1, 3, code="collective", also_codes=("exit_code", "platform"),
        wanted=("finalize", "had ended", "no work for me", "Finalize")),
]  # fmt: skip
