"""Gangs that stand still until a time limit passes, or until somebody loses patience: whom do they wait for?"""

from __future__ import annotations

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "was at", "was in", "stayed", "still at", "waits", "had not ended")

FILES = """import os, pathlib, sys, time
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
box = pathlib.Path("box"); box.mkdir(exist_ok=True)
def say(text): print(f"rank {RANK}: {text}", flush=True)
def mark(name): (box / f"{name}.{RANK}").touch()
def there(name): return sorted(int(p.suffix[1:]) for p in box.glob(f"{name}.*"))
def barrier(name, patience=3600.0):
    mark(name)
    end = time.time() + patience
    while len(there(name)) < WORLD:
        if time.time() > end:
            raise TimeoutError(f"waited {patience:g} s for all at {name}; there: {there(name)}")
        time.sleep(0.05)
"""


def gang(name: str, script: str, **labels: object) -> Failure:
    """Ranks that meet over files."""
    usual: dict[str, object] = {
        "convention": "process",
        "processes": 4,
        "command": "python job.py",
        "files": {"files.py": FILES, "job.py": "from files import *\n" + script},
        "wanted": HUNG,
        "code": "timeout",
        "limit_s": 4,
        "helpful": (r"job\.py|files\.py|barrier",),
        "misleading": (r"memory|MASTER_PORT",),
    }
    return Failure(name=name, **(usual | labels))  # type: ignore[arg-type]


def mpi(name: str, script: str, **labels: object) -> Failure:
    """Ranks of Open MPI, each with a log of its own."""
    usual: dict[str, object] = {
        "convention": "mpi",
        "processes": 4,
        "command": "python job.py",
        "files": {
            "job.py": "import math, os, sys, time\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\nrank = comm.Get_rank()\n"
            "def say(text): print(f'[{rank}] {text}', flush=True)\n" + script
        },
        "wanted": HUNG,
        "code": "timeout",
        "limit_s": 6,
        "helpful": (r"job\.py|Barrier|rank",),
        "misleading": (r"memory|MASTER_PORT",),
    }
    return Failure(name=name, **(usual | labels))  # type: ignore[arg-type]


