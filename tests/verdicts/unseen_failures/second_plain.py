"""Single jobs in plain Python. The labels were given before any verdict was seen."""

from functools import partial

from recorder import Failure

job = partial(Failure, code="exception", misleading=(r"\bmemory\b|firewall|pip install",))

FAILURES = [
    job(
        name="n-task-group-two-shards",
        command="python ingest.py",
        files={
            "ingest.py": """\
import asyncio
import json

SHARDS = {"a": '{"n": 1}', "b": '{"n": 2', "c": '{"n": 3}'}


async def parse(name):
    await asyncio.sleep(0.05)
    record = json.loads(SHARDS[name])
    print("shard", name, record["n"], flush=True)
    return record


async def main():
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(parse(name), name=f"shard-{name}") for name in SHARDS]
    print(sum(task.result()["n"] for task in tasks))


asyncio.run(main())
""",
        },
        wanted="Expecting ',' delimiter",
        helpful=(r"ingest\.py", r"SHARDS|json|shard"),
    ),
    job(
        name="n-handled-memory-line-then-key-error",
        command="python search.py",
        files={
            "search.py": """\
import logging

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
RESULTS = {32: 0.81, 64: 0.84}


def evaluate(batch):
    if batch >= 128:
        raise MemoryError(f"cannot allocate batch of {batch}")
    return RESULTS[batch]


best = None
for batch in (256, 128, 64, 48):
    try:
        score = evaluate(batch)
    except MemoryError as error:
        logging.error("Out of memory: %s; trying a smaller batch", error)
        continue
    logging.info("batch %d: %.2f", batch, score)
    best = max(best or 0, score)
print(best)
""",
        },
        wanted="KeyError: 48",
        helpful=(r"search\.py", r"RESULTS|\b48\b"),
        misleading=(r"smaller batch|out of memory|more memory",),
    ),
    job(
        name="n-ignored-in-del-then-quiet-exit",
        code="exit_code",
        command="python collect.py",
        files={
            "collect.py": """\
import sys


class Stream:
    def __init__(self, name):
        self.name = name
        self.handle = None

    def __del__(self):
        self.handle.close()


def count(names):
    total = 0
    for name in names:
        stream = Stream(name)
        total += len(stream.name)
    return total


found = count(["train", "dev", "test"])
print("streams counted:", found)
print("collect: 0 of 3 streams have data, refusing to continue", file=sys.stderr)
sys.exit(5)
""",
        },
        wanted="0 of 3 streams have data",
        helpful=(r"collect\.py", r"streams? ha(ve|s)|data"),
        misleading=(r"__del__|NoneType",),
    ),
    job(
        name="n-exception-in-pool-worker-with-remote-traceback",
        convention="spawn",
        command="python prepare.py",
        files={
            "prepare.py": """\
import multiprocessing as mp
from fractions import Fraction

ROWS = ["1/2", "3/4", "5/0", "7/8"]


def ratio(text):
    return Fraction(text)


def main():
    with mp.get_context("spawn").Pool(2) as pool:
        for value in pool.imap(ratio, ROWS):
            print(float(value), flush=True)


if __name__ == "__main__":
    main()
""",
        },
        wanted=("Fraction(5, 0)", "ZeroDivisionError"),
        helpful=(r"prepare\.py", r"5/0|ROWS|\bratio\b"),
    ),
    job(
        name="n-process-pool-worker-killed",
        also_codes=("signal", "host_oom"),
        convention="spawn",
        command="python resize.py",
        files={
            "resize.py": """\
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor


def resize(number):
    time.sleep(0.05)
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)  # as a watchdog of the site does
    return number * number


def main():
    with ProcessPoolExecutor(3) as pool:
        for result in pool.map(resize, range(20)):
            print("resized", result, flush=True)


main()
""",
        },
        wanted=("terminated abruptly", "BrokenProcessPool"),
        helpful=(r"resize\.py", r"kill|SIGKILL|worker|child"),
        misleading=(r"firewall|pip install",),
    ),
    job(
        name="n-mp-spawn-rank-fails",
        convention="spawn",
        command="python launch.py --world 3",
        files={
            "launch.py": """\
import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, world, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=world)
    tensor = torch.arange(6.0)
    if rank == 1:
        tensor = tensor.view(4, 2)
    dist.all_reduce(tensor)
    print(rank, tensor)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=2)
    world = parser.parse_args().world
    mp.spawn(worker, args=(world, 29871), nprocs=world)
""",
        },
        wanted="shape '[4, 2]' is invalid for input of size 6",
        helpful=(r"launch\.py", r"\bview\b|shape"),
    ),
    job(
        name="n-thread-fails-main-ends-with-code",
        command="python stream.py",
        files={
            "stream.py": """\
import sys
import threading
import time

state = {"rows": 0, "alive": True}


def reader():
    for row in ("4,1", "8,2", "x,3"):
        left, right = row.split(",")
        state["rows"] += int(left) // int(right)
        time.sleep(0.1)


thread = threading.Thread(target=reader, name="reader")
thread.start()
while thread.is_alive():
    time.sleep(0.05)
print("rows", state["rows"], flush=True)
if state["rows"] < 10:
    sys.exit(2)
""",
        },
        wanted="invalid literal for int() with base 10: 'x'",
        helpful=(r"stream\.py", r"\breader\b", r"\brow\b"),
    ),
    job(
        name="n-chained-three-deep",
        command="python -m service.run",
        files={
            "service/__init__.py": "",
            "service/config.py": """\
import tomllib


class ConfigError(Exception):
    pass


def parse(text):
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("settings.toml is not valid") from error


def settings(path):
    with open(path) as handle:
        try:
            return parse(handle.read())
        except ConfigError as error:
            raise RuntimeError("cannot start without settings") from error
""",
            "service/run.py": "from service.config import settings\n\nprint(settings('settings.toml')['model'])\n",
            "settings.toml": '[model]\nname = "tiny"\nlayers = four\n',
        },
        wanted="Invalid value (at line 3, column 10)",
        helpful=(r"settings\.toml", r"line 3|layers"),
    ),
    job(
        name="n-rich-traceback-with-locals",
        command="python score.py",
        files={
            "score.py": """\
from rich.console import Console
from rich.progress import track
from rich.traceback import install

install(show_locals=True, width=100)
console = Console(width=100)
ANSWERS = [{"id": 1, "tokens": 12}, {"id": 2, "tokens": 0}, {"id": 3}]


def speed(answer):
    seconds = 0.5
    return answer["tokens"] / seconds


console.rule("scoring")
for answer in track(ANSWERS, description="answers", console=console):
    console.print("speed", speed(answer))
""",
        },
        wanted="KeyError: 'tokens'",
        helpful=(r"score\.py", r"tokens", r"ANSWERS|\bspeed\b"),
    ),
    job(
        name="n-assertion-after-megabytes-of-warnings",
        command="python noisy.py",
        files={
            "noisy.py": """\
import sys
import warnings

warnings.simplefilter("always")


def check(step):
    warnings.warn(f"step {step}: gradient norm is larger than 10, clipping", stacklevel=2)
    return step % 1000


for step in range(9000):
    check(step)
    if step == 4400:
        done = check(step)
print("averaging", flush=True)
total = sum(check(step) for step in range(3000))
assert total == 4_498_500, f"checksum of the epoch is {total}"
""",
        },
        wanted="AssertionError: checksum of the epoch is",
        helpful=(r"noisy\.py", r"checksum"),
        misleading=(r"gradient norm|clip",),
    ),
    job(
        name="n-flood-after-the-traceback",
        command="python worker.py",
        files={
            "worker.py": """\
import sys
import traceback


def convert(record):
    return bytes.fromhex(record["payload"])


RECORDS = [{"payload": "00ff"}, {"payload": "zz"}]
try:
    for record in RECORDS:
        convert(record)
except ValueError:
    traceback.print_exc()
    print("dumping the state for support", file=sys.stderr)
    for slot in range(15000):
        print(f"slot {slot:05d}: state=idle pending=0 retries=0 owner=none", file=sys.stderr)
    sys.exit(70)
""",
        },
        wanted="non-hexadecimal number found in fromhex()",
        helpful=(r"worker\.py", r"payload|hex|\bzz\b"),
    ),
    job(
        name="n-progress-bar-then-type-error",
        command="python count.py",
        files={
            "count.py": """\
import sys
import time

WORDS = ["alpha", "beta", "gamma", "delta"] * 75 + [None, "omega"]


def bar(done, total):
    width = 40 * done // total
    sys.stderr.write(f"\\r{'#' * width:<40} {done}/{total}")
    sys.stderr.flush()


letters = 0
for number, word in enumerate(WORDS, 1):
    bar(number, len(WORDS))
    letters += len(word)
print(letters)
""",
        },
        wanted="object of type 'NoneType' has no len()",
        helpful=(r"count\.py", r"WORDS|None|\bword\b"),
    ),
    job(
        name="n-recursion-in-property",
        command="python graph.py",
        files={
            "graph.py": """\
class Node:
    def __init__(self, name, children=()):
        self.name, self.children = name, list(children)

    @property
    def depth(self):
        return 1 + max((child.depth for child in self.children), default=0)


leaf = Node("leaf")
middle = Node("middle", [leaf])
root = Node("root", [middle])
print("depth of a tree:", root.depth)
leaf.children.append(root)
print("depth with a cycle:", root.depth)
""",
        },
        wanted="maximum recursion depth exceeded",
        helpful=(r"graph\.py", r"\bdepth\b|recurs|cycle"),
        misleading=(r"\bmemory\b|pip install",),
    ),
    job(
        name="n-circular-import-of-own-modules",
        command="python main.py",
        files={
            "main.py": "import registry\n\nprint(registry.MODELS)\n",
            "registry.py": """\
from layers import Dense

MODELS = {"dense": Dense}


def register(cls):
    MODELS[cls.__name__] = cls
    return cls
""",
            "layers.py": "from registry import register\n\n\n@register\nclass Dense:\n    width = 8\n",
        },
        wanted="cannot import name 'register' from partially initialized module 'registry'",
        helpful=(r"registry\.py|layers\.py", r"circular"),
    ),
    job(
        name="n-eof-on-confirmation",
        command="python purge.py --older-than 30",
        files={
            "purge.py": """\
import argparse
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--older-than", type=int)
parser.add_argument("--yes", action="store_true", help="do not ask")
options = parser.parse_args()
Path("old.ckpt").touch()
print(f"checkpoints older than {options.older_than} days: old.ckpt")
if not options.yes and input("Delete them? [y/N] ").lower() != "y":
    raise SystemExit("nothing deleted")
Path("old.ckpt").unlink()
""",
        },
        wanted="EOFError: EOF when reading a line",
        helpful=(r"purge\.py", r"\binput\b|--yes|stdin"),
    ),
    job(
        name="n-unicode-decode-of-latin-file",
        command="bash make_data.sh && python read.py",
        files={
            "make_data.sh": "#!/bin/bash\nprintf 'name;town\\nJ\\303\\266rg;K\\366ln\\n' > people.csv\n",
            "read.py": """\
import csv
import sys


def people(path):
    with open(path, newline="", encoding="utf-8") as handle:
        yield from csv.DictReader(handle, delimiter=";")


for person in people("people.csv"):
    sys.stdout.write(person["name"] + " lives in " + person["town"])
""",
        },
        wanted="'utf-8' codec can't decode byte 0xf6",
        helpful=(r"people\.csv|read\.py", r"encoding|latin|cp1252|utf-8"),
    ),
]
