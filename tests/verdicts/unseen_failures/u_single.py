"""Single processes: configuration, data, checkpoints, limits of the machine."""

from recorder import Failure

FAILURES = [
    Failure(
        name="u-yaml-tab",
        way="a tab in the YAML configuration",
        code="exception",
        also_codes=("bad_input",),
        command="python main.py --config conf/base.yaml",
        files={
            "conf/base.yaml": "model:\n  name: resnet18\n\tdepth: 18\noptim:\n  lr: 0.1\n",
            "main.py": """import argparse, yaml

def load(path):
    with open(path) as fh:
        return yaml.safe_load(fh)

a = argparse.ArgumentParser()
a.add_argument("--config", default="conf/base.yaml")
cfg = load(a.parse_args().config)
print("training", cfg["model"]["name"])
""",
        },
        wanted=("found character '\\t' that cannot start any token", "conf/base.yaml"),
        helpful=(r"base\.yaml", r"tab|indent"),
        misleading=(r"network|memory|install",),
    ),
    Failure(
        name="u-env-var-not-set",
        way="an environment variable is not set",
        code="exception",
        also_codes=("bad_input",),
        command="python -m trainer",
        files={
            "trainer/__init__.py": "",
            "trainer/__main__.py": """import os
from trainer.settings import Settings

s = Settings.from_env()
print(s)
""",
            "trainer/settings.py": """import os
from dataclasses import dataclass


@dataclass
class Settings:
    data_root: str
    run_name: str

    @classmethod
    def from_env(cls):
        return cls(data_root=os.environ["DATA_ROOT"], run_name=os.environ.get("RUN_NAME", "dev"))
""",
        },
        wanted="KeyError: 'DATA_ROOT'",
        helpful=(r"DATA_ROOT", r"environment|variable|env\b"),
        misleading=(r"network|memory|pip install",),
    ),
    Failure(
        name="u-click-invalid-choice",
        way="click refuses a choice",
        code="bad_input",
        command="python train.py --precision fp8 --steps 100",
        files={
            "train.py": """import click

@click.command()
@click.option("--precision", type=click.Choice(["fp32", "bf16", "fp16"]), default="fp32")
@click.option("--steps", type=int, required=True)
def main(precision, steps):
    click.echo(f"{precision} x {steps}")

main()
"""
        },
        wanted=("'fp8' is not one of",),
        helpful=(r"--precision|fp8|bf16|fp16",),
        misleading=(r"network|memory|GPU",),
    ),
    Failure(
        name="u-numpy-object-array",
        way="npy with pickled objects",
        code="exception",
        command="python prepare.py",
        files={
            "prepare.py": """import numpy as np
import logging

logging.basicConfig(level=logging.INFO, format="%(asctime)s | %(levelname)-7s | %(message)s")
np.save("tokens.npy", np.array([[1, 2, 3], [4, 5]], dtype=object))
logging.info("loading tokens.npy")
tokens = np.load("tokens.npy")
logging.info("loaded %d documents", len(tokens))
"""
        },
        wanted="Object arrays cannot be loaded when allow_pickle=False",
        helpful=(r"allow_pickle", r"prepare\.py", r"tokens\.npy"),
        misleading=(r"network|memory|port\b",),
    ),
    Failure(
        name="u-memory-cgroup-kill",
        way="the kernel ends the process at its memory limit",
        code="host_oom",
        rank=0,
        command="bash limited.sh",
        files={
            "limited.sh": """#!/bin/bash
# a container with 300 MB
group=/sys/fs/cgroup/memory/u-case-$$
mkdir $group && echo $((300 * 1024 * 1024)) > $group/memory.limit_in_bytes
( echo $BASHPID > $group/tasks; exec python -u embed.py )
code=$?
sleep 0.2
rmdir $group
exit $code
""",
            "embed.py": """import time
print("building the embedding table in memory")
rows = []
for shard in range(64):
    rows.append(bytearray(16 * 1024 * 1024))
    print(f"shard {shard:02d}: {len(rows) * 16} MB held", flush=True)
    time.sleep(0.02)
print("done")
""",
        },
        wanted=("Killed", "MB held", "SIGKILL", "memory"),
        helpful=(r"memory|shard|embed\.py",),
        misleading=(r"network|firewall|GPU memory",),
    ),
    Failure(
        name="u-tmpfs-full-while-saving",
        way="a small scratch disk is full while saving",
        code="disk_full",
        command="unshare -m bash job.sh",
        files={
            "job.sh": """mkdir -p scratch
mount -t tmpfs -o size=3m tmpfs scratch
exec python -u save_features.py --out scratch
""",
            "save_features.py": """import sys, pickle
from pathlib import Path

out = Path(sys.argv[2])
for n in range(40):
    features = {"id": n, "vector": b"\\0" * 300_000}
    with open(out / f"f{n:04d}.pkl", "wb") as f:
        pickle.dump(features, f)
    print("saved", n)
""",
        },
        wanted="No space left on device",
        helpful=(r"disk|space|scratch",),
        misleading=(r"network|install|port\b",),
    ),
    Failure(
        name="u-retry-wrapper-last-error",
        way="a retry wrapper tries three times and raises its own error from the last",
        code="exception",
        command="python -u export.py",
        files={
            "export.py": """import logging, random, time
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")


class GaveUp(Exception):
    pass


def retry(times, wait):
    def deco(fn):
        def inner(*a, **k):
            for n in range(1, times + 1):
                try:
                    return fn(*a, **k)
                except Exception as e:
                    logging.warning("%s failed (attempt %d/%d): %s", fn.__name__, n, times, e, exc_info=n == 1)
                    last = e
                    time.sleep(wait)
            raise GaveUp(f"{fn.__name__} failed {times} times") from last
        return inner
    return deco


def to_row(model):
    return [model["name"], model["metrics"]["val"]["f1"]]


@retry(3, 0.1)
def export(models):
    return [to_row(m) for m in models]


export([{"name": "a", "metrics": {"val": {"f1": 0.5}}}, {"name": "b", "metrics": {"test": {"f1": 0.4}}}])
"""
        },
        wanted="KeyError: 'val'",
        helpful=(r"export\.py", r"'val'|metrics"),
        misleading=(r"network|memory|retry again|more retries",),
    ),
    Failure(
        name="u-caught-then-exit-two",
        way="main catches everything, prints one line and exits with 2",
        code="exit_code",
        also_codes=("exception", "bad_input"),
        command="python score.py --model best.onnx",
        files={
            "score.py": """import sys


def load(path):
    if not path.endswith(".pt"):
        raise ValueError(f"cannot load {path}: only TorchScript archives (.pt) are supported")


def main(argv):
    try:
        load(argv[argv.index("--model") + 1])
    except Exception as err:
        print(f"score.py: error: {err}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
"""
        },
        wanted="cannot load best.onnx: only TorchScript archives (.pt) are supported",
        helpful=(r"best\.onnx|\.pt|--model|TorchScript",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="u-recursion-in-config-merge",
        way="a self-referring configuration recurses for ever",
        code="exception",
        command="python run.py",
        files={
            "run.py": """from collections import UserDict


class Node(UserDict):
    def resolve(self, key):
        v = self.data[key]
        if isinstance(v, str) and v.startswith("${"):
            return self.resolve(v[2:-1])
        return v


cfg = Node(batch="${train.batch}", **{"train.batch": "${batch}", "lr": 0.1})
print("lr", cfg.resolve("lr"))
print("batch", cfg.resolve("batch"))
"""
        },
        wanted="maximum recursion depth exceeded",
        helpful=(r"run\.py", r"recurs|resolve|batch|cycle|circular"),
        misleading=(r"network|out of memory|install",),
    ),
    Failure(
        name="u-attribute-of-old-numpy",
        way="np.float is gone from numpy",
        code="exception",
        also_codes=("environment",),
        command="python legacy_train.py",
        files={
            "legacy_train.py": """import numpy as np

def normalise(a):
    a = a.astype(np.float)
    return (a - a.mean()) / a.std()

print(normalise(np.arange(5)))
"""
        },
        wanted="module 'numpy' has no attribute 'float'",
        helpful=(r"numpy|np\.float", r"legacy_train\.py"),
        misleading=(r"network|out of memory",),
    ),
    Failure(
        name="u-cuda-asked-on-cpu",
        way="cuda is asked for with a CPU build",
        code="environment",
        also_codes=("exception",),
        command="python infer.py --device cuda:0",
        files={
            "infer.py": """import sys
import torch
device = torch.device(sys.argv[2])
print("using", device)
model = torch.nn.Linear(10, 10).to(device)
"""
        },
        wanted="Torch not compiled with CUDA enabled",
        helpful=(r"CUDA|cpu|--device|GPU",),
        misleading=(r"network|out of memory|port\b",),
    ),
]
