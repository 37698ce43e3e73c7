"""What people's own tools print around a failure: loggers, launchers of frameworks, test runners, command lines, more native ends.

Needs `pip install --target /tmp/acc --no-deps accelerate huggingface_hub safetensors tqdm loguru hydra-core omegaconf
antlr4-python3-runtime==4.9.3 absl-py structlog fire termcolor hf-xet better_exceptions`.
"""

from recorder import Failure

BUG = (r"memory|network|interface|MASTER_|core file|faulthandler|retry",)
WHERE = (r"train\.py",)
MORE = {"PYTHONPATH": "/tmp/acc"}


def script(name, text, code, wanted, helpful=WHERE, misleading=BUG, *, command="python train.py", files=None, **more):
    more.setdefault("variables", MORE)
    return Failure(
        f"tool-{name}", code, command, wanted, {"train.py": text, **(files or {})}, helpful, misleading, **more
    )


def gang(
    name,
    text,
    code,
    who,
    wanted,
    ranks,
    *,
    helpful=WHERE,
    misleading=(r"network between|interface|install",),
    nodes=1,
    **more,
):
    head = """
import datetime, os, sys, time
import torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def join(seconds=60): dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))
"""
    return Failure(
        f"more-gang-{name}-{ranks}",
        code,
        "python train.py",
        wanted,
        {"train.py": head + text},
        helpful,
        misleading,
        rank=who,
        convention="process",
        processes=ranks,
        nodes=nodes,
        way=name,
        variables=MORE,
        **more,
    )


def torchrun(
    name,
    text,
    code,
    who,
    wanted,
    n,
    *,
    command="",
    helpful=WHERE,
    misleading=(r"network between|interface|install",),
    **more,
):
    head = """
import datetime, os, sys, time
import torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def join(seconds=60): dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))
"""
    return Failure(
        f"more-torchrun-{name}-{n}",
        code,
        command or f"torchrun --standalone --nproc-per-node {n} train.py",
        wanted,
        {"train.py": head + text},
        helpful,
        misleading,
        rank=who,
        convention="torchrun",
        num_ranks=n,
        way=name,
        variables=MORE,
        **more,
    )


LOOP = "for step in range(60):\n    dist.all_reduce(torch.ones(1)); time.sleep(0.1)\n"
HUNG = ("did not", "hung", "hang", "stuck", "was in", "still")

