"""Gangs that tell each other: flags, gathered errors, heartbeats, hand-written servers, stores, and ranks that come, stay or go."""

from recorder import Failure

HEAD = """
import datetime, json, os, pickle, signal, socket, struct, sys, threading, time, traceback
rank, world, port = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["MASTER_PORT"])
"""
TORCH = (
    HEAD
    + """
import torch, torch.distributed as dist
def join(seconds=60): dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))
def reduce(x=1.0):
    t = torch.tensor([float(x)]); dist.all_reduce(t); return t.item()
"""
)
TCP = (
    HEAD
    + """
def serve():
    server = socket.create_server(("127.0.0.1", port)); server.settimeout(20)
    return [server.accept()[0] for _ in range(world - 1)]
def connect():
    for _ in range(100):
        try:
            s = socket.create_connection(("127.0.0.1", port)); s.settimeout(SECONDS); return s
        except ConnectionRefusedError: time.sleep(0.1)
SECONDS = 30
"""
)
HUNG = ("did not", "hung", "hang", "stuck", "still", "was in")
BUG = (r"network between|interface|install",)


def gang(name, text, code, who, wanted, ranks, *, head=TORCH, helpful=(r"train\.py",), misleading=BUG, nodes=1, **more):
    return Failure(
        f"peers-{name}-{ranks}",
        code,
        "python train.py",
        wanted,
        {"train.py": head + text},
        helpful,
        misleading,
        rank=who,
        convention="process",
        processes=ranks,
        nodes=nodes,
        way=name,
        **more,
    )


