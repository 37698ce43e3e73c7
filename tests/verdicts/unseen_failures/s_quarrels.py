"""Gangs in which the rank that complains first is seldom the one that is to blame."""

from recorder import Failure

RING = r'''"""A ring: each rank listens for its left neighbour and dials its right one."""
import os
import socket
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BASE = int(os.environ["MASTER_PORT"])


def _listen():
    path = f"/tmp/ring-{BASE}-{RANK}.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(1)
    return server, path


def connect(patience=40.0):
    server, path = _listen()
    server.settimeout(patience)
    right = socket.socket(socket.AF_UNIX)
    end = time.time() + patience
    target = f"/tmp/ring-{BASE}-{(RANK + 1) % WORLD}.sock"
    while True:
        try:
            right.connect(target)
            break
        except OSError:
            if time.time() > end:
                raise TimeoutError(f"rank {RANK}: right neighbour {(RANK + 1) % WORLD} did not listen within {patience:g} s")
            time.sleep(0.05)
    left, _ = server.accept()
    os.unlink(path)
    return left, right
'''  # noqa: E501

FAILURES = [
    Failure(
        name="s-ring-neighbour-still-compiling",
        code="rendezvous",
        way="one rank is busy and does not listen in time",
        convention="process",
        processes=5,
        command="python -u ringtrain.py",
        files={
            "ring.py": RING,
            "ringtrain.py": r"""import subprocess
import ring

print(f"rank {ring.RANK} starting", flush=True)
if ring.RANK == 3:
    print("rank 3: kernel cache is cold, compiling kernels first", flush=True)
    subprocess.run(["sleep", "300"])
left, right = ring.connect(patience=12)
print(f"rank {ring.RANK} in the ring", flush=True)
left.recv(1)
""",
        },
        wanted=("right neighbour 3 did not listen within 12 s", "compiling kernels first"),
        helpful=(r"rank 3|kernel|ringtrain\.py|patience",),
        misleading=(r"memory|firewall",),
        rank=3,
        also_codes=("exception",),
    ),
    Failure(
        name="s-ring-token-of-wrong-type",
        code="exception",
        way="one rank's own error breaks the ring",
        convention="process",
        processes=6,
        command="python -u ringsum.py",
        files={
            "ring.py": RING,
            "ringsum.py": r"""import json, sys
import ring

left, right = ring.connect()
f, g = left.makefile("r"), right.makefile("w")
value = ring.RANK if ring.RANK != 4 else {"value": ring.RANK}
for hop in range(ring.WORLD):
    g.write(json.dumps(value if hop == 0 else total) + "\n")
    g.flush()
    line = f.readline()
    if not line:
        sys.exit(f"rank {ring.RANK}: left neighbour hung up at hop {hop}")
    total = json.loads(line) + (value if hop == 0 else 0)
print(total)
""",
        },
        wanted="TypeError: unsupported operand type(s) for +",
        helpful=(r"ringsum\.py",),
        misleading=(r"network|firewall|memory",),
        rank=4,
    ),
    Failure(
        name="s-complaints-before-the-culprit",
        code="exception",
        way="the others give up first; the culprit reports late",
        convention="process",
        processes=4,
        command="python -u queue_train.py",
        files={
            "queue_train.py": r"""import os, pathlib, sys, time, traceback

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
box = pathlib.Path("box")
box.mkdir(exist_ok=True)


def upload_crash_report():
    time.sleep(9)


def grad(step):
    if rank == 2 and step == 3:
        scale = {"fp16": 1024.0}
        return scale["bf16"] * step
    return step * 0.5


try:
    for step in range(10):
        (box / f"{step}.{rank}").write_text(repr(grad(step)))
        end = time.time() + 5
        for peer in range(world):
            while not (box / f"{step}.{peer}").exists():
                if time.time() > end:
                    print(f"rank {rank}: no gradient of rank {peer} for step {step} after 5 s", flush=True)
                    sys.exit(21)
                time.sleep(0.05)
except KeyError:
    traceback.print_exc()
    upload_crash_report()
    raise
""",
        },
        wanted="KeyError: 'bf16'",
        helpful=(r"queue_train\.py|bf16|scale",),
        misleading=(r"network|memory|firewall",),
        rank=2,
        also_codes=("collective",),
    ),
    Failure(
        name="s-nan-spreads-from-one-shard",
        code="exit_code",
        way="a value of one rank makes all of them leave",
        convention="process",
        processes=4,
        command="python -u average.py",
        files={
            "average.py": r"""import math, os, pathlib, sys, time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
mail = pathlib.Path("mail")
mail.mkdir(exist_ok=True)
rows = [0.5, 0.25, 0.125, 1.0]
if rank == 1:
    rows[2] = float("nan")
for step, value in enumerate(rows):
    if math.isnan(value):
        print(f"WARNING rank {rank}: row {step} of shard {rank} is nan (sensor 14)", flush=True)
    target = mail / f"{step}.{rank}"
    target.with_suffix(".tmp").write_text(str(value)) if False else target.write_text(f"{value}\n")
    total = 0.0
    for peer in range(world):
        while not (mail / f"{step}.{peer}").exists() or not (mail / f"{step}.{peer}").read_text().endswith("\n"):
            time.sleep(0.02)
        total += float((mail / f"{step}.{peer}").read_text())
    print(f"rank {rank} step {step} mean {total / world:.4f}", flush=True)
    if math.isnan(total):
        print(f"rank {rank}: mean is nan, leaving", flush=True)
        time.sleep(0.5 * abs(rank - 3))
        sys.exit(8)
""",
        },
        wanted=("row 2 of shard 1 is nan (sensor 14)", "mean is nan, leaving"),
        helpful=(r"shard 1|sensor|nan|row 2|average\.py",),
        misleading=(r"network|memory|firewall",),
        rank=1,
    ),
    Failure(
        name="s-leader-says-who-is-late",
        code="collective",
        way="rank 0 raises because one rank hangs",
        convention="process",
        processes=6,
        command="python -u rounds.py",
        files={
            "rounds.py": r"""import os, select, socket, time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
addr = ("127.0.0.1", int(os.environ["MASTER_PORT"]))


class RoundTimeout(Exception):
    pass


if rank == 0:
    server = socket.create_server(addr, backlog=16)
    links = {}
    while len(links) < world - 1:
        c, _ = server.accept()
        links[c] = int(c.recv(2))
    print("all", world - 1, "clients joined the federation", flush=True)
    for rnd in range(100):
        waiting = set(links)
        end = time.time() + 7
        while waiting:
            ready, _, _ = select.select(waiting, [], [], 0.5)
            for c in ready:
                c.recv(1)
                waiting.discard(c)
            if time.time() > end:
                raise RoundTimeout(f"round {rnd}: no update of clients {sorted(links[c] for c in waiting)} within 7 s")
        for c in links:
            c.send(b"g")
while True:
    try:
        c = socket.create_connection(addr)
        break
    except OSError:
        time.sleep(0.1)
c.send(b"%02d" % rank)
for rnd in range(100):
    if rank == 4 and rnd == 12:
        c.recv(1000)  # one message too many is expected here
    time.sleep(0.03)
    c.send(b"u")
    c.recv(1)
""",
        },
        wanted=("round 12: no update of clients [4] within 7 s", "c.recv(1000)"),
        helpful=(r"rank 4|client 4|rounds\.py|recv",),
        misleading=(r"memory",),
        rank=4,
        also_codes=("exception",),
    ),
    Failure(
        name="s-second-error-louder",
        code="exception",
        way="clean-up after the error prints more errors",
        convention="process",
        processes=3,
        command="python -u louder.py",
        files={
            "louder.py": r"""import os, time

rank = int(os.environ["RANK"])


class Writer:
    def close(self):
        raise OSError("event file was never opened")

    def __del__(self):
        self.close()


writer = Writer()
try:
    layers = [64, 32, 10]
    sizes = {n: layers[n] for n in range(3 + (rank == 1))}
    time.sleep(20)
finally:
    try:
        writer.close()
    except OSError as e:
        print(f"[ERROR] [{rank}] could not close the writer: {e}", flush=True)
        print(f"[ERROR] [{rank}] metrics of this run may be lost!!!", flush=True)
""",
        },
        wanted="IndexError: list index out of range",
        helpful=(r"louder\.py|layers|index",),
        misleading=(r"network|memory|event file",),
        rank=1,
    ),
    Failure(
        name="s-sigterm-handler-says-error",
        code="exception",
        way="the others print their own complaints when they are ended",
        convention="process",
        processes=4,
        command="python -u handlers.py",
        files={
            "handlers.py": r"""import os, signal, sys, time

rank = int(os.environ["RANK"])


def on_term(signum, frame):
    print(f"rank {rank}: FATAL: received signal {signum}, emergency checkpoint failed: no optimizer state", flush=True)
    sys.exit(1)


signal.signal(signal.SIGTERM, on_term)
for step in range(400):
    if rank == 3 and step == 12:
        steps_per_epoch = "12"
        epoch = step / steps_per_epoch
    time.sleep(0.1)
""",
        },
        wanted="TypeError: unsupported operand type(s) for /: 'int' and 'str'",
        helpful=(r"handlers\.py|steps_per_epoch",),
        misleading=(r"network|memory|optimizer state",),
        rank=3,
    ),
    Failure(
        name="s-two-real-errors-first-counts",
        code="exception",
        way="rank 0 fails because it reads what a failed rank wrote",
        convention="process",
        processes=3,
        command="python -u handoff.py",
        files={
            "handoff.py": r"""import csv, os, pathlib, sys, time

rank = int(os.environ["RANK"])
part = pathlib.Path(f"part{rank}.csv")
done = pathlib.Path(f"part{rank}.done")
if rank:
    try:
        rows = [("id", "score")] + [(i, 1 / (i - 5 * (rank == 2) + 1)) for i in range(8)]
        with part.open("w", newline="") as f:
            csv.writer(f).writerows(rows)
    except ZeroDivisionError as e:
        print(f"rank {rank}: scoring failed: {type(e).__name__}: {e}", file=sys.stderr, flush=True)
        part.write_text("")
    done.touch()
    time.sleep(20)
else:
    best = []
    for r in (1, 2):
        while not pathlib.Path(f"part{r}.done").exists():
            time.sleep(0.1)
        rows = list(csv.DictReader(open(f"part{r}.csv")))
        best.append(max(float(row["score"]) for row in rows))
    print("best", best)
""",
        },
        wanted=("scoring failed: ZeroDivisionError: division by zero", "ZeroDivisionError: float division by zero"),
        helpful=(r"handoff\.py|rank 2|division|scor",),
        misleading=(r"network|memory",),
        rank=2,
    ),
    Failure(
        name="s-killed-from-outside",
        code="signal",
        way="another program kills one rank",
        convention="process",
        processes=4,
        command="python -u victim.py",
        files={
            "victim.py": r"""import os, pathlib, subprocess, time

rank = int(os.environ["RANK"])
pathlib.Path(f"{rank}.pid").write_text(str(os.getpid()))
print(f"rank {rank} trains", flush=True)
if rank == 0:  # "cleans up" old processes of the user on this machine
    while not pathlib.Path("2.pid").exists():
        time.sleep(0.1)
    time.sleep(1)
    subprocess.Popen(["bash", "-c", "sleep 1; kill -9 $(cat 2.pid)"], start_new_session=True)
for step in range(300):
    time.sleep(0.1)
""",
        },
        wanted=("SIGKILL", "killed", "signal 9"),
        helpful=(r"kill|dmesg|outside",),
        misleading=(r"firewall|pip install",),
        rank=2,
    ),
    Failure(
        name="s-barrier-only-under-if",
        code="timeout",
        way="one rank waits at a barrier that the others never reach",
        convention="process",
        processes=3,
        command="python -u when.py",
        limit_s=12,
        files={
            "when.py": r"""import os, pathlib, time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def barrier(name):
    pathlib.Path(f"{name}.{rank}").touch()
    while not all(pathlib.Path(f"{name}.{r}").exists() for r in range(world)):
        time.sleep(0.1)


barrier("start")
print(f"rank {rank}: started", flush=True)
if rank == 0:
    print("rank 0: saving", flush=True)
    barrier("saved")
print(f"rank {rank}: done", flush=True)
""",
        },
        wanted=("did not", "hung", "stuck", 'barrier("saved")', "rank 0: saving"),
        helpful=(r"when\.py|barrier|rank 0",),
        misleading=(r"memory|firewall",),
        rank=0,
    ),
    Failure(
        name="s-slow-but-honest",
        code="timeout",
        way="all ranks work until the limit passes",
        convention="process",
        processes=4,
        command="python -u steady.py --epochs 500",
        limit_s=9,
        files={
            "steady.py": r"""import argparse, os, time

p = argparse.ArgumentParser()
p.add_argument("--epochs", type=int)
a = p.parse_args()
for epoch in range(a.epochs):
    time.sleep(0.4)
    print(f"rank {os.environ['RANK']} epoch {epoch}/{a.epochs} loss {1 / (epoch + 1):.4f}", flush=True)
""",
        },
        wanted=("limit", "9 s"),
        helpful=(r"limit|timeout|longer|checkpoint|fewer",),
        misleading=(r"network|out of memory|firewall",),
        rank=None,
    ),
    Failure(
        name="s-pickle-needs-class-of-main",
        code="exception",
        way="workers cannot unpickle what rank 0 sends",
        convention="process",
        processes=3,
        command='if [ "$RANK" = 0 ]; then python -u driver.py; else python -u worker.py; fi',
        files={
            "driver.py": r"""import os, pickle, socket


class Plan:
    def __init__(self, lr):
        self.lr = lr


server = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
links = [server.accept()[0] for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
for c in links:
    c.sendall(pickle.dumps(Plan(0.1)))
    c.shutdown(socket.SHUT_WR)
for c in links:
    if not c.recv(1):
        raise ConnectionError("a worker hung up before it said that it was ready")
""",
            "worker.py": r"""import os, pickle, socket, time

while True:
    try:
        c = socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"])))
        break
    except OSError:
        time.sleep(0.1)
data = b""
while part := c.recv(4096):
    data += part
plan = pickle.loads(data)
c.sendall(b"r")
print("lr", plan.lr)
""",
        },
        wanted="AttributeError: Can't get attribute 'Plan' on <module '__main__' from",
        helpful=(r"Plan|worker\.py|driver\.py|pickle|module",),
        misleading=(r"network|memory|firewall",),
        rank=1,
        also=(2,),
    ),
]
