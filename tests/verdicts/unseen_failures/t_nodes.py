"""torchrun over two nodes, the user's own mpirun, and scripts that start processes themselves."""

from functools import partial

from recorder import Failure

TORCHRUN = (
    "torchrun --nnodes 2 --nproc-per-node 2 --node-rank $NODE_RANK "
    "--master-addr $MASTER_ADDR --master-port $MASTER_PORT fit.py"
)
HEAD = r"""import os, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
rank, local, node = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"]), int(os.environ["GROUP_RANK"])
dist.init_process_group("gloo", timeout=timedelta(seconds=6))
def sync(n=1):
    for _ in range(n): dist.all_reduce(torch.ones(100))
sync(2)
print(f"node {node} rank {rank} ready", flush=True)
"""
quiet = (r"firewall|memory",)
two = partial(Failure, convention="torchrun", processes=2, nodes=2, num_ranks=4, command=TORCHRUN, misleading=quiet)
mpirun = partial(Failure, convention="mpirun", misleading=quiet)
spawn = partial(Failure, code="exception", convention="spawn", command="python main.py", misleading=quiet)
MPI = "import os, sys, time\nfrom mpi4py import MPI\nc = MPI.COMM_WORLD\nr = c.rank\nc.Barrier()\n"

FAILURES = [
    two(
        name="t-two-nodes-file-missing",
        code="exception",
        way="the second node has no data",
        files={"fit.py": HEAD + 'open(f"cache-{node}/index.txt").read()\nsync()\n', "cache-0/index.txt": "0 1 2\n"},
        wanted="No such file or directory: 'cache-1/index.txt'",
        helpful=(r"cache-1|index\.txt|node",),
        rank=2,
        also=(3,),
    ),
    two(
        name="t-two-nodes-hang",
        code="collective",
        way="a rank of the second node sleeps",
        files={"fit.py": HEAD + "def compact():\n    time.sleep(500)\nif rank == 3:\n    compact()\nsync()\n"},
        wanted=("compact", "did not", "hung", "stuck", "time.sleep"),
        helpful=(r"fit\.py|compact|rank 3",),
        rank=3,
    ),
    two(
        name="t-two-nodes-killed",
        code="signal",
        way="a rank of the second node is killed",
        files={"fit.py": HEAD + "if rank == 2:\n    os.kill(os.getpid(), 9)\nsync(50)\n"},
        wanted=("SIGKILL", "Signal 9", "-9"),
        helpful=(r"kill|outside|memory",),
        misleading=(r"firewall",),
        rank=2,
    ),
    two(
        name="t-two-nodes-raises-first-node",
        code="exception",
        way="rank 1 raises while the others reduce",
        files={"fit.py": HEAD + "if rank == 1:\n    int('12 epochs')\nsync(3)\n"},
        wanted="invalid literal for int() with base 10: '12 epochs'",
        helpful=(r"fit\.py",),
        rank=1,
    ),
    two(
        name="t-two-nodes-exit-code",
        code="exit_code",
        way="rank 3 finds a wrong version and leaves",
        files={"fit.py": HEAD + "if rank == 3:\n    sys.exit('schema version 4 is newer than 3, upgrade')\nsync(3)\n"},
        wanted="schema version 4 is newer than 3",
        helpful=(r"schema|version|fit\.py",),
        rank=3,
    ),
    two(
        name="t-two-nodes-import",
        code="environment",
        way="the second node lacks a package",
        files={"fit.py": HEAD + "if node == 1:\n    import decord_lite\nsync(3)\n"},
        wanted="No module named 'decord_lite'",
        helpful=(r"decord_lite",),
        rank=2,
        also=(3,),
    ),
    mpirun(
        name="t-mpirun-raises",
        code="exception",
        num_ranks=4,
        command="mpirun --oversubscribe -n 4 python -m mpi4py run.py",
        files={"run.py": MPI + "if r == 2:\n    raise ValueError('time step too large: CFL 1.7')\nc.Barrier()\n"},
        wanted="ValueError: time step too large: CFL 1.7",
        helpful=(r"run\.py|CFL|time step",),
        rank=2,
    ),
    mpirun(
        name="t-mpirun-hang-at-limit",
        code="timeout",
        also_codes=("collective",),
        num_ranks=4,
        limit_s=6,
        command="mpirun --oversubscribe -n 4 python run.py",
        files={
            "run.py": MPI + "def relax():\n    while True:\n        time.sleep(1)\n"
            "if r == 1:\n    relax()\nc.Barrier()\n"
        },
        wanted=("relax", "did not"),
        helpful=(r"run\.py|relax|rank 1",),
        misleading=(r"raise limits|memory",),
        rank=1,
    ),
    mpirun(
        name="t-mpirun-killed",
        code="signal",
        num_ranks=3,
        command="mpirun --oversubscribe -n 3 python run.py",
        files={"run.py": MPI + "if r == 2:\n    os.kill(os.getpid(), 9)\nc.Barrier()\n"},
        wanted=("signal 9", "Killed", "SIGKILL"),
        helpful=(r"kill|outside|memory",),
        misleading=(r"firewall",),
        rank=2,
    ),
    mpirun(
        name="t-mpirun-no-program",
        code="launcher_missing",
        num_ranks=2,
        command="mpirun --oversubscribe -n 2 ./lammps_gpu -in melt.in",
        files={"melt.in": "units lj\n"},
        wanted=("lammps_gpu",),
        helpful=(r"lammps_gpu",),
        rank=None,
        also=(0, 1),
    ),
    mpirun(
        name="t-mpirun-not-enough-slots",
        code="bad_input",
        also_codes=("exit_code",),
        num_ranks=8,
        command="mpirun --host localhost:2 -n 8 python run.py",
        files={"run.py": MPI},
        wanted=("not enough slots", "slots"),
        helpful=(r"slots|oversubscribe|-n",),
        rank=None,
    ),
    mpirun(
        name="t-mpirun-code-5",
        code="exit_code",
        num_ranks=4,
        command="mpirun --oversubscribe -n 4 python run.py",
        files={
            "run.py": MPI + "if r == 0:\n    print('mesh quality below 0.1, stop', flush=True)\n"
            "    os._exit(5)\nc.Barrier()\n"
        },
        wanted=("mesh quality below 0.1", "code 5", "Exit code:    5"),
        helpful=(r"mesh|run\.py|rank 0",),
        rank=0,
    ),
    spawn(
        name="t-spawn-one-raises",
        files={
            "main.py": "import torch.multiprocessing as mp\ndef work(i, n):\n    print('worker', i, flush=True)\n"
            "    return [7, 8][i]\nif __name__ == '__main__':\n    mp.spawn(work, (3,), nprocs=3)\n"
        },
        wanted="IndexError: list index out of range",
        helpful=(r"main\.py|work",),
    ),
    spawn(
        name="t-spawn-pool-worker-killed",
        files={
            "main.py": "import os\nfrom concurrent.futures import ProcessPoolExecutor\ndef f(i):\n    if i == 5:\n"
            "        os.kill(os.getpid(), 9)\n    return i\nif __name__ == '__main__':\n"
            "    with ProcessPoolExecutor(2) as p:\n        print(list(p.map(f, range(9))))\n"
        },
        also_codes=("signal", "host_oom"),
        wanted="terminated abruptly",
        helpful=(r"main\.py|memory|worker|kill",),
        misleading=(r"firewall",),
    ),
    spawn(
        name="t-spawn-pool-inner-cause",
        files={
            "main.py": "from multiprocessing import Pool\ndef parse(s):\n"
            "    return dict(p.split('=') for p in s.split())\n"
            "if __name__ == '__main__':\n    with Pool(2) as p:\n        p.map(parse, ['a=1 b=2', 'a=1 b'])\n"
        },
        wanted="dictionary update sequence element #1 has length 1; 2 is required",
        helpful=(r"main\.py|parse",),
    ),
]
