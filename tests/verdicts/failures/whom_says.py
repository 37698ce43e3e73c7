"""Gangs in which one rank speaks of another, or passes on what it heard: which one does it mean?"""

from __future__ import annotations

from recorder import Failure
from whom_waits import gang, mpi

CHAIN = """import os, socket, sys, time
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
base = int(os.environ["MASTER_PORT"])
up = down = None
if RANK < WORLD - 1:
    server = socket.create_server(("127.0.0.1", base + RANK)); down, _ = server.accept()
if RANK:
    for _ in range(200):
        try:
            up = socket.create_connection(("127.0.0.1", base + RANK - 1)); break
        except ConnectionRefusedError:
            time.sleep(0.05)
def hear(link, whom):
    data = link.recv(1)
    if not data:
        raise EOFError(f"stage {RANK}: stage {whom} hung up")
    return data
def forward():
    if up: hear(up, RANK - 1)
    if down: down.sendall(b"f"); hear(down, RANK + 1)
    if up: up.sendall(b"b")
"""


def chain(name: str, script: str, **labels: object) -> Failure:
    """Stages that each hear of their neighbours alone."""
    files = {"chain.py": CHAIN, "job.py": "from chain import *\n" + script}
    usual: dict[str, object] = {"files": files, "limit_s": None, "helpful": (r"job\.py|chain\.py|stage|rank|run\.sh",)}
    return gang(name, script, **(usual | labels))


