"""Everyday scripts: several modules, loggers, retries, clean-up, checkpoints, and the ends that people meet."""

from recorder import Failure

BUG = (r"network|interface|MASTER_|core file|faulthandler",)


def job(
    name, files, code, wanted, helpful=(r"train\.py|\.py line",), misleading=BUG, command="python train.py", **more
):
    return Failure(f"day-{name}", code, command, wanted, files, helpful, misleading, **more)


FAILURES = [
    job(
        "trainer-package",
        {
            "train.py": "from lib.trainer import Trainer\nTrainer({'lr': 'fast'}).fit()\n",
            "lib/__init__.py": "",
            "lib/trainer.py": "import logging\nlogging.basicConfig(level='INFO')\nclass Trainer:\n    def __init__(self, c): self.c = c\n    def fit(self):\n        logging.info('start')\n        self.step(0)\n    def step(self, n):\n        return self.c['lr'] * 0.1\n",
        },
        "exception",
        "TypeError: can't multiply sequence by non-int of type 'float'",
        (r"lib/trainer\.py|trainer\.py",),
    ),
    job(
        "retry-decorator",
        {
            "train.py": """
import time
def retry(times):
    def wrap(f):
        def call(*a):
            for n in range(times):
                try: return f(*a)
                except ConnectionError as e:
                    print(f"[retry {n + 1}/{times}] {e}")
                    if n == times - 1: raise
        return call
    return wrap
@retry(3)
def fetch(): raise ConnectionError("mirror refused the request: 429 Too Many Requests")
fetch()
"""
        },
        "exception",
        "ConnectionError: mirror refused the request: 429 Too Many Requests",
        misleading=(r"rank|peer|MASTER_",),
        also_codes=("data_unavailable",),
    ),
    job(
        "cleanup-prints-error",
        {
            "train.py": """
import shutil, sys
def main(): raise ValueError("sequence length 4096 exceeds the model's 2048")
try:
    main()
finally:
    print("cleaning up /tmp/run-17", file=sys.stderr)
    print("warning: could not remove /tmp/run-17/lock", file=sys.stderr)
"""
        },
        "exception",
        "ValueError: sequence length 4096 exceeds the model's 2048",
    ),
    job(
        "error-handler-prints-summary",
        {
            "train.py": """
import sys, traceback
def main(): raise KeyError("encoder.layers")
try: main()
except Exception as e:
    traceback.print_exc()
    print("=" * 40); print("TRAINING FAILED"); print(f"reason: {e!r}"); print("=" * 40)
    sys.exit(2)
"""
        },
        "exception",
        "KeyError: 'encoder.layers'",
        also_codes=("exit_code",),
    ),
    job(
        "assert-in-callback",
        {
            "train.py": """
class Callback:
    def on_step(self, n): assert n < 3, f"early stop callback saw step {n}"
cb = Callback()
for n in range(10):
    print(f"Epoch 1/1 - {n * 10}% - loss: {1 / (n + 1):.4f}")
    cb.on_step(n)
"""
        },
        "exception",
        "AssertionError: early stop callback saw step 3",
    ),
    job(
        "exit-in-thread",
        {
            "train.py": """
import os, threading, time
def watchdog():
    time.sleep(0.3); print("watchdog: no progress for 0.3 s, ending the process", flush=True); os._exit(70)
threading.Thread(target=watchdog, daemon=True).start()
time.sleep(30)
"""
        },
        "exit_code",
        "watchdog: no progress for 0.3 s, ending the process",
        (),
        BUG,
    ),
    job(
        "subprocess-traceback",
        {
            "train.py": """
import subprocess, sys
out = subprocess.run([sys.executable, "-c", "raise RuntimeError('tokenizer crashed on line 7')"], capture_output=True, text=True)
if out.returncode:
    print(out.stderr)
    sys.exit("preprocessing failed")
"""
        },
        "exception",
        "RuntimeError: tokenizer crashed on line 7",
        (r"tokenizer|line|train\.py",),
        also_codes=("exit_code",),
    ),
    job(
        "warn-then-die",
        {
            "train.py": """
import warnings, sys
warnings.warn("CUDA is not available, training on the CPU will be slow")
print("Loading checkpoint shards: 100%|##########| 4/4 [00:00<00:00]", file=sys.stderr)
raise NotImplementedError("mixed precision on the CPU needs bfloat16")
"""
        },
        "exception",
        "NotImplementedError: mixed precision on the CPU needs bfloat16",
    ),
    job(
        "config-validation",
        {
            "train.py": """
import sys
errors = ["optimizer.lr: must be > 0", "data.path: /data/none does not exist"]
print("configuration is invalid:", file=sys.stderr)
for e in errors: print("  -", e, file=sys.stderr)
sys.exit(64)
"""
        },
        "exit_code",
        ("configuration is invalid", "optimizer.lr: must be > 0"),
        (),
        BUG,
        also_codes=("bad_input",),
    ),
    job(
        "pydantic",
        {
            "train.py": """
from pydantic import BaseModel
class Config(BaseModel):
    lr: float
    epochs: int
Config(lr="fast", epochs=3)
"""
        },
        "exception",
        ("ValidationError: 1 validation error for Config", "Input should be a valid number"),
        (r"train\.py|lr",),
        also_codes=("bad_input",),
    ),
    job(
        "import-side-effect",
        {"train.py": "import settings\n", "settings.py": "import os\nTOKEN = os.environ['HUB_TOKEN']\n"},
        "exception",
        "KeyError: 'HUB_TOKEN'",
        (r"HUB_TOKEN",),
    ),
    job(
        "module-typo",
        {"train.py": "import modle\n", "model.py": "x = 1\n"},
        "environment",
        "No module named 'modle'",
        (r"model",),
        (r"pip: \[modle\]", *BUG),
    ),
    job(
        "submodule-missing",
        {"train.py": "import torch.nonexistent\n"},
        "environment",
        "No module named 'torch.nonexistent'",
        (r"torch",),
        BUG,
    ),
    job(
        "yaml-missing",
        {"train.py": "import yamll\n"},
        "environment",
        "No module named 'yamll'",
        (r"yamll|pyyaml",),
        BUG,
    ),
    job(
        "csv-missing-column",
        {
            "train.py": "import csv\nrows = list(csv.DictReader(open('d.csv')))\nprint(rows[0]['label'])\n",
            "d.csv": "image,target\na,1\n",
        },
        "exception",
        "KeyError: 'label'",
    ),
    job(
        "encoding",
        {"train.py": "open('d.txt', 'wb').write(b'caf\\xe9')\nopen('d.txt', encoding='utf-8').read()\n"},
        "exception",
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9",
    ),
    job(
        "int-overflow",
        {"train.py": "import numpy as np\nnp.array([300], dtype=np.uint8)\n"},
        "exception",
        "OverflowError: Python integer 300 out of bounds for uint8",
    ),
    job(
        "broadcast",
        {"train.py": "import numpy as np\nnp.ones((3, 4)) + np.ones((2, 4))\n"},
        "exception",
        "operands could not be broadcast together with shapes (3,4) (2,4)",
    ),
    job(
        "torch-cat",
        {"train.py": "import torch\ntorch.cat([torch.ones(2, 3), torch.ones(2, 4)])\n"},
        "exception",
        "Sizes of tensors must match except in dimension 0",
    ),
    job(
        "torch-device",
        {"train.py": "import torch\ntorch.ones(1).to('cuda:0')\n"},
        "environment",
        ("CUDA", "NVIDIA"),
        (r"GPU|cpu|--compute",),
        BUG,
        facts={"gpu_clusters": ["big"]},
    ),
    job(
        "torch-dataparallel",
        {"train.py": "import torch\nm = torch.nn.Conv2d(3, 8, 3)\nm(torch.ones(1, 1, 8, 8))\n"},
        "exception",
        "expected input[1, 1, 8, 8] to have 3 channels, but got 1 channels instead",
        (r"train\.py|channel",),
    ),
    job(
        "checkpoint-missing",
        {"train.py": "import torch\ntorch.load('checkpoints/last.pt')\n"},
        "exception",
        "No such file or directory: 'checkpoints/last.pt'",
        (r"checkpoints/last\.pt",),
        BUG,
        also_codes=("data_unavailable",),
    ),
    job(
        "folder-missing-for-write",
        {"train.py": "open('outputs/logs/metrics.csv', 'w')\n"},
        "exception",
        "No such file or directory: 'outputs/logs/metrics.csv'",
        (r"outputs/logs|mkdir|folder",),
        BUG,
        also_codes=("data_unavailable",),
    ),
    job(
        "is-a-directory",
        {"train.py": "open('data')\n", "data/a.txt": ""},
        "exception",
        "IsADirectoryError: [Errno 21] Is a directory: 'data'",
        (r"data|train\.py",),
    ),
    job(
        "cgroup-oom",
        {
            "train.py": """
import os
from pathlib import Path
group = Path(f"/sys/fs/cgroup/memory/mvc-{os.getpid()}"); group.mkdir()
(group / "memory.limit_in_bytes").write_text(str(200 << 20)); (group / "cgroup.procs").write_text(str(os.getpid()))
print("loading the whole dataset into memory", flush=True)
x = [bytearray(b"x" * (50 << 20)) for _ in range(100)]
"""
        },
        "host_oom",
        "memory",
        (r"memory",),
        (r"MASTER_",),
    ),
    job(
        "fork-bomb-limit",
        {
            "train.py": """
import threading, resource
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
threading.stack_size(64 << 20)
ts = [threading.Thread(target=lambda: threading.Event().wait(5), daemon=True) for _ in range(50)]
for t in ts: t.start()
"""
        },
        "exception",
        ("can't start new thread",),
        (r"thread|limit|train\.py",),
        (r"MASTER_",),
        also_codes=("host_oom",),
    ),
    job(
        "shell-pipeline",
        {
            "run.sh": "#!/bin/bash\nset -eo pipefail\npython prep.py | python train.py\n",
            "prep.py": "raise ValueError('no files match *.jsonl')\n",
            "train.py": "import sys\nprint(len(sys.stdin.read()))\n",
        },
        "exception",
        "ValueError: no files match *.jsonl",
        (r"prep\.py",),
        command="./run.sh",
        convention="shell",
    ),
    job(
        "shell-two-steps",
        {
            "run.sh": "set -e\npython prep.py\npython train.py\n",
            "prep.py": "print('prepared 10 files')\n",
            "train.py": "import json\njson.load(open('prepared.json'))\n",
        },
        "exception",
        "No such file or directory: 'prepared.json'",
        (r"prepared\.json",),
        command="bash run.sh",
        convention="shell",
        also_codes=("data_unavailable",),
    ),
    job(
        "shell-trap",
        {
            "run.sh": "trap 'echo \"[run.sh] failed at line $LINENO with code $?\"' ERR\nset -e\necho start\npython train.py\n",
            "train.py": "raise ValueError('seed must be an integer')\n",
        },
        "exception",
        "ValueError: seed must be an integer",
        (r"train\.py",),
        command="bash run.sh",
        convention="shell",
    ),
    job(
        "shell-test-fails",
        {
            "run.sh": 'set -e\necho checking data\n[ -d /data/imagenet/train ] || { echo "ERROR: /data/imagenet/train is missing"; exit 20; }\n'
        },
        "exit_code",
        "/data/imagenet/train is missing",
        (r"/data/imagenet/train",),
        command="bash run.sh",
        convention="shell",
        also_codes=("data_unavailable",),
    ),
    job(
        "shell-conda",
        {"run.sh": "conda activate train\npython train.py\n", "train.py": "print(1)\n"},
        "launcher_missing",
        "conda: command not found",
        (r"conda",),
        command="bash -e run.sh",
        convention="shell",
    ),
    job(
        "shell-source",
        {"run.sh": "set -e\nsource venv/bin/activate\npython train.py\n"},
        "exit_code",
        "venv/bin/activate: No such file or directory",
        (r"venv/bin/activate|environment",),
        command="bash run.sh",
        convention="shell",
        also_codes=("data_unavailable", "environment"),
    ),
    job(
        "shell-wget",
        {"run.sh": "set -e\nwget -q http://127.0.0.1:9/x.tar || { echo 'download of x.tar failed' >&2; exit 4; }\n"},
        "exit_code",
        "download of x.tar failed",
        (),
        command="bash run.sh",
        convention="shell",
        also_codes=("data_unavailable",),
    ),
    job(
        "timeout-slow-epochs",
        {
            "train.py": "import time\nfor e in range(1000):\n    print(f'epoch {e} loss {1 / (e + 1):.3f}', flush=True); time.sleep(0.5)\n"
        },
        "timeout",
        "time limit",
        (r"limits\.timeout|checkpoint",),
        BUG,
        limit_s=4,
        rank=None,
    ),
    job(
        "timeout-after-warning",
        {
            "train.py": """
import time, traceback
try: open("/data/cache.idx")
except OSError: traceback.print_exc()
print("going on without the cache", flush=True)
for e in range(1000): print(f"step {e}", flush=True); time.sleep(0.3)
"""
        },
        "timeout",
        "time limit",
        (r"limits\.timeout|checkpoint",),
        (r"cache\.idx",),
        limit_s=4,
        rank=None,
    ),
    job(
        "timeout-deadlock",
        {
            "train.py": """
import threading, time
a, b = threading.Lock(), threading.Lock()
def one():
    with a:
        time.sleep(0.2)
        with b: pass
def two():
    with b:
        time.sleep(0.2)
        with a: pass
ts = [threading.Thread(target=f) for f in (one, two)]
for t in ts: t.start()
for t in ts: t.join()
"""
        },
        "timeout",
        "time limit",
        (r"train\.py|limits\.timeout|checkpoint",),
        (),
        limit_s=4,
        rank=None,
    ),
    job(
        "java-caused-by",
        {
            "Main.java": """
public class Main {
    static void a() { try { Integer.parseInt("12x"); } catch (Exception e) { throw new IllegalStateException("bad shard id", e); } }
    public static void main(String[] x) throws Exception { Thread t = new Thread(Main::a, "loader-3"); t.start(); t.join(); System.exit(1); }
}
"""
        },
        "exception",
        'NumberFormatException: For input string: "12x"',
        (r"Main\.java",),
        (r"python",),
        command="java Main.java",
        convention="shell",
        also_codes=("exit_code",),
    ),
    job(
        "cpp-logs-then-aborts",
        {
            "main.cpp": """
#include <cstdio>
#include <stdexcept>
int main() { for (int i = 0; i < 50; i++) printf("iteration %d residual %g\\n", i, 1.0 / (i + 1)); fflush(stdout);
  try { throw std::invalid_argument("stoi"); } catch (std::exception& e) { fprintf(stderr, "caught %s, going on\\n", e.what()); }
  throw std::out_of_range("block 51 of 50"); }
"""
        },
        "signal",
        "block 51 of 50",
        (r"native|core|uncaught|catch|main\.cpp",),
        (r"MASTER_",),
        command="g++ -o a.out main.cpp && ./a.out",
        convention="shell",
        also_codes=("exception",),
    ),
]
