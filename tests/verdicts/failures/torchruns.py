"""Children of torchrun, torch.distributed.launch, accelerate-like launchers and mp.spawn."""

from recorder import Failure

HEAD = """
import datetime, os, sys, time
import torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def join(seconds=60):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))
def reduce():
    dist.all_reduce(torch.ones(1))
def steps(n=50):
    for step in range(n):
        reduce(); print(f"rank {rank} step {step}", flush=True); time.sleep(0.1)
"""
BUG = (r"network between|interface|install|core file",)
HUNG = ("did not", "hung", "hang", "stuck", "time.sleep", "was in", "still")
LOOK = (r"rank \d|train\.py|stack|step",)


def children(
    name,
    text,
    code,
    who,
    wanted,
    n,
    *,
    helpful=(r"train\.py",),
    misleading=BUG,
    options="",
    files=None,
    head=HEAD,
    **more,
):
    return Failure(
        f"torchrun-{name}-{n}", code, f"torchrun --standalone --nproc-per-node {n} {options}train.py", wanted,
        {"train.py": head + text, **(files or {})}, helpful, misleading, rank=who, convention="torchrun", num_ranks=n,
        way=name, **more,
    )  # fmt: skip


MEET = "--nnodes 2 --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT"
RAISES = "join(); reduce()\nif rank == {who}:\n    raise ValueError('no weights for head {who}')\nsteps()\n"

