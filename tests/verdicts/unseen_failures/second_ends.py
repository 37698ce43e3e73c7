"""Single jobs: usage, resources, signals, environments. The labels were given before any verdict was seen."""

from functools import partial

from recorder import Failure

job = partial(Failure, misleading=(r"firewall|smaller batch|\bGPU memory\b",))

FAILURES = [
    job(
        name="n-typer-missing-option",
        code="bad_input",
        also_codes=("exit_code",),
        command="python cli.py train --epochs 3",
        files={
            "cli.py": """\
import typer

app = typer.Typer(add_completion=False)


@app.command()
def train(data: str = typer.Option(..., help="folder of shards"), epochs: int = 1):
    typer.echo(f"training on {data} for {epochs} epochs")


@app.command()
def evaluate(checkpoint: str):
    typer.echo(f"evaluating {checkpoint}")


if __name__ == "__main__":
    app()
""",
        },
        wanted="Missing option '--data'",
        helpful=(r"--data",),
    ),
    job(
        name="n-click-path-does-not-exist",
        code="bad_input",
        also_codes=("exit_code",),
        command="python convert.py --source recordings --rate 8000",
        files={
            "convert.py": """\
import click


@click.command()
@click.option("--source", type=click.Path(exists=True, file_okay=False), required=True)
@click.option("--rate", type=click.IntRange(4000, 48000), default=16000, show_default=True)
def main(source, rate):
    click.echo(f"converting {source} to {rate} Hz")


if __name__ == "__main__":
    main()
""",
        },
        wanted="Directory 'recordings' does not exist",
        helpful=(r"--source|recordings",),
    ),
    job(
        name="n-argparse-subcommand-choice",
        code="bad_input",
        also_codes=("exit_code",),
        command="python tool.py finetune --lr 3e-4",
        files={
            "tool.py": """\
import argparse
import sys

parser = argparse.ArgumentParser(prog="tool")
commands = parser.add_subparsers(dest="command", required=True)
for name in ("pretrain", "fine-tune", "export"):
    sub = commands.add_parser(name)
    sub.add_argument("--lr", type=float, default=1e-3)
options = parser.parse_args()
print("running", options.command, "with", options.lr)
""",
        },
        wanted="invalid choice: 'finetune'",
        helpful=(r"fine-tune|finetune", r"choice|subcommand"),
    ),
    job(
        name="n-exit-message-after-loud-warning",
        code="exit_code",
        command="python validate.py",
        files={
            "validate.py": """\
import sys
import warnings

warnings.warn("CUDA initialization: the driver is too old, falling back to the CPU")
print("WARNING: could not load the fast kernels: libfast.so: cannot open shared object file")
print("ERROR-RATE 0.31")
baseline = 0.25
rate = 0.31
if rate > baseline:
    sys.exit(f"validate: error rate {rate} is above the baseline {baseline}, model rejected")
""",
        },
        wanted="model rejected",
        helpful=(r"validate\.py", r"baseline|error rate"),
        misleading=(r"driver|libfast|CUDA",),
    ),
    job(
        name="n-quiet-exit-from-library",
        code="exit_code",
        command="python -u serve.py",
        files={
            "guard.py": """\
import os
import sys


def require(variable):
    value = os.environ.get(variable)
    if value is None:
        print(f"[guard] {variable} is not set", flush=True)
        os._exit(78)
    return value
""",
            "serve.py": """\
import guard

print("starting the model server")
for step in range(3):
    print("warm-up", step)
token = guard.require("REGISTRY_TOKEN")
print("ready", bool(token))
""",
        },
        wanted="REGISTRY_TOKEN is not set",
        helpful=(r"REGISTRY_TOKEN", r"environment_variables|variable"),
    ),
    job(
        name="n-ulimit-lists-grow",
        code="host_oom",
        command="bash limited.sh",
        files={
            "limited.sh": "#!/bin/bash\n# what the site gives a job\nulimit -v 400000\nexec python -u grow.py\n",
            "grow.py": """\
import random

cache = {}


def embed(text):
    return [random.random() for _ in range(20000)]


for number in range(100000):
    cache[f"document {number}"] = embed("x")
    if number % 50 == 0:
        print("cached", number)
""",
        },
        wanted="MemoryError",
        helpful=(r"\bmemory\b|ulimit|cache", r"grow\.py"),
        misleading=(r"firewall|GPU",),
    ),
    job(
        name="n-torch-allocates-too-much",
        code="host_oom",
        command="python attention.py --length 400000",
        files={
            "attention.py": """\
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--length", type=int)
length = parser.parse_args().length
query = torch.randn(length, 16)
print("query", tuple(query.shape))
scores = query @ query.T
print(scores.softmax(-1).sum())
""",
        },
        wanted=("DefaultCPUAllocator: can't allocate memory", "not enough memory"),
        helpful=(r"attention\.py", r"--length|\bmemory\b|chunk|smaller"),
        misleading=(r"firewall|\bGPU\b|pip install",),
    ),
    job(
        name="n-killed-by-own-watchdog",
        code="signal",
        command="python train.py",
        files={
            "watchdog.py": """\
import os
import signal
import threading
import time


def start(seconds):
    def bite():
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=bite, daemon=True).start()
""",
            "train.py": """\
import time

import watchdog

watchdog.start(1.2)
for step in range(100):
    time.sleep(0.1)
    print("step", step, flush=True)
""",
        },
        wanted=("SIGKILL", "killed", "signal 9"),
        helpful=(r"SIGKILL|killed", r"train\.py|watchdog"),
        misleading=(r"firewall|pip install",),
    ),
    job(
        name="n-faulthandler-segfault-stack",
        code="signal",
        command="python -X faulthandler read_buffer.py",
        files={
            "read_buffer.py": """\
import ctypes
import logging

logging.basicConfig(level="INFO")


def view(address, count):
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_double * count)).contents


def mean(address, count):
    values = view(address, count)
    return sum(values) / count


buffer = (ctypes.c_double * 8)(*range(8))
logging.info("mean %.2f", mean(ctypes.addressof(buffer), 8))
logging.info("mean %.2f", mean(0x10, 8))
""",
        },
        wanted=("Segmentation fault", "SIGSEGV"),
        helpful=(r"read_buffer\.py", r"\bmean\b|\bview\b|address"),
        misleading=(r"firewall|pip install|smaller batch",),
    ),
    job(
        name="n-alarm-clock",
        code="signal",
        command="python bounded.py",
        files={
            "bounded.py": """\
import signal
import time

LIMIT = 1


def plan(depth):
    time.sleep(0.2)
    return depth + 1


signal.alarm(LIMIT)  # nobody handles it
depth = 0
while True:
    depth = plan(depth)
    print("planned to depth", depth, flush=True)
""",
        },
        wanted=("SIGALRM", "Alarm clock", "signal 14"),
        helpful=(r"SIGALRM|alarm", r"bounded\.py"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    job(
        name="n-shared-library-of-module-missing",
        code="environment",
        command="bash build.sh && python use.py",
        files={
            "build.sh": """\
#!/bin/bash
set -e
mkdir -p lib
echo 'int blas_version(void) { return 3; }' > blas.c
gcc -shared -fPIC -o lib/libfastblas.so.3 -Wl,-soname,libfastblas.so.3 blas.c
cat > _kernels.c <<'END'
#include <Python.h>
int blas_version(void);
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, NULL};
PyMODINIT_FUNC PyInit__kernels(void) { blas_version(); return PyModule_Create(&definition); }
END
include=$(python -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
gcc -shared -fPIC -I"$include" -o _kernels.so _kernels.c lib/libfastblas.so.3
mv lib moved-lib
""",
            "use.py": "print('loading kernels')\nimport _kernels\n\nprint(_kernels)\n",
        },
        wanted="libfastblas.so.3: cannot open shared object file",
        helpful=(r"libfastblas", r"LD_LIBRARY_PATH|install|library"),
        misleading=(r"firewall|\bmemory\b",),
    ),
    job(
        name="n-module-version-lacks-name",
        code="environment",
        command="python run.py",
        files={
            "run.py": """\
import logging

logging.basicConfig(level="INFO")
logging.info("importing the stack")
from numpy import bool8, float_  # noqa: E402

logging.info("types: %s %s", bool8, float_)
""",
        },
        wanted="cannot import name 'bool8' from 'numpy'",
        helpful=(r"numpy", r"version|run\.py"),
        misleading=(r"firewall|\bmemory\b",),
    ),
    job(
        name="n-module-only-in-other-python",
        code="environment",
        command="./start.sh",
        files={
            "start.sh": '#!/bin/bash\nexport PYTHONNOUSERSITE=1\npython -I -c "import app.main" && echo ok\n',
            "app/__init__.py": "",
            "app/main.py": "print('hello')\n",
        },
        wanted="No module named 'app'",
        helpful=(r"\bapp\b", r"PYTHONPATH|-I\b|install"),
        misleading=(r"firewall|\bmemory\b",),
    ),
    job(
        name="n-read-only-output",
        code="exception",
        command="unshare -m ./readonly.sh",
        files={
            "readonly.sh": """\
#!/bin/bash
set -e
mkdir -p results && mount -t tmpfs -o ro,size=1m results results
exec python write.py results
""",
            "write.py": """\
import json
import sys
from pathlib import Path

folder = Path(sys.argv[1])
metrics = {"accuracy": 0.93, "loss": 0.21}
print("writing metrics to", folder)
(folder / "metrics.json").write_text(json.dumps(metrics))
""",
        },
        wanted="Read-only file system: 'results/metrics.json'",
        helpful=(r"write\.py", r"results|read-only|writable"),
        misleading=(r"firewall|\bmemory\b|pip install",),
    ),
    job(
        name="n-permission-as-other-user",
        code="exception",
        command="./as_reader.sh",
        variables={"PATH": "/usr/bin:/bin", "PYTHONPATH": ""},
        files={
            "as_reader.sh": """\
#!/bin/bash
# the readers' account sees what is public
chmod 755 . ..
mkdir -p private && chmod 700 private
exec setpriv --reuid 65534 --regid 65534 --clear-groups python3 -S load.py
""",
            "load.py": """\
from pathlib import Path


def load(folder):
    return [path.read_text() for path in sorted(Path(folder).joinpath("train.csv").parent.iterdir())]


print("loading private")
print(len(load("private")))
""",
        },
        wanted="Permission denied: 'private'",
        helpful=(r"private|permission", r"load\.py"),
        misleading=(r"firewall|\bmemory\b|pip install",),
    ),
    job(
        name="n-pickle-disk-full-dev",
        code="disk_full",
        command="unshare -m bash small.sh",
        files={
            "small.sh": "mkdir -p cache && mount -t tmpfs -o size=1m cache cache && exec python cache_features.py\n",
            "cache_features.py": """\
import logging
import pickle

import numpy as np

logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
for part in range(10):
    features = np.random.default_rng(part).random((64, 512))
    with open(f"cache/part{part}.pkl", "wb") as out:
        pickle.dump(features, out)
    logging.info("cached part %d", part)
""",
        },
        wanted="No space left on device",
        helpful=(r"\bdisk\b|space|\bcache\b",),
        misleading=(r"firewall|\bmemory\b|pip install",),
    ),
    job(
        name="n-loader-shm-tiny",
        code="shm_too_small",
        command="unshare -m ./tiny_shm.sh",
        files={
            "tiny_shm.sh": "#!/bin/bash\nmount -t tmpfs -o size=4m shm /dev/shm && exec python loader.py\n",
            "loader.py": """\
import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.zeros(3, 512, 512)


def main():
    for number, batch in enumerate(DataLoader(Images(), batch_size=4, num_workers=2)):
        print(number, tuple(batch.shape), flush=True)


main()
""",
        },
        wanted=("shared memory", "shm", "Bus error"),
        helpful=(r"shm", r"num_workers|fewer workers"),
        misleading=(r"firewall|pip install",),
    ),
]
