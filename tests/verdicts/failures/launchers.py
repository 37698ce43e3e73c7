"""More under launchers: children that hang, leave, speak or die under torchrun and mpirun, and spawned processes."""

from recorder import Failure

HEAD = """
import datetime, os, signal, sys, threading, time, traceback
import torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def join(seconds=60): dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))
def reduce(): dist.all_reduce(torch.ones(1))
def steps(n=60):
    for _ in range(n): reduce(); time.sleep(0.05)
"""
MPI = """
import os, sys, time, traceback
from mpi4py import MPI
world = MPI.COMM_WORLD; rank = world.rank
world.Barrier()
"""
BUG = (r"network between|interface|install",)
HUNG = ("did not", "hung", "hang", "stuck", "still", "was in")


def torchrun(
    name, text, code, who, wanted, n, *, helpful=(r"train\.py",), misleading=BUG, options="", arguments="", **more
):
    return Failure(
        f"launch-{name}-{n}",
        code,
        f"torchrun --standalone --nproc-per-node {n} {options} train.py {arguments}",
        wanted,
        {"train.py": HEAD + text},
        helpful,
        misleading,
        rank=who,
        convention="torchrun",
        num_ranks=n,
        way=name,
        **more,
    )


def mpi(
    name,
    text,
    code,
    who,
    wanted,
    n,
    *,
    own=False,
    helpful=(r"train\.py",),
    misleading=BUG,
    python="python -m mpi4py",
    **more,
):
    command = f"{python} train.py" if own else f"mpirun --oversubscribe -n {n} {python} train.py"
    return Failure(
        f"launch-mpi-{name}-{n}",
        code,
        command,
        wanted,
        {"train.py": MPI + text},
        helpful,
        misleading,
        rank=who,
        convention="mpi" if own else "mpirun",
        processes=n if own else 1,
        num_ranks=n,
        way=name,
        variables={"OMPI_MCA_btl": "self,sm"},
        **more,
    )


