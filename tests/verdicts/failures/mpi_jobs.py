"""Ranks under mpirun: inside the command, and as Muster starts it with a log for each rank."""

from recorder import Failure

HEAD = """
import os, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
rank = world.rank
world.Barrier()
"""
BUG = (r"network between|interface|install",)


def job(
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
    options="",
    python="python",
    **more,
):
    files = {"train.py": HEAD + text}
    start = f"{python} train.py" if own else f"mpirun --oversubscribe {options}-n {n} {python} train.py"
    return Failure(
        f"{'mpi' if own else 'mpirun'}-{name}-{n}", code, start, wanted, files, helpful, misleading, rank=who,
        convention="mpi" if own else "mpirun", processes=n if own else 1, num_ranks=n, way=name,
        variables={"OMPI_MCA_btl": "self,sm"}, **more,
    )  # fmt: skip


RAISES = "if rank == {who}: raise ValueError('slab {who} is empty')\nworld.Barrier()\n"
FAILURES = [
    *(
        job(
            "raises",
            RAISES.format(who=who),
            "exception",
            who,
            f"ValueError: slab {who} is empty",
            n,
            own=own,
            limit_s=8,
            also_codes=("timeout",),
            misleading=(r"limits\\.timeout|network",),
        )
        for who, n, own in ((1, 3, False), (2, 4, True), (0, 3, True), (3, 4, False))
    ),
    *(
        job(
            "raises-ended",
            RAISES.format(who=who),
            "exception",
            who,
            f"ValueError: slab {who} is empty",
            n,
            own=own,
            python="python -m mpi4py",
        )
        for who, n, own in ((2, 3, False), (1, 4, True), (5, 6, True))
    ),
    job(
        "tagged",
        RAISES.format(who=1),
        "exception",
        1,
        "ValueError: slab 1 is empty",
        3,
        python="python -m mpi4py",
        options="--tag-output ",
    ),
    job(
        "segfault",
        "import ctypes\nif rank == 1: ctypes.string_at(0)\nworld.Barrier()\n",
        "signal",
        1,
        ("SIGSEGV", "signal 11"),
        3,
        helpful=(r"native|faulthandler|core",),
    ),
    job(
        "segfault",
        "import ctypes\nif rank == 2: ctypes.string_at(0)\nworld.Barrier()\n",
        "signal",
        2,
        ("SIGSEGV", "signal 11"),
        4,
        own=True,
        helpful=(r"native|faulthandler|core",),
    ),
    job(
        "killed",
        "if rank == 0: os.kill(os.getpid(), 9)\nworld.Barrier()\n",
        "signal",
        0,
        ("SIGKILL", "signal 9"),
        3,
        own=True,
        helpful=(r"outside|memory|limit",),
        also_codes=("host_oom",),
    ),
    job(
        "killed",
        "if rank == 2: os.kill(os.getpid(), 9)\nworld.Barrier()\n",
        "signal",
        2,
        ("SIGKILL", "signal 9"),
        3,
        helpful=(r"outside|memory|limit",),
        also_codes=("host_oom",),
    ),
    job(
        "abort-with-words",
        """
if rank == 1:
    print("rank 1: the mesh has a hole at cell 512", flush=True); world.Abort(12)
world.Barrier()
""",
        "exit_code",
        1,
        "the mesh has a hole at cell 512",
        3,
        helpful=(),
        misleading=(r"network",),
    ),
    job(
        "abort-with-words",
        """
if rank == 3:
    print("rank 3: CFL number is 2.4", flush=True); world.Abort(5)
world.Barrier()
""",
        "exit_code",
        3,
        ("CFL number is 2.4",),
        4,
        own=True,
        helpful=(),
        misleading=(r"network",),
    ),
    job(
        "exit-code",
        "if rank == 1: sys.exit(7)\nworld.Barrier()\n",
        "exit_code",
        1,
        ("time limit", "did not"),
        3,
        own=True,
        limit_s=8,
        helpful=(),
        also_codes=("timeout",),
    ),
    job("exit-early", "if rank == 1: os._exit(4)\nworld.Barrier()\n", "exit_code", 1, ("code 4",), 3, helpful=()),
    job(
        "module",
        "import h5py_mpi\n",
        "environment",
        0,
        "No module named 'h5py_mpi'",
        3,
        python="python -m mpi4py",
        also=(1, 2),
        helpful=(r"h5py[-_]mpi",),
        misleading=(r"network",),
    ),
    job(
        "truncate",
        """
import numpy as np
if rank == 0: world.Send(np.ones(100), dest=1)
elif rank == 1: world.Recv(np.ones(10), source=0)
world.Barrier()
""",
        "exception",
        1,
        "MPI_ERR_TRUNCATE",
        2,
        python="python -m mpi4py",
        own=True,
        helpful=(r"train\.py|Recv|buffer|larger",),
    ),
    job(
        "bad-rank",
        "world.send(1, dest=9)\n",
        "exception",
        0,
        "MPI_ERR_RANK",
        2,
        own=True,
        also=(1,),
        python="python -m mpi4py",
        helpful=(r"train\.py|rank",),
    ),
    job(
        "hangs",
        "if rank == 2: time.sleep(600)\nworld.Barrier()\n",
        "timeout",
        2,
        ("time limit", "did not", "time.sleep", "was in"),
        4,
        own=True,
        limit_s=8,
        helpful=(r"rank 2|train\.py",),
        misleading=(r"install",),
        also_codes=("collective",),
    ),
    job(
        "timeout-simply",
        "while True: world.Barrier(); time.sleep(0.05)\n",
        "timeout",
        None,
        "time limit",
        3,
        own=True,
        limit_s=6,
        helpful=(r"limits\.timeout|checkpoint",),
        misleading=(r"install",),
    ),
    job(
        "memory",
        "if rank == 1: bytearray(1 << 46)\nworld.Barrier()\n",
        "host_oom",
        1,
        "MemoryError",
        3,
        own=True,
        python="python -m mpi4py",
        helpful=(r"memory",),
    ),
    Failure(
        "mpirun-no-program",
        "launcher_missing",
        "mpirun -n 2 --oversubscribe pyhton train.py",
        ("pyhton", "could not find an executable"),
        {"train.py": "print(1)\n"},
        (r"pyhton|python|first word",),
        (r"network|memory",),
        convention="mpirun",
        num_ranks=2,
        also=(1,),
        rank=0,
    ),
    Failure(
        "mpirun-too-many-slots",
        "bad_input",
        "mpirun -n 64 python train.py",
        ("not enough slots",),
        {"train.py": "print(1)\n"},
        (r"oversubscribe|slots|-n",),
        (r"memory|install",),
        convention="mpirun",
        num_ranks=1,
        rank=0,
        also_codes=("exit_code", "launcher_missing"),
    ),
]