FAILURES = [
    gang(
        "whom-three-finished",
        "say('fit')\nif RANK == 0:\n    say('writing the report')\n    barrier('report')\nsay('finished')\n",
        rank=0,
    ),
    gang(
        "whom-last-one-asks",
        "barrier('start')\nsay('evaluated 40 samples')\nif RANK == 3:\n    say('asking for the scores of all')\n"
        "    barrier('scores')\nsay('bye')\n",
        rank=3,
        processes=5,
    ),
    gang(
        "whom-socket-after-the-end",
        "import socket\nif RANK == 2:\n    s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n    say('loading done')\n"
        "    s.accept()\nelse:\n    say('loading done')\nsay('closing')\n",
        rank=2,
        helpful=(r"job\.py|rank 2",),
    ),
    gang(
        "whom-lock-holder",
        "import fcntl\nlock = open('box/lock', 'w')\nif RANK != 2:\n    time.sleep(0.5)\nfcntl.flock(lock, fcntl.LOCK_EX)\n"
        "say('compacting the index')\nif RANK == 2:\n    while True:\n        sum(range(1000))\nfcntl.flock(lock, fcntl.LOCK_UN)\n",
        rank=2,
    ),
    gang(
        "whom-waits-for-own-thread",
        "import threading\nos.mkfifo('box/pipe') if RANK == 1 else None\n"
        "def prefetch(): open('box/pipe').read()\n"
        "if RANK == 1:\n    t = threading.Thread(target=prefetch); t.start(); say('prefetching'); t.join()\nbarrier('warm')\n",
        rank=1,
    ),
    gang(
        "whom-program-below",
        "import subprocess\nif RANK == 0:\n    say('unpacking the archive')\n    subprocess.run(['sleep', '300'])\nbarrier('unpacked')\n",
        rank=0,
        processes=3,
    ),
    gang(
        "whom-two-of-five",
        "def fetch():\n    say('fetching from the mirror')\n    time.sleep(300)\nif RANK in (1, 3):\n    fetch()\nbarrier('data')\n",
        rank=1,
        also=(3,),
        processes=5,
    ),
    gang(
        "whom-slow-one",
        "def step(n):\n    time.sleep(0.6 if RANK == 3 else 0.01)\n    print('step', n, flush=True)\n"
        "for n in range(40):\n    step(n)\nbarrier('epoch')\n",
        rank=3,
    ),
    gang(
        "whom-other-generation",
        "for epoch in range(3):\n    say(f'epoch {epoch}')\n    barrier(f'epoch-{epoch + (RANK == 2 and epoch == 1)}', 2)\n",
        rank=2,
        limit_s=None,
        code="collective",
        also_codes=("exception", "rendezvous"),
        wanted=("did not", "there: [0, 1, 3]", "there: [2]"),
    ),
    gang(
        "whom-token-dropped",
        "import socket\nports = [int(os.environ['MASTER_PORT']) + i for i in range(WORLD)]\n"
        "server = socket.create_server(('127.0.0.1', ports[RANK]))\nbarrier('up')\n"
        "right = socket.create_connection(('127.0.0.1', ports[(RANK + 1) % WORLD])); left, _ = server.accept()\n"
        "if RANK == 0:\n    right.sendall(b'\\x01')\nwhile True:\n    token = left.recv(1)[0]\n    say(f'token {token}')\n"
        "    if RANK == 2 and token == 6:\n        say('token 6 is stale, dropped')\n        continue\n"
        "    right.sendall(bytes([token + 1]))\n",
        rank=2,
        wanted=(*HUNG, "token 6 is stale, dropped"),
        helpful=(r"job\.py|rank 2",),
    ),
    gang(
        "whom-stops-at-prompt",
        "import pdb\nbarrier('start')\nif RANK == 1:\n    os.mkfifo('box/tty')\n    say('loss is nan, dropping into the debugger')\n"
        "    sys.stdin = open('box/tty')\n    pdb.set_trace()\nbarrier('step')\n",
        rank=1,
        wanted=(*HUNG, "dropping into the debugger"),
        helpful=(r"job\.py|rank 1|set_trace|debugger",),
    ),
    gang(
        "whom-waits-for-file-of-nobody",
        "say('restoring')\nwhile RANK == 1 and not os.path.exists('box/model.best'):\n    time.sleep(0.05)\nbarrier('restored')\n",
        rank=1,
    ),
    gang(
        "whom-manager-barrier",
        "import threading\nfrom multiprocessing.managers import BarrierProxy, BaseManager\n"
        "gate = threading.Barrier(WORLD)\nclass Desk(BaseManager): pass\n"
        "Desk.register('gate', callable=lambda: gate, proxytype=BarrierProxy)\n"
        "desk = Desk(('127.0.0.1', int(os.environ['MASTER_PORT'])), b'k')\n"
        "if RANK == 0:\n    s = desk.get_server(); threading.Thread(target=s.serve_forever, daemon=True).start()\n"
        "barrier('served')\ndesk.connect()\ng = desk.gate()\nsay('at work')\n"
        "if RANK == 3:\n    while True:\n        hash(str(time.time()))\ng.wait(2)\n",
        rank=3,
        limit_s=None,
        code="collective",
        also_codes=("exception",),
    ),
    gang(
        "whom-asyncio-blocked",
        "import asyncio\nport = int(os.environ['MASTER_PORT'])\n"
        "async def serve():\n    got = []\n    async def hello(r, w):\n        got.append(int(await r.readline()))\n"
        "        w.write(b'ok\\n'); await w.drain()\n        await asyncio.wait_for(r.readline(), 2)\n"
        "    s = await asyncio.start_server(hello, '127.0.0.1', port)\n    mark('up')\n"
        "    while len(got) < WORLD - 1:\n        await asyncio.sleep(0.05)\n    await asyncio.sleep(2.5)\n"
        "    raise RuntimeError('a worker went quiet')\n"
        "async def work():\n    r, w = await asyncio.open_connection('127.0.0.1', port)\n    w.write(b'%d\\n' % RANK); await r.readline()\n"
        "    if RANK == 2:\n        say('sorting on the event loop')\n        time.sleep(300)\n    while True:\n"
        "        w.write(b'beat\\n'); await asyncio.sleep(0.5)\n"
        "while RANK and not there('up'):\n    time.sleep(0.05)\nasyncio.run(work() if RANK else serve())\n",
        rank=2,
        limit_s=None,
        code="collective",
        also_codes=("exception",),
        wanted=(*HUNG, "went quiet"),
        helpful=(r"job\.py|rank 2",),
    ),
    mpi(
        "whom-mpi-one-more-barrier",
        "comm.Barrier()\nsay('trained')\nif rank == 1:\n    say('one more round')\n    comm.Barrier()\nsay('leaving')\n",
        rank=1,
    ),
    mpi(
        "whom-mpi-other-tag",
        "tag = 7 if rank == 2 else 5\nif rank:\n    say(f'sends with tag {tag}')\n    comm.ssend(rank, 0, tag=tag)\nelse:\n"
        "    for n in range(1, 4):\n        say(f'got {comm.recv(source=n, tag=5)}')\n",
        rank=2,
        wanted=(*HUNG, "tag 7"),
        helpful=(r"job\.py|tag",),
    ),
    mpi(
        "whom-mpi-one-computes",
        "say('start')\nif rank == 3:\n    x = 2.0\n    while x > 1:\n        x = math.sqrt(x) + 1\ncomm.allreduce(1)\n",
        rank=3,
    ),
    mpi(
        "whom-mpi-leaves-early",
        "for n in range(3):\n    if rank == 2 and n == 2:\n        say('no more batches')\n        sys.exit(0)\n"
        "    say(f'round {n}')\n    comm.Barrier()\n    time.sleep(0.2)\n",
        rank=2,
        wanted=(*HUNG, "no more batches", "had ended"),
    ),
    mpi(
        "whom-mpi-reads-a-pipe",
        "if rank == 1:\n    os.mkfifo('in')\n    say('reading the list')\n    open('in').read()\ncomm.bcast('x', 0)\ncomm.Barrier()\n",
        rank=1,
    ),
    mpi(
        "whom-mpi-root-skips",
        "for n in range(4):\n    part = comm.scatter(list(range(4)) if rank == 0 else None, 0)\n    say(f'batch {n}')\n"
        "    if rank == 0 and n == 2:\n        say('skipping the update, gradient is inf')\n        continue\n"
        "    comm.allreduce(part)\n",
        rank=0,
        wanted=(*HUNG, "gradient is inf"),
    ),
    Failure(
        name="whom-mpirun-one-sleeps",
        convention="mpirun",
        num_ranks=3,
        command="mpirun --allow-run-as-root --oversubscribe -n 3 python job.py",
        files={
            "job.py": "import time\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\nrank = comm.Get_rank()\n"
            "print(f'rank {rank}: loaded', flush=True)\nif rank == 2:\n    print('rank 2: building the vocabulary', flush=True)\n"
            "    time.sleep(300)\ncomm.Barrier()\n"
        },
        code="timeout",
        rank=2,
        limit_s=6,
        wanted=(*HUNG, "building the vocabulary"),
        helpful=(r"job\.py|rank 2|vocabulary",),
        misleading=(r"memory|MASTER_PORT",),
    ),
    Failure(
        name="whom-mpirun-finished-but-one",
        convention="mpirun",
        num_ranks=4,
        command="mpirun --allow-run-as-root --oversubscribe -n 4 python job.py",
        files={
            "job.py": "import time\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\nrank = comm.Get_rank()\n"
            "print(f'rank {rank}: begins', flush=True)\ncomm.Barrier()\nif rank == 1:\n    comm.recv(source=0)\n"
            "print(f'rank {rank}: ends', flush=True)\n"
        },
        code="timeout",
        rank=1,
        limit_s=6,
        wanted=(*HUNG, "comm.recv"),
        helpful=(r"job\.py|rank 1|recv",),
        misleading=(r"memory|MASTER_PORT",),
    ),
    Failure(
        name="whom-torch-other-collective",
        convention="process",
        processes=3,
        command="python job.py",
        files={
            "job.py": "import os\nimport torch, torch.distributed as dist\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"
            "for step in range(3):\n    print(f'rank {rank} step {step}', flush=True)\n    if rank == 1 and step == 1:\n"
            "        print('rank 1 has an empty batch', flush=True)\n        continue\n"
            "    dist.all_reduce(torch.ones(1))\ndist.barrier()\nprint('done', flush=True)\n"
        },
        code="timeout",
        also_codes=("collective", "signal", "exception"),
        rank=1,
        limit_s=14,
        wanted=(*HUNG, "empty batch"),
        helpful=(r"job\.py|rank 1|empty batch",),
        misleading=(r"memory|MASTER_PORT",),
    ),
]
