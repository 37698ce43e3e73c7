"""Gangs that lose a peer, wait for one, or never meet."""

from recorder import Failure

HUB = r'''"""Rank 0 is the hub; the others send a line a step and get one back."""
import os
import socket
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PLACE = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


class Hub:
    def __init__(self, world=WORLD, patience=60):
        self.files = {}
        if RANK == 0:
            server = socket.create_server(PLACE, backlog=64)
            server.settimeout(patience)
            while len(self.files) < world - 1:
                try:
                    sock, _ = server.accept()
                except TimeoutError:
                    raise TimeoutError(f"hub: {len(self.files)} of {world - 1} peers joined within {patience} s") from None
                file = sock.makefile("rw")
                self.files[int(file.readline())] = file
            print(f"hub: {sorted(self.files)} joined", flush=True)
            return
        for _ in range(10 * patience):
            try:
                self.up = socket.create_connection(PLACE).makefile("rw")
                break
            except OSError:
                time.sleep(0.1)
        self.say(self.up, RANK)

    def say(self, file, value):
        file.write(f"{value}\n")
        file.flush()

    def hear(self, file, whom):
        line = file.readline()
        if not line:
            raise EOFError(f"rank {RANK}: rank {whom} hung up")
        return float(line)

    def mean(self, value):
        if RANK:
            self.say(self.up, value)
            return self.hear(self.up, 0)
        value += sum(self.hear(file, peer) for peer, file in sorted(self.files.items()))
        for file in self.files.values():
            self.say(file, value / WORLD)
        return value / WORLD
'''  # noqa: E501

