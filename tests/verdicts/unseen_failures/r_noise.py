"""Logs with much beside the cause: caught errors, floods, progress bars, other forms of tracebacks, other languages."""
# ruff: noqa: E501

from recorder import Failure

WRONG_WAY = r"firewall|submit again|smaller batch|MASTER_PORT|pip install"


def noisy(name: str, source: str, code: str = "exception", **labels: object) -> Failure:
    files = {"main.py": source} | dict(labels.pop("files", {}))  # type: ignore[call-overload]
    labels = {"misleading": (WRONG_WAY,), "command": "python main.py"} | labels
    return Failure(name=name, code=code, files=files, **labels)  # type: ignore[arg-type]


FAILURES = [
    noisy(
        "r-noise-caught-then-exit-text",
        """import sys, traceback
for name in ("wandb", "comet"):
    try:
        raise ConnectionError(f"{name}: tracker not reachable")
    except ConnectionError:
        traceback.print_exc()
        print("continuing without tracking")
print("epoch 1: loss 0.4")
sys.exit("early stop: no improvement for 0 epochs (patience=0), nothing was saved")
""",
        code="exit_code",
        wanted="early stop: no improvement for 0 epochs",
        helpful=(r"patience|main\.py",),
    ),
    noisy(
        "r-noise-caught-then-segfault",
        """import ctypes, logging
try:
    open("/missing/cache.idx")
except OSError:
    logging.exception("no cache, building one")
print("index built: 100 entries", flush=True)
ctypes.string_at(1)
""",
        code="signal",
        wanted=("SIGSEGV", "Segmentation fault", "signal 11"),
        helpful=(r"PYTHONFAULTHANDLER|native|ctypes|main\.py",),
    ),
    noisy(
        "r-noise-tqdm-glued",
        """import time
from tqdm import tqdm
sizes = {"s": 1}
for n in tqdm(range(50), desc="epoch 1"):
    time.sleep(0.02)
    if n == 33:
        sizes["xl"]
""",
        wanted="KeyError: 'xl'",
        helpful=(r"main\.py|xl",),
    ),
    noisy(
        "r-noise-flood-before",
        """import warnings
for n in range(900):
    print(f"[W] sample {n}: aspect ratio {n % 7}.{n % 10} outside of the expected range, clipped")
b = bytes([1, 2, 300])
""",
        wanted="ValueError: bytes must be in range(0, 256)",
        helpful=(r"main\.py",),
    ),
    noisy(
        "r-noise-flood-after",
        """import atexit
def summary():
    for n in range(800):
        print(f"profile: op aten::add_{n} calls=12 self_cpu={n * 3}us error_rate=0.0")
atexit.register(summary)
from datetime import datetime
datetime.strptime("2024-13-01", "%Y-%m-%d")
""",
        wanted="ValueError: time data '2024-13-01' does not match format '%Y-%m-%d'",
        helpful=(r"main\.py|2024-13-01|date",),
    ),
    noisy(
        "r-noise-rich-traceback",
        """from rich.traceback import install
install(show_locals=True)

def schedule(step, total):
    return 1 - step / total

print([schedule(n, 2 - n) for n in range(4)])
""",
        wanted="ZeroDivisionError: division by zero",
        helpful=(r"main\.py",),
    ),
    noisy(
        "r-noise-loguru-catch",
        """import sys
from loguru import logger

def load(path):
    with open(path) as f:
        return f.read()

@logger.catch(onerror=lambda _: sys.exit(1))
def main():
    logger.info("starting")
    load("splits/dev.txt")

main()
""",
        wanted="No such file or directory: 'splits/dev.txt'",
        helpful=(r"dev\.txt|main\.py",),
    ),
    noisy(
        "r-noise-structlog-json",
        """import sys, structlog
structlog.configure(processors=[structlog.processors.add_log_level, structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()])
log = structlog.get_logger()
log.info("start", run="a1")
try:
    {"train": 1}["test"]
except KeyError:
    log.exception("evaluation failed")
    sys.exit(1)
""",
        also_codes=("exit_code",),
        wanted=("evaluation failed", "KeyError"),
        helpful=(r"main\.py|test|evaluation",),
    ),
    noisy(
        "r-noise-ignored-in-del",
        """class Pool:
    def __del__(self):
        raise RuntimeError("pool was closed already")

p = Pool()
del p
weights = [0.2, 0.9]
assert abs(sum(weights) - 1) < 1e-6, f"weights sum to {sum(weights):.2f}, not 1"
""",
        wanted="AssertionError: weights sum to 1.10, not 1",
        helpful=(r"main\.py|weights",),
    ),
    noisy(
        "r-noise-exception-group-threads",
        """def check(name, ok):
    if not ok:
        return ValueError(f"{name}: checksum differs from manifest.json")

problems = [e for e in (check("a.tar", True), check("b.tar", False), check("c.tar", False)) if e]
if problems:
    raise ExceptionGroup("2 of 3 archives are damaged", problems)
""",
        wanted=("b.tar: checksum differs from manifest.json", "2 of 3 archives are damaged"),
        helpful=(r"b\.tar|manifest|main\.py",),
    ),
    noisy(
        "r-noise-three-deep-chain",
        """def read(path):
    try:
        return int("0x1g", 16)
    except ValueError as e:
        raise OSError(f"{path}: header is damaged") from e

def dataset(path):
    try:
        return read(path)
    except OSError as e:
        raise RuntimeError("dataset could not be opened") from e

dataset("train.rec")
""",
        wanted="ValueError: invalid literal for int() with base 16: '0x1g'",
        helpful=(r"main\.py|train\.rec",),
    ),
    noisy(
        "r-noise-during-handling",
        """def close(handle):
    handle.close()

handle = None
try:
    batch = [1, 2, 3]
    print(batch[7])
finally:
    close(handle)
""",
        wanted=("IndexError: list index out of range", "AttributeError: 'NoneType' object has no attribute 'close'"),
        helpful=(r"main\.py",),
    ),
    noisy(
        "r-noise-japanese-message",
        """import sys
print("学習を開始します", flush=True)
rows = 0
if rows == 0:
    print("エラー: 学習データが空です (data/train.jsonl)", file=sys.stderr)
    sys.exit(2)
""",
        code="exit_code",
        wanted="学習データが空です",
        helpful=(r"train\.jsonl|main\.py",),
    ),
    noisy(
        "r-noise-spanish-exception",
        """class ErrorDeConfiguracion(Exception):
    pass

tasa = -1
if tasa <= 0:
    raise ErrorDeConfiguracion(f"la tasa de aprendizaje debe ser positiva: {tasa}")
""",
        wanted="ErrorDeConfiguracion: la tasa de aprendizaje debe ser positiva: -1",
        helpful=(r"main\.py|tasa",),
    ),
    noisy(
        "r-noise-oom-handled-then-typo",
        """import torch
size = 1 << 45
while size > 1000:
    try:
        x = torch.zeros(size)
        break
    except RuntimeError as e:
        print("OOM:", str(e)[:80], "- halving", flush=True)
        size >>= 12
print("batch fits", flush=True)
model = torch.nn.Lineer(3, 3)
""",
        wanted="module 'torch.nn' has no attribute 'Lineer'",
        helpful=(r"Linear|Lineer|main\.py",),
    ),
    noisy(
        "r-noise-trailing-labels",
        """import atexit, logging
logging.basicConfig(level=logging.INFO)
atexit.register(lambda: print("wandb: Synced 4 files\\nINFO: root: run closed\\nError log: logs/run.err"))
import torch
torch.cat([torch.ones(2, 3), torch.ones(2, 4)])
""",
        wanted="Sizes of tensors must match except in dimension 0",
        helpful=(r"main\.py|cat|shape|size",),
    ),
    noisy(
        "r-noise-ipython-script",
        "",
        command="ipython --no-banner --colors=NoColor notebook.py",
        files={"notebook.py": "import numpy as np\na = np.ones((3, 2))\nb = np.ones((3, 4))\nprint(a + b)\n"},
        wanted="ValueError: operands could not be broadcast together with shapes (3,2) (3,4)",
        helpful=(r"notebook\.py|shape",),
    ),
    noisy(
        "r-noise-long-message",
        """rows = {f"column_{n}": n for n in range(3000)}
raise ValueError("unexpected columns: " + ", ".join(rows))
""",
        wanted="ValueError: unexpected columns: column_0, column_1",
        helpful=(r"main\.py|column",),
    ),
    noisy(
        "r-noise-warnings-as-errors",
        """import warnings
warnings.filterwarnings("error")
import numpy as np
print(np.array([]).mean())
""",
        wanted=("RuntimeWarning: Mean of empty slice", "RuntimeWarning: invalid value encountered"),
        helpful=(r"main\.py|empty|warning",),
    ),
    noisy(
        "r-noise-asyncio-never-retrieved",
        """import asyncio

async def ping():
    raise OSError("telemetry socket closed")

async def main():
    task = asyncio.create_task(ping())
    await asyncio.sleep(0.1)
    del task
    await asyncio.sleep(0.1)
    layout = ["conv", "pool"]
    print(layout[layout.index("dense")])

asyncio.run(main())
""",
        wanted="ValueError: 'dense' is not in list",
        helpful=(r"main\.py|dense",),
    ),
    noisy(
        "r-noise-pytest-run",
        "",
        code="exit_code",
        also_codes=("exception",),
        command="python -m pytest -q -p no:cacheprovider test_model.py",
        files={
            "test_model.py": "def test_width():\n    assert 3 * 4 == 13, 'width of the model'\n\ndef test_ok():\n    pass\n"
        },
        wanted=("AssertionError: width of the model", "test_model.py::test_width"),
        helpful=(r"test_model\.py|test_width",),
    ),
    noisy(
        "r-noise-nul-and-colours",
        """import sys
sys.stdout.write("\\x1b[32mINFO\\x1b[0m ready\\0\\0\\n\\x1b[1;31mERROR\\x1b[0m quota of project \\x1b[1mvision\\x1b[0m is used up\\n")
sys.exit(77)
""",
        code="exit_code",
        wanted=("is used up", "quota of project"),
        helpful=(r"quota|vision|main\.py",),
    ),
    noisy(
        "r-noise-os-exit-in-callback",
        """import os, threading, time

def watch():
    time.sleep(0.5)
    print("watchdog: no heartbeat from data thread for 0.5 s, stopping the process", flush=True)
    os._exit(42)

threading.Thread(target=watch, daemon=True).start()
for n in range(100):
    print("iter", n, flush=True)
    time.sleep(0.1)
""",
        code="exit_code",
        wanted="watchdog: no heartbeat from data thread",
        helpful=(r"watchdog|heartbeat|main\.py|data thread",),
    ),
    noisy(
        "r-noise-silent-exit",
        "import sys\nprint('loading')\nprint('loaded 12 rows')\nsys.exit(5)\n",
        code="exit_code",
        wanted=("code 5", "exit code 5", "loaded 12 rows"),
        helpful=(r"main\.py|sys\.exit|exit|code 5",),
    ),
]