FAILURES = [
    torchrun(
        "late",
        "if rank == 2: time.sleep(600)\njoin(5); steps()\n",
        "rendezvous",
        2,
        HUNG,
        3,
        helpful=(r"rank 2|train\.py",),
        also_codes=("collective",),
    ),
    torchrun(
        "barrier",
        "join(60); reduce()\nif rank == 1: time.sleep(600)\ndist.monitored_barrier(timeout=datetime.timedelta(seconds=4))\n",
        "collective",
        1,
        HUNG,
        4,
        helpful=(r"rank 1|train\.py",),
    ),
    torchrun(
        "two-prints",
        "print('WARNING: no seed was given', file=sys.stderr)\njoin(); reduce()\nif rank == 0:\n    print('fatal: tokenizer and model disagree on the vocabulary', file=sys.stderr); sys.exit(3)\nsteps()\n",
        "exit_code",
        0,
        "fatal: tokenizer and model disagree on the vocabulary",
        3,
        helpful=(),
    ),
    torchrun(
        "caught-and-exits",
        "join(); reduce()\nif rank == 2:\n    try: {}['ema']\n    except KeyError: traceback.print_exc(); sys.exit(4)\nsteps()\n",
        "exception",
        2,
        "KeyError: 'ema'",
        3,
        also_codes=("exit_code",),
    ),
    torchrun(
        "victims-catch",
        "join(8); reduce()\nif rank == 1: raise OverflowError('loss scale is 0')\ntry: steps()\nexcept RuntimeError as e: print('peer lost:', str(e)[:50]); sys.exit(5)\n",
        "exception",
        1,
        "OverflowError: loss scale is 0",
        4,
    ),
    torchrun(
        "group",
        "join(); reduce()\nif rank == 1: raise ExceptionGroup('eval', [ValueError('bleu of 0 sentences'), TypeError('x')])\nsteps()\n",
        "exception",
        1,
        "ValueError: bleu of 0 sentences",
        2,
    ),
    torchrun(
        "killed-by-memory",
        """
from pathlib import Path
join(20); reduce()
if rank == 1:
    group = Path(f"/sys/fs/cgroup/memory/mvc-{os.getpid()}"); group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(600 << 20)); (group / "cgroup.procs").write_text(str(os.getpid()))
    x = [bytearray(b"x" * (50 << 20)) for _ in range(100)]
steps()
""",
        "signal",
        1,
        ("SIGKILL", "memory"),
        2,
        helpful=(r"memory",),
        also_codes=("host_oom",),
    ),
    torchrun(
        "flood",
        "join(20); reduce()\nif rank == 1: raise ValueError('bucket plan is empty')\nfor n in range(4000): print('rank', rank, 'is waiting for a very long and boring line to be printed', n)\nsteps()\n",
        "exception",
        1,
        "ValueError: bucket plan is empty",
        2,
    ),
    torchrun(
        "unknown-flag",
        "import argparse\np = argparse.ArgumentParser(); p.add_argument('--epochs'); p.parse_args()\n",
        "bad_input",
        0,
        "unrecognized arguments: --epoch-count 3",
        2,
        arguments="--epoch-count 3",
        helpful=(r"--epoch-count|--epochs",),
        also=(1,),
    ),
    torchrun(
        "exit-zero-one",
        "join(8); reduce()\nif rank == 0: sys.exit(0)\nsteps()\n",
        "collective",
        0,
        ("exit code 0", "had ended"),
        3,
        helpful=(r"rank 0|as many|join",),
        also_codes=("exit_code", "signal"),
    ),
    torchrun(
        "stopped",
        "join(6); reduce()\nif rank == 2: os.kill(os.getpid(), signal.SIGSTOP)\nsteps()\n",
        "collective",
        2,
        HUNG,
        3,
        helpful=(r"rank 2|train\.py",),
    ),
    mpi(
        "words-then-exit",
        "if rank == 2:\n    print('rank 2: inlet pressure is negative', flush=True); sys.exit(9)\nworld.Barrier()\n",
        "exit_code",
        2,
        ("inlet pressure is negative",),
        3,
        helpful=(),
    ),
    mpi(
        "chained",
        "def f():\n    try: [][1]\n    except IndexError as e: raise RuntimeError('halo exchange failed') from e\nif rank == 1: f()\nworld.Barrier()\n",
        "exception",
        1,
        "IndexError: list index out of range",
        3,
        own=True,
    ),
    mpi(
        "caught-elsewhere",
        "try: open('/nope')\nexcept OSError: traceback.print_exc()\nprint('going on')\nif rank == 0: raise ValueError('cfl is 2.3')\nworld.Barrier()\n",
        "exception",
        0,
        "ValueError: cfl is 2.3",
        3,
    ),
    mpi(
        "abort-in-except",
        "try:\n    if rank == 3: raise ZeroDivisionError('dt is 0')\nexcept ZeroDivisionError:\n    traceback.print_exc(); sys.stderr.flush(); world.Abort(77)\nworld.Barrier()\n",
        "exception",
        3,
        "ZeroDivisionError: dt is 0",
        4,
        also_codes=("exit_code",),
    ),
    mpi(
        "disk",
        "if rank == 1: open('/dev/full', 'w').write('x' * 99999)\nworld.Barrier()\n",
        "disk_full",
        1,
        "No space left on device",
        3,
        own=True,
        helpful=(r"space|disk",),
    ),
    mpi(
        "late",
        "if rank == 1: time.sleep(600)\nworld.Barrier()\n",
        "timeout",
        1,
        (*HUNG, "time limit"),
        3,
        limit_s=8,
        helpful=(r"rank 1|train\.py",),
        python="python",
        also_codes=("collective",),
    ),
    Failure(
        "launch-spawn-gloo",
        "exception",
        "python train.py",
        "ValueError: worker 2 got an empty shard",
        {
            "train.py": """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp, time
def work(n):
    os.environ["MASTER_ADDR"] = "127.0.0.1"; os.environ["MASTER_PORT"] = os.environ.get("P", "29777")
    dist.init_process_group("gloo", rank=n, world_size=3); dist.all_reduce(torch.ones(1))
    if n == 2: raise ValueError("worker 2 got an empty shard")
    for _ in range(60): dist.all_reduce(torch.ones(1)); time.sleep(0.05)
if __name__ == "__main__": mp.spawn(work, nprocs=3)
"""
        },
        (r"train\.py",),
        BUG,
        convention="spawn",
        also=(2,),
    ),
    Failure(
        "launch-spawn-killed",
        "signal",
        "python train.py",
        ("SIGKILL",),
        {
            "train.py": """
import os, time, torch.multiprocessing as mp
def work(n):
    if n == 1: os.kill(os.getpid(), 9)
    time.sleep(60)
if __name__ == "__main__": mp.spawn(work, nprocs=2)
"""
        },
        (r"memory|outside|kill",),
        BUG,
        convention="spawn",
        also=(1,),
        also_codes=("exception", "host_oom"),
    ),
]