FAILURES = [
    Failure(
        name="s-zmq-asks-twice",
        code="exception",
        convention="process",
        processes=4,
        command="python -u ask.py",
        files={
            "ask.py": r"""import os, time
import zmq

rank = int(os.environ["RANK"])
end = f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"
ctx = zmq.Context()
if rank == 0:
    s = ctx.socket(zmq.REP)
    s.bind(end)
    while True:
        s.send_json({"lr": 0.1, "to": s.recv_json()})
s = ctx.socket(zmq.REQ)
s.connect(end)
for step in range(40):
    s.send_json(rank)
    if rank == 3 and step == 9:
        print("rank 3: answer is slow, asking again", flush=True)
        s.send_json(rank)
    s.recv_json()
    time.sleep(0.05)
time.sleep(20)
""",
        },
        wanted="zmq.error.ZMQError: Operation cannot be accomplished in current state",
        helpful=(r"ask\.py|send_json|REQ",),
        misleading=(r"firewall|memory",),
        rank=3,
    ),
    Failure(
        name="s-members-of-another-run",
        code="rendezvous",
        way="one rank looks for the others in another folder",
        convention="process",
        processes=4,
        nodes=4,
        command="RUN_ID=$(cat runid.$NODE_RANK) exec python -u members.py",
        files={
            "runid.0": "exp-0042",
            "runid.1": "exp-0042",
            "runid.2": "exp-0042",
            "runid.3": "exp-0024",
            "members.py": r"""import os, pathlib, time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = pathlib.Path("members", os.environ["RUN_ID"])
folder.mkdir(parents=True, exist_ok=True)
(folder / f"{rank}").write_text("here")
print(f"rank {rank} waits in {folder}", flush=True)
end = time.time() + (12 if rank != 3 else 40)
while len(found := sorted(p.name for p in folder.iterdir())) < world:
    if time.time() > end:
        raise TimeoutError(f"{folder}: only {found} of {world} members came")
    time.sleep(0.2)
""",
        },
        wanted=("only ['0', '1', '2'] of 4 members came", "rank 3 waits in members/exp-0024"),
        helpful=(r"rank 3|RUN_ID|runid|exp-0024|members\.py",),
        misleading=(r"firewall|out of memory",),
        rank=3,
        also_codes=("exception",),
    ),
    Failure(
        name="s-hub-expects-one-more",
        code="rendezvous",
        way="the number of ranks in the configuration is not the number that was started",
        convention="process",
        processes=4,
        command="python -u cfgworld.py",
        files={
            "hub.py": HUB,
            "train.toml": "[cluster]\nranks = 5\n",
            "cfgworld.py": r"""import tomllib
from hub import RANK, Hub

ranks = tomllib.load(open("train.toml", "rb"))["cluster"]["ranks"]
print(f"rank {RANK}: cluster of {ranks}", flush=True)
hub = Hub(world=ranks, patience=12)
for step in range(10):
    hub.mean(step)
""",
        },
        wanted="TimeoutError: hub: 3 of 4 peers joined within 12 s",
        helpful=(r"train\.toml|ranks|world|number of|cfgworld\.py",),
        misleading=(r"firewall|out of memory",),
        rank=None,
        also_codes=("exception",),
    ),
    Failure(
        name="s-hub-peer-crashes-natively",
        code="signal",
        convention="process",
        processes=4,
        command="python -u crash.py",
        files={
            "hub.py": HUB,
            "crash.py": r"""import ctypes
from hub import RANK, Hub

hub = Hub()
for step in range(50):
    if RANK == 1 and step == 30:
        print("rank 1: calling the fused kernel", flush=True)
        ctypes.memset(16, 0, 64)
    hub.mean(step)
print("done")
""",
        },
        wanted=("SIGSEGV", "Segmentation fault", "signal 11", "calling the fused kernel"),
        helpful=(r"FAULTHANDLER|native|crash\.py|gdb",),
        misleading=(r"firewall|out of memory",),
        rank=1,
    ),
    Failure(
        name="s-hub-coreutils-timeout",
        code="exit_code",
        way="a wrapper ends one rank after its own limit",
        convention="process",
        processes=3,
        command="./limited.sh",
        files={
            "hub.py": HUB,
            "limited.sh": (
                "#!/bin/bash\n# spot nodes get less time\n"
                'if [ "$RANK" = 2 ]; then exec timeout -v 9 python -u long.py; fi\nexec python -u long.py\n'
            ),
            "long.py": r"""import time
from hub import RANK, Hub

hub = Hub()
for step in range(400):
    hub.mean(step)
    if step % 20 == 0:
        print(f"rank {RANK} step {step}", flush=True)
    time.sleep(0.1)
""",
        },
        wanted=("timeout: sending signal TERM to command", "124"),
        helpful=(r"limited\.sh|timeout|limit",),
        misleading=(r"firewall|out of memory",),
        rank=2,
    ),
    Failure(
        name="s-hub-fewer-steps-on-node-one",
        code="collective",
        convention="process",
        processes=4,
        nodes=2,
        command='if [ "$NODE_RANK" = 1 ]; then export MAX_STEPS=25; fi; exec python -u steps.py',
        files={
            "hub.py": HUB,
            "steps.py": r"""import os, time
from hub import RANK, Hub

steps = int(os.environ.get("MAX_STEPS", 60))
hub = Hub()
for step in range(steps):
    m = hub.mean(step * RANK)
    time.sleep(0.02)
print(f"rank {RANK}: all {steps} steps done", flush=True)
""",
        },
        wanted=("rank 0: rank 2 hung up", "all 25 steps done", "code 0"),
        helpful=(r"MAX_STEPS|steps|rank 2",),
        misleading=(r"firewall|out of memory",),
        rank=2,
        also=(3,),
    ),
    Failure(
        name="s-hub-leader-goes-home",
        code="collective",
        way="rank 0 ends before the others are done",
        convention="process",
        processes=4,
        command="python -u leader.py",
        files={
            "hub.py": HUB,
            "leader.py": r"""import time
from hub import RANK, Hub

hub = Hub()
best = 9.0
for step in range(80):
    loss = hub.mean(1.0 / (step + 1))
    time.sleep(0.02)
    if RANK == 0 and loss < 0.03:
        print(f"rank 0: target loss reached at step {step}, model saved, bye", flush=True)
        break
else:
    print(f"rank {RANK}: finished", flush=True)
""",
        },
        wanted=("target loss reached at step", "rank 0 hung up", "code 0"),
        helpful=(r"leader\.py|rank 0|break|every rank",),
        misleading=(r"firewall|out of memory",),
        rank=0,
    ),
    Failure(
        name="s-http-leader-does-not-answer",
        code="collective",
        way="the handler of rank 0 waits for a lock that it holds",
        convention="process",
        processes=3,
        command="python -u service.py",
        files={
            "service.py": r"""import os, threading, time, urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

rank = int(os.environ["RANK"])
port = int(os.environ["MASTER_PORT"])
table = threading.Lock()


def rotate():
    with table:
        return 1


class Weights(BaseHTTPRequestHandler):
    def do_GET(self):
        with table:
            if self.path.endswith("/12"):
                rotate()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"w")

    def log_message(self, *args):
        pass


if rank == 0:
    HTTPServer(("127.0.0.1", port), Weights).serve_forever()
time.sleep(2)
for step in range(40):
    urllib.request.urlopen(f"http://127.0.0.1:{port}/weights/{step}", timeout=10).read()
    time.sleep(0.05)
time.sleep(20)
""",
        },
        wanted=("did not", "hung", "stuck", "with table", "rotate()"),
        helpful=(r"rank 0|service\.py|lock|table",),
        misleading=(r"firewall|out of memory",),
        rank=0,
        also_codes=("exception",),
    ),
    Failure(
        name="s-lock-held-while-waiting",
        code="timeout",
        way="rank 0 waits for the others while it holds the lock that they want",
        convention="process",
        processes=4,
        command="python -u cachelock.py",
        limit_s=14,
        files={
            "cachelock.py": r"""import fcntl, os, pathlib, time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def wait_for_all():
    pathlib.Path(f"ready.{rank}").touch()
    while len(list(pathlib.Path(".").glob("ready.*"))) < world:
        time.sleep(0.1)


if rank:
    while not pathlib.Path("cache.lock").exists():
        time.sleep(0.1)
    time.sleep(1)
with open("cache.lock", "w") as lock:
    print(f"rank {rank}: asking for the cache lock", flush=True)
    fcntl.flock(lock, fcntl.LOCK_EX)
    print(f"rank {rank}: has the cache lock", flush=True)
    if rank == 0:
        wait_for_all()
wait_for_all()
""",
        },
        wanted=("did not", "hung", "stuck", "wait_for_all()", "rank 0: has the cache lock"),
        helpful=(r"cachelock\.py|lock|rank 0",),
        misleading=(r"firewall|out of memory",),
        rank=0,
        also_codes=("collective",),
    ),
    Failure(
        name="s-https-to-plain-port",
        code="exception",
        convention="process",
        processes=4,
        nodes=2,
        command="SCHEME=$(cat scheme.$NODE_RANK) exec python -u fetch.py",
        files={
            "scheme.0": "http",
            "scheme.1": "https",
            "fetch.py": r"""import http.server, os, time, urllib.request

rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
if rank == 0:
    http.server.ThreadingHTTPServer(("127.0.0.1", port), http.server.SimpleHTTPRequestHandler).serve_forever()
time.sleep(3)
url = f"{os.environ['SCHEME']}://127.0.0.1:{port}/fetch.py"
print(f"rank {rank} gets {url}", flush=True)
print(len(urllib.request.urlopen(url, timeout=20).read()), flush=True)
time.sleep(20)
""",
        },
        wanted=("[SSL: WRONG_VERSION_NUMBER] wrong version number", "SSL: RECORD_LAYER_FAILURE", "SSL:"),
        helpful=(r"https|scheme|fetch\.py|SCHEME",),
        misleading=(r"firewall|out of memory",),
        rank=2,
        also=(3,),
    ),
    Failure(
        name="s-mpi-returns-before-gather",
        code="timeout",
        convention="mpi",
        processes=4,
        command="python -u assign.py",
        limit_s=20,
        files={
            "assign.py": r"""from mpi4py import MPI

comm = MPI.COMM_WORLD


def main():
    work = list(range(10))[comm.rank * 4:(comm.rank + 1) * 4]
    if not work:
        print(f"rank {comm.rank}: nothing assigned, returning", flush=True)
        return
    print(f"rank {comm.rank}: {len(work)} items", flush=True)
    results = comm.gather(sum(work), root=0)
    done = comm.bcast(results and sum(results), root=0)
    print(f"rank {comm.rank}: total {done}", flush=True)


main()
""",
        },
        wanted=("rank 3: nothing assigned, returning", "comm.gather"),
        helpful=(r"assign\.py|rank 3|return|every rank",),
        misleading=(r"firewall|out of memory",),
        rank=3,
        also_codes=("collective",),
    ),
]
