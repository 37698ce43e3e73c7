"""Failures in logs that are hard to read: bars, colours, floods, long lines, other languages, odd ends."""

from recorder import Failure

WRONG_WAY = r"firewall|submit again|smaller batch|raise .{0,20}timeout|MASTER_PORT"

FAILURES = [
    Failure(
        name="q-noise-tqdm-glued",
        code="exception",
        command="python train.py",
        venv="extra",
        files={
            "train.py": """import time
from tqdm import tqdm
total = 0
for i in tqdm(range(50), desc="train", ncols=80):
    time.sleep(0.01)
    if i == 31:
        total += [1, 2, 3][i]
"""
        },
        wanted="IndexError: list index out of range",
        helpful=(r"train\.py",),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-loguru-diagnose",
        code="exception",
        also_codes=("exit_code",),
        command="python train.py",
        venv="extra",
        files={
            "train.py": """import sys
from loguru import logger

def ratio(a, b):
    return a / b

@logger.catch(onerror=lambda _: sys.exit(1))
def main():
    logger.info("start")
    ratio(10, 0)

main()
"""
        },
        wanted="ZeroDivisionError: division by zero",
        helpful=(r"train\.py",),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-rich-traceback",
        code="exception",
        command="python fit.py",
        venv="extra",
        files={
            "fit.py": """from rich.traceback import install
install(show_locals=True, width=100)

def normalise(row):
    mean, std = row["mean"], row["std"]
    return (row["x"] - mean) / std

for r in [{"x": 1, "mean": 0.0, "std": 1.0}, {"x": "2.5", "mean": 0.0, "std": 1.0}]:
    print(normalise(r))
"""
        },
        wanted="TypeError: unsupported operand type(s) for -: 'str' and 'float'",
        helpful=(r"fit\.py",),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-json-logs",
        code="exception",
        also_codes=("exit_code",),
        command="python svc.py",
        files={
            "svc.py": """import json, sys, time, traceback

def log(level, msg, **kw):
    print(json.dumps({"ts": time.time(), "level": level, "msg": msg, **kw}), flush=True)

def main():
    log("info", "started", batch=32)
    weights = {"encoder": 1}
    return weights["decoder"]

try:
    main()
except Exception as e:
    log("error", "unhandled", exc_type=type(e).__name__, exc=str(e), stack=traceback.format_exc())
    log("info", "shutting down")
    sys.exit(1)
"""
        },
        wanted=("KeyError: 'decoder'", '"exc": "\'decoder\'"'),
        helpful=(r"svc\.py", r"decoder"),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-structlog-json-exit-2",
        code="exit_code",
        command="python train.py",
        venv="extra",
        files={
            "train.py": """import sys, structlog
structlog.configure(processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()])
log = structlog.get_logger()
log.info("boot", version="1.4.2")
log.critical("config rejected", reason="gradient_accumulation must divide global_batch", value=7, global_batch=64)
log.info("exporting telemetry", spans=12)
sys.exit(2)
"""
        },
        wanted=("gradient_accumulation must divide global_batch",),
        helpful=(r"gradient_accumulation|global_batch",),
        misleading=(r"firewall|network|pip install|smaller batch",),
    ),
    Failure(
        name="q-noise-flood-after-error",
        code="exception",
        command="python train.py",
        files={
            "train.py": """import atexit, sys

@atexit.register
def flush():
    for i in range(6000):
        print(f"[metrics] flushing buffered point {i:05d} value={i * 0.001:.6f}", file=sys.stderr)

class Sched:
    def step(self, epoch):
        return self.table[epoch]

s = Sched()
s.step(1)
"""
        },
        wanted="AttributeError: 'Sched' object has no attribute 'table'",
        helpful=(r"train\.py",),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-very-long-message",
        code="exception",
        command="python val.py",
        files={
            "val.py": """import numpy as np
def check(a):
    if not np.isfinite(a).all():
        raise ValueError("activations are not finite: " + np.array2string(a, threshold=10**9))
a = np.ones(60000)
a[123] = np.inf
check(a)
"""
        },
        wanted="ValueError: activations are not finite",
        helpful=(r"val\.py", r"finite|inf"),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-german-exit",
        code="exit_code",
        also_codes=("data_unavailable",),
        command="python lauf.py",
        files={
            "lauf.py": """import sys
print("Lade Konfiguration ...")
print("Fehler: Die Datei »daten/2024.csv« fehlt. Bitte zuerst »hole_daten.sh« ausführen.", file=sys.stderr)
print("Programm wird beendet.")
sys.exit(1)
"""
        },
        wanted="Fehler: Die Datei »daten/2024.csv« fehlt.",
        helpful=(r"2024\.csv|hole_daten",),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-chinese-exception",
        code="exception",
        command="python 训练.py",
        files={
            "训练.py": """class 配置错误(Exception):
    pass

def 读取(配置):
    if "学习率" not in 配置:
        raise 配置错误("缺少参数: 学习率")

读取({"批大小": 32})
"""
        },
        wanted="配置错误: 缺少参数: 学习率",
        helpful=(r"训练\.py", r"学习率"),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-windows-line-ends",
        code="exception",
        command="python win.py",
        files={
            "win.py": "\r\n".join(
                [
                    "import sys, io",
                    "sys.stdout.reconfigure(newline='\\r\\n')",
                    "sys.stderr.reconfigure(newline='\\r\\n')",
                    "print('Epoch 1/1')",
                    "print('val_loss 0.123')",
                    "def save(path):",
                    "    raise NotADirectoryError(20, 'Not a directory', path)",
                    "save('C:\\\\models\\\\best.h5')",
                    "",
                ]
            )
        },
        wanted="NotADirectoryError: [Errno 20] Not a directory",
        helpful=(r"win\.py", r"C:|path"),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-colour-errors",
        code="exit_code",
        command="python train.py",
        files={
            "train.py": """import sys
R, Y, G, Z = "\\033[91m", "\\033[93m", "\\033[92m", "\\033[0m"
print(G + "✔ environment ok" + Z)
print(Y + "⚠ 3 samples without label were skipped" + Z)
print(R + "✖ validation split is empty: set val_fraction above 0" + Z, file=sys.stderr)
print("For more information see docs/FAQ.md")
raise SystemExit(64)
"""
        },
        wanted="validation split is empty: set val_fraction above 0",
        helpful=(r"val_fraction",),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-wandb-like-closing",
        code="exception",
        command="python train.py",
        files={
            "train.py": """import atexit, sys

@atexit.register
def finish():
    e = sys.stderr
    print("tracker: Waiting for process to finish... (failed 1).", file=e)
    print("tracker: Run history:", file=e)
    print("tracker:   loss █▅▃▂▁", file=e)
    print("tracker: ERROR Failed to sync 1 file: connection reset by peer", file=e)
    print("tracker: Find logs at: ./tracker/run-20240101/logs", file=e)

print("tracker: Run dainty-sky-12 started")
acc = {"top1": 0.1}
best = max(acc, key=lambda k: acc[k]["value"])
"""
        },
        wanted="TypeError: 'float' object is not subscriptable",
        helpful=(r"train\.py",),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-retries-then-gives-up",
        code="exception",
        also_codes=("data_unavailable",),
        command="python pull.py",
        venv="extra",
        files={
            "pull.py": """import socket
from tenacity import retry, stop_after_attempt, wait_fixed

@retry(stop=stop_after_attempt(4), wait=wait_fixed(0.05))
def pull():
    print("trying the feature store", flush=True)
    socket.create_connection(("127.0.0.1", 9), timeout=1)

pull()
"""
        },
        wanted="ConnectionRefusedError: [Errno 111] Connection refused",
        helpful=(r"pull\.py", r"feature store|127\.0\.0\.1|reach"),
        misleading=(r"smaller batch|out of memory|pip install|MASTER_PORT",),
    ),
    Failure(
        name="q-noise-oom-line-handled-then-typeerror",
        code="exception",
        command="python autobatch.py",
        files={
            "autobatch.py": """import numpy as np
bs = 1 << 44
while True:
    try:
        x = np.zeros(bs)
        break
    except MemoryError as e:
        print("batch", bs, "did not fit:", e)
        bs >>= 12
print("using batch size", bs)
lr = 0.1 * bs / "256"
"""
        },
        wanted="TypeError: unsupported operand type(s) for /: 'float' and 'str'",
        helpful=(r"autobatch\.py",),
        misleading=(r"memory|smaller batch|network|pip install",),
    ),
    Failure(
        name="q-noise-ipython-script",
        code="exception",
        command="ipython --no-banner --colors=NoColor nb.py",
        files={
            "nb.py": """import numpy as np

def split(n, k):
    return np.array_split(np.arange(n), k)

print(len(split(10, 3)))
split(10, 0)
"""
        },
        wanted="ValueError: number sections must be larger than 0",
        helpful=(r"nb\.py",),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-notebook-cell",
        code="exception",
        command="jupyter execute report.ipynb",
        files={
            "report.ipynb": """{"cells": [{"cell_type": "code", "execution_count": null, "id": "c1", "metadata": {},
 "outputs": [],
 "source": ["scores = {'a': 1}\\n", "scores['b']"]}],
 "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
 "nbformat": 4, "nbformat_minor": 5}
"""
        },
        wanted="KeyError: 'b'",
        helpful=(r"report\.ipynb|scores|\bcell",),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-pytest-run",
        code="exit_code",
        also_codes=("exception",),
        command="python -m pytest -q -p no:cacheprovider test_model.py",
        files={
            "test_model.py": """def forward(x):
    return x * 2

def test_forward():
    assert forward(2) == 5
"""
        },
        wanted=("assert 4 == 5",),
        helpful=(r"test_model\.py|test_forward",),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-sigterm-own-handler-limit",
        code="timeout",
        command="python long.py",
        rank=None,
        also=(0,),
        limit_s=3,
        files={
            "long.py": """import signal, sys, time
def bye(*_):
    print("SIGTERM received, saving checkpoint at step", step, flush=True)
    print("RuntimeError: interrupted while saving", flush=True)
    sys.exit(1)
signal.signal(signal.SIGTERM, bye)
step = 0
while True:
    step += 1
    if step % 50 == 0:
        print("step", step, "loss", 1 / step, flush=True)
    time.sleep(0.01)
"""
        },
        wanted=("3 s", "time limit", "limits.timeout"),
        helpful=(r"limits\.timeout|--timeout|checkpoint|raise|longer",),
        misleading=(r"firewall|network|pip install|smaller batch",),
    ),
    Failure(
        name="q-noise-stuck-flock-limit",
        code="timeout",
        command="python wait.py",
        rank=0,
        also=(),
        limit_s=3,
        files={
            "wait.py": """import fcntl, time
a = open("lock", "w")
fcntl.flock(a, fcntl.LOCK_EX)
b = open("lock", "w")
print("waiting for the lock file", flush=True)
fcntl.flock(b, fcntl.LOCK_EX)
"""
        },
        wanted=("fcntl.flock", "3 s", "time limit"),
        helpful=(r"wait\.py|flock|lock",),
        misleading=(r"firewall|network|pip install|smaller batch",),
    ),
    Failure(
        name="q-noise-mixed-threads-interleaved",
        code="exception",
        command="python -u mix.py",
        files={
            "mix.py": """import threading, time, sys
stop = False
def chatter(n):
    while not stop:
        sys.stdout.write(f"[t{n}] heartbeat: queue depth 3, error count 0\\n")
        time.sleep(0.002)
for n in range(3):
    threading.Thread(target=chatter, args=(n,), daemon=True).start()
time.sleep(0.1)
def collate(rows):
    return [r.tensor for r in rows]
collate([None])
"""
        },
        wanted="AttributeError: 'NoneType' object has no attribute 'tensor'",
        helpful=(r"mix\.py",),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-faulthandler-stack",
        code="signal",
        command="python -X faulthandler native.py",
        files={
            "native.py": """import ctypes
def decode(buf):
    return ctypes.cast(0x10, ctypes.POINTER(ctypes.c_int)).contents.value
def main():
    print("decoding", flush=True)
    decode(b"")
main()
"""
        },
        wanted=("Segmentation fault", "SIGSEGV"),
        helpful=(r"native\.py|native|decode",),
        misleading=(r"firewall|network|pip install|smaller batch",),
    ),
    Failure(
        name="q-noise-exit-minus-one",
        code="exit_code",
        command="python quiet.py",
        files={
            "quiet.py": "import sys\nprint('Initialising.')\nprint('No licence for module OPT found')\nsys.exit(-1)\n"
        },
        wanted=("No licence for module OPT found",),
        helpful=(r"licence|OPT",),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
    Failure(
        name="q-noise-multiline-message",
        code="exception",
        command="python schema.py",
        files={
            "schema.py": '''class SchemaError(Exception):
    def __str__(self):
        return """the input does not match the schema

  column   expected   found
  -------  ---------  -------
  user_id  int64      object
  price    float64    float64

Traceback of the validator is in validator.log
INFO: 1 problem"""

raise SchemaError
'''
        },
        wanted="SchemaError: the input does not match the schema",
        helpful=(r"schema\.py", r"user_id"),
        misleading=(WRONG_WAY, r"network|pip install"),
    ),
]
