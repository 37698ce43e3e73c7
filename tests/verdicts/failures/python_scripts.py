"""One Python process: exceptions in every form, exits with words, caught tracebacks, floods, threads, workers."""

from recorder import Failure

BUG = (r"memory|network|interface|MASTER_|install|core file|faulthandler|retry",)
WHERE = (r"train\.py",)


def script(name, text, code, wanted, helpful=WHERE, misleading=BUG, *, command="python train.py", files=None, **more):
    return Failure(
        f"python-{name}", code, command, wanted, {"train.py": text, **(files or {})}, helpful, misleading, **more
    )


FAILURES = [
    script(
        "deep-frames",
        """
import json
def load(path):
    return json.loads(path)
def main():
    for step in range(3):
        print("step", step)
    load("{broken")
main()
""",
        "exception",
        "JSONDecodeError: Expecting property name",
    ),
    script(
        "multi-line-message",
        """
raise RuntimeError("shapes differ:\\n  weight: (10, 20)\\n  checkpoint: (10, 30)\\nuse --ignore-mismatched")
""",
        "exception",
        "RuntimeError: shapes differ",
    ),
    script(
        "no-message",
        """
def check(x):
    assert x.get("lr")
check({})
""",
        "exception",
        "AssertionError",
    ),
    script(
        "own-exception-class",
        """
class TrainingDiverged(Exception): pass
print("epoch 1 loss 3.2")
raise TrainingDiverged("loss is nan at step 120")
""",
        "exception",
        "TrainingDiverged: loss is nan at step 120",
        (r"train\.py|learning rate|lr",),
    ),
    script(
        "dotted-exception-class",
        """
import subprocess
subprocess.run(["tar", "xf", "no-such.tar"], check=True)
""",
        "exception",
        "CalledProcessError: Command '['tar', 'xf', 'no-such.tar']'",
        (r"no-such\.tar|train\.py",),
    ),
    script(
        "chained-from",
        """
def read(config):
    try:
        return config["optimizer"]["lr"]
    except KeyError as error:
        raise RuntimeError("the configuration is not complete") from error
read({"optimizer": {}})
""",
        "exception",
        "KeyError: 'lr'",
    ),
    script(
        "chained-during",
        """
def save(state):
    raise PermissionError(13, "Permission denied", "/var/models/best.pt")
try:
    {}["metrics"]
except KeyError:
    save({})
""",
        "exception",
        "PermissionError: [Errno 13] Permission denied: '/var/models/best.pt'",
        (r"/var/models|best\.pt",),
    ),
    script(
        "chained-three",
        """
def a():
    raise ZeroDivisionError("division by zero in the sampler")
def b():
    try: a()
    except ZeroDivisionError as e: raise ValueError("bad sampler") from e
def c():
    try: b()
    except ValueError as e: raise RuntimeError("epoch failed") from e
c()
""",
        "exception",
        "ZeroDivisionError: division by zero in the sampler",
    ),
    script(
        "exception-group",
        """
import asyncio
async def shard(n):
    await asyncio.sleep(0.01)
    if n == 2: raise ValueError("shard 2 is truncated")
    await asyncio.sleep(1)
async def main():
    async with asyncio.TaskGroup() as group:
        for n in range(4): group.create_task(shard(n))
asyncio.run(main())
""",
        "exception",
        "ValueError: shard 2 is truncated",
    ),
    script(
        "exception-group-two",
        """
def load():
    raise ExceptionGroup("loading failed", [OSError("cannot read train.bin"), KeyError("labels")])
load()
""",
        "exception",
        ("OSError: cannot read train.bin", "KeyError: 'labels'"),
    ),
    script("syntax-error", "def f(:\n    pass\n", "exception", "SyntaxError: invalid syntax"),
    script("indentation", "def f():\npass\n", "exception", "IndentationError: expected an indented block"),
    script("tabs", "def f():\n\tx = 1\n        y = 2\n", "exception", ("TabError", "IndentationError")),
    script(
        "merge-conflict",
        "import os\n<<<<<<< HEAD\nlr = 1\n=======\nlr = 2\n>>>>>>> main\n",
        "exception",
        "SyntaxError",
        (r"train\.py|merge|conflict",),
    ),
    script(
        "sys-exit-message",
        """
import sys
print("loading")
sys.exit("no checkpoint under /models/base: pass --init-from")
""",
        "exit_code",
        "no checkpoint under /models/base: pass --init-from",
        (r"--init-from|/models/base",),
        (r"traceback|memory|network|core file",),
    ),
    script(
        "sys-exit-message-after-caught",
        """
import sys, traceback
for attempt in range(2):
    try:
        raise ConnectionError("the licence server does not answer")
    except ConnectionError:
        traceback.print_exc()
        print("trying again", flush=True)
sys.exit("giving up: no licence after 2 attempts")
""",
        "exit_code",
        "giving up: no licence after 2 attempts",
        (),
        (r"traceback names|memory|MASTER_",),
    ),
    script(
        "exit-code-after-caught",
        """
import logging, sys
logging.basicConfig()
try:
    open("/data/optional/cache.bin")
except OSError:
    logging.exception("no cache, going on without")
for step in range(30):
    print(f"step {step} loss {1 / (step + 1):.3f}")
print("validation accuracy 0.31 is below the threshold of 0.70")
sys.exit(4)
""",
        "exit_code",
        "validation accuracy 0.31 is below the threshold of 0.70",
        (),
        (r"cache\.bin|traceback|memory",),
    ),
    script(
        "caught-and-os-exit",
        """
import os, traceback
try:
    [][3]
except IndexError:
    traceback.print_exc()
    os._exit(7)
""",
        "exception",
        "IndexError: list index out of range",
        also_codes=("exit_code",),
    ),
    script(
        "logged-then-exit-1",
        """
import logging, sys
logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level="INFO")
log = logging.getLogger("trainer")
try:
    raise ValueError("learning rate must be positive, not -0.1")
except ValueError:
    log.exception("training failed")
    log.info("closing the writers")
    sys.exit(1)
""",
        "exception",
        "ValueError: learning rate must be positive, not -0.1",
    ),
    script(
        "handled-oom-line",
        """
import traceback
try:
    raise MemoryError("the cache does not fit")
except MemoryError:
    traceback.print_exc()
print("cache is off")
for step in range(20): print("step", step)
raise KeyError("label_map")
""",
        "exception",
        "KeyError: 'label_map'",
    ),
    script(
        "handled-cuda-oom",
        """
class OutOfMemoryError(RuntimeError): pass
for size in (512, 256):
    try:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
    except OutOfMemoryError as error:
        print(f"batch {size}: {error}; halving", flush=True)
print("batch 128 fits")
for step in range(10): print("step", step)
raise TypeError("collate() missing 1 required positional argument: 'pad'")
""",
        "exception",
        "TypeError: collate() missing 1 required positional argument: 'pad'",
    ),
    script(
        "ignored-in-del-then-segv",
        """
import ctypes
class Handle:
    def __del__(self): raise RuntimeError("handle was closed already")
h = Handle(); del h
print("evaluating", flush=True)
ctypes.string_at(0)
""",
        "signal",
        ("SIGSEGV",),
        (r"faulthandler|native|core|ctypes",),
        (r"handle was closed",),
    ),
    script(
        "caught-then-segv",
        """
import ctypes, traceback
try:
    raise OSError("cannot open /dev/fuse")
except OSError:
    traceback.print_exc()
print("falling back to plain files", flush=True)
for step in range(15): print("step", step, flush=True)
ctypes.string_at(0)
""",
        "signal",
        ("SIGSEGV",),
        (r"faulthandler|native|core|ctypes",),
        (r"/dev/fuse",),
    ),
    script(
        "faulthandler-segv",
        """
import ctypes, faulthandler
faulthandler.enable()
def kernel(): ctypes.string_at(0)
def step(): kernel()
step()
""",
        "signal",
        ("SIGSEGV", "Segmentation fault"),
        (r"native|core|ctypes|train\.py",),
        (r"MASTER_|memory limit",),
    ),
    script(
        "exception-then-segv-at-exit",
        """
import atexit, ctypes
atexit.register(lambda: ctypes.string_at(0))
raise ValueError("unknown optimizer 'adamx'")
""",
        "exception",
        "ValueError: unknown optimizer 'adamx'",
    ),
    script(
        "wandb-after",
        """
import atexit, sys
def finish():
    for line in ("", "Run history:", "        loss ▁▃█", "Run summary:", "        loss 2.1", "",
                 "You can sync this run to the cloud by running:", "wandb sync /tmp/wandb/offline-run-2",
                 "Find logs at: ./wandb/offline-run-2/logs"):
        print("wandb:", line, file=sys.stderr)
atexit.register(finish)
raise ValueError("Target size (torch.Size([32])) must be the same as input size (torch.Size([32, 1]))")
""",
        "exception",
        "ValueError: Target size (torch.Size([32])) must be the same as input size",
        (r"train\.py|squeeze|shape",),
    ),
    script(
        "logging-after",
        """
import atexit, logging
logging.basicConfig(level="INFO", format="%(levelname)s: %(name)s: %(message)s")
atexit.register(lambda: logging.info("trainer closed"))
raise KeyError("vocab_size")
""",
        "exception",
        "KeyError: 'vocab_size'",
    ),
    script(
        "make-after",
        "raise ValueError('bad split')\n",
        "exception",
        "ValueError: bad split",
        command="make train",
        files={"Makefile": "train:\n\t@python train.py\n"},
    ),
    script(
        "del-after-exception",
        """
class Pool:
    def __del__(self): raise AttributeError("'Pool' object has no attribute '_handle'")
pool = Pool()
def main():
    raise FileNotFoundError(2, "No such file or directory", "configs/base.yaml")
main()
""",
        "exception",
        "FileNotFoundError: [Errno 2] No such file or directory: 'configs/base.yaml'",
        (r"configs/base\.yaml",),
        (r"_handle|Pool|memory",),
        also_codes=("data_unavailable",),
    ),
    script(
        "flood-after-exception",
        """
import atexit
def flood():
    for n in range(4000): print(f"closing shard {n:05d} of the cache and flushing it to disk")
atexit.register(flood)
raise ValueError("num_classes is 10 but the labels go to 17")
""",
        "exception",
        "ValueError: num_classes is 10 but the labels go to 17",
    ),
    script(
        "flood-before-exit",
        """
import sys
for n in range(3000): print(f"warning: sample {n:05d} has no caption, it is left out")
sys.exit("fatal: 3000 of 3000 samples were left out")
""",
        "exit_code",
        "fatal: 3000 of 3000 samples were left out",
        (),
        (r"traceback|memory",),
    ),
    script(
        "long-message",
        """
raise RuntimeError("Error(s) in loading state_dict for Net:\\n" + "".join(
    f'\\tMissing key(s) in state_dict: "layers.{n}.weight", "layers.{n}.bias".\\n' for n in range(900)))
""",
        "exception",
        "RuntimeError: Error(s) in loading state_dict for Net",
        (r"train\.py|state_dict|strict|checkpoint",),
    ),
    script(
        "very-long-line",
        """
raise ValueError("unexpected keys: " + ", ".join(f"encoder.block.{n}.attention" for n in range(60000)))
""",
        "exception",
        "ValueError: unexpected keys: encoder.block.0.attention",
    ),
    script(
        "progress-bar-glued",
        """
import sys, time
for n in range(40):
    sys.stderr.write(f"\\rEpoch 1:  {n}%|{'#' * n}{' ' * (40 - n)}| {n}/100 [00:00<00:01, 99.9it/s]"); sys.stderr.flush()
raise IndexError("index 17 is out of bounds for axis 0 with size 10")
""",
        "exception",
        "IndexError: index 17 is out of bounds for axis 0 with size 10",
        (r"train\.py|label|class",),
    ),
    script(
        "progress-bar-glued-message",
        """
import sys
sys.excepthook = lambda t, v, tb: (sys.stderr.write(f"\\r 97%|#########7| 97/100 [00:01<00:00]"),
                                   sys.__excepthook__(t, v, tb))
raise OverflowError("gradient is inf in layer 3")
""",
        "exception",
        "OverflowError: gradient is inf in layer 3",
    ),
    script(
        "thread",
        """
import queue, threading, time
todo = queue.Queue()
def produce():
    raise UnicodeDecodeError("utf-8", b"\\xff", 0, 1, "invalid start byte")
threading.Thread(target=produce).start()
todo.get(timeout=1)
""",
        "exception",
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff",
        (r"train\.py|encoding|utf",),
    ),
    script(
        "thread-then-exit",
        """
import sys, threading
failed = []
def work():
    try: raise_it()
    except Exception: failed.append(1); raise
def raise_it(): raise ValueError("manifest line 12 has 3 columns, not 4")
t = threading.Thread(target=work, name="prefetch"); t.start(); t.join()
print("prefetch thread died", flush=True)
sys.exit(1 if failed else 0)
""",
        "exception",
        "ValueError: manifest line 12 has 3 columns, not 4",
        also_codes=("exit_code",),
    ),
    script(
        "process-child",
        """
import multiprocessing as mp, sys
def work(n):
    if n == 1: raise ValueError("tile 1 has no pixels")
if __name__ == "__main__":
    children = [mp.Process(target=work, args=(n,)) for n in range(3)]
    for c in children: c.start()
    for c in children: c.join()
    sys.exit(any(c.exitcode for c in children))
""",
        "exception",
        "ValueError: tile 1 has no pixels",
        convention="spawn",
    ),
    script(
        "pool",
        """
import multiprocessing as mp
def work(n):
    return 1 // (n - 3)
if __name__ == "__main__":
    with mp.Pool(2) as pool: pool.map(work, range(8))
""",
        "exception",
        "ZeroDivisionError",
        convention="spawn",
    ),
    script(
        "executor",
        """
from concurrent.futures import ProcessPoolExecutor
def work(n):
    if n == 5: raise LookupError("no embedding for token 5")
    return n
if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool: print(list(pool.map(work, range(8))))
""",
        "exception",
        "LookupError: no embedding for token 5",
        convention="spawn",
    ),
    script(
        "executor-child-killed",
        """
import os, signal
from concurrent.futures import ProcessPoolExecutor
def work(n):
    if n == 5: os.kill(os.getpid(), signal.SIGKILL)
    return n
if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool: print(list(pool.map(work, range(8))))
""",
        "exception",
        "BrokenProcessPool",
        (r"train\.py|killed|memory",),
        (r"MASTER_|network|install",),
        convention="spawn",
        also_codes=("host_oom", "signal"),
    ),
    script(
        "loader-worker",
        """
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        if i == 37: raise OSError("image file is truncated (37 bytes not processed)")
        return torch.ones(2)
if __name__ == "__main__":
    for batch in DataLoader(Data(), 4, num_workers=2): pass
""",
        "exception",
        "OSError: image file is truncated",
        (r"train\.py|image|sample|37",),
    ),
    script(
        "loader-worker-killed",
        """
import os, signal, torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        if i == 37: os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(2)
if __name__ == "__main__":
    for batch in DataLoader(Data(), 4, num_workers=2): pass
""",
        "host_oom",
        "killed by signal: Killed",
        (r"memory|workers",),
        (r"MASTER_|install",),
        also_codes=("signal", "exception"),
    ),
    script(
        "loader-worker-segv",
        """
import ctypes, torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        if i == 37: ctypes.string_at(0)
        return torch.ones(2)
if __name__ == "__main__":
    for batch in DataLoader(Data(), 4, num_workers=2): pass
""",
        "signal",
        "killed by signal: Segmentation fault",
        (r"num_workers=0|num_workers|faulthandler|native",),
        (r"MASTER_|install",),
        also_codes=("exception",),
    ),
    script(
        "loader-exit",
        """
import os, torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        if i == 37: os._exit(3)
        return torch.ones(2)
if __name__ == "__main__":
    for batch in DataLoader(Data(), 4, num_workers=2): pass
""",
        "exception",
        "exited unexpectedly",
        (r"num_workers=0|num_workers|train\.py",),
        (r"MASTER_|install",),
    ),
    script(
        "loader-timeout",
        """
import time, torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        if i == 37: time.sleep(600)
        return torch.ones(2)
if __name__ == "__main__":
    for batch in DataLoader(Data(), 4, num_workers=2, timeout=2): pass
""",
        "exception",
        "DataLoader timed out after 2 seconds",
        (r"timeout=|num_workers|train\.py",),
        (r"MASTER_|limits\.timeout",),
    ),
    script(
        "loader-no-main-guard",
        """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.multiprocessing.set_start_method("spawn")
for batch in DataLoader(TensorDataset(torch.ones(8)), 4, num_workers=1): pass
""",
        "exception",
        "context has already been set",
        (r"__main__",),
    ),
    script(
        "lambda-pickled",
        """
import torch
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    data = DataLoader(TensorDataset(torch.ones(8)), 4, num_workers=1, multiprocessing_context="spawn",
                      collate_fn=lambda items: items)
    for batch in data: pass
""",
        "exception",
        ("Can't pickle", "Can't get local object"),
        (r"lambda|pickl|module level|train\.py",),
    ),
    script(
        "rich",
        """
from rich.traceback import install
install(show_locals=True)
def step(batch):
    return batch["image"].shape
def main():
    step({"pixels": 1})
main()
""",
        "exception",
        "KeyError: 'image'",
    ),
    script(
        "rich-long",
        """
from rich.traceback import install
install()
raise ValueError("the configuration names the dataset imagenet-22k, for which there is no reader; known readers are " +
                 ", ".join(f"reader_{n}" for n in range(9)))
""",
        "exception",
        "ValueError: the configuration names the dataset imagenet-22k, for which there is no reader",
    ),
    script(
        "rich-ascii",
        """
from rich.traceback import install
install(width=100)
def go():
    raise RuntimeError("queue is closed")
go()
""",
        "exception",
        "RuntimeError: queue is closed",
        variables={"LANG": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    ),
    script(
        "typer",
        """
import typer
app = typer.Typer()
@app.command()
def main(lr: float = 0.1):
    raise ValueError(f"no schedule for lr {lr}")
app()
""",
        "exception",
        "ValueError: no schedule for lr 0.1",
    ),
    script(
        "typer-option",
        """
import typer
app = typer.Typer()
@app.command()
def main(lr: float = 0.1): pass
app()
""",
        "bad_input",
        "No such option: --learning-rate",
        (r"--lr|option",),
        (r"memory|install",),
        command="python train.py --learning-rate 3",
    ),
    script(
        "click-option",
        """
import click
@click.command()
@click.option("--epochs", type=int)
def main(epochs): pass
main()
""",
        "bad_input",
        "Invalid value for '--epochs': 'ten' is not a valid integer",
        (r"--epochs",),
        (r"memory|install",),
        command="python train.py --epochs ten",
    ),
    script(
        "argparse-unknown",
        """
import argparse
p = argparse.ArgumentParser(); p.add_argument("--batch-size", type=int); p.add_argument("--lr", type=float)
p.parse_args()
""",
        "bad_input",
        "unrecognized arguments: --batchsize 32",
        (r"--batch-size|--batchsize",),
        (r"memory|install",),
        command="python train.py --batchsize 32",
    ),
    script(
        "argparse-choice",
        """
import argparse
p = argparse.ArgumentParser(); p.add_argument("--model", choices=["resnet18", "resnet50"])
p.parse_args()
""",
        "bad_input",
        "invalid choice: 'resnet20'",
        (r"--model|resnet18",),
        (r"memory|install",),
        command="python train.py --model resnet20",
    ),
    script(
        "argparse-required",
        """
import argparse
p = argparse.ArgumentParser(); p.add_argument("--data", required=True)
p.parse_args()
""",
        "bad_input",
        "the following arguments are required: --data",
        (r"--data",),
        (r"memory|install",),
    ),
    script(
        "ipython",
        """
def step(n):
    return [1, 2][n]
for n in range(4): step(n)
""",
        "exception",
        "IndexError: list index out of range",
        command="ipython train.py",
        venv="ipython",
    ),
    script(
        "ipython-colours",
        """
def normalise(x):
    return x / 0
def main():
    normalise(3)
main()
""",
        "exception",
        "ZeroDivisionError: division by zero",
        command="ipython --colors=Linux train.py",
        venv="ipython",
    ),
    script(
        "ipython-chained",
        """
def load(c):
    try: return c["data"]
    except KeyError as e: raise RuntimeError("cannot load") from e
load({})
""",
        "exception",
        "KeyError: 'data'",
        command="ipython --colors=NoColor train.py",
        venv="ipython",
    ),
    script(
        "ipython-cell",
        "x = 1\n",
        "exception",
        "NameError: name 'model' is not defined",
        command="ipython -c 'x = 1; model.fit(x)'",
        venv="ipython",
        helpful=(r"model",),
    ),
    script(
        "coloured",
        """
import sys
sys.stderr.write("\\x1b[31m\\x1b[1m")
def hook(t, v, tb):
    import traceback
    text = "".join(traceback.format_exception(t, v, tb))
    sys.stderr.write("".join(f"\\x1b[31m{line}\\x1b[0m\\n" for line in text.splitlines()))
sys.excepthook = hook
raise ValueError("temperature must not be 0")
""",
        "exception",
        "ValueError: temperature must not be 0",
    ),
    script(
        "warnings-around",
        """
import warnings, sys
warnings.warn("torch.cuda.amp.autocast is deprecated", FutureWarning)
def main():
    warnings.warn("lr_scheduler.step() before optimizer.step()")
    raise AttributeError("'NoneType' object has no attribute 'shape'")
try: main()
finally: print("Traceback was sent to the tracker"); warnings.warn("resource_tracker: 1 leaked semaphore")
""",
        "exception",
        "AttributeError: 'NoneType' object has no attribute 'shape'",
    ),
    script(
        "module-missing",
        "import flash_attn\n",
        "environment",
        "No module named 'flash_attn'",
        (r"pip.*flash[-_]attn|flash[-_]attn.*(pip|environment)",),
        (r"memory|MASTER_",),
    ),
    script(
        "module-other-name",
        "import cv2\n",
        "environment",
        "No module named 'cv2'",
        (r"opencv-python",),
        (r"pip: \[cv2\]",),
    ),
    script(
        "module-yaml",
        "import sklearn.linear_model\n",
        "environment",
        "No module named 'sklearn'",
        (r"scikit-learn",),
        (r"pip: \[sklearn\]",),
    ),
    script(
        "module-beside",
        "from src.utils import load\n",
        "environment",
        "No module named 'src'",
        (r"utils\.py|PYTHONPATH|from utils",),
        (r"pip|install",),
        files={"utils.py": "def load(): pass\n"},
    ),
    script(
        "module-in-folder",
        "import model\nmodel.build()\n",
        "environment",
        "No module named 'layers'",
        (r"model/layers\.py|from \.|relative|model\.layers",),
        (r"pip|install",),
        files={
            "model/__init__.py": "from layers import Linear\ndef build(): pass\n",
            "model/layers.py": "class Linear: pass\n",
        },
    ),
    script(
        "name-missing-in-module",
        "from json import lodas\n",
        "environment",
        "ImportError: cannot import name 'lodas' from 'json'",
        (r"lodas|loads|train\.py",),
        (r"memory|install",),
        also_codes=("exception",),
    ),
    script(
        "circular",
        "import a\n",
        "exception",
        "circular import",
        (r"circular|a\.py|b\.py",),
        (r"pip|install",),
        files={"a.py": "from b import g\ndef f(): pass\n", "b.py": "from a import f\ndef g(): pass\n"},
        also_codes=("environment",),
    ),
    script(
        "shadowed-module",
        "import random\nprint(random.choice([1]))\n",
        "exception",
        "module 'random' has no attribute 'choice'",
        (r"random\.py",),
        (r"pip|install",),
        files={"random.py": "import math\n"},
    ),
    script(
        "library-missing",
        """
import ctypes
ctypes.CDLL("libcudnn.so.9")
""",
        "environment",
        "libcudnn.so.9: cannot open shared object file",
        (r"libcudnn|image|LD_LIBRARY_PATH",),
        (r"MASTER_",),
    ),
    script(
        "no-gpu",
        """
import torch
model = torch.nn.Linear(2, 2).cuda()
""",
        "environment",
        ("Torch not compiled with CUDA enabled", "Found no NVIDIA driver"),
        (r"--compute|device|cpu|GPU",),
        (r"memory|MASTER_",),
        facts={"gpu_clusters": ["a100"]},
    ),
    script(
        "no-gpu-load",
        """
import io, torch
raise RuntimeError("Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are "
  "running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU.")
""",
        "environment",
        "Attempting to deserialize object on a CUDA device",
        (r"map_location|--compute|GPU",),
        (r"install|MASTER_",),
        also_codes=("exception",),
    ),
    script(
        "file-missing-relative",
        "open('data/train.csv')\n",
        "exception",
        "No such file or directory: 'data/train.csv'",
        (r"data/train\.csv",),
        BUG,
        also_codes=("data_unavailable",),
    ),
    script(
        "file-missing-near",
        "open('config.yml')\n",
        "exception",
        "No such file or directory: 'config.yml'",
        (r"config\.yaml",),
        BUG,
        files={"config.yaml": "lr: 1\n"},
        also_codes=("data_unavailable", "bad_input"),
    ),
    script(
        "file-not-allowed",
        """
import os
os.setuid(65534)
open("/root/.cache/weights.bin", "wb")
""",
        "exception",
        "Permission denied: '/root/.cache/weights.bin'",
        (r"/root/\.cache|permission|writ",),
        (r"install|MASTER_",),
    ),
    script(
        "memory", "x = bytearray(1 << 46)\n", "host_oom", "MemoryError", (r"memory|smaller",), (r"MASTER_|install",)
    ),
    script(
        "array-memory",
        """
import numpy as np
features = np.zeros((1 << 22, 1 << 22))
""",
        "host_oom",
        "Unable to allocate",
        (r"memory|smaller|memmap|float32",),
        (r"MASTER_|install",),
    ),
    script(
        "tensor-memory",
        """
import torch
torch.empty(1 << 46)
""",
        "host_oom",
        "DefaultCPUAllocator: can't allocate memory",
        (r"memory|smaller",),
        (r"MASTER_|install|GPU",),
    ),
    script(
        "disk",
        "open('/dev/full', 'w').write('x' * 100000)\n",
        "disk_full",
        "[Errno 28] No space left on device",
        (r"space|disk",),
        (r"MASTER_|install",),
    ),
    script(
        "disk-checkpoint",
        """
import torch
torch.save({"w": torch.ones(100000)}, "/dev/full")
""",
        "disk_full",
        ("No space left on device", "file write failed", "unexpected pos"),
        (r"space|disk",),
        (r"MASTER_|install",),
    ),
    script(
        "port-taken",
        """
import socket
a = socket.create_server(("127.0.0.1", 12355))
b = socket.create_server(("127.0.0.1", 12355))
""",
        "port_trouble",
        "Address already in use",
        (r"12355|MASTER_PORT|port 0|free port",),
        (r"memory|install",),
    ),
    script(
        "store-port-taken",
        """
import os, socket, torch.distributed as dist
held = socket.create_server(("127.0.0.1", 29511))
os.environ["MASTER_ADDR"] = "127.0.0.1"; os.environ["MASTER_PORT"] = "29511"
dist.init_process_group("gloo", rank=0, world_size=1)
""",
        "port_trouble",
        ("EADDRINUSE", "address already in use"),
        (r"29511.*MASTER_PORT|MASTER_PORT.*29511",),
        (r"memory|install",),
    ),
    script(
        "http-refused",
        """
import urllib.request
urllib.request.urlopen("http://127.0.0.1:9/weights.bin", timeout=2)
""",
        "exception",
        "Connection refused",
        (r"127\.0\.0\.1:9|weights|train\.py|reach",),
        (r"rank|peer|MASTER_",),
        also_codes=("data_unavailable",),
    ),
    script(
        "dns",
        """
import urllib.request
urllib.request.urlopen("http://models.invalid/weights.bin", timeout=2)
""",
        "exception",
        ("Name or service not known", "Temporary failure in name resolution", "No address associated"),
        (r"models\.invalid|internet|resolve|train\.py|name",),
        (r"rank|peer|MASTER_",),
        also_codes=("data_unavailable",),
    ),
    script(
        "env-variable",
        """
import os
root = os.environ["DATA_ROOT"]
""",
        "exception",
        "KeyError: 'DATA_ROOT'",
        (r"DATA_ROOT.*environment_variables|environment_variables.*DATA_ROOT|--env",),
        (r"process count|torchrun",),
    ),
    script(
        "local-rank",
        """
import os
device = int(os.environ["LOCAL_RANK"])
""",
        "exception",
        "KeyError: 'LOCAL_RANK'",
        (r"process_count|--procs|torchrun",),
        (r"install|memory",),
    ),
    script(
        "shapes",
        """
import torch
torch.nn.Linear(784, 10)(torch.ones(32, 1, 28, 28))
""",
        "exception",
        "mat1 and mat2 shapes cannot be multiplied (896x28 and 784x10)",
        (r"train\.py|784|flatten|in_features",),
    ),
    script(
        "dtype",
        """
import torch
torch.nn.functional.cross_entropy(torch.ones(4, 3), torch.ones(4, dtype=torch.int32))
""",
        "exception",
        "expected target dtype to be Long or Byte, but got Int",
        (r"train\.py|long",),
    ),
    script(
        "embedding-range",
        """
import torch
torch.nn.Embedding(10, 4)(torch.tensor([12]))
""",
        "exception",
        "IndexError: index out of range in self",
        (r"train\.py|num_embeddings|vocab|index",),
    ),
    script(
        "state-dict",
        """
import torch
m = torch.nn.Sequential(torch.nn.Linear(2, 2))
m.load_state_dict({"module.0.weight": torch.ones(2, 2), "module.0.bias": torch.ones(2)})
""",
        "exception",
        ("Missing key(s) in state_dict", "Error(s) in loading state_dict"),
        (r"module\.|strict|train\.py",),
    ),
    script(
        "checkpoint-truncated",
        """
import torch
torch.save(torch.ones(1000), "x.pt")
data = open("x.pt", "rb").read(); open("x.pt", "wb").write(data[:500])
torch.load("x.pt")
""",
        "exception",
        "PytorchStreamReader failed reading zip archive",
        (r"x\.pt|truncated|incomplete|damaged|train\.py",),
        (r"MASTER_|install",),
        also_codes=("data_unavailable",),
    ),
    script(
        "weights-only",
        """
import torch
class Config: pass
torch.save({"config": Config()}, "x.pt")
torch.load("x.pt")
""",
        "exception",
        "Weights only load failed",
        (r"weights_only|add_safe_globals",),
    ),
    script(
        "recursion",
        """
def walk(node): return walk(node)
walk(1)
""",
        "exception",
        "RecursionError: maximum recursion depth exceeded",
    ),
    script(
        "keyboard",
        """
import os, signal
os.kill(os.getpid(), signal.SIGINT)
""",
        "signal",
        ("KeyboardInterrupt", "SIGINT"),
        (r"outside|sent|person|watchdog",),
        (r"install",),
        also_codes=("exception",),
    ),
    script(
        "sigterm-handler",
        """
import os, signal, sys, time
def stop(*_):
    print("got SIGTERM, saving", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(5)
""",
        "signal",
        ("SIGTERM",),
        (r"outside|sent|person|watchdog",),
        (r"native|core file|faulthandler",),
        also_codes=("exit_code",),
    ),
    script(
        "warnings-error",
        """
import warnings
warnings.simplefilter("error")
import numpy as np
np.log(np.array([0.0]))
""",
        "exception",
        "RuntimeWarning: divide by zero encountered in log",
        (r"train\.py",),
    ),
    script(
        "module-flag",
        "x\n",
        "environment",
        "No module named train_all",
        (r"train_all|train\.py",),
        (r"MASTER_|memory",),
        command="python -m train_all",
        also_codes=("bad_input",),
    ),
    script(
        "script-missing",
        "x\n",
        "bad_input",
        "can't open file",
        (r"trian\.py|train\.py",),
        (r"MASTER_|memory|install",),
        command="python trian.py",
    ),
    script(
        "stdin-eof",
        "name = input('continue? ')\n",
        "exception",
        "EOFError: EOF when reading a line",
        (r"input|train\.py",),
    ),
    script(
        "unhandled-async",
        """
import asyncio
async def main():
    loop = asyncio.get_running_loop()
    async def bad(): raise ValueError("background task lost its stream")
    t = asyncio.create_task(bad())
    await asyncio.sleep(0.1)
    del t
    raise SystemExit(5)
asyncio.run(main())
""",
        "exit_code",
        ("exited with code 5", "background task lost its stream"),
        (),
        (r"memory|MASTER_",),
        also_codes=("exception",),
    ),
    script(
        "too-many-files",
        """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
files = [open("/dev/null") for _ in range(100)]
""",
        "exception",
        "[Errno 24] Too many open files",
        (r"ulimit|open files|train\.py",),
        (r"MASTER_|install",),
    ),
    script(
        "fork-refused",
        """
import os
raise BlockingIOError(11, "Resource temporarily unavailable")
""",
        "exception",
        "BlockingIOError: [Errno 11] Resource temporarily unavailable",
        (r"train\.py|process|thread|ulimit",),
    ),
    script(
        "nan-check",
        """
import math
for step, loss in enumerate([2.3, 1.9, float("nan")]):
    print(f"step {step} loss {loss}")
    if math.isnan(loss):
        print("loss is nan, stopping")
        raise SystemExit(1)
""",
        "exit_code",
        "loss is nan, stopping",
        (),
        (r"memory|MASTER_|install",),
    ),
    script(
        "huggingface-offline",
        """
raise OSError("We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.\\n"
 "Check your internet connection or see how to run the library in offline mode at 'https://huggingface.co/docs'.")
""",
        "data_unavailable",
        "We couldn't connect to 'https://huggingface.co'",
        (r"huggingface|internet|HF_HOME|download",),
        (r"MASTER_",),
        also_codes=("exception",),
    ),
    script(
        "numpy-abi",
        """
raise ImportError("numpy.core.multiarray failed to import (auto-generated because you didn't call 'numpy.import_array()')")
""",
        "environment",
        "numpy.core.multiarray failed to import",
        (r"numpy",),
        (r"MASTER_|memory",),
    ),
    script(
        "attribute-version",
        """
import numpy as np
np.float(3)
""",
        "exception",
        "module 'numpy' has no attribute 'float'",
        (r"np\.float|train\.py|numpy",),
        (r"MASTER_|memory",),
        also_codes=("environment",),
    ),
]
