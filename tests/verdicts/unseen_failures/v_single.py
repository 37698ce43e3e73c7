"""One Python process: arguments, files, versions, noise around the real error."""

from recorder import Failure

FAILURES = [
    Failure(
        name="v-one-rich-traceback",
        way="rich prints the traceback in boxes",
        code="exception",
        command="python train.py",
        files={
            "train.py": """from rich.traceback import install
from rich.progress import track
install(show_locals=True, width=100)


def step(batch, stats):
    return sum(batch) / stats["count"]


def main():
    stats = {"count": 0}
    for i in track(range(5), description="warm up"):
        pass
    print(step([1.0, 2.0], stats))


main()
"""
        },
        wanted="ZeroDivisionError: float division by zero",
        helpful=(r"train\.py|count|zero",),
        misleading=(r"firewall|memory|network",),
    ),
    Failure(
        name="v-one-loguru-catch",
        way="loguru logs the exception and the script exits with 1",
        code="exception",
        command="python -u etl.py",
        files={
            "etl.py": """import sys
from loguru import logger

logger.remove()
logger.add(sys.stderr, format="{time:HH:mm:ss.SSS} | {level: <8} | {name}:{function}:{line} - {message}", diagnose=True)


def parse(row):
    day, month, year = row.split("/")
    return int(year), int(month), int(day)


@logger.catch(onerror=lambda _: sys.exit(1))
def main():
    rows = ["01/02/2023", "11/09/2024", "2024-09-12"]
    for row in rows:
        logger.info("parsed {}", parse(row))


main()
"""
        },
        wanted="not enough values to unpack (expected 3, got 1)",
        helpful=(r"etl\.py|date|format|2024-09-12|split",),
        misleading=(r"firewall|memory|network",),
    ),
    Failure(
        name="v-one-noise-after-cause",
        way="the traceback is followed by two hundred lines of shutdown messages",
        code="exception",
        command="python -u serve_train.py",
        files={
            "serve_train.py": """import atexit
import logging
import numpy as np

logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(levelname)s [%(name)s] %(message)s")
log = logging.getLogger("metrics.flusher")


def flush():
    for i in range(200):
        log.debug("flushing queue %d: %d items left, status=ok", i, 200 - i)
    log.warning("connection pool is full, discarding connection: telemetry.local. Connection pool size: 10")
    log.info("telemetry closed")


atexit.register(flush)
w = np.zeros((64, 32))
x = np.ones((16, 64, 1))
log.info("forward")
y = (x.squeeze(-1) @ w) + np.zeros(31)
"""
        },
        wanted="operands could not be broadcast together with shapes (16,32) (31,)",
        helpful=(r"serve_train\.py|shape|broadcast",),
        misleading=(r"firewall|memory|network|connection pool",),
    ),
    Failure(
        name="v-one-numpy-removed-alias",
        way="code for an older numpy",
        code="exception",
        also_codes=("environment",),
        command="python prep.py",
        files={
            "prep.py": """import numpy as np
labels = np.array([0, 1, 1, 0])
mask = labels.astype(np.bool)
scores = np.trapz(mask, dx=0.5)
print(scores)
"""
        },
        wanted=("has no attribute 'trapz'",),
        helpful=(r"numpy|trapezoid|version|prep\.py",),
        misleading=(r"firewall|memory|network",),
    ),
    Failure(
        name="v-one-library-too-old",
        way="the script checks a package's version",
        code="environment",
        also_codes=("exit_code", "exception"),
        command="python run_clm.py",
        files={
            "run_clm.py": """import importlib.metadata as md, sys

def check_min_version(package, least):
    have = md.version(package)
    if tuple(map(int, have.split("+")[0].split(".")[:2])) < least:
        sys.exit(f"ImportError: this example requires {package}>={'.'.join(map(str, least))} but found {package}=={have}")

check_min_version("numpy", (3, 1))
print("ok")
"""
        },
        wanted="this example requires numpy>=3.1 but found numpy==",
        helpful=(r"numpy|install|version|upgrade",),
        misleading=(r"firewall|memory|network",),
    ),
    Failure(
        name="v-one-yaml-tab",
        way="a tab in a YAML config",
        code="exception",
        also_codes=("bad_input",),
        command="python main.py conf/exp.yaml",
        files={
            "conf/exp.yaml": "model:\n  name: unet\n\tdepth: 4\n",
            "main.py": """import sys, yaml
with open(sys.argv[1]) as f:
    cfg = yaml.safe_load(f)
print("training", cfg["model"]["name"])
""",
        },
        wanted="found character '\\t' that cannot start any token",
        helpful=(r"exp\.yaml|tab|line 3",),
        misleading=(r"firewall|memory|network",),
    ),
    Failure(
        name="v-one-argparse-type",
        way="a number with a decimal comma on the command line",
        code="bad_input",
        command="python train.py --lr 0,001 --epochs 3",
        files={
            "train.py": """import argparse
p = argparse.ArgumentParser(prog="train.py")
p.add_argument("--lr", type=float, default=1e-3)
p.add_argument("--epochs", type=int, default=1)
opt = p.parse_args()
"""
        },
        wanted="argument --lr: invalid float value: '0,001'",
        helpful=(r"--lr|0,001",),
        misleading=(r"firewall|memory|network",),
    ),
    Failure(
        name="v-one-disk-quota-copy",
        way="shutil copies a data set into a scratch that is too small",
        code="disk_full",
        command="unshare -m bash -c 'mkdir -p scratch && mount -t tmpfs -o size=3m none scratch && python copy_data.py'",
        files={
            "copy_data.py": """import os, shutil
os.makedirs("dataset", exist_ok=True)
for i in range(6):
    with open(f"dataset/shard{i}.bin", "wb") as f:
        f.write(os.urandom(1_000_000))
shutil.copytree("dataset", "scratch/dataset")
print("copied")
"""
        },
        wanted="No space left on device",
        helpful=(r"disk|space|scratch",),
        misleading=(r"firewall|out of memory",),
    ),
    Failure(
        name="v-one-read-only-output",
        way="the output folder of another user may not be written",
        code="exception",
        also_codes=("data_unavailable",),
        command="mkdir -p out && chmod 555 out && setpriv --bounding-set=-dac_override --inh-caps=-dac_override python export.py",
        files={
            "export.py": """import json, os, sys
print("exporting as uid", os.getuid(), flush=True)
with open("out/metrics.json", "w") as f:
    json.dump({"auc": 0.8}, f)
"""
        },
        wanted="Permission denied: 'out/metrics.json'",
        helpful=(r"out/|permission|write|folder|owner",),
        misleading=(r"firewall|out of memory",),
    ),
    Failure(
        name="v-one-memory-pandas",
        way="a loader collects all rows and is killed in a small cgroup",
        code="host_oom",
        command="g=/sys/fs/cgroup/memory/v_rows_$$; mkdir -p $g && echo 60M > $g/memory.limit_in_bytes && echo $$ > $g/cgroup.procs; "
        "exec python -u load.py",
        files={
            "load.py": """rows = []
n = 0
while True:
    rows.append({"id": n, "text": "lorem ipsum " * 20 + str(n)})
    n += 1
    if n % 20000 == 0:
        print("loaded", n, "rows")
"""
        },
        wanted=("SIGKILL", "killed", "out of memory", "Killed"),
        helpful=(r"memory|stream|chunk|fewer|smaller",),
        misleading=(r"firewall|port\b",),
    ),
    Failure(
        name="v-one-shm-workers",
        way="/dev/shm of one megabyte and data loader workers",
        code="shm_too_small",
        command="unshare -m bash -c 'mount -t tmpfs -o size=1m shm /dev/shm && python train.py'",
        files={
            "train.py": """import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    data = TensorDataset(torch.zeros(64, 3, 96, 96))
    for (x,) in DataLoader(data, batch_size=16, num_workers=2):
        print("batch", tuple(x.shape))
"""
        },
        wanted=("No space left on device", "Bus error", "insufficient shared memory", "shared memory"),
        helpful=(r"shm|shared memory|num_workers|workers",),
        misleading=(r"firewall|port\b",),
    ),
    Failure(
        name="v-one-recursion",
        way="a recursive config merge loops",
        code="exception",
        command="python merge.py",
        files={
            "merge.py": """def resolve(conf, key):
    value = conf[key]
    return resolve(conf, value[1:]) if value.startswith("$") else value

conf = {"root": "/data", "train": "$valid", "valid": "$train"}
print("root is", resolve(conf, "root"))
print("train is", resolve(conf, "train"))
"""
        },
        wanted="RecursionError: maximum recursion depth exceeded",
        helpful=(r"merge\.py|resolve|recurs|circular",),
        misleading=(r"firewall|out of memory|network",),
    ),
    Failure(
        name="v-one-chained-http",
        way="a chain of exceptions: refused connection below a wrapped error",
        code="exception",
        also_codes=("data_unavailable",),
        command="python fetch.py",
        files={
            "fetch.py": """import requests


class DatasetError(Exception):
    pass


def manifest(url):
    try:
        return requests.get(url, timeout=2).json()
    except requests.RequestException as error:
        raise DatasetError(f"cannot load manifest from {url}") from error


print(manifest("http://127.0.0.1:9/v2/manifest.json"))
"""
        },
        wanted=("Connection refused", "cannot load manifest from http://127.0.0.1:9"),
        helpful=(r"127\.0\.0\.1:9|url|server|manifest|fetch\.py",),
        misleading=(r"out of memory|MASTER_PORT",),
    ),
    Failure(
        name="v-one-unicode-windows",
        way="a Windows-1252 file is read as UTF-8",
        code="exception",
        command="python make.py && python stats.py",
        files={
            "make.py": "open('reviews.csv','wb').write('id,text\\r\\n1,na\\u00efve caf\\u00e9\\r\\n'.encode('cp1252'))\n",
            "stats.py": """import csv
with open("reviews.csv", newline="") as f:
    words = [len(r["text"].split()) for r in csv.DictReader(f)]
print(sum(words))
""",
        },
        wanted="'utf-8' codec can't decode byte 0xef",
        helpful=(r"encoding|stats\.py|reviews\.csv|cp1252|latin",),
        misleading=(r"firewall|memory|network",),
    ),
]