FAILURES = [
    chain(
        "whom-chain-exits",
        "for n in range(5):\n    print('batch', n, flush=True)\n    if RANK == 2 and n == 3:\n        os._exit(3)\n    forward()\n",
        rank=2,
        code="exit_code",
        wanted=("exited with code 3", "batch 3"),
    ),
    chain(
        "whom-chain-leaves-well",
        "for n in range(3 if RANK == 3 else 5):\n    print('batch', n, flush=True)\n    forward()\nprint('all batches seen', flush=True)\n",
        rank=3,
        code="collective",
        also_codes=("exception",),
        wanted=("had ended", "all batches seen", "hung up"),
    ),
    chain(
        "whom-chain-under-timeout",
        "for n in range(500):\n    forward()\n    time.sleep(0.05)\n    if n % 20 == 0: print('batch', n, flush=True)\n",
        files={
            "chain.py": CHAIN,
            "job.py": "from chain import *\nfor n in range(500):\n    forward()\n    time.sleep(0.05)\n"
            "    if n % 20 == 0: print('batch', n, flush=True)\n",
            "run.sh": "#!/bin/bash\nif [ $RANK = 1 ]; then exec timeout -v 3 python job.py; fi\nexec python job.py\n",
        },
        command="./run.sh",
        rank=1,
        code="exit_code",
        also_codes=("timeout", "signal"),
        wanted=("timeout: sending signal TERM", "124"),
    ),
    gang(
        "whom-copy-fails-in-wrapper",
        "",
        files={
            "meet.py": "import os, pathlib, time\nr = os.environ['RANK']\npathlib.Path(f'up.{r}').touch()\nend = time.time() + 3\n"
            "while not all(os.path.exists(f'up.{n}') for n in range(4)):\n    if time.time() > end:\n"
            "        lost = [n for n in range(4) if not os.path.exists(f'up.{n}')]\n"
            "        raise SystemExit(f'rank {r}: gave up on {lost}')\n    time.sleep(0.05)\n",
            "run.sh": "#!/bin/bash\nset -e\ntouch index.0 index.1 index.3\nsleep 0.3\ncp index.$RANK local.$RANK || "
            '{ echo "worker $RANK: no index" >&2; sleep 30; exit 1; }\npython meet.py\n',
        },
        command="./run.sh",
        rank=2,
        limit_s=None,
        code="exit_code",
        also_codes=("collective", "exception", "rendezvous", "bad_input", "data_unavailable"),
        wanted=("cannot stat 'index.2'", "no index"),
        helpful=(r"index\.2|index|run\.sh|rank 2",),
    ),
    gang(
        "whom-dict-of-errors",
        "import json\ntry:\n    say('parsing')\n    if RANK == 2:\n        int('12,5')\n    told = ''\nexcept ValueError as error:\n"
        "    told = f'{type(error).__name__}: {error}'\n(box / f'told_{RANK}.json').write_text(json.dumps(told))\nbarrier('told')\n"
        "if RANK == 0:\n    bad = {n: t for n in range(WORLD) if (t := json.loads((box / f'told_{n}.json').read_text()))}\n"
        "    if bad:\n        raise RuntimeError(f'workers failed: {bad}')\nbarrier('go')\n",
        rank=2,
        limit_s=None,
        code="exception",
        wanted=("ValueError: invalid literal for int()",),
    ),
    gang(
        "whom-german",
        "say('liest')\nif RANK == 1:\n    try:\n        {}['lernrate']\n    except KeyError as e:\n        say('Abbruch beim Lesen')\n"
        "        (box / 'fehler').write_text(f'Prozess 1: KeyError: {e}')\nbarrier('gelesen')\ntime.sleep(0.05 * RANK)\n"
        "if (box / 'fehler').exists():\n    print('FEHLER:', (box / 'fehler').read_text(), file=sys.stderr, flush=True)\n    sys.exit(1)\n",
        rank=1,
        limit_s=None,
        code="exception",
        also_codes=("exit_code",),
        wanted=("KeyError: 'lernrate'",),
    ),
    gang(
        "whom-spanish",
        "barrier('inicio')\nif RANK == 3:\n    (box / 'aviso').write_text('nodo 3: ZeroDivisionError: division by zero')\n    time.sleep(60)\n"
        "while True:\n    if (box / 'aviso').exists():\n        raise SystemExit('error en el ' + (box / 'aviso').read_text())\n    time.sleep(0.1)\n",
        rank=3,
        limit_s=None,
        code="exception",
        also_codes=("exit_code", "collective"),
        wanted=("ZeroDivisionError: division by zero",),
    ),
    gang(
        "whom-world-too-big",
        "import socket\nif RANK == 0:\n    s = socket.create_server(('127.0.0.1', int(os.environ['MASTER_PORT']))); s.settimeout(3); c = []\n"
        "    mark('up')\n    try:\n        while len(c) < WORLD:\n            c.append(s.accept())\n    except TimeoutError:\n"
        "        raise TimeoutError(f'{len(c)} of {WORLD} workers connected within 3 s') from None\n"
        "else:\n    while not there('up'):\n        time.sleep(0.05)\n"
        "    c = socket.create_connection(('127.0.0.1', int(os.environ['MASTER_PORT'])))\n    if not c.recv(1):\n"
        "        raise ConnectionError('the desk closed')\n",
        rank=None,
        limit_s=None,
        code="rendezvous",
        also_codes=("exception", "collective"),
        wanted=("3 of 4 workers connected within 3 s",),
        helpful=(r"world|job\.py|number of|count",),
    ),
    gang(
        "whom-quorum-of-five",
        "mark('here')\nend = time.time() + 2\nwhile len(there('here')) < 5:\n    if time.time() > end:\n"
        "        raise SystemExit(f'quorum: {len(there(\"here\"))}/5 members after 2 s')\n    time.sleep(0.05)\n",
        rank=None,
        limit_s=None,
        code="rendezvous",
        also_codes=("exit_code", "collective"),
        wanted=("quorum: 4/5 members",),
        helpful=(r"world|job\.py|number of|WORLD_SIZE",),
    ),
    gang(
        "whom-retries-then-gives-up",
        "import socket\nport = int(os.environ['MASTER_PORT']) + 20\nif RANK == 3:\n    say('building the cache first')\n    time.sleep(60)\n"
        "server = socket.create_server(('127.0.0.1', port + RANK))\ndef reach(n):\n    end = time.time() + 2\n    while True:\n"
        "        try:\n            return socket.create_connection(('127.0.0.1', port + n))\n        except OSError:\n"
        "            if time.time() > end:\n                raise TimeoutError(f'{RANK}: neighbour {n} is not up after 2 s')\n"
        "        time.sleep(0.05)\nreach((RANK + 1) % WORLD)\nserver.accept()\n",
        rank=3,
        limit_s=None,
        code="rendezvous",
        also_codes=("exception", "collective"),
        wanted=("neighbour 3 is not up", "building the cache first"),
        helpful=(r"rank 3|cache|job\.py",),
    ),
    gang(
        "whom-part-never-appears",
        "def part(n):\n    end = time.time() + 2\n    while True:\n        try:\n            return open(f'box/part-{n}').read()\n"
        "        except FileNotFoundError:\n            if time.time() > end:\n                raise RuntimeError(f'part of {n} never appeared')\n"
        "        time.sleep(0.05)\nif RANK == 1:\n    say('deduplicating')\n    while True:\n        sorted(range(999))\n"
        "(box / f'part-{RANK}').write_text('x')\nfor n in range(WORLD):\n    part(n)\n",
        rank=1,
        limit_s=None,
        code="collective",
        also_codes=("exception",),
        wanted=("part of 1 never appeared", "deduplicating"),
    ),
    gang(
        "whom-its-own-shard",
        "barrier('start')\nprint(f'worker {RANK}: rows {RANK * 100}..{RANK * 100 + 99 - 3 * (RANK == 5)}', flush=True)\n"
        "rows = 100 - 3 * (RANK == 5)\nif rows != 100:\n    raise ValueError(f'shard {RANK} has {rows} rows')\nbarrier('end')\n",
        rank=5,
        processes=8,
        limit_s=None,
        code="exception",
        wanted=("ValueError: shard 5 has 97 rows",),
    ),
    gang(
        "whom-lease-by-token",
        "import secrets\ntoken = secrets.token_hex(3)\nsay(f'token {token}')\nbarrier('start')\n"
        "if RANK == 2:\n    (box / 'lease').write_text(token); mark('held'); time.sleep(60)\nwhile not there('held'):\n    time.sleep(0.05)\n"
        "time.sleep(1 + RANK / 5)\nraise SystemExit(f'lease held by {(box / \"lease\").read_text()} for 1 s')\n",
        rank=2,
        limit_s=None,
        code="exit_code",
        also_codes=("collective", "exception"),
        wanted=("lease held by", "did not"),
    ),
    mpi(
        "whom-mpi-told-by-root",
        "if rank:\n    try:\n        say('solving')\n        out = ('ok', 1 / (3 - rank))\n    except ZeroDivisionError as e:\n"
        "        out = ('error', repr(e))\n    comm.send(out, 0)\n    comm.Barrier()\nelse:\n    for n in range(1, 4):\n"
        "        kind, what = comm.recv(source=n)\n        if kind == 'error':\n            say(f'task {n} failed: {what}')\n"
        "            comm.Abort(4)\n    comm.Barrier()\n",
        rank=3,
        limit_s=None,
        code="exception",
        also_codes=("exit_code", "collective"),
        wanted=("task 3 failed: ZeroDivisionError",),
    ),
    mpi(
        "whom-mpi-root-loses-patience",
        "if rank == 2:\n    say('augmenting')\n    time.sleep(60)\nif rank:\n    comm.send(rank, 0)\n    comm.Barrier()\nelse:\n    got, end = [], time.time() + 3\n"
        "    while len(got) < 3:\n        if comm.iprobe():\n            got.append(comm.recv())\n        if time.time() > end:\n"
        "            say(f'results of {sorted(got)} only, giving up')\n            comm.Abort(9)\n        time.sleep(0.01)\n",
        rank=2,
        limit_s=None,
        code="collective",
        also_codes=("exit_code", "exception"),
        wanted=("results of [1, 3] only", "did not"),
    ),
    Failure(
        name="whom-torch-store-key",
        convention="process",
        processes=3,
        command="python job.py",
        files={
            "job.py": "import datetime, os\nfrom torch.distributed import TCPStore\nrank = int(os.environ['RANK'])\n"
            "store = TCPStore('127.0.0.1', int(os.environ['MASTER_PORT']), 3, rank == 0, timeout=datetime.timedelta(seconds=20))\n"
            "key = f'ready/{rank}' if rank != 2 else f'ready/{rank:02d}'\nstore.set(key, '1')\nprint(f'wrote {key}', flush=True)\n"
            "store.wait([f'ready/{n}' for n in range(3)], datetime.timedelta(seconds=2))\n"
        },
        rank=2,
        code="collective",
        also_codes=("rendezvous", "exception"),
        wanted=("ready/2", "ready/02", "did not"),
        helpful=(r"job\.py|ready/|rank 2",),
        misleading=(r"memory",),
    ),
]
