"""Single Python scripts."""
# ruff: noqa: E501

from recorder import Failure

WRONG_WAY = r"firewall|submit again|smaller batch|MASTER_PORT|shm"


def script(name: str, source: str, code: str = "exception", **labels: object) -> Failure:
    files = {"main.py": source} | dict(labels.pop("files", {}))  # type: ignore[call-overload]
    labels = {"command": "python main.py", "misleading": (WRONG_WAY,)} | labels
    return Failure(name=name, code=code, files=files, **labels)  # type: ignore[arg-type]


SERVER = """import http.server, threading, urllib.request, sys

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(STATUS)
        self.send_header("Content-Length", "9")
        self.end_headers()
        self.wfile.write(b"see error")

    def log_message(self, *args):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
"""

FAILURES = [
    script(
        "r-one-yaml-indent",
        "import yaml\nconf = yaml.safe_load(open('train.yaml'))\nprint(conf)\n",
        files={"train.yaml": "model:\n  depth: 12\n   width: 64\ndata: train\n"},
        wanted=("mapping values are not allowed here",),
        helpful=(r"train\.yaml|line 3|indent",),
    ),
    script(
        "r-one-toml-duplicate",
        "import tomllib\nwith open('run.toml', 'rb') as f:\n    print(tomllib.load(f))\n",
        files={"run.toml": "[optim]\nlr = 0.1\nlr = 0.2\n"},
        wanted="tomllib.TOMLDecodeError: Cannot overwrite a value",
        helpful=(r"run\.toml|line 3|twice|duplicate",),
    ),
    script(
        "r-one-json-comma",
        "import json\nprint(json.load(open('conf/model.json'))['layers'])\n",
        files={"conf/model.json": '{\n  "layers": 4,\n  "heads": 8,\n}\n'},
        wanted="json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 4",
        helpful=(r"model\.json|line 4|line 3|comma|main\.py",),
    ),
    script(
        "r-one-ini-section",
        "import configparser\nc = configparser.ConfigParser()\nc.read('settings.ini')\nprint(c.getint('training', 'epochs'))\n",
        files={"settings.ini": "[train]\nepochs = 3\n"},
        wanted="configparser.NoSectionError: No section: 'training'",
        helpful=(r"training|settings\.ini",),
    ),
    script(
        "r-one-pydantic-config",
        """from pydantic import BaseModel, Field
import yaml

class Train(BaseModel):
    lr: float = Field(gt=0)
    epochs: int

print(Train(**yaml.safe_load("lr: -0.1\\nepochs: many")))
""",
        wanted=("2 validation errors for Train", "Input should be greater than 0"),
        helpful=(r"lr|epochs|main\.py",),
    ),
    script(
        "r-one-click-choice",
        """import click

@click.command()
@click.option("--optimizer", type=click.Choice(["sgd", "adamw"]), required=True)
def main(optimizer):
    print(optimizer)

main()
""",
        code="bad_input",
        command="python main.py --optimizer adam",
        wanted="Invalid value for '--optimizer': 'adam' is not one of",
        helpful=(r"--optimizer|adamw|sgd",),
    ),
    script(
        "r-one-fire-unknown-flag",
        "import fire\n\ndef train(lr=0.1, epochs=2):\n    print(lr, epochs)\n\nfire.Fire(train)\n",
        code="bad_input",
        command="python main.py --lr 0.2 --epoch_count 3",
        wanted="Could not consume arg: --epoch_count",
        helpful=(r"epoch_count|epochs|--help",),
    ),
    script(
        "r-one-absl-flag",
        """from absl import app, flags
FLAGS = flags.FLAGS
flags.DEFINE_integer("num_steps", 10, "steps", lower_bound=1)

def main(_):
    print(FLAGS.num_steps)

app.run(main)
""",
        code="bad_input",
        command="python main.py --num_steps=0",
        wanted="flag --num_steps=0: 0 is not",
        helpful=(r"num_steps",),
    ),
    script(
        "r-one-tyro-missing",
        """import dataclasses, tyro

@dataclasses.dataclass
class Args:
    data: str
    lr: float = 0.1

print(tyro.cli(Args))
""",
        code="bad_input",
        command="python main.py --lr 0.3",
        wanted=("--data", "required"),
        helpful=(r"--data|data",),
    ),
    script(
        "r-one-hydra-override",
        """import hydra
from omegaconf import DictConfig

@hydra.main(version_base=None, config_path="conf", config_name="base")
def main(cfg: DictConfig):
    print(cfg)

main()
""",
        code="bad_input",
        command="python main.py optim.lrr=0.2",
        files={"conf/base.yaml": "optim:\n  lr: 0.1\n"},
        wanted=("Could not override 'optim.lrr'", "Key 'lrr' is not in struct"),
        helpful=(r"lrr|\+optim|optim",),
    ),
    script(
        "r-one-jsonargparse",
        """from jsonargparse import ArgumentParser
p = ArgumentParser()
p.add_argument("--model.depth", type=int, default=2)
print(p.parse_args())
""",
        code="bad_input",
        command="python main.py --model.depth deep",
        wanted=("model.depth", "deep"),
        helpful=(r"model\.depth|deep",),
    ),
    script(
        "r-one-typer-extra",
        "import typer\n\ndef main(data: str, lr: float = 0.1):\n    print(data, lr)\n\ntyper.run(main)\n",
        code="bad_input",
        command="python main.py train.csv valid.csv",
        wanted=("Got unexpected extra argument (valid.csv)", "Got unexpected extra argument(s) (valid.csv)"),
        helpful=(r"valid\.csv|argument",),
    ),
    script(
        "r-one-http-401",
        SERVER.replace("STATUS", "401")
        + "import requests\nr = requests.get(url + '/api/model')\nr.raise_for_status()\n",
        wanted="401 Client Error: Unauthorized for url",
        helpful=(r"token|credential|401|log ?in|main\.py",),
        also_codes=("data_unavailable",),
    ),
    script(
        "r-one-http-403-urllib",
        SERVER.replace("STATUS", "403") + "data = urllib.request.urlopen(url + '/bucket/train.tar').read()\n",
        wanted="urllib.error.HTTPError: HTTP Error 403: Forbidden",
        helpful=(r"403|credential|permission|access|main\.py",),
        also_codes=("data_unavailable",),
    ),
    script(
        "r-one-http-404-hub",
        SERVER.replace("STATUS", "404")
        + """import os
os.environ["HF_ENDPOINT"] = url
os.environ["HF_HUB_CACHE"] = "hub"
from huggingface_hub import hf_hub_download
hf_hub_download("acme/tiny-llama-typo", "config.json")
""",
        wanted=("An error happened while trying to locate the file on the Hub",),
        helpful=(r"tiny-llama-typo|HF_ENDPOINT|repo|connection|main\.py",),
        also_codes=("data_unavailable",),
    ),
    script(
        "r-one-http-429-gives-up",
        SERVER.replace("STATUS", "429")
        + """import time, requests
for attempt in range(3):
    r = requests.get(url + "/v1/embed")
    if r.ok:
        break
    print(f"attempt {attempt + 1}: {r.status_code} {r.reason}, waiting", flush=True)
    time.sleep(0.3)
else:
    sys.exit("giving up: the embedding service still answers 429 Too Many Requests after 3 attempts")
""",
        code="exit_code",
        wanted="giving up: the embedding service still answers 429",
        helpful=(r"429|rate|later|wait|main\.py",),
    ),
    script(
        "r-one-http-503-retries",
        SERVER.replace("STATUS", "503")
        + """import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry
s = requests.Session()
s.mount("http://", HTTPAdapter(max_retries=Retry(total=2, backoff_factor=0.1, status_forcelist=[503])))
s.get(url + "/shards/0").raise_for_status()
""",
        wanted=("too many 503 error responses",),
        helpful=(r"503|/shards/0|main\.py|server|service",),
        also_codes=("data_unavailable",),
    ),
    script(
        "r-one-name-not-resolved",
        "import requests\nrequests.get('http://dataset-mirror.corp.invalid/train.tgz', timeout=5)\n",
        wanted=("Failed to resolve 'dataset-mirror.corp.invalid'", "Name or service not known"),
        helpful=(r"dataset-mirror|name|DNS|main\.py",),
        also_codes=("data_unavailable",),
    ),
    script(
        "r-one-parquet-truncated",
        """import pandas as pd
pd.DataFrame({"a": range(1000)}).to_parquet("part.parquet")
data = open("part.parquet", "rb").read()
open("part.parquet", "wb").write(data[:-200])
print(pd.read_parquet("part.parquet").sum())
""",
        wanted=("Parquet magic bytes not found in footer",),
        helpful=(r"part\.parquet|truncat|corrupt",),
    ),
    script(
        "r-one-jpeg-truncated",
        """import io
import numpy as np
from PIL import Image
image = Image.fromarray(np.random.randint(0, 255, (64, 64, 3), dtype="uint8"))
image.save("cat.jpg")
data = open("cat.jpg", "rb").read()
open("cat.jpg", "wb").write(data[:900])
print(np.asarray(Image.open("cat.jpg")).mean())
""",
        wanted=("OSError: image file is truncated", "truncated"),
        helpful=(r"cat\.jpg|truncat|LOAD_TRUNCATED|main\.py",),
    ),
    script(
        "r-one-checkpoint-cut-off",
        """import torch
torch.save(torch.nn.Linear(100, 100).state_dict(), "epoch_3.pt")
data = open("epoch_3.pt", "rb").read()
open("epoch_3.pt", "wb").write(data[:5000])
torch.load("epoch_3.pt")
""",
        wanted=("OSError: [Errno 22] Invalid argument", "PytorchStreamReader failed"),
        helpful=(r"epoch_3\.pt|truncat|corrupt|incomplete",),
    ),
    script(
        "r-one-torch-load-weights-only",
        """import torch

class Config:
    depth = 3

torch.save({"config": Config()}, "model.pt")
torch.load("model.pt")
""",
        wanted=("Weights only load failed",),
        helpful=(r"weights_only|add_safe_globals|main\.py",),
    ),
    script(
        "r-one-missing-keys",
        """import torch
from torch import nn
net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
state = {f"module.{k}": v for k, v in net.state_dict().items()}
net.load_state_dict(state)
""",
        wanted=("Missing key(s) in state_dict", "Error(s) in loading state_dict for Sequential"),
        helpful=(r"module\.|prefix|strict|main\.py",),
    ),
    script(
        "r-one-cuda-device",
        "import torch\nx = torch.ones(3, device='cuda:0')\nprint(x)\n",
        code="environment",
        also_codes=("exception",),
        wanted="AssertionError: Torch not compiled with CUDA enabled",
        helpful=(r"cpu|GPU|--compute|CUDA",),
    ),
    script(
        "r-one-recursion",
        """import sys

sys.setrecursionlimit(400)

def depth(node):
    return 1 + max(depth(child) for child in node["children"])

tree = {"children": []}
tree["children"].append(tree)
print(depth(tree))
""",
        wanted="RecursionError: maximum recursion depth exceeded",
        helpful=(r"main\.py|depth|recurs",),
    ),
    script(
        "r-one-import-cycle",
        "import model\n",
        files={
            "model.py": "from layers import Block\n\nclass Model:\n    blocks = [Block]\n",
            "layers.py": "from model import Model\n\nclass Block:\n    owner = Model\n",
        },
        also_codes=("environment",),
        wanted="cannot import name 'Model' from partially initialized module 'model'",
        helpful=(r"layers\.py|model\.py|circular",),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    script(
        "r-one-shadowed-module",
        "import random\nprint(random.randint(0, 3))\n",
        files={"random.py": "SEED = 4\n"},
        also_codes=("environment",),
        wanted=("has no attribute 'randint'",),
        helpful=(r"random\.py|rename|shadow",),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    script(
        "r-one-old-api-numpy",
        "import numpy as np\nlabels = np.array([1, 2]).astype(np.int)\n",
        also_codes=("environment",),
        wanted="module 'numpy' has no attribute 'int'",
        helpful=(r"np\.int|int64|numpy|main\.py",),
    ),
    script(
        "r-one-version-check",
        """from importlib.metadata import version
have = version("torch")
if tuple(int(p) for p in have.split("+")[0].split(".")[:2]) < (3, 0):
    raise ImportError(f"this code needs torch>=3.0, but {have} is installed")
""",
        code="environment",
        also_codes=("exception",),
        wanted="ImportError: this code needs torch>=3.0",
        helpful=(r"torch",),
    ),
    script(
        "r-one-package-wrong-name",
        "import cv2\nprint(cv2.__version__)\n",
        code="environment",
        wanted="ModuleNotFoundError: No module named 'cv2'",
        helpful=(r"opencv|cv2",),
    ),
    script(
        "r-one-shared-library-missing",
        "import ctypes\nlib = ctypes.CDLL('libcudart.so.11.0')\n",
        code="environment",
        also_codes=("exception",),
        wanted="libcudart.so.11.0: cannot open shared object file",
        helpful=(r"libcudart|CUDA|LD_LIBRARY_PATH",),
    ),
    script(
        "r-one-pickle-lambda",
        """import pickle
from functools import partial
schedule = {"warmup": lambda s: s / 10}
with open("schedule.pkl", "wb") as f:
    pickle.dump(schedule, f)
""",
        wanted="Can't pickle <function <lambda>",
        helpful=(r"lambda|main\.py|def ",),
    ),
    script(
        "r-one-disk-full-csv",
        """import csv
with open("out/predictions.csv", "w") as f:
    w = csv.writer(f)
    for n in range(300_000):
        w.writerow([n, n * 0.5, "label"])
""",
        code="disk_full",
        command="mkdir out; unshare -m sh -c 'mount -t tmpfs -o size=1m none out; python main.py'",
        wanted="OSError: [Errno 28] No space left on device",
        helpful=(r"disk|space|out",),
    ),
    script(
        "r-one-too-many-files",
        "files = [open(f'shard_{n}', 'w') for n in range(100)]\n",
        command="ulimit -n 40; python main.py",
        also_codes=("platform",),
        wanted="Too many open files",
        helpful=(r"ulimit|open files|close|main\.py",),
    ),
    script(
        "r-one-cpu-limit",
        "n = 0\nprint('searching', flush=True)\nwhile True:\n    n += 1\n",
        code="signal",
        command="ulimit -t 2; python main.py",
        also_codes=("exit_code",),
        wanted=("SIGXCPU", "CPU time limit", "signal 24", "SIGKILL", "Killed"),
        helpful=(r"ulimit|CPU|main\.py",),
    ),
    script(
        "r-one-file-size-limit",
        """import numpy as np
np.zeros(10_000_000).tofile("cache.bin")
""",
        command="ulimit -f 2000; python main.py",
        also_codes=("disk_full",),
        wanted=("requested and", "File too large"),
        helpful=(r"ulimit|file size|cache\.bin|disk|main\.py",),
    ),
    script(
        "r-one-cgroup-oom",
        """import os
group = f"/sys/fs/cgroup/memory/muster-case-{os.getpid()}"
os.mkdir(group)
open(group + "/memory.limit_in_bytes", "w").write(str(80 << 20))
open(group + "/cgroup.procs", "w").write(str(os.getpid()))
rows = []
while True:
    rows.append("x" * 1_000_000)
    if len(rows) % 10 == 0:
        print(len(rows), "MB", flush=True)
""",
        code="host_oom",
        wanted=("memory", "Killed", "SIGKILL"),
        helpful=(r"memory|batch|main\.py",),
        misleading=(r"firewall|pip install|MASTER_PORT",),
    ),
    script(
        "r-one-limit-passed",
        """import time
for epoch in range(100):
    print(f"epoch {epoch} loss {1 / (epoch + 1):.3f}", flush=True)
    time.sleep(0.8)
""",
        code="timeout",
        limit_s=5,
        wanted=("limit", "5 s"),
        helpful=(r"limits\.timeout|--timeout|checkpoint|limit",),
    ),
    script(
        "r-one-deadlock-two-locks",
        """import threading, time
a, b = threading.Lock(), threading.Lock()

def reader():
    with a:
        time.sleep(0.3)
        with b:
            pass

t = threading.Thread(target=reader)
t.start()
with b:
    time.sleep(0.3)
    print("writer has b, wants a", flush=True)
    with a:
        pass
t.join()
""",
        code="timeout",
        limit_s=5,
        wanted=("limit", "with a", "main.py"),
        helpful=(r"main\.py|lock|with a",),
    ),
    script(
        "r-one-thread-raises-main-goes-on",
        """import sys, threading, time
failed = threading.Event()

def upload():
    try:
        {}["bucket"]
    finally:
        failed.set()

threading.Thread(target=upload).start()
failed.wait()
time.sleep(0.2)
print("uploader is gone", flush=True)
sys.exit(1)
""",
        wanted="KeyError: 'bucket'",
        also_codes=("exit_code",),
        helpful=(r"main\.py|bucket",),
    ),
    script(
        "r-one-keyboard-interrupt",
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(3)\n",
        code="signal",
        also_codes=("exception",),
        wanted=("KeyboardInterrupt", "SIGINT"),
        helpful=(r"SIGINT|main\.py|interrupt",),
    ),
    script(
        "r-one-stdin-closed",
        "name = input('Overwrite existing run? [y/n] ')\nprint(name)\n",
        wanted="EOFError: EOF when reading a line",
        helpful=(r"input|main\.py|stdin|--yes|interactive",),
    ),
    script(
        "r-one-surrogates",
        "text = b'na\\xefve'.decode('utf-8', 'surrogateescape')\nopen('names.txt', 'w', encoding='utf-8').write(text)\n",
        wanted="UnicodeEncodeError: 'utf-8' codec can't encode character '\\udcef'",
        helpful=(r"encod|main\.py|surrogate",),
    ),
    script(
        "r-one-database-missing-table",
        "import sqlite3\nsqlite3.connect('runs.db').execute('select * from metrics')\n",
        wanted="sqlite3.OperationalError: no such table: metrics",
        helpful=(r"metrics|runs\.db|table|main\.py",),
    ),
    script(
        "r-one-postgres-refused",
        "import psycopg\npsycopg.connect('postgresql://tracker@127.0.0.1:59432/runs', connect_timeout=3)\n",
        wanted=("connection failed", "Connection refused"),
        helpful=(r"59432|main\.py|database|Postgres|server",),
    ),
    script(
        "r-one-merge-columns",
        """import pandas as pd
a = pd.DataFrame({"id": [1], "x": [2]})
b = pd.DataFrame({"ID": [1], "y": [3]})
print(a.merge(b, on="id"))
""",
        wanted="KeyError: 'id'",
        helpful=(r"main\.py|id\b|column",),
    ),
    script(
        "r-one-module-run-not-package",
        "print('hi')\n",
        command="python -m trainer.main --epochs 3",
        files={"trainer/mian.py": "print('hi')\n", "trainer/__init__.py": ""},
        code="environment",
        also_codes=("bad_input", "launcher_missing"),
        wanted="No module named trainer.main",
        helpful=(r"trainer|mian|main",),
    ),
    script(
        "r-one-syntax-error",
        "def train(:\n    pass\n",
        wanted="SyntaxError",
        helpful=(r"main\.py",),
    ),
    script(
        "r-one-tabs-and-spaces",
        "def f():\n    x = 1\n\ty = 2\n    return x\n",
        wanted=("TabError: inconsistent use of tabs and spaces in indentation", "IndentationError"),
        helpful=(r"main\.py|tab|indent",),
    ),
    script(
        "r-one-relative-import",
        "print('x')\n",
        command="python pkg/train.py",
        files={
            "pkg/__init__.py": "",
            "pkg/train.py": "from .data import load\nload()\n",
            "pkg/data.py": "def load(): pass\n",
        },
        also_codes=("environment",),
        wanted="ImportError: attempted relative import with no known parent package",
        helpful=(r"-m pkg|pkg\.train|train\.py|relative",),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    script(
        "r-one-subprocess-child-traceback",
        """import subprocess, sys
for stage in ("extract", "train"):
    print("=== stage", stage, flush=True)
    subprocess.run([sys.executable, f"{stage}.py"], check=True)
""",
        files={
            "extract.py": "print('extracted 10 files')\n",
            "train.py": "sizes = [8, 16]\nprint(sum(sizes) / len(sizes[2:]))\n",
        },
        wanted="ZeroDivisionError: division by zero",
        helpful=(r"train\.py",),
    ),
    script(
        "r-one-subprocess-tool-fails",
        """import subprocess
r = subprocess.run(["tar", "xf", "dataset.tar.gz"], capture_output=True, text=True)
if r.returncode:
    raise RuntimeError(f"tar failed with {r.returncode}: {r.stderr.strip()}")
""",
        wanted="RuntimeError: tar failed with 2: tar: dataset.tar.gz: Cannot open",
        helpful=(r"dataset\.tar\.gz|main\.py",),
    ),
    script(
        "r-one-program-not-found",
        "import subprocess\nsubprocess.run(['ffmpeg8', '-i', 'clip.mp4'], check=True)\n",
        wanted="No such file or directory: 'ffmpeg8'",
        helpful=(r"ffmpeg8",),
    ),
]