FAILURES = [
    *(
        children("raises", RAISES.format(who=who), "exception", who, f"ValueError: no weights for head {who}", n)
        for who, n in ((2, 3), (0, 4), (4, 6))
    ),
    children(
        "raises-tee", RAISES.format(who=1), "exception", 1, "ValueError: no weights for head 1", 3, options="--tee 3 "
    ),
    children(
        "raises-logs-elsewhere",
        RAISES.format(who=1),
        "exception",
        1,
        ("exit", "code 1", "failed"),
        3,
        options="--redirects 3 --log-dir logs ",
        helpful=(r"log-dir|--tee|redirect|logs",),
        also_codes=("exit_code",),
    ),
    children(
        "record",
        """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    join(); reduce()
    if rank == 2: raise ValueError("no tokenizer for language 'xx'")
    steps()
main()
""",
        "exception",
        2,
        "ValueError: no tokenizer for language 'xx'",
        3,
    ),
    children(
        "hangs",
        "join(6); reduce()\nif rank == 2: time.sleep(600)\nsteps()\n",
        "collective",
        2,
        HUNG,
        3,
        helpful=LOOK,
        misleading=(r"install|memory",),
    ),
    children(
        "hangs",
        "join(6); reduce()\nif rank == 0: time.sleep(600)\nsteps()\n",
        "collective",
        0,
        HUNG,
        4,
        helpful=LOOK,
        misleading=(r"install|memory",),
    ),
    children(
        "leaves-early",
        "join(); reduce()\nif rank == 1: os._exit(0)\nsteps()\n",
        "collective",
        1,
        ("exit code 0", "had ended"),
        3,
        helpful=(r"rank 1|join|drop_last|as many|uneven",),
    ),
    children(
        "segfault",
        "import ctypes\njoin(); reduce()\nif rank == 3: ctypes.string_at(0)\nsteps()\n",
        "signal",
        3,
        ("SIGSEGV",),
        4,
        helpful=(r"native|faulthandler|core",),
        misleading=(r"MASTER_|network",),
    ),
    children(
        "killed",
        "import signal\njoin(); reduce()\nif rank == 1: os.kill(os.getpid(), 9)\nsteps()\n",
        "signal",
        1,
        ("SIGKILL",),
        3,
        helpful=(r"outside|memory|limit",),
        misleading=(r"MASTER_|network",),
        also_codes=("host_oom",),
    ),
    children(
        "exits-with-words",
        "join(); reduce()\nif rank == 1: sys.exit('no GPU memory fraction was given: --fraction')\nsteps()\n",
        "exit_code",
        1,
        "no GPU memory fraction was given: --fraction",
        3,
        helpful=(r"--fraction",),
        misleading=(r"MASTER_|network|smaller batch",),
    ),
    children(
        "exit-code",
        "join(); reduce()\nif rank == 2: os._exit(66)\nsteps()\n",
        "exit_code",
        2,
        ("code 66",),
        3,
        helpful=(),
        misleading=(r"MASTER_|network",),
    ),
    children(
        "caught-earlier",
        """
import traceback
try: open("/data/cache.idx")
except OSError: traceback.print_exc()
join(); steps(5)
if rank == 1: raise AssertionError("token 50257 >= vocab 50257")
steps()
""",
        "exception",
        1,
        "AssertionError: token 50257 >= vocab 50257",
        3,
    ),
    children(
        "module-on-all",
        "import deepspeed_kernels\n",
        "environment",
        0,
        "No module named 'deepspeed_kernels'",
        2,
        helpful=(r"pip.*deepspeed[-_]kernels|deepspeed[-_]kernels.*environment",),
        also=(1,),
    ),
    Failure(
        "torchrun-argparse-2",
        "bad_input",
        "torchrun --standalone --nproc-per-node 2 train.py --fp16",
        "unrecognized arguments: --fp16",
        {"train.py": "import argparse\nargparse.ArgumentParser().parse_args()\n"},
        (r"--fp16",),
        (r"install|network",),
        also=(1,),
        convention="torchrun",
        num_ranks=2,
    ),
    Failure(
        "torchrun-script-missing-2",
        "bad_input",
        "torchrun --standalone --nproc-per-node 2 tarin.py",
        "can't open file",
        {"train.py": "print(1)\n"},
        (r"train\.py|tarin\.py",),
        (r"install|network",),
        also=(1,),
        convention="torchrun",
        num_ranks=2,
    ),
    children("syntax", "x = (\n", "exception", 0, "SyntaxError: '(' was never closed", 2, also=(1,), head=""),
    children(
        "disk",
        "join(); reduce()\nif rank == 1: open('/dev/full', 'w').write('x' * 99999)\nsteps()\n",
        "disk_full",
        1,
        "No space left on device",
        3,
        helpful=(r"space|disk",),
    ),
    children(
        "chained",
        """
join(); reduce()
if rank == 1:
    try: {}["scheduler"]
    except KeyError as e: raise RuntimeError("cannot resume") from e
steps()
""",
        "exception",
        1,
        "KeyError: 'scheduler'",
        3,
    ),
    children(
        "loader-worker",
        """
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        if i == 37 and rank == 1: raise ValueError("sample 37 has no label")
        return torch.ones(2)
join(); reduce()
for batch in DataLoader(Data(), 4, num_workers=1): reduce()
""",
        "exception",
        1,
        "ValueError: sample 37 has no label",
        2,
    ),
    children(
        "thread",
        """
import threading
join(8); reduce()
def prefetch():
    if rank == 1: raise RuntimeError("prefetch: bucket is gone")
    time.sleep(60)
t = threading.Thread(target=prefetch, daemon=True); t.start()
for step in range(30):
    if not t.is_alive(): os._exit(1)
    reduce(); time.sleep(0.1)
""",
        "exception",
        1,
        "RuntimeError: prefetch: bucket is gone",
        3,
        also_codes=("exit_code",),
    ),
    children(
        "rich",
        """
from rich.traceback import install
install()
join(); reduce()
if rank == 1: raise LookupError("no adapter called 'lora'")
steps()
""",
        "exception",
        1,
        "LookupError: no adapter called 'lora'",
        2,
    ),
    children(
        "timeout-rank-failed",
        """
import traceback
join(600); reduce()
if rank == 1:
    try: raise ValueError("reward is inf")
    except ValueError: traceback.print_exc()
    time.sleep(600)
reduce()
""",
        "exception",
        1,
        "ValueError: reward is inf",
        2,
        limit_s=15,
        misleading=(r"limits\\.timeout|install",),
        also_codes=("timeout",),
    ),
    Failure(
        "torchrun-wrong-count",
        "bad_input",
        "torchrun --standalone --nproc-per-node gpu train.py",
        ("nproc", "Cuda is not available"),
        {"train.py": "print(1)\n"},
        (r"nproc|GPU|--compute",),
        (r"network",),
        convention="torchrun",
        also_codes=("environment", "exception"),
    ),
    Failure(
        "launch-raises-2",
        "exception",
        "python -m torch.distributed.launch --nproc-per-node 2 train.py",
        "ValueError: no weights for head 1",
        {"train.py": HEAD + RAISES.format(who=1)},
        (r"train\.py",),
        BUG,
        rank=1,
        convention="torchrun",
        num_ranks=2,
    ),
    Failure(
        "spawn-raises",
        "exception",
        "python train.py",
        "ValueError: bad learning rate on worker 1",
        {
            "train.py": """
import torch.multiprocessing as mp, time
def work(n):
    if n == 1: raise ValueError("bad learning rate on worker 1")
    time.sleep(60)
if __name__ == "__main__": mp.spawn(work, nprocs=3)
"""
        },
        (r"train\.py",),
        BUG,
        convention="spawn",
        also=(1,),
    ),
    Failure(
        "spawn-segv",
        "signal",
        "python train.py",
        ("SIGSEGV", "terminated with signal"),
        {
            "train.py": """
import ctypes, time, torch.multiprocessing as mp
def work(n):
    if n == 1: ctypes.string_at(0)
    time.sleep(60)
if __name__ == "__main__": mp.spawn(work, nprocs=2)
"""
        },
        (r"native|faulthandler|core",),
        (r"MASTER_|network",),
        convention="spawn",
        also=(1,),
        also_codes=("exception",),
    ),
    Failure(
        "spawn-exit",
        "exit_code",
        "python train.py",
        ("exit code 9", "exitcode 9"),
        {
            "train.py": """
import os, time, torch.multiprocessing as mp
def work(n):
    if n == 0: os._exit(9)
    time.sleep(60)
if __name__ == "__main__": mp.spawn(work, nprocs=2)
"""
        },
        (),
        (r"MASTER_|network",),
        convention="spawn",
        also_codes=("exception",),
    ),
    Failure(
        "spawn-fixed-port",
        "port_trouble",
        "python train.py",
        ("EADDRINUSE", "address already in use"),
        {
            "train.py": """
import os, socket, torch.distributed as dist, torch.multiprocessing as mp
def work(n):
    os.environ["MASTER_ADDR"] = "localhost"; os.environ["MASTER_PORT"] = "12356"
    dist.init_process_group("gloo", rank=n, world_size=2)
if __name__ == "__main__":
    held = socket.create_server(("", 12356))
    mp.spawn(work, nprocs=2)
"""
        },
        (r"12356",),
        (r"install|memory",),
        convention="spawn",
        also=(1,),
    ),
    Failure(
        "accelerate-like-raises",
        "exception",
        "python -m launch --num_processes 3 train.py",
        "ValueError: gradient accumulation of 0 steps",
        {
            "launch.py": """
import os, subprocess, sys
n = int(sys.argv[2]); procs = []
for r in range(n):
    env = {**os.environ, "RANK": str(r), "WORLD_SIZE": str(n), "LOCAL_RANK": str(r)}
    procs.append(subprocess.Popen([sys.executable, sys.argv[3]], env=env))
codes = [p.wait() for p in procs]
if any(codes):
    raise subprocess.CalledProcessError(next(c for c in codes if c), [sys.executable, sys.argv[3]])
""",
            "train.py": """
import os, time
time.sleep(0.2 if os.environ["RANK"] == "2" else 1)
if os.environ["RANK"] == "2": raise ValueError("gradient accumulation of 0 steps")
""",
        },
        (r"train\.py",),
        BUG,
        rank=0,
        also=(2,),
        convention="spawn",
    ),
]
