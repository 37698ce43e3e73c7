"""Fails in a named way, on one rank or on all; what the corpus of verdicts is made from."""

import atexit
import ctypes
import datetime
import os
import signal
import socket
import sys
import time
from pathlib import Path

WAY = sys.argv[1]
WHO = int(sys.argv[2]) if len(sys.argv) > 2 else 0
RANK = int(os.environ.get("RANK", "0"))


def main() -> None:
    if "-before-" in WAY:
        if RANK == WHO:
            fail(WAY.rpartition("-before-")[0])
        time.sleep(0.5)
    if WAY.endswith("-alone"):
        fail(WAY.removesuffix("-alone"))
        return
    together()


def together() -> None:
    """A gang whose ranks meet, reduce, and lose one of them."""
    import torch
    import torch.distributed as dist

    if WAY == "never-joins" and RANK == WHO:
        time.sleep(600)
    if WAY == "wrong-world-size":
        os.environ["WORLD_SIZE"] = str(int(os.environ["WORLD_SIZE"]) + 1)
    impatient = WAY in ("never-joins", "wrong-world-size", "hangs", "slow-exception")
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4 if impatient else 60))
    dist.all_reduce(torch.ones(1))
    print(f"rank {RANK} of {dist.get_world_size()} is in step 1", flush=True)
    if RANK == WHO:
        if WAY == "leaves-early":
            os._exit(0)
        if WAY in ("hangs", "misses-barrier"):
            time.sleep(600)
        fail(WAY)
    if WAY == "misses-barrier":
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=3))
    for _ in range(100):
        dist.all_reduce(torch.ones(1))
        time.sleep(0.1)


def fail(way: str) -> None:
    if way == "exception":
        raise ValueError("labels out of range: 17 of 10 classes")
    if way == "slow-exception":
        # Its traceback is printed, and then it takes its time to go.
        atexit.register(time.sleep, 600)
        import threading

        threading.Thread(target=time.sleep, args=(600,)).start()
        raise ValueError("loss is nan")
    if way == "assertion":
        assert 1 + 1 == 3, "shapes differ"
    if way == "contract-name":
        os.environ.pop("LOCAL_RANK", None)
        print(os.environ["LOCAL_RANK"])
    if way == "chained":
        try:
            {}["weights"]
        except KeyError as error:
            raise RuntimeError("the checkpoint has no weights") from error
    if way == "handled-before":
        import traceback

        try:
            Path("/dev/full").write_text("x")
        except OSError:
            traceback.print_exc()
        print("writing failed; going on without", flush=True)
        raise TypeError("optimizer got no parameters")
    if way == "memory":
        bytearray(1 << 46)
    if way == "array-memory":
        import numpy

        numpy.ones(1 << 44)
    if way == "tensor-memory":
        import torch

        torch.ones(1 << 44)
    if way == "cgroup-memory":
        limited_memory()
    if way == "disk":
        Path("/dev/full").write_bytes(b"x" * 100)
    if way == "disk-torch":
        import torch

        torch.save({"w": torch.ones(1000)}, "/dev/full")
    if way == "shm-torch":
        import torch

        torch.UntypedStorage._new_shared(1 << 45)
    if way == "port":
        held = socket.create_server(("127.0.0.1", 0))
        socket.create_server(held.getsockname())
    if way == "module":
        import no_such_module  # noqa: F401
    if way == "library":
        ctypes.CDLL("libnosuch.so.1")
    if way == "no-cuda":
        import torch

        torch.zeros(1, device="cuda")
    if way == "missing-data":
        Path(os.environ["MUSTER_INPUT_images"], "train", "labels.csv").read_text()  # noqa: SIM112
    if way == "arguments":
        import argparse

        argparse.ArgumentParser().parse_args(["--learning-rate", "0.1"])
    if way == "exit-3":
        sys.exit(3)
    if way == "exit-17-at-once":
        os._exit(17)
    if way == "exit-text":
        sys.exit("no GPU of this model was found, leaving")
    if way == "segfault":
        ctypes.string_at(0)
    if way == "abort":
        os.abort()
    if way == "terminate":
        ctypes.CDLL("libstdc++.so.6")["_ZSt9terminatev"]()
    if way.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, way))
        time.sleep(5)
    if way == "waits":
        print("waiting", flush=True)
        time.sleep(600)


def limited_memory() -> None:
    """Let the kernel run out of memory in a small group of this process alone (cgroup v1, as root)."""
    group = Path(f"/sys/fs/cgroup/memory/muster-corpus-{os.getpid()}")
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    (group / "tasks").write_text(str(os.getpid()))
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 20)) * 4)


if __name__ == "__main__":
    main()