FAILURES = [
    gang(
        "flag-own-exception",
        """
join(20)
for step in range(20):
    error = None
    try:
        if rank == 2 and step == 5: raise ValueError("sequence of 0 tokens in shard 11")
    except ValueError as e: error = e
    if reduce(error is not None):
        if error is not None: time.sleep(0.1); raise error
        raise RuntimeError("another rank failed, stopping")
""",
        "exception",
        2,
        "ValueError: sequence of 0 tokens in shard 11",
        4,
    ),
    gang(
        "flag-logged",
        """
import logging
logging.basicConfig(format=f"%(asctime)s [rank {rank}] %(levelname)s %(message)s", level="INFO")
join(20)
for step in range(20):
    bad = rank == 1 and step == 5
    if bad: logging.error("NaN in the gradient of decoder.3.weight")
    logging.info("step %d", step)
    if reduce(bad): sys.exit(1)
""",
        "exit_code",
        1,
        "NaN in the gradient of decoder.3.weight",
        4,
        helpful=(),
        also_codes=("exception",),
    ),
    gang(
        "flag-in-finally",
        """
join(20)
class Aborted(Exception): pass
def main():
    for step in range(20):
        if rank == 3 and step == 4: raise KeyError("position_ids")
        if reduce(0): raise Aborted("aborting because one of the ranks failed")
        time.sleep(0.02)
try: main()
except KeyError:
    reduce(1); raise
""",
        "exception",
        3,
        "KeyError: 'position_ids'",
        5,
    ),
    gang(
        "gathered-strings",
        """
join(20)
for step in range(10):
    msg = ""
    if rank == 0 and step == 2: msg = "OSError: cannot open /data/a.bin"
    everyone = [None] * world
    dist.all_gather_object(everyone, msg)
    failed = [r for r, m in enumerate(everyone) if m]
    if failed: raise RuntimeError(f"failed on ranks {failed}: {[m for m in everyone if m]}")
""",
        "exception",
        0,
        "OSError: cannot open /data/a.bin",
        3,
        also_codes=("data_unavailable",),
    ),
    gang(
        "barrier-then-check",
        """
join(20)
try:
    if rank == 1: raise MemoryError("the replay buffer does not fit")
    ok = 1
except MemoryError: traceback.print_exc(); ok = 0
total = reduce(ok)
if total < world: raise SystemExit(f"only {int(total)} of {world} ranks are ready")
""",
        "host_oom",
        1,
        "MemoryError: the replay buffer does not fit",
        3,
        helpful=(r"memory|train\.py",),
        also_codes=("exception",),
    ),
    gang(
        "store-error",
        """
join(20)
store = dist.distributed_c10d._get_default_store()
for step in range(50):
    if rank == 2 and step == 5:
        store.set("error", "rank 2: assertion failed: 3 != 4"); raise AssertionError("3 != 4")
    time.sleep(0.05)
    if store.check(["error"]): raise RuntimeError("rank 2 failed, leaving: " + store.get("error").decode())
""",
        "exception",
        2,
        "3 != 4",
        3,
    ),
    gang(
        "heartbeat",
        """
SECONDS = 3
if rank == 0:
    peers = serve(); seen = [time.time()] * world
    for p in peers: p.setblocking(False)
    ids = {}
    while True:
        for p in peers:
            try:
                data = p.recv(64)
                if data: ids[p] = int(data.split()[-1]); seen[ids[p]] = time.time()
            except BlockingIOError: pass
        for r in range(1, world):
            if time.time() - seen[r] > 4: raise RuntimeError(f"no heartbeat from worker {r} for 4 s")
        time.sleep(0.05)
else:
    s = connect(); n = 0
    while True:
        s.sendall(f"{rank}\\n".encode()); n += 1
        if rank == 2 and n == 10: time.sleep(600)
        time.sleep(0.2)
""",
        "collective",
        2,
        (*HUNG, "no heartbeat from worker 2"),
        4,
        head=TCP,
        helpful=(r"rank 2|worker 2|train\.py",),
        also_codes=("exception",),
    ),
    gang(
        "tcp-struct",
        """
if rank == 0:
    peers = serve()
    for n in range(50):
        for p in peers: p.sendall(struct.pack("!I", n))
        for p in peers: (value,) = struct.unpack("!I", p.recv(4))
        time.sleep(0.02)
else:
    s = connect()
    for n in range(50):
        (step,) = struct.unpack("!I", s.recv(4))
        if rank == 1 and step == 7: raise ZeroDivisionError("window of length 0")
        s.sendall(struct.pack("!I", step))
""",
        "exception",
        1,
        "ZeroDivisionError: window of length 0",
        4,
        head=TCP,
    ),
    gang(
        "tcp-pickle-eof",
        """
if rank == 0:
    peers = serve(); files = [p.makefile("rwb") for p in peers]
    for n in range(50):
        for f in files: pickle.dump(n, f); f.flush()
        for f in files: pickle.load(f)
        time.sleep(0.02)
else:
    f = connect().makefile("rwb")
    for n in range(50):
        step = pickle.load(f)
        if rank == 3 and step == 7: os._exit(11)
        pickle.dump(step, f); f.flush()
""",
        "exit_code",
        3,
        "code 11",
        4,
        head=TCP,
        helpful=(),
    ),
    gang(
        "tcp-timeout",
        """
SECONDS = 4
if rank == 0:
    peers = serve()
    for p in peers: p.settimeout(4)
    for n in range(50):
        for p in peers: p.sendall(b"go")
        for p in peers: p.recv(2)
        time.sleep(0.02)
else:
    s = connect(); s.settimeout(60)
    for n in range(50):
        s.recv(2)
        if rank == 1 and n == 5: time.sleep(600)
        s.sendall(b"ok")
""",
        "collective",
        1,
        (*HUNG, "timed out"),
        3,
        head=TCP,
        helpful=(r"rank 1|train\.py",),
        also_codes=("exception",),
    ),
    gang(
        "server-dies-first",
        """
if rank == 0:
    peers = serve(); time.sleep(0.5)
    raise PermissionError(13, "Permission denied", "/models/latest")
s = connect()
while True:
    if not s.recv(16): sys.exit("server closed the connection")
""",
        "exception",
        0,
        "Permission denied: '/models/latest'",
        4,
        head=TCP,
        helpful=(r"/models/latest",),
    ),
    gang(
        "http-poll",
        """
import http.server, urllib.request
if rank == 0:
    class H(http.server.BaseHTTPRequestHandler):
        def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b"1")
        def log_message(self, *a): pass
    s = http.server.ThreadingHTTPServer(("127.0.0.1", port), H)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    time.sleep(2); raise ValueError("reward model returned 3 of 4 scores")
time.sleep(1)
while True:
    urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).read(); time.sleep(0.05)
""",
        "exception",
        0,
        "ValueError: reward model returned 3 of 4 scores",
        3,
        head=HEAD,
    ),
    gang(
        "unix-files",
        """
from pathlib import Path
Path("ready").mkdir(exist_ok=True)
if rank == 1: raise RuntimeError("tokenizer.json is not valid")
Path("ready", str(rank)).touch()
deadline = time.time() + 5
while len(list(Path("ready").iterdir())) < world:
    if time.time() > deadline: raise TimeoutError("timed out waiting for the other ranks")
    time.sleep(0.1)
""",
        "exception",
        1,
        "RuntimeError: tokenizer.json is not valid",
        3,
        head=HEAD,
    ),
    gang(
        "unix-files-late",
        """
from pathlib import Path
Path("ready").mkdir(exist_ok=True)
if rank == 1: time.sleep(600)
Path("ready", str(rank)).touch()
deadline = time.time() + 4
while len(list(Path("ready").iterdir())) < world:
    if time.time() > deadline: raise TimeoutError("timed out waiting for the other ranks")
    time.sleep(0.1)
""",
        "collective",
        1,
        HUNG,
        3,
        head=HEAD,
        helpful=(r"rank 1|train\.py",),
        also_codes=("rendezvous", "exception"),
    ),
    gang(
        "two-hang",
        """
join(6); reduce()
if rank in (1, 3): time.sleep(600)
for _ in range(30): reduce()
""",
        "collective",
        None,
        ("Timed out waiting", "ranks 1, 3"),
        4,
        helpful=(r"rank|1, 3",),
        also=(1, 3),
    ),
    gang(
        "hang-in-cpu-work",
        """
join(6); reduce()
def prime(n):
    while True: n = (n * 6364136223846793005 + 1442695040888963407) % 2**64
if rank == 0: prime(1)
for _ in range(30): reduce()
""",
        "collective",
        0,
        HUNG,
        5,
        helpful=(r"rank 0|train\.py",),
    ),
    gang(
        "hang-in-subprocess",
        """
import subprocess
join(6); reduce()
if rank == 3: subprocess.run(["sleep", "600"])
for _ in range(30): reduce()
""",
        "collective",
        3,
        HUNG,
        4,
        helpful=(r"rank 3|train\.py",),
    ),
    gang(
        "hang-in-loader-worker",
        """
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        if rank == 1 and i == 9: time.sleep(600)
        return torch.ones(2)
if __name__ == "__main__":
    join(8)
    for batch in DataLoader(Data(), 2, num_workers=1): reduce()
""",
        "collective",
        1,
        HUNG,
        3,
        helpful=(r"rank 1|train\.py",),
    ),
    gang(
        "late-import",
        """
if rank == 2:
    import importlib; time.sleep(600)
join(5)
""",
        "rendezvous",
        2,
        HUNG,
        5,
        helpful=(r"rank 2|train\.py",),
        also_codes=("collective",),
    ),
    gang(
        "late-all-but-one",
        """
if rank != 0: time.sleep(600)
join(5)
""",
        "rendezvous",
        None,
        ("clients joined", "timed out", "did not answer", "waiting for"),
        4,
        helpful=(r"rank|WORLD_SIZE|started|1, 2, 3",),
        also=(1, 2, 3),
        also_codes=("collective",),
    ),
    gang(
        "new-group-mismatch",
        """
join(6)
group = dist.new_group([0, 1]) if rank != 2 else None
reduce()
""",
        "collective",
        2,
        (*HUNG, "Timed out", "timeout", "exit code 0", "while it was leaving"),
        3,
        helpful=(r"rank|same|order|new_group",),
        also=(0, 1),
        also_codes=("rendezvous", "exception", "exit_code"),
    ),
    gang(
        "broadcast-object-fail",
        """
join(20)
class Odd:
    def __reduce__(self): raise TypeError("cannot pickle 'Lexer' object")
data = [Odd() if rank == 0 else None]
dist.broadcast_object_list(data, src=0)
""",
        "exception",
        0,
        "TypeError: cannot pickle 'Lexer' object",
        3,
    ),
    gang(
        "slow-finish",
        """
join(6)
for step in range(10 if rank != 1 else 8): reduce(); time.sleep(0.02)
if rank == 1: print("shard exhausted", flush=True); time.sleep(600)
""",
        "collective",
        1,
        HUNG,
        3,
        helpful=(r"rank 1|train\.py",),
    ),
    gang(
        "sigterm-one",
        """
join(20); reduce()
if rank == 2: os.kill(os.getpid(), signal.SIGTERM)
for _ in range(60): reduce(); time.sleep(0.05)
""",
        "signal",
        2,
        "SIGTERM",
        4,
        helpful=(r"outside|sent|person|watchdog",),
    ),
    gang(
        "abort-one",
        """
import ctypes
join(20); reduce()
if rank == 1:
    sys.stderr.write("malloc(): corrupted top size\\n"); sys.stderr.flush(); os.abort()
for _ in range(60): reduce(); time.sleep(0.05)
""",
        "signal",
        1,
        "malloc(): corrupted top size",
        3,
        helpful=(r"native|core|faulthandler",),
    ),
    gang(
        "exit-code-only",
        """
join(20); reduce()
if rank == 3: os._exit(55)
for _ in range(60): reduce(); time.sleep(0.05)
""",
        "exit_code",
        3,
        "code 55",
        4,
        helpful=(),
    ),
    gang(
        "caught-lost-peer-then-own",
        """
join(8); reduce()
if rank == 0: raise ValueError("epoch 4 has other class weights")
try:
    for _ in range(60): reduce(); time.sleep(0.05)
except RuntimeError as e:
    traceback.print_exc()
    raise SystemExit(f"[{rank}] cluster is broken")
""",
        "exception",
        0,
        "ValueError: epoch 4 has other class weights",
        4,
    ),
    gang(
        "module-on-one",
        """
if rank == 1: import nonexistent_kernels
join(8); reduce()
""",
        "environment",
        1,
        "No module named 'nonexistent_kernels'",
        3,
        helpful=(r"nonexistent[-_]kernels",),
    ),
    gang(
        "disk-on-one-logged",
        """
import logging
join(8); reduce()
if rank == 2:
    try: open("/dev/full", "w").write("x" * 99999)
    except OSError as e:
        logging.error("could not write the shard index: %s", e); sys.exit(1)
for _ in range(60): reduce(); time.sleep(0.05)
""",
        "disk_full",
        2,
        "No space left on device",
        3,
        helpful=(r"space|disk",),
        also_codes=("exit_code",),
    ),
    gang(
        "timeout-retrying",
        """
join(600); reduce()
while rank == 1:
    try: raise OSError("catalogue server answers 503")
    except OSError: traceback.print_exc(); time.sleep(2)
reduce()
""",
        "exception",
        1,
        "OSError: catalogue server answers 503",
        3,
        limit_s=14,
        misleading=(r"limits\\.timeout|install",),
        also_codes=("timeout", "data_unavailable"),
    ),
    gang(
        "timeout-single-stuck",
        "import queue\nqueue.Queue().get()\n",
        "timeout",
        None,
        ("time limit",),
        1,
        head=HEAD,
        limit_s=5,
        helpful=(r"train\.py|limits\.timeout",),
        also=(0,),
    ),
]