FAILURES += [
    torchrun(
        "thread-died",
        """
join(10); reduce()
def feed():
    if rank == 2: raise FileNotFoundError(2, "No such file or directory", "/data/val/index.json")
    time.sleep(60)
t = threading.Thread(target=feed, name="feeder"); t.daemon = True; t.start()
for step in range(40):
    if not t.is_alive(): raise SystemExit("feeder is gone")
    reduce(); time.sleep(0.05)
""",
        "exception",
        2,
        "No such file or directory: '/data/val/index.json'",
        3,
        helpful=(r"/data/val/index\.json",),
        also_codes=("data_unavailable", "exit_code"),
    ),
    torchrun(
        "segv-before-join",
        "import ctypes\nif rank == 1: ctypes.string_at(0)\ntime.sleep(5)\n",
        "signal",
        1,
        ("SIGSEGV",),
        3,
        helpful=(r"native|faulthandler|core",),
    ),
    torchrun(
        "raise-before-join",
        "if rank == 0: raise EnvironmentError('licence file is missing')\njoin(10); steps()\n",
        "exception",
        0,
        "OSError: licence file is missing",
        4,
    ),
    torchrun(
        "all-different",
        "raise ValueError(f'shard {rank} has no rows')\n",
        "exception",
        0,
        ("has no rows",),
        3,
        also=(1, 2),
    ),
    torchrun(
        "logging-error",
        """
import logging
logging.basicConfig(format="%(asctime)s %(levelname)s [rank " + str(rank) + "] %(message)s")
join(10); reduce()
if rank == 1:
    logging.error("checkpoint directory /ckpt is not writable"); sys.exit(13)
steps()
""",
        "exit_code",
        1,
        "checkpoint directory /ckpt is not writable",
        3,
        helpful=(r"/ckpt",),
    ),
    torchrun(
        "hang-after-caught",
        """
join(6); reduce()
if rank == 1:
    try: raise RuntimeError("decoder stuck on clip 9")
    except RuntimeError: traceback.print_exc()
    time.sleep(600)
steps()
""",
        "exception",
        1,
        ("RuntimeError: decoder stuck on clip 9", "did not"),
        3,
        helpful=(r"rank 1|train\.py",),
        also_codes=("collective",),
    ),
    torchrun(
        "term-one",
        "join(20); reduce()\nif rank == 1: os.kill(os.getpid(), signal.SIGTERM)\nsteps()\n",
        "signal",
        1,
        ("SIGTERM",),
        3,
        helpful=(r"outside|sent|person|watchdog",),
    ),
    mpi(
        "exit-on-all",
        "sys.exit('input deck has no [grid] section')\n",
        "exit_code",
        0,
        "input deck has no [grid] section",
        3,
        helpful=(),
        also=(1, 2),
    ),
    mpi(
        "thread",
        """
import threading
def io():
    if rank == 1: raise BlockingIOError("writer queue is full")
t = threading.Thread(target=io); t.start(); t.join()
if rank == 1: world.Abort(2)
world.Barrier()
""",
        "exception",
        1,
        "BlockingIOError: writer queue is full",
        3,
        own=True,
        also_codes=("exit_code",),
    ),
    mpi(
        "segv-late",
        "import ctypes\nfor n in range(5): world.Barrier(); print('iteration', n, flush=True)\nif rank == 2: ctypes.string_at(0)\nworld.Barrier()\n",
        "signal",
        2,
        ("SIGSEGV", "signal 11"),
        4,
        helpful=(r"native|faulthandler|core",),
    ),
    mpi(
        "raise-plain-python",
        "if rank == 1: raise KeyError('boundary')\nworld.Barrier()\n",
        "exception",
        1,
        "KeyError: 'boundary'",
        3,
        own=True,
        python="python",
        limit_s=8,
        also_codes=("timeout",),
        misleading=(r"limits\\.timeout|install",),
    ),
]
