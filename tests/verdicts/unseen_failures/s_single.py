"""Jobs of one Python process."""

from recorder import Failure

FAILURES = [
    Failure(
        name="s-one-pandas-column",
        code="exception",
        command="python -u features.py table.csv",
        files={
            "table.csv": "user,item,rating\n1,2,3.5\n2,2,4.0\n",
            "features.py": r"""import sys
import pandas as pd

df = pd.read_csv(sys.argv[1])
print(df.describe())
df["hour"] = pd.to_datetime(df["timestamp"], unit="s").dt.hour
""",
        },
        wanted="KeyError: 'timestamp'",
        helpful=(r"timestamp|features\.py|table\.csv|column",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-one-pydantic-settings",
        code="exception",
        command="python -u app.py",
        files={
            "settings.yaml": "model: small\nlr: fast\nsteps: -5\n",
            "app.py": r"""import yaml
from pydantic import BaseModel, PositiveInt


class Settings(BaseModel):
    model: str
    lr: float
    steps: PositiveInt


print(Settings(**yaml.safe_load(open("settings.yaml"))))
""",
        },
        wanted=(
            "2 validation errors for Settings",
            "Input should be a valid number, unable to parse string as a number",
        ),
        helpful=(r"settings\.yaml|\blr\b|app\.py",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-one-h5-layer-not-there",
        code="exception",
        command="python -u store.py",
        files={
            "store.py": r"""import h5py
import numpy as np

with h5py.File("acts.h5", "w") as f:
    f["encoder/layer_0"] = np.zeros((4, 4))
with h5py.File("acts.h5", "r") as f:
    for name in ("layer_0", "layer_1"):
        print(name, f["encoder"][name].shape)
""",
        },
        wanted="object 'layer_1' doesn't exist",
        helpful=(r"layer_1|acts\.h5|store\.py",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-one-import-renamed-symbol",
        code="environment",
        command="python -u legacy.py",
        files={
            "legacy.py": r"""import torch
from torch.utils.data.dataloader import default_collate
from torch._six import container_abcs, string_classes

print(container_abcs, string_classes)
""",
        },
        wanted="ModuleNotFoundError: No module named 'torch._six'",
        helpful=(r"torch\._six|version|legacy\.py|torch",),
        misleading=(r"network|memory",),
        also_codes=("exception",),
    ),
    Failure(
        name="s-one-typer-choice",
        code="bad_input",
        command="python -u cli.py train --precision bf32",
        files={
            "cli.py": r"""from enum import Enum
import typer

app = typer.Typer()


class Precision(str, Enum):
    fp32 = "fp32"
    bf16 = "bf16"


@app.command()
def train(precision: Precision = Precision.fp32):
    print(precision)


@app.command()
def evaluate():
    pass


app()
""",
        },
        wanted="'bf32' is not one of",
        helpful=(r"bf32|precision|bf16",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-one-absl-required-flag",
        code="bad_input",
        command="python -u main.py --workdir=/tmp/x",
        files={
            "main.py": r"""from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_string("workdir", None, "Where to write.")
flags.DEFINE_string("config_file", None, "Training configuration.", required=True)


def main(argv):
    print(FLAGS.workdir, FLAGS.config_file)


app.run(main)
""",
        },
        wanted=("flag --config_file=None: Flag --config_file must have a value other than None", "--config_file"),
        helpful=(r"config_file",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-one-nan-check-leaves",
        code="exit_code",
        command="python -u net.py",
        files={
            "net.py": r"""import logging, sys
import numpy as np

logging.basicConfig(format="%(levelname).1s %(message)s", level=logging.INFO)
rng = np.random.default_rng(0)
w = rng.normal(size=3)
lr = 1.9
with np.errstate(all="ignore"):
    for step in range(10000):
        x = rng.normal(size=(16, 3)) * 4
        g = x.T @ (x @ w) / 16
        w = w - lr * g
        loss = float((x @ w) @ (x @ w))
        if step % 20 == 0:
            logging.info("step %d loss %.3e", step, loss)
        if not np.isfinite(loss):
            logging.error("loss is %s at step %d; lower the learning rate (now %s)", loss, step, lr)
            sys.exit(1)
""",
        },
        wanted="; lower the learning rate (now 1.9)",
        helpful=(r"learning rate|\blr\b|net\.py",),
        misleading=(r"network|out of memory",),
    ),
    Failure(
        name="s-one-recursion",
        code="exception",
        command="python -u trees.py",
        files={
            "trees.py": r"""class Node:
    def __init__(self, child=None):
        self.child = child

    def depth(self):
        return 1 + (self.child.depth() if self.child else 0)


node = Node()
for _ in range(5000):
    node = Node(node)
print(node.depth())
""",
        },
        wanted="RecursionError: maximum recursion depth exceeded",
        helpful=(r"trees\.py|recursion|depth",),
        misleading=(r"network",),
    ),
    Failure(
        name="s-one-rich-traceback",
        code="exception",
        command="python -u pretty.py",
        files={
            "pretty.py": r"""from rich.traceback import install

install(show_locals=True, width=100)


def collate(batch):
    widths = {len(row) for row in batch}
    if len(widths) > 1:
        raise ValueError(f"rows of different width in one batch: {sorted(widths)}")
    return batch


def main():
    batches = [[[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5]]]
    for batch in batches:
        collate(batch)


main()
""",
        },
        wanted="ValueError: rows of different width in one batch: [2, 3]",
        helpful=(r"pretty\.py|width|batch|collate",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-one-subprocess-failed",
        code="exception",
        command="python -u pipeline.py",
        files={
            "convert.sh": '#!/bin/bash\necho "convert: reading $1"\necho "convert: unknown codec prores_raw" >&2\nexit 5\n',  # noqa: E501
            "pipeline.py": r"""import subprocess

for clip in ("a.mov", "b.mov"):
    subprocess.run(["./convert.sh", clip], check=True)
""",
        },
        wanted=("convert: unknown codec prores_raw", "returned non-zero exit status 5"),
        helpful=(r"convert|codec|pipeline\.py",),
        misleading=(r"network|memory",),
        also_codes=("exit_code",),
    ),
    Failure(
        name="s-one-asyncio-group",
        code="exception",
        command="python -u gather.py",
        files={
            "gather.py": r"""import asyncio


async def shard(n):
    await asyncio.sleep(0.05 * n)
    if n == 3:
        raise LookupError("shard 3: no entry for split 'dev'")
    return n


async def main():
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(shard(n)) for n in range(6)]
    print(sum(t.result() for t in tasks))


asyncio.run(main())
""",
        },
        wanted="LookupError: shard 3: no entry for split 'dev'",
        helpful=(r"gather\.py|shard|split|dev",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-one-wrong-port-database",
        code="exception",
        command="python -u results.py",
        files={
            "results.py": r"""import requests

session = requests.Session()
session.trust_env = False
print("logging in to the tracker")
session.post("http://127.0.0.1:9/api/login", json={"user": "ci"}, timeout=5)
""",
        },
        wanted=("Connection refused", "Failed to establish a new connection", "Max retries exceeded"),
        helpful=(r"127\.0\.0\.1|results\.py|tracker|server|address",),
        misleading=(r"memory|MASTER_PORT",),
    ),
    Failure(
        name="s-one-syntax-of-newer-python",
        code="exception",
        command="python -u typed.py",
        files={
            "typed.py": "type Batch = dict[str, list[int]]\n\n\ndef first(b: Batch) -> int:\n    return b['x'][0]\n"
        },
        wanted="SyntaxError: invalid syntax",
        helpful=(r"typed\.py|syntax|python 3\.12|version",),
        misleading=(r"network|memory",),
        also_codes=("environment",),
    ),
    Failure(
        name="s-one-shared-library",
        code="environment",
        command="python -u fastops.py",
        files={
            "fastops.py": r"""import ctypes

lib = ctypes.CDLL("libfastattn_cuda12.so.2")
print(lib.version())
""",
        },
        wanted="libfastattn_cuda12.so.2: cannot open shared object file: No such file or directory",
        helpful=(r"libfastattn|LD_LIBRARY_PATH|library|install",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-one-aborts-in-c",
        code="signal",
        command="python -u native.py",
        files={
            "native.py": r"""import ctypes

libc = ctypes.CDLL(None)
libc.free.argtypes = [ctypes.c_void_p]
buffer = ctypes.create_string_buffer(64)
print("releasing the pinned buffer", flush=True)
libc.free(ctypes.addressof(buffer) + 8)
""",
        },
        wanted=("free(): invalid pointer", "munmap_chunk(): invalid pointer", "SIGABRT", "free(): invalid size"),
        helpful=(r"native|FAULTHANDLER|crash|gdb",),
        misleading=(r"network",),
    ),
    Failure(
        name="s-one-cgroup-list-grows",
        code="host_oom",
        command="bash box.sh",
        files={
            "box.sh": (
                "g=/sys/fs/cgroup/memory/s-one-box; mkdir -p $g; echo 120M > $g/memory.limit_in_bytes\n"
                "echo $$ > $g/cgroup.procs\npython -u history.py\n"
            ),
            "history.py": r"""history = []
step = 0
while True:
    history.append(list(range(step, step + 50_000)))
    step += 1
    if step % 10 == 0:
        print("step", step, "snapshots kept", len(history), flush=True)
""",
        },
        wanted=("Killed", "out of memory", "snapshots kept", "SIGKILL"),
        helpful=(r"memory",),
        misleading=(r"network|firewall",),
    ),
    Failure(
        name="s-one-module-of-own-folder",
        code="environment",
        command="python -u scripts/train.py",
        files={
            "mylib/__init__.py": "",
            "mylib/models.py": "class Net: pass\n",
            "scripts/train.py": "from mylib.models import Net\n\nprint(Net())\n",
        },
        wanted="ModuleNotFoundError: No module named 'mylib'",
        helpful=(r"mylib|PYTHONPATH|-m ",),
        misleading=(r"network|memory",),
        also_codes=("exception",),
    ),
]
