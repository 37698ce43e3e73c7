"""Gangs that sum over a star of plain sockets."""

from recorder import Failure

STAR = r'''"""A star of plain sockets: rank 0 sums what the others send."""
import os
import pickle
import socket
import struct
import time

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def _exactly(sock, n):
    data = b""
    while len(data) < n:
        part = sock.recv(n - len(data))
        if not part:
            raise ConnectionError("connection closed while reading")
        data += part
    return data


def put(sock, value):
    data = pickle.dumps(value)
    sock.sendall(struct.pack("!I", len(data)) + data)


def get(sock):
    (n,) = struct.unpack("!I", _exactly(sock, 4))
    return pickle.loads(_exactly(sock, n))


class Star:
    def __init__(self, timeout=60):
        self.links = {}
        if RANK == 0:
            server = socket.create_server(ADDRESS)
            server.settimeout(timeout)
            while len(self.links) < WORLD - 1:
                sock, _ = server.accept()
                sock.settimeout(timeout)
                self.links[get(sock)] = sock
            return
        end = time.time() + timeout
        while True:
            try:
                self.up = socket.create_connection(ADDRESS, timeout=timeout)
                break
            except ConnectionRefusedError:
                if time.time() > end:
                    raise
                time.sleep(0.1)
        put(self.up, RANK)

    def allsum(self, value):
        if RANK == 0:
            for peer in sorted(self.links):
                try:
                    value = value + get(self.links[peer])
                except ConnectionError as error:
                    raise ConnectionError(f"lost rank {peer} during allsum") from error
            for sock in self.links.values():
                put(sock, value)
            return value
        put(self.up, value)
        return get(self.up)
'''

FAILURES = [
    Failure(
        name="s-star-eval-divides-by-nothing",
        code="exception",
        way="evaluation on rank 0 alone fails",
        convention="process",
        processes=4,
        command="python -u fit.py",
        files={
            "star.py": STAR,
            "fit.py": r"""import numpy as np
from star import RANK, WORLD, Star

star = Star()
rng = np.random.default_rng(RANK)
w = np.zeros(8)
for epoch in range(3):
    for _ in range(20):
        x = rng.normal(size=(32, 8))
        g = x.T @ (x @ w - x.sum(1)) / 32
        w -= 0.05 * star.allsum(g) / WORLD
    if RANK == 0:
        held_out = [r for r in range(200) if r % 7 == 9]
        right = sum(1 for r in held_out if r % 2)
        print(f"epoch {epoch} held-out accuracy {right / len(held_out):.3f}")
    print(f"[{RANK}] epoch {epoch} done")
""",
        },
        wanted="ZeroDivisionError: division by zero",
        helpful=(r"fit\.py", r"held_out"),
        misleading=(r"network|\bport\b|memory",),
        rank=0,
    ),
    Failure(
        name="s-star-short-shard-leaves",
        code="collective",
        way="one rank has fewer batches and leaves early with code 0",
        convention="process",
        processes=5,
        command="python -u fit.py",
        files={
            "star.py": STAR,
            "fit.py": r"""import numpy as np
from star import RANK, WORLD, Star

rows = 1000
mine = np.arange(rows)[RANK * 220:(RANK + 1) * 220]
print(f"rank {RANK}: {len(mine)} rows, {len(mine) // 20} batches", flush=True)
star = Star()
w = 0.0
for i in range(len(mine) // 20):
    w -= 0.1 * star.allsum(float(np.sin(mine[i * 20:(i + 1) * 20]).mean())) / WORLD
print(f"rank {RANK}: finished, w = {w:.4f}")
""",
        },
        wanted=("lost rank 4 during allsum", "6 batches", "rank 4: finished", "code 0"),
        helpful=(r"batch|rows|shard|rank 4", r"fit\.py"),
        misleading=(r"firewall|memory",),
        rank=4,
    ),
    Failure(
        name="s-thread-died-main-waits",
        code="exception",
        way="a loader thread of one rank died; the job waits until its limit",
        convention="process",
        processes=3,
        command="python -u fit.py",
        limit_s=14,
        files={
            "star.py": STAR,
            "fit.py": r"""import queue, threading
from star import RANK, WORLD, Star

batches = queue.Queue(maxsize=4)


def load():
    table = {"cat": 0, "dog": 1}
    labels = ["cat", "dog"] * 6 + (["bird"] if RANK == 1 else ["cat"]) + ["dog"] * 6
    for label in labels:
        batches.put(table[label])


threading.Thread(target=load, name="loader", daemon=True).start()
star = Star(timeout=300)
for step in range(18):
    total = star.allsum(batches.get())
    if RANK == 0:
        print(f"step {step} sum {total}")
""",
        },
        wanted="KeyError: 'bird'",
        helpful=(r"fit\.py", r"bird"),
        misleading=(r"network|longer limit|memory",),
        rank=1,
        also_codes=("timeout",),
    ),
    Failure(
        name="s-two-locks-other-order",
        code="timeout",
        way="two threads of one rank wait for each other's lock",
        convention="process",
        processes=4,
        command="python -u fit.py",
        limit_s=14,
        files={
            "star.py": STAR,
            "fit.py": r"""import threading, time
from star import RANK, WORLD, Star

stats, model = threading.Lock(), threading.Lock()
star = Star(timeout=300)
print(f"rank {RANK} joined", flush=True)


def snapshot():
    while True:
        time.sleep(0.3)
        with stats:
            time.sleep(0.02 if RANK != 2 else 1.0)
            if RANK == 2:
                with model:
                    pass


threading.Thread(target=snapshot, daemon=True).start()
for step in range(4000):
    with model:
        time.sleep(0.01)
        with stats:
            value = step
    star.allsum(value)
print("finished")
""",
        },
        wanted=("did not", "hung", "stuck", "with stats", "with model"),
        helpful=(r"fit\.py", r"lock|rank 2"),
        misleading=(r"network|firewall|memory",),
        rank=2,
    ),
]