FAILURES = [
    script(
        "loguru",
        """
from loguru import logger
def step(n): return 10 / (3 - n)
@logger.catch(reraise=True)
def main():
    for n in range(5): step(n)
main()
""",
        "exception",
        "ZeroDivisionError: division by zero",
    ),
    script(
        "loguru-not-reraised",
        """
import sys
from loguru import logger
def load(): raise FileNotFoundError(2, "No such file or directory", "vocab.json")
@logger.catch(onerror=lambda _: sys.exit(1))
def main(): load()
main()
""",
        "exception",
        "No such file or directory: 'vocab.json'",
        (r"vocab\.json",),
        also_codes=("data_unavailable",),
    ),
    script(
        "structlog-json",
        """
import json, sys, traceback
def log(event, **more): print(json.dumps({"event": event, "level": "error", **more}), flush=True)
try:
    raise ValueError("bucket 7 is empty")
except ValueError:
    log("training failed", exception=traceback.format_exc())
    sys.exit(1)
""",
        "exception",
        "ValueError: bucket 7 is empty",
    ),
    script(
        "absl",
        """
from absl import app, flags
FLAGS = flags.FLAGS
flags.DEFINE_integer("steps", 1, "how many")
def main(_): raise RuntimeError("no device matches 'tpu:0'")
app.run(main)
""",
        "exception",
        "RuntimeError: no device matches 'tpu:0'",
    ),
    script(
        "absl-flag",
        """
from absl import app, flags
flags.DEFINE_integer("steps", 1, "how many")
app.run(lambda _: None)
""",
        "bad_input",
        "Unknown command line flag 'step'",
        (r"steps|--step|flag",),
        (r"memory|install",),
        command="python train.py --step=3",
        also_codes=("exit_code",),
    ),
    script(
        "hydra-override",
        """
import hydra
@hydra.main(version_base=None, config_path=".", config_name="config")
def main(cfg): print(cfg.lr)
main()
""",
        "bad_input",
        ("Could not override 'batchsize'", "Key 'batchsize' is not in struct"),
        (r"batchsize|batch_size|\+batchsize",),
        (r"memory|install",),
        command="python train.py batchsize=3",
        files={"config.yaml": "lr: 0.1\nbatch_size: 32\n"},
        also_codes=("exit_code", "exception"),
    ),
    script(
        "hydra-missing-key",
        """
import hydra
@hydra.main(version_base=None, config_path=".", config_name="config")
def main(cfg): print(cfg.optimizer.momentum)
main()
""",
        "exception",
        ("Key 'momentum' is not in struct", "Missing key momentum"),
        (r"momentum|train\.py|config",),
        files={"config.yaml": "optimizer:\n  lr: 0.1\n"},
        also_codes=("exit_code", "bad_input"),
    ),
    script(
        "fire",
        """
import fire
def train(lr=0.1): raise ValueError(f"lr {lr} is too large")
fire.Fire(train)
""",
        "exception",
        "ValueError: lr 7 is too large",
        command="python train.py --lr 7",
    ),
    script(
        "tqdm",
        """
import time
from tqdm import tqdm
for n in tqdm(range(100)):
    if n == 37: raise KeyError("caption")
    time.sleep(0.005)
""",
        "exception",
        "KeyError: 'caption'",
    ),
    script(
        "tqdm-nested-write",
        """
from tqdm import tqdm
for e in tqdm(range(3), desc="epoch"):
    for n in tqdm(range(50), desc="batch", leave=False):
        if e == 1 and n == 20: raise ValueError("Expected more than 1 value per channel when training, got input size torch.Size([1, 64])")
""",
        "exception",
        "ValueError: Expected more than 1 value per channel when training",
    ),
    script(
        "pytest",
        """
def test_loss():
    assert abs(0.5 - 0.7) < 1e-3, "loss differs from the reference"
""",
        "exit_code",
        ("loss differs from the reference", "1 failed"),
        (r"test_loss|train\.py",),
        command="python -m pytest -q train.py -p no:cacheprovider",
        also_codes=("exception",),
    ),
    script(
        "unittest",
        """
import unittest
class T(unittest.TestCase):
    def test_shape(self): self.assertEqual((3, 4), (3, 5))
unittest.main()
""",
        "exception",
        ("AssertionError: Tuples differ: (3, 4) != (3, 5)", "FAILED (failures=1)"),
        (r"test_shape|train\.py",),
        also_codes=("exit_code",),
    ),
    script(
        "note",
        """
try: raise ValueError("cannot decode frame")
except ValueError as e:
    e.add_note("video: clip_0042.mp4, frame 17")
    raise
""",
        "exception",
        "ValueError: cannot decode frame",
        (r"train\.py|clip_0042",),
    ),
    script(
        "from-none",
        """
try: int("x")
except ValueError: raise RuntimeError("setting 'workers' has to be a number, not 'x'") from None
""",
        "exception",
        "RuntimeError: setting 'workers' has to be a number, not 'x'",
    ),
    script(
        "unicode",
        "raise ValueError('métrique inconnue : précision@k — 測定')\n",
        "exception",
        "ValueError: métrique inconnue",
    ),
    script(
        "relative-import",
        "from .model import Net\n",
        "environment",
        "attempted relative import with no known parent package",
        (r"python -m|from model|relative|model\.py",),
        (r"pip|memory|MASTER_",),
        files={"model.py": "class Net: pass\n"},
        also_codes=("exception",),
    ),
    script(
        "not-utf8",
        "x = 'caf\udce9'\n".encode("utf-8", "surrogateescape").decode("latin-1"),
        "exception",
        ("SyntaxError", "x ="),
        also_codes=("exit_code",),
    )
    if False
    else script("fstring-syntax", "x = 1\nprint(f'{x')\n", "exception", "SyntaxError: f-string"),
    script(
        "yaml-broken",
        """
import yaml
yaml.safe_load(open("config.yaml"))
""",
        "exception",
        ("mapping values are not allowed here", "ScannerError", "ParserError"),
        (r"config\.yaml|train\.py",),
        files={"config.yaml": "a: 1\n  b: 2\n c\n"},
    ),
    script(
        "sqlite-locked",
        """
import sqlite3
a = sqlite3.connect("x.db", timeout=0.1); a.execute("create table t(x)"); a.execute("begin immediate"); a.execute("insert into t values (1)")
b = sqlite3.connect("x.db", timeout=0.1); b.execute("insert into t values (2)")
""",
        "exception",
        "OperationalError: database is locked",
    ),
    script(
        "zip-broken",
        """
import zipfile
open("d.zip", "wb").write(b"PK nothing")
zipfile.ZipFile("d.zip")
""",
        "exception",
        "BadZipFile: File is not a zip file",
        (r"d\.zip|train\.py|damaged|truncated",),
    ),
    script(
        "image-broken",
        """
import io
from PIL import Image
Image.open(io.BytesIO(b"not an image"))
""",
        "exception",
        "UnidentifiedImageError: cannot identify image file",
    ),
    script(
        "child-command",
        """
import subprocess
subprocess.run(["bash", "-c", "echo 'ffmpeg: Invalid data found when processing input' >&2; exit 3"], check=True)
""",
        "exception",
        ("Invalid data found when processing input", "returned non-zero exit status 3"),
    ),
    script(
        "child-script",
        """
import subprocess, sys
subprocess.run([sys.executable, "prepare.py"], check=True)
""",
        "exception",
        "ValueError: column 'text' is missing",
        (r"prepare\.py",),
        files={"prepare.py": "raise ValueError(\"column 'text' is missing\")\n"},
    ),
    script(
        "os-system",
        """
import os, sys
code = os.system("python prepare.py")
if code: sys.exit(1)
""",
        "exception",
        "ValueError: column 'id' is missing",
        (r"prepare\.py",),
        files={"prepare.py": "raise ValueError(\"column 'id' is missing\")\n"},
        also_codes=("exit_code",),
    ),
    script(
        "backward-twice",
        """
import torch
w = torch.ones(2, requires_grad=True); l = (w * w).sum(); l.backward(); l.backward()
""",
        "exception",
        "Trying to backward through the graph a second time",
        (r"train\.py|retain_graph",),
    ),
    script(
        "inplace",
        """
import torch
w = torch.ones(2, requires_grad=True); y = w.exp(); y += 1; y.sum().backward()
""",
        "exception",
        "modified by an inplace operation",
        (r"train\.py|inplace|in-place",),
    ),
    script(
        "no-grad",
        """
import torch
torch.ones(2).sum().backward()
""",
        "exception",
        "does not require grad",
        (r"train\.py|requires_grad",),
    ),
    script(
        "not-scalar",
        """
import torch
torch.ones(2, requires_grad=True).backward()
""",
        "exception",
        "grad can be implicitly created only for scalar outputs",
        (r"train\.py|scalar|mean|sum",),
    ),
    script(
        "devices",
        """
import torch
torch.ones(2) + torch.ones(2, device="meta")
""",
        "exception",
        ("device", "meta"),
        (r"train\.py|device",),
    ),
    script(
        "stack",
        """
import torch
torch.utils.data.default_collate([torch.ones(3), torch.ones(4)])
""",
        "exception",
        "stack expects each tensor to be equal size",
        (r"train\.py|collate|pad",),
    ),
    script(
        "sampler",
        """
import torch
from torch.utils.data import DataLoader
DataLoader([], batch_size=4, shuffle=True)
""",
        "exception",
        "num_samples should be a positive integer value, but got num_samples=0",
        (r"train\.py|empty|data",),
    ),
    script(
        "missing-attribute",
        """
import torch
class Net(torch.nn.Module):
    def forward(self, x): return self.fc1(x)
Net()(torch.ones(1))
""",
        "exception",
        "'Net' object has no attribute 'fc1'",
    ),
    script(
        "typo-attribute",
        """
class Trainer:
    def run(self): self.optimiser.step()
    optimizer = None
Trainer().run()
""",
        "exception",
        "'Trainer' object has no attribute 'optimiser'. Did you mean: 'optimizer'?",
        (r"train\.py|optimizer",),
    ),
    script(
        "name-error", "def main():\n    print(modle)\nmain()\n", "exception", "NameError: name 'modle' is not defined"
    ),
    script(
        "json-config",
        """
import json
cfg = json.load(open("config.json"))
print(cfg["model"]["depth"])
""",
        "exception",
        "KeyError: 'depth'",
        (r"train\.py|depth",),
        files={"config.json": '{"model": {}}'},
    ),
    script(
        "env-int",
        """
import os
n = int(os.environ.get("NUM_SHARDS", ""))
""",
        "exception",
        "ValueError: invalid literal for int() with base 10: ''",
        (r"NUM_SHARDS|train\.py",),
    ),
    script(
        "getenv-none",
        """
import os
from pathlib import Path
root = Path(os.getenv("DATASET_DIR"))
""",
        "exception",
        ("TypeError", "not NoneType"),
        (r"DATASET_DIR",),
    ),
    script(
        "http-403",
        """
import http.server, threading, urllib.request
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_error(403)
    def log_message(self, *a): pass
s = http.server.HTTPServer(("127.0.0.1", 0), H); threading.Thread(target=s.serve_forever, daemon=True).start()
urllib.request.urlopen(f"http://127.0.0.1:{s.server_port}/weights.bin")
""",
        "exception",
        "HTTP Error 403: Forbidden",
        (r"train\.py|403|credential|token|permission",),
        (r"MASTER_|peer",),
        also_codes=("data_unavailable",),
    ),
    script(
        "ssl",
        """
import ssl
raise ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in certificate chain (_ssl.c:1006)")
""",
        "exception",
        "CERTIFICATE_VERIFY_FAILED",
        (r"certificate|CA|SSL_CERT_FILE|train\.py",),
        (r"MASTER_|peer",),
        also_codes=("data_unavailable", "environment"),
    ),
    script(
        "disk-in-middle",
        """
import os
for n in range(5): print(f"epoch {n} loss {1/(n+1):.2f}")
print("saving checkpoint to /scratch/ckpt-5.pt")
raise OSError(28, "No space left on device", "/scratch/ckpt-5.pt")
""",
        "disk_full",
        "No space left on device: '/scratch/ckpt-5.pt'",
        (r"space|disk",),
        (r"MASTER_|install",),
    ),
    script(
        "quota",
        "raise OSError(122, 'Disk quota exceeded', '/home/user/run/x.bin')\n",
        "disk_full",
        "Disk quota exceeded",
        (r"space|disk|quota",),
        (r"MASTER_|install",),
    ),
    script(
        "read-only",
        "raise OSError(30, 'Read-only file system', '/data/cache/index.tmp')\n",
        "exception",
        "Read-only file system: '/data/cache/index.tmp'",
        (r"/data/cache|output|writ",),
        (r"MASTER_|install",),
    ),
    script(
        "io-error",
        "raise OSError(5, 'Input/output error', '/data/train/shard-3.tar')\n",
        "data_unavailable",
        "Input/output error",
        (r"shard-3|/data|disk|storage",),
        (r"MASTER_|install",),
    ),
    script(
        "ulimit-memory",
        """
import numpy as np
x = [np.ones(10_000_000) for _ in range(200)]
""",
        "host_oom",
        ("Unable to allocate", "MemoryError"),
        (r"memory",),
        (r"MASTER_|install",),
        command="ulimit -v 2000000; OPENBLAS_NUM_THREADS=1 python train.py",
    ),
    script(
        "ulimit-cpu",
        "while True: pass\n",
        "signal",
        ("SIGXCPU", "SIGKILL"),
        (r"ulimit|limit",),
        (r"MASTER_|install",),
        command="ulimit -t 1; exec python train.py",
    ),
    script(
        "ulimit-file",
        "open('x.bin', 'wb').write(b'x' * 100_000_000)\n",
        "exception",
        ("File too large", "SIGXFSZ"),
        (r"ulimit|limit|x\.bin|train\.py",),
        (r"MASTER_|install",),
        command="ulimit -f 1000; python train.py",
        also_codes=("signal", "disk_full"),
    ),
    script(
        "sigusr1",
        "import os, signal\nos.kill(os.getpid(), signal.SIGUSR1)\n",
        "signal",
        "SIGUSR1",
        (r"outside|sent|scheduler|handle",),
        (r"MASTER_|install",),
    ),
    script(
        "sigpipe",
        "import signal, sys\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\nfor n in range(100000): print(n)\n",
        "signal",
        ("SIGPIPE", "signal 13", "code 141"),
        (r"pipe|head",),
        (r"MASTER_|install",),
        command="set -o pipefail; python train.py | head -1",
        also_codes=("exit_code",),
    ),
    script(
        "broken-pipe",
        "for n in range(100000): print(n)\n",
        "exception",
        "BrokenPipeError: [Errno 32] Broken pipe",
        (r"pipe|head|train\.py",),
        (r"MASTER_|peer|rank",),
        command="set -o pipefail; python train.py | head -1",
        also_codes=("exit_code",),
    ),
    script(
        "illegal",
        "import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n",
        "signal",
        "SIGILL",
        (r"instruction|CPU|native|built",),
        (r"MASTER_|network",),
    ),
    Failure(
        "cpp-stack-overflow",
        "signal",
        "g++ -O0 -o a.out main.cpp && ./a.out",
        ("SIGSEGV", "Segmentation fault"),
        {
            "main.cpp": "int f(int n) { volatile char b[4096]; b[0] = n; return f(n + 1) + b[0]; }\nint main() { return f(0); }\n"
        },
        (r"native|core|recurs",),
        (r"MASTER_|network",),
        convention="shell",
    ),
    script(
        "abort-words",
        """
import os, sys
sys.stderr.write("F0101 10:00:00 12 tensor.cc:88] Check failed: dims == 4 (3 vs. 4)\\n"); sys.stderr.flush()
os.abort()
""",
        "signal",
        "Check failed: dims == 4",
        (r"native|tensor\.cc|core|faulthandler",),
        (r"MASTER_|network",),
    ),
    script(
        "exit-255",
        "import sys\nprint('Error: licence has expired on 2026-10-01', file=sys.stderr)\nsys.exit(-1)\n",
        "exit_code",
        "licence has expired on 2026-10-01",
        (),
        BUG,
    ),
    script(
        "exit-42-json",
        "import sys, json\nprint(json.dumps({'status': 'error', 'reason': 'label file has 0 rows'}))\nsys.exit(42)\n",
        "exit_code",
        "label file has 0 rows",
        (),
        BUG,
    ),
    script(
        "usage-text",
        """
import sys
if len(sys.argv) < 2:
    print("usage: train.py CONFIG"); sys.exit(2)
""",
        "bad_input",
        "usage: train.py CONFIG",
        (r"CONFIG|argument|usage",),
        (r"memory|install",),
        also_codes=("exit_code",),
    ),
    script(
        "getopt",
        """
import getopt, sys
getopt.getopt(sys.argv[1:], "", ["lr="])
""",
        "exception",
        "GetoptError: option --rate not recognized",
        (r"--rate|--lr|train\.py",),
        command="python train.py --rate 3",
        also_codes=("bad_input",),
    ),
    script(
        "caught-twice-then-new",
        """
import traceback
for n in range(3):
    try: raise TimeoutError(f"blob {n} did not answer in 5 s")
    except TimeoutError: traceback.print_exc(); print(f"attempt {n + 1} of 3 failed, retrying")
raise RuntimeError("blob store is not reachable after 3 attempts")
""",
        "exception",
        "RuntimeError: blob store is not reachable after 3 attempts",
    ),
    script(
        "logged-with-exc-then-steps",
        """
import logging
logging.basicConfig(level="INFO", format="[%(asctime)s][%(levelname)s] %(message)s")
try: import apex_not_here
except ImportError: logging.warning("apex is not there, using torch", exc_info=True)
for e in range(4): logging.info("epoch %d: loss %.3f", e, 1 / (e + 1))
logging.error("metric 'val/acc' was never logged")
raise SystemExit(1)
""",
        "exit_code",
        "metric 'val/acc' was never logged",
        (),
        (r"pip|apex|memory",),
    ),
    script(
        "thread-pool",
        """
from concurrent.futures import ThreadPoolExecutor
def fetch(n):
    if n == 3: raise ConnectionError("shard 3: server hung up")
    return n
with ThreadPoolExecutor(4) as pool: print(list(pool.map(fetch, range(8))))
""",
        "exception",
        "ConnectionError: shard 3: server hung up",
        (r"train\.py|shard 3",),
        (r"MASTER_|peer|rank",),
        also_codes=("data_unavailable",),
    ),
    script(
        "asyncio-gather",
        """
import asyncio
async def pull(n):
    await asyncio.sleep(0)
    if n == 2: raise OSError("part 2 is gone")
async def main(): await asyncio.gather(*(pull(n) for n in range(4)))
asyncio.run(main())
""",
        "exception",
        "OSError: part 2 is gone",
    ),
    script(
        "nested-group",
        """
def inner(): raise ExceptionGroup("shards", [ValueError("shard a has no header"), TypeError("shard b is bytes")])
def outer():
    try: inner()
    except ExceptionGroup as e: raise ExceptionGroup("epoch 3", [e, KeyError("lr")])
outer()
""",
        "exception",
        ("ValueError: shard a has no header",),
    ),
    script(
        "spawn-pickle",
        """
import multiprocessing as mp
class M:
    def __init__(self): self.f = lambda x: x
def work(m): pass
if __name__ == "__main__":
    p = mp.get_context("spawn").Process(target=work, args=(M(),)); p.start(); p.join()
""",
        "exception",
        ("Can't pickle local object", "Can't get local object", "Can't pickle"),
        (r"lambda|pickl|train\.py",),
    ),
    script(
        "child-killed",
        """
import multiprocessing as mp, os, sys
def work(): os.kill(os.getpid(), 9)
if __name__ == "__main__":
    p = mp.Process(target=work); p.start(); p.join()
    if p.exitcode: raise SystemExit(f"worker ended with exit code {p.exitcode}")
""",
        "exit_code",
        "worker ended with exit code -9",
        (r"kill|memory|outside",),
        (r"MASTER_|install",),
        also_codes=("host_oom", "signal"),
    ),
    script(
        "better-exceptions",
        "import better_exceptions\nbetter_exceptions.hook()\ndef f(a, b):\n    return a / b\nf(3, 0)\n",
        "exception",
        "ZeroDivisionError: division by zero",
    ),
    script(
        "cgitb-like",
        """
import sys
def hook(t, v, tb):
    print("=" * 60); print(f"!!! {t.__name__}: {v}"); print("=" * 60)
sys.excepthook = hook
raise ValueError("dropout must be in [0, 1), not 1.5")
""",
        "exit_code",
        "ValueError: dropout must be in [0, 1), not 1.5",
        (),
        BUG,
        also_codes=("exception",),
    ),
    gang(
        "allgather-count",
        """
join(6)
xs = [torch.ones(2) for _ in range(world if rank else world - 1)]
dist.all_gather(xs, torch.ones(2))
""",
        "exception",
        0,
        ("Tensor list input to all_gather", "tensor list", "all_gather", "equal to the size", "Invalid"),
        3,
    ),
    gang(
        "send-recv",
        """
join(6)
if rank == 0: dist.recv(torch.ones(1), src=1)
elif rank == 1: dist.recv(torch.ones(1), src=0)
else: dist.barrier()
""",
        "collective",
        None,
        ("Timed out waiting",),
        3,
        helpful=(r"rank|same|order|recv",),
        also=(0, 1, 2),
    ),
    gang(
        "victims-log-and-exit-0",
        """
join(8)
try:
    for step in range(60):
        if rank == 2 and step == 4: raise FloatingPointError("scale fell to 0 at step 4")
        dist.all_reduce(torch.ones(1)); time.sleep(0.05)
except RuntimeError as e:
    print(f"[{rank}] lost a peer, leaving quietly", flush=True); os._exit(0)
""",
        "exception",
        2,
        "FloatingPointError: scale fell to 0 at step 4",
        4,
    ),
    gang(
        "victims-raise-own",
        """
join(8)
class PeerLost(Exception): pass
def reduce():
    try: dist.all_reduce(torch.ones(1))
    except RuntimeError as e: raise PeerLost("a peer went away in all_reduce") from e
for step in range(60):
    if rank == 1 and step == 4: raise LookupError("no rows for date 2026-02-30")
    reduce(); time.sleep(0.05)
""",
        "exception",
        1,
        "LookupError: no rows for date 2026-02-30",
        5,
    ),
    gang(
        "slow-rank",
        """
join(6); dist.all_reduce(torch.ones(1))
def load(n):
    if rank == 3: time.sleep(30)
for step in range(20):
    load(step); dist.all_reduce(torch.ones(1))
""",
        "collective",
        3,
        HUNG,
        4,
        helpful=(r"rank 3|train\.py",),
    ),
    gang(
        "hung-in-io",
        """
import os
join(6); dist.all_reduce(torch.ones(1))
os.mkfifo(f"pipe{rank}") if rank == 1 else None
if rank == 1: open("pipe1").read()
"""
        + LOOP,
        "collective",
        1,
        HUNG,
        3,
        helpful=(r"rank 1|train\.py",),
    ),
    gang(
        "two-nodes-late",
        "if rank >= 2: time.sleep(60)\njoin(6)\n" + LOOP,
        "rendezvous",
        None,
        ("clients joined", "wait timeout", "timed out", "did not answer"),
        4,
        nodes=2,
        helpful=(r"rank|WORLD_SIZE|started",),
        also=(2, 3),
        also_codes=("collective",),
    ),
    gang(
        "oom-killed",
        """
from pathlib import Path
join(20); dist.all_reduce(torch.ones(1))
if rank == 2:
    group = Path(f"/sys/fs/cgroup/memory/mvc-{os.getpid()}"); group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(600 << 20)); (group / "cgroup.procs").write_text(str(os.getpid()))
    x = [bytearray(b"x" * (50 << 20)) for _ in range(100)]
"""
        + LOOP,
        "host_oom",
        2,
        "memory",
        3,
        helpful=(r"memory",),
    ),
    gang(
        "port-by-hand",
        """
import socket
if rank == 0:
    a = socket.create_server(("127.0.0.1", 12399)); b = socket.create_server(("127.0.0.1", 12399))
join(5)
""",
        "port_trouble",
        0,
        "Address already in use",
        3,
        helpful=(r"12399",),
    ),
    gang(
        "keyerror-everywhere-but-one",
        """
join(10); dist.all_reduce(torch.ones(1))
if rank != 1: raise KeyError("teacher")
"""
        + LOOP,
        "exception",
        0,
        "KeyError: 'teacher'",
        4,
        also=(2, 3),
    ),
    gang(
        "assert-with-rank",
        """
join(10)
for step in range(40):
    assert not (rank == 4 and step == 5), f"rank {rank}: queue is empty at step {step}"
    dist.all_reduce(torch.ones(1)); time.sleep(0.05)
""",
        "exception",
        4,
        "AssertionError: rank 4: queue is empty at step 5",
        6,
    ),
    gang(
        "flood-after",
        """
import atexit
join(20); dist.all_reduce(torch.ones(1))
if rank == 1:
    atexit.register(lambda: [print(f"flushing buffer {n} of the event writer to disk") for n in range(3000)])
    raise ValueError("temperature schedule ended before the last step")
"""
        + LOOP,
        "exception",
        1,
        "ValueError: temperature schedule ended before the last step",
        3,
    ),
    torchrun(
        "restarts",
        """
join(20); dist.all_reduce(torch.ones(1))
if rank == 1: raise ValueError(f"curriculum stage 9 does not exist (attempt {os.environ['TORCHELASTIC_RESTART_COUNT']})")
time.sleep(3)
""",
        "exception",
        1,
        "ValueError: curriculum stage 9 does not exist",
        2,
        command="TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --standalone --max-restarts 1 --nproc-per-node 2 train.py",
    ),
    torchrun(
        "in-script",
        "if rank == 1: raise ValueError('no such split: vla')\ntime.sleep(3)\n",
        "exception",
        1,
        "ValueError: no such split: vla",
        2,
        command="bash -c 'set -e; echo starting; torchrun --standalone --nproc-per-node 2 train.py; echo done'",
    ),
    torchrun(
        "module-run",
        "join(20); dist.all_reduce(torch.ones(1))\nif rank == 0: raise OSError('cannot lock /shared/index')\ntime.sleep(3)\n",
        "exception",
        0,
        "OSError: cannot lock /shared/index",
        3,
        command="python -m torch.distributed.run --standalone --nproc-per-node 3 train.py",
    ),
    torchrun(
        "oom-like-words",
        """
join(20); dist.all_reduce(torch.ones(1))
if rank == 1:
    class OutOfMemoryError(RuntimeError): pass
    OutOfMemoryError.__module__ = "torch"
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.21 GiB is free.")
time.sleep(3)
""",
        "gpu_oom",
        1,
        "CUDA out of memory",
        2,
        helpful=(r"batch|memory",),
    ),
    Failure(
        "more-torchrun-two-nodes-4",
        "exception",
        "torchrun --nnodes 2 --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT --nproc-per-node 2 train.py",
        "ValueError: expert 3 has no tokens",
        {
            "train.py": """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo"); rank = dist.get_rank()
dist.all_reduce(torch.ones(1))
if rank == 3: raise ValueError("expert 3 has no tokens")
for _ in range(60): dist.all_reduce(torch.ones(1)); time.sleep(0.1)
"""
        },
        (r"train\.py",),
        (r"network between|install",),
        rank=3,
        convention="torchrun",
        processes=2,
        nodes=2,
        num_ranks=4,
    ),
    Failure(
        "more-torchrun-two-nodes-hang-4",
        "collective",
        "torchrun --nnodes 2 --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT --nproc-per-node 2 train.py",
        HUNG,
        {
            "train.py": """
import datetime, os, time, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6)); rank = dist.get_rank()
dist.all_reduce(torch.ones(1))
if rank == 2: time.sleep(600)
for _ in range(60): dist.all_reduce(torch.ones(1)); time.sleep(0.1)
"""
        },
        (r"rank 2|train\.py",),
        (r"install",),
        rank=2,
        convention="torchrun",
        processes=2,
        nodes=2,
        num_ranks=4,
    ),
    Failure(
        "accelerate-raises-2",
        "exception",
        "python -m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no train.py",
        "ValueError: gradient_accumulation_steps must be positive",
        {
            "train.py": """
import os, time
if os.environ["RANK"] == "1": raise ValueError("gradient_accumulation_steps must be positive")
time.sleep(3)
"""
        },
        (r"train\.py",),
        (r"network|install",),
        rank=1,
        convention="torchrun",
        num_ranks=2,
        variables={
            "PYTHONPATH": "/tmp/acc",
            "ACCELERATE_USE_CPU": "true",
        },
    ),
    Failure(
        "accelerate-single",
        "exception",
        "python -m accelerate.commands.launch --cpu --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no train.py",
        "KeyError: 'weight_decay'",
        {"train.py": "cfg = {}\ncfg['weight_decay']\n"},
        (r"train\.py",),
        (r"network|install",),
        convention="torchrun",
        num_ranks=1,
        variables={
            "PYTHONPATH": "/tmp/acc",
        },
    ),
    Failure(
        "mpirun-c-abort-3",
        "exit_code",
        "mpicc -o a.out main.c 2>/dev/null || gcc -o a.out main.c; mpirun --oversubscribe -n 3 ./a.out",
        ("residual is nan", "code 9", "SIG"),
        {
            "main.c": """
#include <stdio.h>
#include <stdlib.h>
int main() { int r = atoi(getenv("OMPI_COMM_WORLD_RANK")); if (r == 1) { fprintf(stderr, "rank 1: residual is nan\\n"); exit(9); } return 0; }
"""
        },
        (),
        (r"network",),
        rank=1,
        convention="mpirun",
        num_ranks=3,
    ),
    Failure(
        "mpirun-excepthook-4",
        "exception",
        "mpirun --oversubscribe -n 4 python train.py",
        "IndexError: halo row 513 of 512",
        {
            "train.py": """
import sys, traceback
from mpi4py import MPI
def hook(t, v, tb):
    traceback.print_exception(t, v, tb); sys.stderr.flush(); MPI.COMM_WORLD.Abort(1)
sys.excepthook = hook
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 2: raise IndexError("halo row 513 of 512")
MPI.COMM_WORLD.Barrier()
"""
        },
        (r"train\.py",),
        (r"network",),
        rank=2,
        convention="mpirun",
        num_ranks=4,
        variables={"OMPI_MCA_btl": "self,sm"},
    ),
    Failure(
        "mpirun-debian-raises-3",
        "exception",
        "/usr/bin/mpirun --oversubscribe -n 3 python train.py",
        "RuntimeError: slab 2 overlaps",
        {
            "train.py": """
import os, sys, time
if os.environ["OMPI_COMM_WORLD_RANK"] == "2": raise RuntimeError("slab 2 overlaps")
time.sleep(30)
"""
        },
        (r"train\.py",),
        (r"network",),
        rank=2,
        convention="mpirun",
        num_ranks=3,
    ),
    Failure(
        "mpirun-debian-segv-3",
        "signal",
        "/usr/bin/mpirun --oversubscribe -n 3 python train.py",
        ("SIGSEGV", "signal 11"),
        {
            "train.py": """
import ctypes, os, sys, time
if os.environ["OMPI_COMM_WORLD_RANK"] == "0": ctypes.string_at(0)
time.sleep(30)
"""
        },
        (r"native|core|faulthandler",),
        (r"network",),
        rank=0,
        convention="mpirun",
        num_ranks=3,
    ),
    Failure(
        "shell-nested-scripts",
        "exception",
        "bash run.sh",
        "ValueError: fold 6 of 5",
        {
            "run.sh": "set -euo pipefail\nfor f in 1 2 6; do bash fold.sh $f; done\n",
            "fold.sh": "set -e\necho fold $1\npython train.py $1\n",
            "train.py": "import sys\nif int(sys.argv[1]) > 5: raise ValueError(f'fold {sys.argv[1]} of 5')\n",
        },
        (r"train\.py",),
        BUG,
        convention="shell",
    ),
    Failure(
        "shell-xtrace",
        "exception",
        "bash -x run.sh",
        "KeyError: 'seed'",
        {"run.sh": "set -e\npython train.py\n", "train.py": "{}['seed']\n"},
        (r"train\.py",),
        BUG,
        convention="shell",
    ),
    Failure(
        "shell-heredoc",
        "exception",
        "python - <<'E'\nprint('x')\nraise TypeError('unhashable config')\nE",
        "TypeError: unhashable config",
        {},
        (r"line 2|<stdin>|stdin",),
        BUG,
        convention="shell",
    ),
    Failure(
        "shell-background",
        "exception",
        "python train.py & wait $!",
        "ValueError: shard list is empty",
        {"train.py": "raise ValueError('shard list is empty')\n"},
        (r"train\.py",),
        BUG,
        convention="shell",
    ),
    Failure(
        "shell-xargs",
        "exception",
        "echo a b | xargs -n 1 python train.py",
        ("ValueError: unknown part b",),
        {"train.py": "import sys\nif sys.argv[1] == 'b': raise ValueError('unknown part b')\n"},
        (r"train\.py",),
        BUG,
        convention="shell",
        also_codes=("exit_code",),
    ),
    Failure(
        "shell-make-cpp",
        "exit_code",
        "make",
        ("undefined reference to `missing'", "missing"),
        {"Makefile": "all:\n\tg++ -o a main.cpp\n", "main.cpp": "void missing(); int main() { missing(); }\n"},
        (r"main\.cpp|missing|link",),
        BUG,
        convention="shell",
        also_codes=("exception", "environment"),
    ),
    Failure(
        "shell-git-clone",
        "exit_code",
        "git clone https://127.0.0.1:9/repo.git",
        ("unable to access", "Failed to connect"),
        {},
        (r"127\.0\.0\.1:9|reach|repo",),
        (r"rank|peer|MASTER_",),
        convention="shell",
        also_codes=("data_unavailable",),
    ),
    Failure(
        "shell-var-typo",
        "data_unavailable",
        "cat $DATA_DRI/list.txt",
        "/list.txt: No such file or directory",
        {},
        (r"/list\.txt|DATA_DRI",),
        BUG,
        convention="shell",
        also_codes=("exit_code", "bad_input"),
    ),
    Failure(
        "shell-python2",
        "launcher_missing",
        "python2.7 train.py",
        "python2.7: command not found",
        {"train.py": "print 1\n"},
        (r"python2\.7",),
        BUG,
        convention="shell",
    ),
    Failure(
        "shell-print-statement",
        "exception",
        "python train.py",
        "SyntaxError: Missing parentheses in call to 'print'",
        {"train.py": "print 'x'\n"},
        (r"train\.py",),
        BUG,
    ),
    Failure(
        "java-npe",
        "exception",
        "java Main.java",
        'NullPointerException: Cannot invoke "String.length()"',
        {
            "Main.java": """
public class Main { static String s; public static void main(String[] a) { System.out.println(s.length()); } }
"""
        },
        (r"Main\.java",),
        (r"python|MASTER_",),
        convention="shell",
        also_codes=("exit_code",),
    ),
    Failure(
        "java-exit",
        "exit_code",
        "java Main.java",
        "no input splits were found",
        {
            "Main.java": """
public class Main { public static void main(String[] a) { System.err.println("ERROR: no input splits were found"); System.exit(6); } }
"""
        },
        (),
        (r"python|MASTER_",),
        convention="shell",
    ),
    Failure(
        "cpp-out-of-range",
        "signal",
        "g++ -o a.out main.cpp && ./a.out",
        "vector::_M_range_check",
        {"main.cpp": "#include <vector>\nint main() { std::vector<int> v(3); return v.at(9); }\n"},
        (r"native|core|uncaught|main\.cpp|catch",),
        (r"MASTER_|network",),
        convention="shell",
        also_codes=("exception",),
    ),
    Failure(
        "cpp-thread-terminate",
        "signal",
        "g++ -o a.out main.cpp -lpthread && ./a.out",
        "terminate called without an active exception",
        {"main.cpp": "#include <thread>\nint main() { std::thread t([] { for (;;); }); }\n"},
        (r"native|core|join|thread",),
        (r"MASTER_|network",),
        convention="shell",
    ),
    Failure(
        "node-promise",
        "exception",
        "node main.js",
        "Error: index.json has no shards",
        {"main.js": "async function f() { throw new Error('index.json has no shards'); }\nf();\n"},
        (r"main\.js",),
        (r"python|MASTER_",),
        convention="shell",
        also_codes=("exit_code",),
    ),
]
