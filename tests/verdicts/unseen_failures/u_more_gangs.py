"""More gangs: limits of the shell, groups, pipelines, distributed checkpoints, services that do not answer."""

from functools import partial

from recorder import Failure

Gang = partial(Failure, convention="process", processes=4)

FAILURES = [
    Gang(
        name="u-cpu-time-ulimit",
        way="a CPU time limit of the shell ends one rank",
        code="signal",
        rank=1,
        processes=2,
        command="bash start.sh",
        files={
            "start.sh": """#!/bin/bash
# login nodes of group B have a CPU limit
[ "$RANK" = 1 ] && ulimit -t 9
exec python -u search.py
""",
            "search.py": """import os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
best = torch.zeros(1)
for generation in range(10_000):
    end = time.process_time() + 0.5
    while time.process_time() < end:
        x = sum(i * i for i in range(1000))
    dist.all_reduce(best, op=dist.ReduceOp.MAX)
    print(f"rank {dist.get_rank()} generation {generation} cpu {time.process_time():.0f} s")
""",
        },
        wanted=("SIGXCPU", "SIGKILL", "CPU time limit", "signal 24", "signal 9", "generation"),
        helpful=(r"ulimit|CPU|limit", r"start\.sh"),
        misleading=(r"firewall|port\b|MASTER_ADDR",),
    ),
    Gang(
        name="u-too-many-open-files",
        way="one rank keeps files open",
        code="exception",
        rank=2,
        processes=3,
        command="ulimit -n 256; exec python -u reader.py",
        files={
            "reader.py": """import os, tempfile
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
kept = []
total = torch.zeros(1)
for n in range(400):
    f = tempfile.TemporaryFile()
    f.write(b"record")
    if rank == 2:
        kept.append(f)      # index for random access
    else:
        f.close()
    if n % 20 == 0:
        dist.all_reduce(total)
        print(f"rank {rank}: {n} records, {len(kept)} handles", flush=True)
""",
        },
        wanted="Too many open files",
        helpful=(r"ulimit|open files|reader\.py|close|handle",),
        misleading=(r"firewall|port\b|MASTER_ADDR",),
    ),
    Gang(
        name="u-sigbus-truncated-map",
        way="a mapped file is shortened under a rank",
        code="signal",
        rank=3,
        command="python -u mapped.py",
        files={
            "mapped.py": """import mmap, os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
name = f"tokens.{rank}.bin"
with open(name, "wb") as f:
    f.write(b"\\1" * (1 << 20))
f = open(name, "r+b")
tokens = mmap.mmap(f.fileno(), 0)
t = torch.zeros(1)
for step in range(32):
    if rank == 3 and step == 17:
        os.truncate(name, 4096)         # the cleaner thinks the file is stale
        print("rank 3: tokens.3.bin was rewritten by the cleaner", flush=True)
    t += sum(tokens[step * 32768 : step * 32768 + 64])
    dist.all_reduce(t)
"""
        },
        wanted=("SIGBUS", "Bus error", "signal 7", "rewritten by the cleaner"),
        helpful=(r"mapped\.py", r"tokens\.3|mmap|map|truncat|shm|disk"),
        misleading=(r"firewall|port\b|MASTER_ADDR",),
    ),
    Gang(
        name="u-recv-from-wrong-stage",
        way="a pipeline stage waits for a stage that never sends to it",
        code="timeout",
        rank=2,
        limit_s=40,
        command="python pipe.py --stages 4",
        files={
            "pipe.py": """import torch
import torch.distributed as dist

dist.init_process_group("gloo")
stage, stages = dist.get_rank(), dist.get_world_size()
PREV = {1: 0, 2: 0, 3: 2}       # who feeds me
NEXT = {0: 1, 1: 2, 2: 3}
for micro in range(4):
    act = torch.full((8,), float(micro))
    if stage in PREV:
        dist.recv(act, src=PREV[stage])
    act = act * 2
    if stage in NEXT:
        dist.send(act, dst=NEXT[stage])
    print(f"stage {stage} done with micro batch {micro}", flush=True)
"""
        },
        wanted=("dist.recv(act, src=PREV[stage])", "recv", "did not"),
        helpful=(r"pipe\.py", r"PREV|recv|src|stage"),
        misleading=(r"firewall|memory|MASTER_ADDR",),
    ),
    Gang(
        name="u-dcp-missing-key",
        way="a distributed checkpoint lacks a tensor of the new model",
        code="exception",
        rank=0,
        also=(1,),
        processes=2,
        command="python -u dcp_resume.py",
        files={
            "dcp_resume.py": """import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def state(with_bias):
    s = {"layer.weight": torch.ones(4, 4)}
    if with_bias:
        s["layer.bias"] = torch.zeros(4)
    return {"model": s}


dist.init_process_group("gloo")
dcp.save(state(with_bias=False), checkpoint_id="ckpt/step_100")
if dist.get_rank() == 0:
    print("saved by release 1, loading with release 2", flush=True)
dcp.load(state(with_bias=True), checkpoint_id="ckpt/step_100")
print("resumed")
"""
        },
        wanted="Missing key in checkpoint state_dict: model.layer.bias",
        helpful=(r"dcp_resume\.py", r"layer\.bias|checkpoint|key|strict"),
        misleading=(r"firewall|memory|MASTER_ADDR",),
    ),
    Gang(
        name="u-thread-exception-then-silence",
        way="the training thread of one rank dies, its main thread waits on an event",
        code="timeout",
        also_codes=("exception",),
        rank=1,
        processes=3,
        limit_s=35,
        command="python -u service.py",
        files={
            "service.py": """import threading
import torch
import torch.distributed as dist


def training(done):
    schedule = [1e-3] * 10 if dist.get_rank() != 1 else [1e-3] * 6
    t = torch.zeros(1)
    for step in range(10):
        t.fill_(schedule[step])
        dist.all_reduce(t)
        print(f"rank {dist.get_rank()} step {step} lr {t.item() / 3:.4f}")
    done.set()


dist.init_process_group("gloo")
done = threading.Event()
threading.Thread(target=training, args=(done,), name="training", daemon=True).start()
done.wait()
print("finished")
"""
        },
        wanted=("IndexError: list index out of range",),
        helpful=(r"service\.py", r"schedule|thread|index"),
        misleading=(r"firewall|memory|MASTER_ADDR",),
    ),
    Gang(
        name="u-proxy-refuses",
        way="rank 0 fetches the model from a mirror that refuses, others wait at a barrier",
        code="exception",
        rank=0,
        processes=3,
        command="python fetch_and_train.py",
        files={
            "fetch_and_train.py": """import logging, os, urllib.request
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="[%(asctime)s][%(name)s][%(levelname)s] - %(message)s")
log = logging.getLogger("hub")
MIRROR = os.environ.get("MODEL_MIRROR", "http://127.0.0.1:8899")


def from_hub(name):
    url = f"{MIRROR}/{name}/config.json"
    log.info("GET %s", url)
    with urllib.request.urlopen(url, timeout=5) as r:
        return r.read()


dist.init_process_group("gloo")
if dist.get_rank() == 0:
    from_hub("tiny-bert")
dist.barrier()
log.info("model is in the cache")
"""
        },
        wanted=("Connection refused",),
        helpful=(r"MODEL_MIRROR|8899|mirror|download|fetch_and_train\.py",),
        misleading=(r"MASTER_ADDR|out of memory|rendezvous",),
    ),
    Gang(
        name="u-preempted-handler-exit",
        way="one rank gets SIGTERM from a colleague's script and leaves with 143",
        code="exit_code",
        also_codes=("signal", "preempted"),
        rank=2,
        processes=3,
        command="python -u graceful.py",
        files={
            "graceful.py": """import os, signal, subprocess, sys, time
import torch
import torch.distributed as dist


def on_term(signum, frame):
    print(f"rank {dist.get_rank()}: caught SIGTERM, checkpoint written, leaving", flush=True)
    os._exit(143)


dist.init_process_group("gloo")
signal.signal(signal.SIGTERM, on_term)
if dist.get_rank() == 2:
    subprocess.Popen(["sh", "-c", f"sleep 1; kill {os.getpid()}"])   # stands for an idle-process killer
t = torch.zeros(1)
for step in range(600):
    dist.all_reduce(t)
    time.sleep(0.02)
"""
        },
        wanted="caught SIGTERM, checkpoint written, leaving",
        helpful=(r"SIGTERM|kill|terminated", r"graceful\.py"),
        misleading=(r"firewall|out of memory|MASTER_ADDR",),
    ),
    Gang(
        name="u-eight-ranks-one-bad-image",
        way="eight ranks, the sixth meets a broken image header",
        code="exception",
        rank=5,
        processes=8,
        nodes=2,
        command="python imagenet.py --data images",
        files={
            "codec.py": """import struct
MAGIC = b"QOIF"


class CorruptImage(ValueError):
    pass


def size_of(blob, name):
    magic, w, h = struct.unpack(">4sII", blob[:12])
    if magic != MAGIC:
        raise CorruptImage(f"{name}: bad magic {magic!r}, expected {MAGIC!r}")
    return w, h
""",
            "imagenet.py": """import os, struct
import torch
import torch.distributed as dist
import codec

dist.init_process_group("gloo")
rank = dist.get_rank()
pixels = torch.zeros(1)
for n in range(24):
    blob = codec.MAGIC + struct.pack(">II", 32, 32)
    if rank == 5 and n == 19:
        blob = b"<htm" + blob[4:]
    w, h = codec.size_of(blob, f"n0{rank}/img_{n:05d}.qoi")
    pixels += w * h
    dist.all_reduce(pixels)
if rank == 0:
    print("pixels", pixels.item())
""",
        },
        wanted="n05/img_00019.qoi: bad magic",
        helpful=(r"img_00019|image|codec\.py|imagenet\.py",),
        misleading=(r"firewall|out of memory|MASTER_ADDR",),
    ),
    Gang(
        name="u-two-ranks-two-errors",
        way="two ranks fail at about the same time for the same reason, elsewhere in the data",
        code="exception",
        rank=1,
        also=(3,),
        command="python -u parse_and_train.py",
        files={
            "parse_and_train.py": """import datetime
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
stamps = ["2025-01-%02d" % d for d in range(1, 21)]
if rank == 1:
    stamps[8] = "09.01.2025"
if rank == 3:
    stamps[8] = "2025/01/09"
for s in stamps:
    day = datetime.datetime.strptime(s, "%Y-%m-%d")
    t = torch.tensor([float(day.day)])
    dist.all_reduce(t)
    print(f"rank {rank} day {t.item()}")
"""
        },
        wanted=("time data '09.01.2025' does not match format", "time data '2025/01/09' does not match format"),
        helpful=(r"parse_and_train\.py", r"date|format|strptime"),
        misleading=(r"firewall|out of memory|MASTER_ADDR",),
    ),
]
