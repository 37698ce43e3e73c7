"""Single jobs: tools, locales, notebooks, workers. The labels were given before any verdict was seen."""

from functools import partial

from recorder import Failure

job = partial(Failure, code="exception", misleading=(r"\bmemory\b|firewall|pip install",))
ml = partial(job, venv="ml")
shell = partial(Failure, convention="shell", misleading=(r"firewall|smaller batch|\bGPU\b",))

FAILURES = [
    ml(
        name="n-nbconvert-execute-fails",
        command="python build.py && jupyter nbconvert --to html --execute analysis.ipynb",
        files={
            "build.py": """\
import nbformat
from nbformat.v4 import new_code_cell, new_notebook

book = new_notebook(cells=[
    new_code_cell("runs = {'a': [1, 2, 3], 'b': []}"),
    new_code_cell("for name, values in runs.items():\\n    print(name, sum(values) / len(values))"),
])
book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
nbformat.write(book, "analysis.ipynb")
""",
        },
        wanted="division by zero",
        helpful=(r"analysis\.ipynb|notebook|cell", r"\bvalues\b|runs|empty"),
    ),
    ml(
        name="n-ipython-script-context",
        command="ipython --colors=NoColor --no-banner explore.py",
        files={
            "explore.py": """\
import numpy as np

grid = np.linspace(0, 1, 11)


def bucket(value):
    return int(np.where(grid >= value)[0][0])


for value in (0.05, 0.95, 1.5):
    print(value, bucket(value))
""",
        },
        wanted="index 0 is out of bounds for axis 0 with size 0",
        helpful=(r"explore\.py", r"\bbucket\b|\bgrid\b"),
    ),
    job(
        name="n-pytest-gate-before-training",
        code="exit_code",
        also_codes=("exception",),
        command="python -m pytest -q -p no:cacheprovider checks && python train.py",
        files={
            "checks/test_data.py": """\
def rows():
    return [{"text": "ok", "label": 1}, {"text": "", "label": 0}]


def test_labels():
    assert {row["label"] for row in rows()} == {0, 1}


def test_no_empty_text():
    empty = [number for number, row in enumerate(rows()) if not row["text"]]
    assert empty == []
""",
            "train.py": "print('training')\n",
        },
        wanted=("test_no_empty_text", "assert [1] == []"),
        helpful=(r"test_no_empty_text|test_data\.py",),
    ),
    job(
        name="n-pip-requirement-of-no-version",
        code="environment",
        command="./setup_and_run.sh",
        files={
            "requirements.txt": "six==99.7.1\n",
            "setup_and_run.sh": """\
#!/bin/bash
set -e
python -m venv --without-pip deps
python -m pip install --quiet --no-index --target deps/packages -r requirements.txt
PYTHONPATH=deps/packages python -c 'import six; print(six.__version__)'
""",
        },
        wanted=(
            "No matching distribution found for six==99.7.1",
            "Could not find a version that satisfies the requirement",
        ),
        helpful=(r"requirements\.txt|six", r"version|index"),
        misleading=(r"\bmemory\b|firewall",),
    ),
    shell(
        name="n-cmake-package-not-found",
        code="exit_code",
        also_codes=("environment",),
        command="cmake -S . -B build && cmake --build build && build/app",
        files={
            "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.10)
project(app CXX)
find_package(TensorKernels 2.1 REQUIRED)
add_executable(app main.cpp)
target_link_libraries(app TensorKernels::core)
""",
            "main.cpp": "int main() { return 0; }\n",
        },
        wanted=('provided by "TensorKernels"', "TensorKernelsConfig.cmake", "FindTensorKernels.cmake"),
        helpful=(r"TensorKernels", r"CMAKE_PREFIX_PATH|install"),
    ),
    job(
        name="n-german-exit-message",
        code="exit_code",
        command="python auswertung.py --stichtag 2026-02-30",
        files={
            "auswertung.py": """\
import argparse
import datetime
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--stichtag", required=True)
eingabe = parser.parse_args().stichtag
print("Auswertung beginnt …")
try:
    stichtag = datetime.date.fromisoformat(eingabe)
except ValueError:
    sys.exit(f"Ungültiger Stichtag: {eingabe} – bitte ein Datum der Form JJJJ-MM-TT angeben")
print("Stichtag", stichtag)
""",
        },
        wanted="Ungültiger Stichtag: 2026-02-30",
        helpful=(r"stichtag|2026-02-30",),
    ),
    job(
        name="n-japanese-exception-and-path",
        command="python 学習.py",
        files={
            "設定.json": '{"学習率": 0.01, "層": 3}\n',
            "学習.py": """\
import json


class 設定エラー(Exception):
    pass


def 読む(名前):
    with open("設定.json", encoding="utf-8") as ファイル:
        値 = json.load(ファイル)
    if 名前 not in 値:
        raise 設定エラー(f"設定.json に「{名前}」がありません")
    return 値[名前]


print("学習率", 読む("学習率"))
print("世代数", 読む("世代数"))
""",
        },
        wanted="設定.json に「世代数」がありません",
        helpful=(r"設定\.json|学習\.py", r"世代数"),
    ),
    job(
        name="n-ascii-locale-print-fails",
        command="bash run.sh",
        variables={"LANG": "C", "LC_ALL": "POSIX"},
        files={
            "run.sh": "#!/bin/bash\nexport PYTHONIOENCODING=ascii PYTHONUTF8=0\nexec python -u log.py\n",
            "log.py": """\
import sys

MESSAGES = ["epoch 1: loss 0.5", "epoch 2: loss 0.4", "epoch 3: Δloss < 1e-3, done"]
for message in MESSAGES:
    sys.stdout.write(message)
    sys.stdout.write(chr(10))
print("finished")
""",
        },
        wanted="'ascii' codec can't encode character",
        helpful=(r"log\.py", r"encoding|PYTHONIOENCODING|PYTHONUTF8|locale|LANG|UTF-8"),
    ),
    job(
        name="n-ray-task-chain",
        command="python ray_sum.py",
        limit_s=90,
        variables={"RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"},
        files={
            "ray_sum.py": """\
import tempfile

import ray

ray.init(num_cpus=2, include_dashboard=False, logging_level="warning", _temp_dir=tempfile.mkdtemp(dir="/tmp"))


@ray.remote
def load(part):
    table = {"a": 3, "b": 4}
    return table[part]


@ray.remote
def total(*values):
    return sum(values)


print("parts a and b:", ray.get(total.remote(load.remote("a"), load.remote("b"))))
print("parts a and c:", ray.get(total.remote(load.remote("a"), load.remote("c"))))
""",
        },
        wanted="KeyError: 'c'",
        helpful=(r"ray_sum\.py", r"\bload\b|\btable\b"),
    ),
    job(
        name="n-syntax-error-in-imported-module",
        command="python main.py",
        files={
            "main.py": "import losses\n\nprint(losses.focal(0.5))\n",
            "losses.py": """\
import math


def focal(p, gamma=2.0):
    return -((1 - p) ** gamma) * math.log(p)


def dice(a, b:
    return 2 * a * b / (a + b)
""",
        },
        wanted="SyntaxError: '(' was never closed",
        helpful=(r"losses\.py", r"line 8|line 9|\bdice\b"),
    ),
    job(
        name="n-async-timeout-cancelled",
        command="python gateway.py",
        files={
            "gateway.py": """\
import asyncio
import logging

logging.basicConfig(level="INFO")
log = logging.getLogger("gateway")


async def infer(prompt):
    log.info("sending %r", prompt)
    await asyncio.sleep(30 if "long" in prompt else 0.05)
    return prompt.upper()


async def main():
    for prompt in ("short one", "a long one"):
        answer = await asyncio.wait_for(infer(prompt), timeout=1.0)
        log.info("answer %s", answer)


asyncio.run(main())
""",
        },
        wanted="TimeoutError",
        helpful=(r"gateway\.py", r"wait_for|timeout=|\binfer\b"),
    ),
    job(
        name="n-script-name-mistyped",
        code="bad_input",
        also_codes=("exit_code",),
        command="python trian.py --epochs 5",
        files={"train.py": "print('training')\n", "config.yaml": "epochs: 5\n"},
        wanted="can't open file",
        helpful=(r"train\.py|trian\.py",),
    ),
    shell(
        name="n-program-of-the-command-missing",
        code="launcher_missing",
        command="deepspeed --num_gpus 2 train.py --deepspeed ds.json",
        files={"train.py": "print('training')\n", "ds.json": '{"train_batch_size": 8}\n'},
        wanted="deepspeed: command not found",
        helpful=(r"deepspeed",),
    ),
    shell(
        name="n-checksum-of-download-differs",
        code="exit_code",
        command="bash fetch.sh",
        files={
            "weights.bin": "not the weights",
            "SHA256SUMS": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  weights.bin\n",
            "fetch.sh": """\
#!/bin/bash
set -e
echo "verifying the weights"
sha256sum --check SHA256SUMS
echo "starting"
python train.py
""",
        },
        wanted=("weights.bin: FAILED", "computed checksum did NOT match"),
        helpful=(r"weights\.bin|SHA256SUMS|checksum",),
    ),
    shell(
        name="n-limit-of-a-silent-shell-loop",
        code="timeout",
        command="bash wait_for_data.sh",
        limit_s=4,
        rank=None,
        files={
            "wait_for_data.sh": """\
#!/bin/bash
echo "waiting for /mnt/incoming/_SUCCESS"
until [ -e /mnt/incoming/_SUCCESS ]; do
  sleep 1
done
python train.py
""",
        },
        wanted=("time limit", "waiting for /mnt/incoming/_SUCCESS", "limits.timeout", "passed"),
        helpful=(r"_SUCCESS|wait_for_data\.sh", r"timeout|time limit"),
    ),
    job(
        name="n-limit-while-fitting-alone",
        code="timeout",
        command="python -u fit.py",
        limit_s=5,
        rank=None,
        files={
            "fit.py": """\
import random

weights = [0.0] * 50
for epoch in range(10**9):
    for index in range(len(weights)):
        weights[index] += random.gauss(0, 1e-3)
    if epoch % 20000 == 0:
        print(f"epoch {epoch}: norm {sum(w * w for w in weights):.4f}")
""",
        },
        wanted=("time limit", "limits.timeout", "passed"),
        helpful=(r"timeout|time limit|checkpoint|fewer",),
        misleading=(r"\bmemory\b|firewall|pip install|deadlock",),
    ),
    job(
        name="n-spawned-workers-deadlock-limit",
        code="timeout",
        convention="spawn",
        command="python pairs.py",
        limit_s=6,
        files={
            "pairs.py": """\
import multiprocessing as mp
import time


def transfer(first, second, name):
    with first:
        print(name, "holds the first lock", flush=True)
        time.sleep(0.5)
        with second:
            print(name, "holds both", flush=True)


if __name__ == "__main__":
    a, b = mp.Lock(), mp.Lock()
    workers = [mp.Process(target=transfer, args=pair) for pair in ((a, b, "left"), (b, a, "right"))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print("both done")
""",
        },
        wanted=("time limit", "worker.join", "with second", "did not", "hung", "waiting"),
        helpful=(r"pairs\.py", r"\block", r"transfer|join"),
    ),
    job(
        name="n-loader-worker-raises-in-spawn",
        convention="spawn",
        command="python load.py",
        files={
            "load.py": """\
import torch
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    texts = ["one two", "three", "four five six", ""]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        words = self.texts[index].split()
        return torch.tensor([len(word) for word in words]).float().max()


if __name__ == "__main__":
    for batch in DataLoader(Sentences(), batch_size=2, num_workers=1, multiprocessing_context="spawn"):
        print(batch.tolist(), flush=True)
""",
        },
        wanted=("Expected reduction dim to be specified for input.numel() == 0", "max()"),
        helpful=(r"load\.py", r"__getitem__|\bmax\b|empty|texts"),
    ),
]
