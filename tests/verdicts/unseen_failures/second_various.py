"""Jobs of various kinds. The labels were given before any verdict was seen."""

from functools import partial

from recorder import Failure

job = partial(Failure, code="exception", misleading=(r"\bmemory\b|firewall|pip install",))
ml = partial(job, venv="ml")
shell = partial(Failure, convention="shell", misleading=(r"firewall|smaller batch|\bGPU\b",))
mpirun = partial(Failure, convention="mpirun")

FAILURES = [
    ml(
        name="n-h5-dataset-missing",
        command="python read_h5.py",
        files={
            "read_h5.py": """\
import h5py
import numpy as np

with h5py.File("samples.h5", "w") as out:
    out["train/images"] = np.zeros((4, 8, 8), dtype="f4")
    out["train/labels"] = np.arange(4)


def load(split):
    with h5py.File("samples.h5") as source:
        return source[f"{split}/images"][:], source[f"{split}/labels"][:]


for split in ("train", "validation"):
    images, labels = load(split)
    print(split, images.shape, labels.shape)
""",
        },
        wanted=("'validation'", "doesn't exist", "component not found"),
        helpful=(r"read_h5\.py", r"validation|samples\.h5"),
    ),
    ml(
        name="n-pillow-cannot-identify",
        command="python thumbnails.py images",
        files={
            "images/cat.png": "<html><body>403 Forbidden</body></html>\n",
            "thumbnails.py": """\
import sys
from pathlib import Path

from PIL import Image


def thumbnail(path, size=(64, 64)):
    with Image.open(path) as image:
        image.thumbnail(size)
        image.save(path.with_suffix(".small.png"))


for path in sorted(Path(sys.argv[1]).iterdir()):
    print("thumbnail of", path.name, flush=True)
    thumbnail(path)
""",
        },
        wanted="cannot identify image file",
        helpful=(r"cat\.png", r"thumbnails\.py"),
    ),
    ml(
        name="n-omegaconf-interpolation",
        command="python settings.py",
        files={
            "base.yaml": "data:\n  root: ${paths.scratch}/imagenet\n  workers: 4\npath:\n  scratch: /scratch\n",
            "settings.py": """\
from omegaconf import OmegaConf

config = OmegaConf.load("base.yaml")
print("workers", config.data.workers)
print("root", config.data.root)
""",
        },
        wanted="Interpolation key 'paths.scratch' not found",
        helpful=(r"base\.yaml|settings\.py", r"paths\.scratch|paths?\b"),
    ),
    ml(
        name="n-fire-unknown-flag",
        code="bad_input",
        also_codes=("exit_code",),
        command="python sweep.py run --lr=0.1 --momentun=0.9",
        files={
            "sweep.py": """\
import fire


class Sweep:
    def run(self, lr=0.01, momentum=0.0):
        print("running with", lr, momentum)

    def list(self):
        print("no sweeps")


if __name__ == "__main__":
    fire.Fire(Sweep)
""",
        },
        wanted=("Could not consume arg: --momentun=0.9", "momentun"),
        helpful=(r"momentun|momentum",),
    ),
    ml(
        name="n-absl-flag-illegal-value",
        code="bad_input",
        also_codes=("exit_code",),
        command="python agent.py --steps=many",
        files={
            "agent.py": """\
from absl import app, flags, logging

FLAGS = flags.FLAGS
flags.DEFINE_integer("steps", 100, "how many steps", lower_bound=1)
flags.DEFINE_string("task", "cartpole", "what to learn")


def main(_):
    logging.info("learning %s for %d steps", FLAGS.task, FLAGS.steps)


if __name__ == "__main__":
    app.run(main)
""",
        },
        wanted="flag --steps=many",
        helpful=(r"--steps", r"many|integer"),
    ),
    job(
        name="n-pydantic-nested-settings",
        command="python start.py",
        files={
            "run.json": '{"model": {"name": "tiny", "layers": "six"}, "optimizer": {"lr": -0.1}}\n',
            "start.py": """\
from pathlib import Path

from pydantic import BaseModel, PositiveFloat


class Model(BaseModel):
    name: str
    layers: int


class Optimizer(BaseModel):
    lr: PositiveFloat


class Run(BaseModel):
    model: Model
    optimizer: Optimizer


run = Run.model_validate_json(Path("run.json").read_text())
print(run)
""",
        },
        wanted=("2 validation errors for Run", "unable to parse string as an integer"),
        helpful=(r"run\.json", r"layers|model\.layers|optimizer\.lr"),
    ),
    job(
        name="n-yaml-tab-in-config",
        command="python main.py conf/train.yaml",
        files={
            "conf/train.yaml": "model:\n  width: 64\n\tdepth: 4\nlr: 0.1\n",
            "main.py": """\
import sys

import yaml


def load(path):
    with open(path) as handle:
        return yaml.safe_load(handle)


config = load(sys.argv[1])
print("width", config["model"]["width"])
""",
        },
        wanted="found character '\\t' that cannot start any token",
        helpful=(r"train\.yaml", r"\btab\b|line 3|indent"),
    ),
    job(
        name="n-torch-weights-only-load",
        command="python restore.py",
        files={
            "restore.py": """\
import torch


class Schedule:
    def __init__(self, steps):
        self.steps = steps


torch.save({"weights": torch.zeros(3), "schedule": Schedule([1, 2, 3])}, "state.pt")
print("restoring state.pt")
state = torch.load("state.pt")
print(state["schedule"].steps)
""",
        },
        wanted=("Weights only load failed", "Unsupported global: GLOBAL __main__.Schedule"),
        helpful=(r"weights_only|add_safe_globals|safe_globals", r"restore\.py|state\.pt"),
    ),
    job(
        name="n-torch-device-cuda-asked",
        also_codes=("environment",),
        command="python infer.py --device cuda:0",
        files={
            "infer.py": """\
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
device = torch.device(parser.parse_args().device)
model = torch.nn.Conv1d(4, 8, 3)
print("moving the model to", device)
model = model.to(device)
print(model(torch.ones(1, 4, 10, device=device)).shape)
""",
        },
        wanted="Torch not compiled with CUDA enabled",
        helpful=(r"--device|\bcpu\b", r"CUDA|GPU"),
        misleading=(r"firewall|smaller batch",),
    ),
    job(
        name="n-env-variable-key-error",
        command="python worker.py",
        files={
            "worker.py": """\
import logging
import os

logging.basicConfig(level="INFO")


def connect():
    host, port = os.environ["FEATURE_STORE_URL"].rsplit(":", 1)
    return host, int(port)


logging.info("worker starts")
host, port = connect()
logging.info("feature store at %s", host)
""",
        },
        wanted="KeyError: 'FEATURE_STORE_URL'",
        helpful=(r"FEATURE_STORE_URL", r"environment_variables"),
    ),
    job(
        name="n-logged-cause-then-generic-exit",
        code="exception",
        also_codes=("exit_code",),
        command="python nightly.py",
        files={
            "tasks.py": """\
import datetime


def freshness(stamp):
    return datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(stamp)
""",
            "nightly.py": """\
import logging
import sys

from tasks import freshness

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
log = logging.getLogger("nightly")
try:
    log.info("age %s", freshness("2026-01-05T03:00:00+00:00"))
    log.info("age %s", freshness("2026-01-05T03:00:00"))
except Exception:
    log.exception("freshness check failed")
log.info("sending the summary mail")
log.info("summary: 1 ok, 1 failed")
sys.exit(1)
""",
        },
        wanted="can't subtract offset-naive and offset-aware datetimes",
        helpful=(r"tasks\.py|nightly\.py", r"freshness|timezone|offset"),
    ),
    job(
        name="n-very-long-line-before-error",
        command="python dump.py",
        files={
            "dump.py": """\
import json
import sys

table = {f"feature_{n}": [n * 0.001] * 6 for n in range(6000)}
json.dump(table, sys.stdout)
sys.stdout.write(chr(10))
sys.stdout.flush()


def lookup(name):
    return table[name][0]


print(lookup("feature_12"))
print(lookup("feature_6000"))
""",
        },
        wanted="KeyError: 'feature_6000'",
        helpful=(r"dump\.py", r"feature_6000|lookup"),
    ),
    job(
        name="n-executor-thread-exception-at-result",
        command="python crawl.py",
        files={
            "crawl.py": """\
import concurrent.futures as cf
import urllib.parse

PAGES = ["http://a.example/x", "http://b.example:99999/y", "http://c.example/z"]


def port_of(url):
    return urllib.parse.urlsplit(url).port or 80


with cf.ThreadPoolExecutor(2, thread_name_prefix="crawl") as pool:
    futures = {pool.submit(port_of, url): url for url in PAGES}
    for future in cf.as_completed(futures):
        print(futures[future].split("/")[2].split(":")[0], future.result(), flush=True)
""",
        },
        wanted="Port out of range 0-65535",
        helpful=(r"crawl\.py", r"port|PAGES|99999"),
    ),
    shell(
        name="n-unbound-variable-in-submit",
        code="exit_code",
        command="bash submit.sh",
        files={
            "submit.sh": """\
#!/bin/bash
set -eu
name=${1:-baseline}
echo "submitting $name"
mkdir -p "runs/$name"
echo "data: $DATA_ROOT/v3" > "runs/$name/config"
python train.py --config "runs/$name/config"
""",
        },
        wanted="DATA_ROOT: unbound variable",
        helpful=(r"DATA_ROOT", r"submit\.sh"),
    ),
    shell(
        name="n-git-clone-in-job-fails",
        code="exit_code",
        command="bash bootstrap.sh",
        files={
            "bootstrap.sh": """\
#!/bin/bash
set -e
export GIT_TERMINAL_PROMPT=0
echo "fetching the model code"
git clone --quiet --depth 1 file:///srv/git/model-zoo.git zoo
python zoo/train.py
""",
        },
        wanted=(
            "'/srv/git/model-zoo.git' does not appear to be a git repository",
            "does not exist",
            "Could not read from remote",
        ),
        helpful=(r"model-zoo", r"bootstrap\.sh|clone"),
    ),
    shell(
        name="n-tar-archive-cut-short",
        code="exit_code",
        command="bash unpack.sh",
        files={
            "unpack.sh": """\
#!/bin/bash
set -e
mkdir -p src && head -c 300000 /dev/urandom > src/weights.bin
tar czf data.tar.gz src
truncate -s 90000 data.tar.gz   # the upload was interrupted
echo "unpacking data.tar.gz"
mkdir -p data
tar xzf data.tar.gz -C data
ls data
""",
        },
        wanted=("Unexpected EOF in archive", "unexpected end of file"),
        helpful=(r"data\.tar\.gz", r"archive|upload|download again|truncated|unpack\.sh"),
    ),
    shell(
        name="n-tcl-and-awk-report",
        code="exit_code",
        command="bash report.sh",
        files={
            "scores.txt": "a 3\nb 4\nc\n",
            "report.sh": """\
#!/bin/bash
set -o pipefail
awk 'NF != 2 { print "report: line " NR " of scores.txt has " NF " fields" > "/dev/stderr"; exit 9 } { s += $2 } \\
  END { if (s) print "sum", s }' scores.txt | tee sum.txt
""",
        },
        wanted="line 3 of scores.txt has 1 fields",
        helpful=(r"scores\.txt", r"line 3"),
    ),
    mpirun(
        name="n-mpirun-all-lack-module",
        code="environment",
        num_ranks=2,
        rank=0,
        also=(1,),
        command="mpirun --oversubscribe -n 2 python climate.py",
        files={
            "io_helpers.py": "import netCDF4_lite as nc\n\n\ndef read(path):\n    return nc.Dataset(path)\n",
            "climate.py": """\
from mpi4py import MPI

from io_helpers import read

comm = MPI.COMM_WORLD
print("rank", comm.rank, read("t2m.nc"))
""",
        },
        wanted="No module named 'netCDF4_lite'",
        helpful=(r"netCDF4_lite",),
        misleading=(r"\bmemory\b|firewall|network",),
    ),
]
