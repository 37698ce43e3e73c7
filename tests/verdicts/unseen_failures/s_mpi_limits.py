"""Jobs of mpi4py: limits, libraries, files and buffers."""

from recorder import Failure

FAILURES = [
    Failure(
        name="s-mpi-longer-message-than-buffer",
        code="exception",
        convention="mpi",
        processes=4,
        command="python -u -m mpi4py reduce_rows.py",
        files={
            "reduce_rows.py": r"""import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rows = 103
per = rows // comm.size
mine = per + (rows % comm.size if comm.rank == comm.size - 1 else 0)
print(f"rank {comm.rank} holds {mine} rows", flush=True)
block = np.full((mine, 16), comm.rank, dtype="d")
if comm.rank == 0:
    table = np.empty((per, 16))
    for source in range(1, comm.size):
        comm.Recv(table, source=source)
        print("rows of", source, "mean", table.mean(), flush=True)
else:
    comm.Send(block, dest=0)
comm.Barrier()
""",
        },
        wanted="MPI_ERR_TRUNCATE: message truncated",
        helpful=(r"reduce_rows\.py", r"buffer|rows|Recv|rank 3"),
        misleading=(r"network|out of memory",),
        rank=0,
        also=(3,),
        also_codes=("collective",),
    ),
    Failure(
        name="s-mpi-not-a-square",
        code="exit_code",
        convention="mpi",
        processes=6,
        command="python -u grid.py",
        files={
            "grid.py": r"""import math, sys
from mpi4py import MPI

size = MPI.COMM_WORLD.Get_size()
side = math.isqrt(size)
if side * side != size:
    sys.exit(f"grid.py: the number of ranks has to be a square, but it is {size}")
print("grid", side, "x", side)
""",
        },
        wanted="the number of ranks has to be a square, but it is 6",
        helpful=(r"square|number of (ranks|processes)|procs|processes|4 or 9",),
        misleading=(r"network|memory",),
        rank=0,
        also=(1, 2, 3, 4, 5),
    ),
    Failure(
        name="s-mpi-disk-of-writer-full",
        code="disk_full",
        convention="mpi",
        processes=3,
        command="./scratch.sh python -u -m mpi4py snapshot.py",
        files={
            "scratch.sh": (
                '#!/bin/bash\nif [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then mkdir -p snaps\n'
                'exec unshare -m bash -c \'mount -t tmpfs -o size=3m scratch snaps && exec "$@"\' -- "$@"\nfi\nexec "$@"\n'  # noqa: E501
            ),
            "snapshot.py": r"""import time
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
state = np.random.default_rng(comm.rank).random(120_000)
for step in range(20):
    mean = comm.allreduce(state.mean()) / comm.size
    if comm.rank == 0:
        print(f"step {step:3d} mean {mean:.5f}")
        with open(f"snaps/step{step:03d}.bin", "wb") as f:
            f.write(state.tobytes())
    comm.Barrier()
""",
        },
        wanted="OSError: [Errno 28] No space left on device",
        helpful=(r"disk|space|snaps|fewer",),
        misleading=(r"network|firewall",),
        rank=0,
    ),
    Failure(
        name="s-mpi-env-file-of-one-rank",
        code="exit_code",
        convention="mpi",
        processes=4,
        command="./run_rank.sh",
        files={
            "run_rank.sh": (
                "#!/bin/bash\nset -euo pipefail\n"
                'echo "rank $OMPI_COMM_WORLD_RANK on cpu set $OMPI_COMM_WORLD_LOCAL_RANK"\n'
                "source envs/rank$OMPI_COMM_WORLD_RANK.sh\npython -u work.py\n"
            ),
            "envs/rank0.sh": "export FOLD=0\n",
            "envs/rank1.sh": "export FOLD=1\n",
            "envs/rank3.sh": "export FOLD=3\n",
            "work.py": "import os\nfrom mpi4py import MPI\nprint('fold', os.environ['FOLD'])\nMPI.COMM_WORLD.Barrier()\n",  # noqa: E501
        },
        wanted="envs/rank2.sh: No such file or directory",
        helpful=(r"envs/rank2\.sh|run_rank\.sh",),
        misleading=(r"network|memory",),
        rank=2,
    ),
    Failure(
        name="s-mpi-noise-then-json",
        code="exception",
        convention="mpi",
        processes=5,
        command="python -u -m mpi4py ingest.py",
        files={
            "ingest.py": r"""import json, sys, warnings
from mpi4py import MPI

comm = MPI.COMM_WORLD
warnings.warn("tokenizer: the fast implementation is not available, using the slow one (error 2 ignored)")
lines = [json.dumps({"id": i, "text": "ok" * i}) for i in range(300)]
if comm.rank == 4:
    lines[217] = lines[217][:-3]
bad = 0
for n, line in enumerate(lines):
    if n % 60 == 0:
        print(f"[{comm.rank}] WARNING: line {n}: failed to detect language, falling back to 'en'", file=sys.stderr)
    record = json.loads(line)
print(f"[{comm.rank}] ERROR count: 0", flush=True)
comm.Barrier()
""",
        },
        wanted="json.decoder.JSONDecodeError: Unterminated string",
        helpful=(r"ingest\.py", r"json|line"),
        misleading=(r"network|tokenizer|language",),
        rank=4,
    ),
    Failure(
        name="s-mpi-singular-system",
        code="exception",
        convention="mpi",
        processes=4,
        command="python -u -m mpi4py solve.py",
        files={
            "solve.py": r"""import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rng = np.random.default_rng(7)
A = rng.normal(size=(6, 6))
if comm.rank == 1:
    A[:, 4] = 0.0  # this sensor was off
b = np.ones(6)
x = np.linalg.solve(A, b)
parts = comm.gather(x)
if comm.rank == 0:
    print(np.mean(parts, axis=0))
""",
        },
        wanted="numpy.linalg.LinAlgError: Singular matrix",
        helpful=(r"solve\.py", r"singular|matrix"),
        misleading=(r"network|memory",),
        rank=1,
    ),
    Failure(
        name="s-mpi-lacks-library",
        code="environment",
        convention="mpi",
        processes=3,
        command="python -u train_xgb.py",
        files={
            "train_xgb.py": r"""from mpi4py import MPI

print("rank", MPI.COMM_WORLD.rank, "starting", flush=True)
import xgboost as xgb

xgb.train({}, None)
""",
        },
        wanted="ModuleNotFoundError: No module named 'xgboost'",
        helpful=(r"xgboost",),
        misleading=(r"network|memory",),
        rank=0,
        also=(1, 2),
    ),
    Failure(
        name="s-mpi-ulimit-memory",
        code="host_oom",
        convention="mpi",
        processes=4,
        command='[ "$OMPI_COMM_WORLD_RANK" = 2 ] && ulimit -v 1500000; python -u -m mpi4py gram.py',
        files={
            "gram.py": r"""import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
x = np.ones((18000, 20), dtype="f4")
print(comm.rank, "building the kernel matrix", flush=True)
k = np.zeros((18000, 18000), dtype="f8") if comm.rank == 2 else np.zeros((100, 100))
k[:100, :100] += x[:100] @ x[:100].T
print(comm.allreduce(float(k.sum())))
""",
        },
        wanted="Unable to allocate 2.41 GiB for an array with shape (18000, 18000)",
        helpful=(r"memory|smaller|float32|gram\.py|ulimit",),
        misleading=(r"network|gpu",),
        rank=2,
        also_codes=("exception",),
    ),
    Failure(
        name="s-mpi-file-open-all",
        code="exception",
        convention="mpi",
        processes=2,
        command="python -u -m mpi4py restore.py",
        files={
            "restore.py": r"""from mpi4py import MPI

comm = MPI.COMM_WORLD
f = MPI.File.Open(comm, "checkpoints/latest.bin", MPI.MODE_RDONLY)
print(f.Get_size())
""",
        },
        wanted="MPI_ERR_NO_SUCH_FILE",
        helpful=(r"checkpoints/latest\.bin", r"restore\.py"),
        misleading=(r"network|memory",),
        rank=0,
        also=(1,),
        also_codes=("data_unavailable",),
    ),
    Failure(
        name="s-mpi-allreduce-sizes-differ",
        code="exception",
        convention="mpi",
        processes=4,
        command="python -u -m mpi4py grads.py",
        files={
            "conf/default.json": '{"hidden": 64}',
            "conf/override.json": '{"hidden": 96}',
            "grads.py": r"""import json, os
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
name = "override" if os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") == "1" else "default"
conf = json.load(open(f"conf/{name}.json"))
print(f"rank {comm.rank}: conf/{name}.json hidden={conf['hidden']}", flush=True)
sizes = comm.allgather(conf["hidden"])
if comm.rank == 0 and len(set(sizes)) > 1:
    raise ValueError(f"hidden sizes differ between ranks: {sizes}")
g = np.ones(conf["hidden"])
comm.Allreduce(MPI.IN_PLACE, g)
comm.Barrier()
""",
        },
        wanted="ValueError: hidden sizes differ between ranks: [64, 64, 96, 64]",
        helpful=(r"override\.json|hidden|rank 2|conf", r"grads\.py"),
        misleading=(r"network|memory",),
        rank=2,
    ),
]
