"""Gangs of Python processes that talk to each other by hand: sockets, files, gRPC; no torch."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "does not respond", "not respond")
LEFT = ("code 0", "exited early", "ended early", "left early", "finished before", "had ended")

STAR = '''import json, os, socket, struct, time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def send(sock, value):
    data = json.dumps(value).encode()
    sock.sendall(struct.pack("!I", len(data)) + data)


def recv(sock):
    head = sock.recv(4)
    if not head:
        raise EOFError("the other side closed the connection")
    size, data = struct.unpack("!I", head)[0], b""
    while len(data) < size:
        data += sock.recv(size - len(data))
    return json.loads(data)


class Star:
    """Rank 0 adds what all others send."""

    def __init__(self, timeout=None):
        if RANK == 0:
            server = socket.create_server(ADDRESS)
            server.settimeout(timeout)
            self.peers = {}
            while len(self.peers) < WORLD - 1:
                sock, _ = server.accept()
                self.peers[recv(sock)] = sock
                sock.settimeout(timeout)
        else:
            for _ in range(400):
                try:
                    self.hub = socket.create_connection(ADDRESS)
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            else:
                raise ConnectionError(f"no coordinator at {ADDRESS[0]}:{ADDRESS[1]}")
            send(self.hub, RANK)
            self.hub.settimeout(timeout)

    def total(self, value):
        if RANK == 0:
            result = value + sum(recv(sock) for sock in self.peers.values())
            for sock in self.peers.values():
                send(sock, result)
            return result
        send(self.hub, value)
        return recv(self.hub)
'''

FILES = '''import os, pathlib, time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOLDER = pathlib.Path("sync")


def barrier(name, seconds=2.0):
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.{RANK}").touch()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if len(list(FOLDER.glob(f"{name}.*"))) == WORLD:
            return
        time.sleep(0.02)
    here = sorted(int(p.suffix[1:]) for p in FOLDER.glob(f"{name}.*"))
    raise TimeoutError(MESSAGE.format(name=name, here=here, count=len(here), world=WORLD))


MESSAGE = "barrier {name}: {count} of {world} ranks arrived in time"
'''


def star(script: str, **more: str) -> dict[str, str]:
    return {"star.py": STAR, "train.py": "from star import *\n" + script, **more}


def files(script: str, **more: str) -> dict[str, str]:
    return {"sync.py": FILES, "train.py": "from sync import *\n" + script, **more}


FAILURES = [
    Failure(
        name="star-hung-worker-of-4",
        way="a worker sleeps; the hub's recv times out",
        convention="process",
        processes=4,
        code="collective",
        also_codes=("exception",),
        rank=2,
        command="python train.py",
        files=star(
            "import time\nc = Star(timeout=2)\nfor step in range(3):\n    print('sum', c.total(step), flush=True)\n"
            "def compact():\n    time.sleep(600)\nif RANK == 2:\n    compact()\nc.total(1)\n"
        ),
        wanted=(*HUNG, "compact"),
        helpful=(r"rank 2", r"compact|train\.py"),
        misleading=(r"firewall|memory|pip|rank [013]\b.{0,20}(hung|hang|not respond)",),
    ),
    Failure(
        name="star-hung-hub-of-3",
        way="the coordinator itself hangs; the workers time out",
        convention="process",
        processes=3,
        code="collective",
        also_codes=("exception",),
        rank=0,
        command="python train.py",
        files=star(
            "import subprocess\nc = Star(timeout=2)\nc.total(1)\ndef checkpoint():\n    subprocess.run(['sleep', '600'])\n"
            "if RANK == 0:\n    print('saving', flush=True)\n    checkpoint()\nc.total(2)\n"
        ),
        wanted=(*HUNG, "checkpoint"),
        helpful=(r"rank 0", r"checkpoint|subprocess|train\.py"),
        misleading=(r"firewall|memory|pip",),
    ),
    Failure(
        name="star-worker-leaves-with-0",
        way="one worker has fewer batches and ends well",
        convention="process",
        processes=5,
        code="collective",
        also_codes=("exception",),
        rank=3,
        command="python train.py",
        files=star(
            "c = Star()\nbatches = 4 if RANK == 3 else 6\nfor step in range(batches):\n    c.total(step)\nprint('rank', RANK, 'finished')\n"
        ),
        wanted=(*LEFT, "the other side closed the connection"),
        helpful=(r"rank 3", r"batches|drop_last|same number|uneven"),
        misleading=(r"firewall|memory|pip|interface",),
    ),
    Failure(
        name="star-worker-raises",
        way="a worker raises; the hub sees its connection close",
        convention="process",
        processes=4,
        code="exception",
        rank=3,
        command="python -u train.py",
        files=star(
            "c = Star()\ntargets = {0: 'cat', 1: 'dog'}\nfor step in range(5):\n    c.total(step)\n"
            "    if RANK == 3 and step == 2:\n        print(targets[7])\n"
        ),
        wanted="KeyError: 7",
        helpful=(r"train\.py", r"targets|rank 3"),
        misleading=(r"firewall|memory|pip|closed the connection",),
    ),
    Failure(
        name="star-victims-fail-first",
        way="the culprit takes long to exit; the hub fails before it does",
        convention="process",
        processes=4,
        code="exception",
        rank=1,
        command="python -u train.py",
        files=star(
            "import atexit\nc = Star()\nc.total(1)\nif RANK == 1:\n    atexit.register(lambda: (print('uploading logs'), time.sleep(0.4), print('upload done')))\n"
            "    try:\n        lr = float('1e-3x')\n    finally:\n        c.hub.close()\nc.total(2)\n"
        ),
        wanted="ValueError: could not convert string to float: '1e-3x'",
        helpful=(r"train\.py", r"1e-3x|\blr\b"),
        misleading=(r"firewall|memory|pip|network",),
    ),
    Failure(
        name="star-segv-one-of-6",
        way="a native crash of one worker",
        convention="process",
        processes=6,
        code="signal",
        rank=4,
        command="python train.py",
        files=star("import ctypes\nc = Star()\nc.total(1)\nif RANK == 4:\n    ctypes.string_at(1)\nc.total(2)\n"),
        wanted=("SIGSEGV", "Segmentation fault", "signal 11"),
        helpful=(r"faulthandler|native|rank 4",),
        misleading=(r"firewall|memory limit|pip|smaller batch",),
    ),
    Failure(
        name="star-sigkill-one-of-3",
        way="somebody kills one worker",
        convention="process",
        processes=3,
        code="signal",
        rank=2,
        command="python train.py",
        files=star("c = Star()\nc.total(1)\nif RANK == 2:\n    os.system(f'sh -c \"kill -KILL {os.getpid()}\"')\nc.total(2)\n"),
        wanted=("SIGKILL", "Killed", "signal 9"),
        helpful=(r"SIGKILL|kill|rank 2",),
        misleading=(r"firewall|pip|faulthandler",),
    ),
    Failure(
        name="star-oom-one-of-3",
        way="the kernel ends one worker for lack of memory",
        convention="process",
        processes=3,
        code="host_oom",
        rank=1,
        command="./rank.sh",
        files=star(
            "c = Star()\nc.total(1)\nif RANK == 1:\n    cache = []\n    while True:\n        cache.append(bytearray(4 << 20))\nc.total(2)\n",
            **{
                "rank.sh": "#!/bin/bash\nif [ $RANK = 1 ]; then\n  g=/sys/fs/cgroup/memory/job-$$; mkdir $g; echo 70M > $g/memory.limit_in_bytes; echo $$ > $g/cgroup.procs\nfi\nexec python train.py\n"
            },
        ),
        wanted=("memory",),
        helpful=(r"memory|cache|train\.py",),
        misleading=(r"firewall|pip|faulthandler|network",),
    ),
    Failure(
        name="star-hub-port-taken",
        way="the port of the coordinator is fixed and taken",
        convention="process",
        processes=3,
        code="port_trouble",
        rank=0,
        command="python train.py",
        files={
            "train.py": "import os, socket, time\nRANK = int(os.environ['RANK'])\nPORT = 23456\nif RANK == 0:\n"
            "    sidecar = socket.create_server(('127.0.0.1', PORT))\n    hub = socket.create_server(('127.0.0.1', PORT))\n"
            "else:\n    time.sleep(0.3)\n    s = socket.create_connection(('127.0.0.1', PORT), timeout=5)\n    print(s.recv(1))\n"
        },
        wanted="Address already in use",
        helpful=(r"23456|MASTER_PORT|train\.py",),
        misleading=(r"firewall|memory|pip",),
    ),
    Failure(
        name="star-coordinator-name-unknown",
        way="MASTER_ADDR is a name that nobody knows",
        convention="process",
        processes=3,
        code="rendezvous",
        also_codes=("exception", "bad_input"),
        rank=0,
        also=(1, 2),
        command="python train.py",
        variables={"MASTER_ADDR": "trainer-0.invalid"},
        files=star("c = Star(timeout=2)\nprint(c.total(1))\n"),
        wanted=("Name or service not known", "Temporary failure in name resolution", "gaierror"),
        helpful=(r"MASTER_ADDR|trainer-0",),
        misleading=(r"memory|pip",),
    ),
    Failure(
        name="star-late-rank",
        way="one rank is busy before it connects; the hub gives up",
        convention="process",
        processes=4,
        code="rendezvous",
        also_codes=("collective",),
        rank=1,
        command="python train.py",
        files=star(
            "def unpack():\n    time.sleep(300)\nprint('rank', RANK, flush=True)\nif RANK == 1:\n    print('unpacking images', flush=True)\n    unpack()\n"
            "c = Star(timeout=2)\nprint(c.total(1))\n"
        ),
        wanted=(*HUNG, "late", "unpack", "did not join", "missing"),
        helpful=(r"rank 1", r"unpack|train\.py"),
        misleading=(r"firewall|memory|pip",),
    ),
    Failure(
        name="file-barrier-missing-rank",
        way="a barrier made of files; its message says how many came",
        convention="process",
        processes=5,
        code="collective",
        also_codes=("exception",),
        rank=4,
        command="python train.py",
        files=files(
            "barrier('start')\nprint('started', flush=True)\nif RANK == 4:\n    import threading\n    threading.Event().wait()\nbarrier('epoch1')\n"
        ),
        wanted=(*HUNG, "4 of 5 ranks arrived in time"),
        helpful=(r"rank 4", r"train\.py"),
        misleading=(r"firewall|memory|pip|rank [0123] (hung|did not)",),
    ),
    Failure(
        name="file-barrier-names-rank",
        way="a barrier made of files; its message lists who came",
        convention="process",
        processes=8,
        code="collective",
        also_codes=("exception",),
        rank=5,
        command="python train.py",
        files={
            "sync.py": FILES.replace("{count} of {world} ranks arrived in time", "only ranks {here} arrived"),
            "train.py": "from sync import *\nbarrier('start', 6)\nprint('epoch 0', flush=True)\n"
            "def tokenize():\n    while True:\n        time.sleep(0.1)\nif RANK == 5:\n    tokenize()\nbarrier('epoch0')\n",
        },
        wanted=(*HUNG, "only ranks [0, 1, 2, 3, 4, 6, 7] arrived", "tokenize"),
        helpful=(r"rank 5", r"tokenize|train\.py"),
        misleading=(r"firewall|memory|pip",),
    ),
    Failure(
        name="file-rendezvous-late-node",
        way="both ranks of the second node are late",
        convention="process",
        processes=4,
        nodes=2,
        code="rendezvous",
        also_codes=("collective",),
        rank=2,
        also=(3,),
        command="python train.py",
        files=files(
            "MESSAGE = ''\nimport sync\nsync.MESSAGE = 'rendezvous: {count} of {world} workers registered within 2 s'\n"
            "def stage_in():\n    time.sleep(100)\nif os.environ['NODE_RANK'] == '1':\n    print('copying data set to local disk', flush=True)\n    stage_in()\nbarrier('init')\n"
        ),
        wanted=(*HUNG, "rendezvous: 2 of 4 workers registered", "late", "stage_in"),
        helpful=(r"rank 2|rank 3|node-1|stage_in",),
        misleading=(r"memory|pip",),
    ),
    Failure(
        name="heartbeat-lost",
        way="the coordinator misses heartbeats and exits with a message",
        convention="process",
        processes=6,
        code="collective",
        also_codes=("exit_code",),
        rank=5,
        command="python -u train.py",
        files={
            "train.py": "import os, socket, sys, time\nR, W = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
            "A = ('127.0.0.1', int(os.environ['MASTER_PORT']))\n"
            "def load_next():\n    time.sleep(1000)\n"
            "if R == 0:\n    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n    s.bind(A)\n    s.settimeout(0.2)\n    seen = {}\n    while True:\n"
            "        try:\n            r = int(s.recv(16)); seen[r] = time.monotonic()\n        except socket.timeout:\n            pass\n"
            "        for r, t in seen.items():\n            if time.monotonic() - t > 1.5:\n"
            "                print(f'[coordinator] ERROR worker {r} missed 3 heartbeats, aborting the job', file=sys.stderr)\n                sys.exit(13)\n"
            "else:\n    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n    time.sleep(0.5)\n    for i in range(1000):\n        s.sendto(str(R).encode(), A)\n"
            "        if R == 5 and i == 3:\n            load_next()\n        time.sleep(0.2)\n"
        },
        wanted=("worker 5 missed 3 heartbeats", *HUNG),
        helpful=(r"rank 5|worker 5|load_next",),
        misleading=(r"memory|pip",),
    ),
    Failure(
        name="all-ranks-lack-module",
        way="every rank lacks a package",
        convention="process",
        processes=3,
        code="environment",
        rank=0,
        also=(1, 2),
        command="python train.py",
        files={"train.py": "import os\nimport webdataset as wds\n"},
        wanted="ModuleNotFoundError: No module named 'webdataset'",
        helpful=(r"webdataset",),
        misleading=(r"network|memory|NCCL",),
    ),
    Failure(
        name="one-node-lacks-data",
        way="the data is on one node alone",
        convention="process",
        processes=4,
        nodes=2,
        code="data_unavailable",
        also_codes=("exception",),
        rank=2,
        also=(3,),
        command="python train.py",
        files=star(
            "from pathlib import Path\nPath('local0').mkdir(exist_ok=True)\nPath('local0/index.json').write_text('{}')\n"
            "c = Star()\nroot = f\"local{os.environ['NODE_RANK']}\"\ntime.sleep(0.2)\nopen(f'{root}/index.json').read()\nc.total(1)\n"
        ),
        wanted="No such file or directory: 'local1/index.json'",
        helpful=(r"local1|index\.json|node-1|node 1",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="one-shard-corrupt",
        way="one rank's shard holds a bad record, others wait",
        convention="process",
        processes=8,
        code="exception",
        rank=6,
        command="python train.py",
        files=star(
            "c = Star()\nlines = ['{\"x\": 1}'] * 3\nif RANK == 6:\n    lines[2] = '{\"x\": 1'\n"
            "class BadRecord(Exception):\n    pass\n"
            "for n, line in enumerate(lines):\n    try:\n        c.total(json.loads(line)['x'])\n    except ValueError as error:\n"
            "        raise BadRecord(f'part-{RANK:05}.jsonl line {n + 1}') from error\n"
        ),
        wanted=("Expecting ',' delimiter: line 1 column 8", "BadRecord: part-00006.jsonl line 3"),
        helpful=(r"part-00006|train\.py",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="one-rank-disk-full",
        way="one rank's checkpoint finds no space",
        convention="process",
        processes=3,
        code="disk_full",
        rank=1,
        command="python train.py",
        files=star(
            "import shutil\nc = Star()\nc.total(1)\nif RANK == 1:\n    os.symlink('/dev/full', 'optim_1.bin')\n"
            "with open(f'optim_{RANK}.bin', 'wb') as f:\n    f.write(bytes(100_000))\nc.total(1)\n"
        ),
        wanted="No space left on device",
        helpful=(r"disk|space|optim_1|muster rm",),
        misleading=(r"out of memory|pip|firewall",),
    ),
    Failure(
        name="one-rank-exit-message",
        way="one rank leaves with code 3 and a message, the others print tracebacks on SIGTERM",
        convention="process",
        processes=4,
        code="exit_code",
        rank=1,
        command="python -u train.py",
        files={
            "train.py": "import os, signal, sys, time\n"
            "class Stopped(Exception):\n    pass\ndef on_term(*_):\n    raise Stopped('SIGTERM received, saving')\n"
            "signal.signal(signal.SIGTERM, on_term)\nif os.environ['RANK'] == '1':\n    time.sleep(0.5)\n"
            "    print('error: tokenizer hash 9f3e differs from that of the checkpoint (77ab)', file=sys.stderr)\n    sys.exit(3)\n"
            "for i in range(100):\n    time.sleep(0.2)\n"
        },
        wanted="error: tokenizer hash 9f3e differs from that of the checkpoint (77ab)",
        helpful=(r"tokenizer|checkpoint",),
        misleading=(r"memory|pip|firewall|SIGTERM",),
    ),
    Failure(
        name="world-size-assertion",
        way="every rank finds that the world size does not fit",
        convention="process",
        processes=3,
        code="exception",
        also_codes=("bad_input",),
        rank=0,
        also=(1, 2),
        command="python train.py --tp 2",
        files={
            "train.py": "import os, sys\nworld, tp = int(os.environ['WORLD_SIZE']), int(sys.argv[2])\n"
            "if world % tp:\n    raise RuntimeError(f'world size {world} is not divisible by tensor parallel size {tp}')\n"
        },
        wanted="RuntimeError: world size 3 is not divisible by tensor parallel size 2",
        helpful=(r"--tp|tensor parallel|world size|process count|--procs",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="local-rank-without-device",
        way="the last local rank finds no device in the list",
        convention="process",
        processes=4,
        code="exception",
        rank=3,
        command="python train.py",
        files=files(
            "devices = ['0', '1', '2']\nbarrier('a', 8)\nmine = devices[int(os.environ['LOCAL_RANK'])]\nprint('on device', mine, flush=True)\nbarrier('b', 5)\n"
        ),
        wanted="IndexError: list index out of range",
        helpful=(r"LOCAL_RANK|devices|process count|train\.py|--procs",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="error-flag-all-raise",
        way="one rank logs its error; then all raise because a flag is set",
        convention="process",
        processes=4,
        code="exception",
        rank=2,
        command="python train.py",
        files=star(
            "import logging\nlogging.basicConfig(format=f'%(levelname)s rank{RANK} %(message)s')\nc = Star()\nflag = 0\ntry:\n"
            "    if RANK == 2:\n        raise PermissionError(13, 'Permission denied', '/scratch/tmp/cache.lock')\nexcept OSError:\n"
            "    logging.exception('evaluation failed')\n    flag = 1\nif c.total(flag):\n    raise RuntimeError('evaluation failed on at least one rank, see its log')\n"
        ),
        wanted="PermissionError: [Errno 13] Permission denied: '/scratch/tmp/cache.lock'",
        helpful=(r"cache\.lock|/scratch|permission",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="error-flag-without-traceback",
        way="one rank prints one line; then all exit 1 because a flag is set",
        convention="process",
        processes=5,
        code="exit_code",
        also_codes=("exception",),
        rank=3,
        command="python train.py",
        files=star(
            "import sys\nc = Star()\nbad = RANK == 3\nif bad:\n    print('ERROR checksum of shard 3/0007.tar is wrong: 0x5f31, manifest has 0x11aa', flush=True)\n"
            "if c.total(int(bad)):\n    print('another rank failed, leaving', flush=True)\n    sys.exit(1)\n"
        ),
        wanted="ERROR checksum of shard 3/0007.tar is wrong: 0x5f31, manifest has 0x11aa",
        helpful=(r"0007\.tar|checksum|shard",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="limit-with-hung-rank",
        way="the time limit passes while three wait for one",
        convention="process",
        processes=4,
        code="timeout",
        also_codes=("collective",),
        rank=3,
        limit_s=4.0,
        command="python train.py",
        files=star(
            "c = Star()\ndef read_next():\n    os.mkfifo('pipe')\n    return open('pipe').read()\nfor step in range(5):\n    print('step', step, c.total(1), flush=True)\n"
            "if RANK == 3:\n    read_next()\nc.total(1)\n"
        ),
        wanted=(*HUNG, "read_next"),
        helpful=(r"rank 3|read_next",),
        misleading=(r"memory|pip|firewall|raise .{0,20}limits\.timeout",),
    ),
    Failure(
        name="limit-with-rank-that-left",
        way="one rank stops early with code 0; the others wait until the limit",
        convention="process",
        processes=3,
        code="timeout",
        also_codes=("collective",),
        rank=1,
        limit_s=4.0,
        command="python train.py",
        files=files(
            "barrier('s', 10)\nif RANK == 1:\n    print('early stopping: no improvement for 3 epochs', flush=True)\n    raise SystemExit(0)\nbarrier('e', 500)\n"
        ),
        wanted=(*LEFT, "early stopping"),
        helpful=(r"rank 1|early stopping|all ranks",),
        misleading=(r"memory|pip|firewall|raise .{0,20}limits\.timeout",),
    ),
    Failure(
        name="limit-with-earlier-traceback",
        way="one rank raised, but a thread keeps its process alive until the limit",
        convention="process",
        processes=4,
        code="exception",
        also_codes=("timeout",),
        rank=2,
        limit_s=4.0,
        command="python train.py",
        files=files(
            "import threading\nbarrier('s', 10)\nthreading.Thread(target=lambda: time.sleep(600)).start() if RANK == 2 else None\n"
            "if RANK == 2:\n    config = {}\n    print(config['num_labels'])\nbarrier('e', 500)\n"
        ),
        wanted="KeyError: 'num_labels'",
        helpful=(r"num_labels|train\.py",),
        misleading=(r"memory|pip|firewall|raise .{0,20}limits\.timeout",),
    ),
    Failure(
        name="limit-passes-for-a-gang",
        way="the limit passes while all make progress",
        convention="process",
        processes=4,
        code="timeout",
        rank=None,
        limit_s=4.0,
        command="python -u train.py",
        files=star("c = Star()\nfor step in range(100000):\n    time.sleep(0.05)\n    n = c.total(1)\n    if RANK == 0:\n        print('step', step, 'sum', n)\n"),
        wanted=("time limit", "limits.timeout", "timed out", "4 s", "4.0 s", "did not end"),
        helpful=(r"limits\.timeout|--timeout|checkpoint|longer",),
        misleading=(r"memory|pip|firewall|hung",),
    ),
    Failure(
        name="grpc-server-raises",
        way="the parameter server raises; workers get UNAVAILABLE",
        convention="process",
        processes=3,
        code="exception",
        rank=0,
        command="python -u train.py",
        files={
            "train.py": "import os, sys, time\nfrom concurrent import futures\nimport grpc\nR = int(os.environ['RANK'])\nA = f\"127.0.0.1:{os.environ['MASTER_PORT']}\"\n"
            "count = 0\ndef push(request, context):\n    global count\n    count += 1\n    return b'ok'\n"
            "if R == 0:\n    h = grpc.method_handlers_generic_handler('PS', {'Push': grpc.unary_unary_rpc_method_handler(push)})\n"
            "    s = grpc.server(futures.ThreadPoolExecutor(4)); s.add_generic_rpc_handlers((h,)); s.add_insecure_port(A); s.start()\n"
            "    while count < 20:\n        time.sleep(0.05)\n    decay = 10.0 ** 400\n"
            "else:\n    ch = grpc.insecure_channel(A)\n    call = ch.unary_unary('/PS/Push')\n    for i in range(10000):\n        call(b'grad', wait_for_ready=i == 0)\n        time.sleep(0.02)\n"
        },
        wanted="OverflowError: (34, 'Numerical result out of range')",
        helpful=(r"train\.py", r"decay|10\.0 \*\* 400"),
        misleading=(r"memory|pip|firewall|UNAVAILABLE",),
    ),
    Failure(
        name="grpc-deadline-hung-server",
        way="workers' deadlines pass because the server hangs",
        convention="process",
        processes=3,
        code="collective",
        also_codes=("exception",),
        rank=0,
        command="python -u train.py",
        files={
            "train.py": "import os, threading, time\nfrom concurrent import futures\nimport grpc\nR = int(os.environ['RANK'])\nA = f\"127.0.0.1:{os.environ['MASTER_PORT']}\"\n"
            "lock = threading.Lock()\ndef pull(request, context):\n    with lock:\n        return b'weights'\n"
            "def merge():\n    with lock:\n        time.sleep(600)\n"
            "if R == 0:\n    h = grpc.method_handlers_generic_handler('PS', {'Pull': grpc.unary_unary_rpc_method_handler(pull)})\n"
            "    s = grpc.server(futures.ThreadPoolExecutor(4)); s.add_generic_rpc_handlers((h,)); s.add_insecure_port(A); s.start()\n    time.sleep(1)\n    merge()\n"
            "else:\n    call = grpc.insecure_channel(A).unary_unary('/PS/Pull')\n    while True:\n        call(b'', wait_for_ready=True, timeout=3)\n        time.sleep(0.05)\n"
        },
        wanted=(*HUNG, "Deadline Exceeded", "merge"),
        helpful=(r"rank 0|merge|train\.py|lock",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="ring-peer-vanishes",
        way="a ring of sockets; one rank exits with os._exit(0)",
        convention="process",
        processes=4,
        code="collective",
        also_codes=("exception",),
        rank=2,
        command="python -u train.py",
        files={
            "train.py": "import os, socket, sys, time\nR, W, P = int(os.environ['RANK']), int(os.environ['WORLD_SIZE']), int(os.environ['MASTER_PORT'])\n"
            "server = socket.create_server(('127.0.0.1', 20000 + (P + R) % 10000))\n"
            "right = None\nwhile right is None:\n    try:\n        right = socket.create_connection(('127.0.0.1', 20000 + (P + (R + 1) % W) % 10000))\n"
            "    except ConnectionRefusedError:\n        time.sleep(0.05)\nleft, _ = server.accept()\n"
            "def exchange(data):\n    right.sendall(data)\n    got = left.recv(len(data), socket.MSG_WAITALL)\n    if len(got) < len(data):\n"
            "        raise ConnectionError(f'ring broken: rank {(R - 1) % W} sent {len(got)} of {len(data)} bytes')\n    return got\n"
            "for step in range(10):\n    exchange(b'g' * 1000)\n    if R == 2 and step == 5:\n        print('max steps reached')\n        os._exit(0)\n    time.sleep(0.05)\n"
        },
        wanted=(*LEFT, "ring broken: rank 2 sent 0 of 1000 bytes", "max steps reached"),
        helpful=(r"rank 2",),
        misleading=(r"memory|pip|firewall|interface",),
    ),
    Failure(
        name="chinese-exception-in-gang",
        way="one rank raises with a Chinese message",
        convention="process",
        processes=3,
        code="exception",
        rank=1,
        command="python train.py",
        files=star("c = Star()\nc.total(1)\nif RANK == 1:\n    raise ValueError('第 17 行的标签无效:期望 0-9,得到 12')\nc.total(1)\n"),
        wanted="ValueError: 第 17 行的标签无效:期望 0-9,得到 12",
        helpful=(r"train\.py|17",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="exception-group-in-gang",
        way="one rank raises an exception group",
        convention="process",
        processes=3,
        code="exception",
        rank=0,
        command="python train.py",
        files=star(
            "import asyncio\nc = Star()\nasync def part(n):\n    await asyncio.sleep(0.01)\n    if n == 2:\n        raise OSError(5, 'Input/output error', 'part2.arrow')\n"
            "async def load():\n    async with asyncio.TaskGroup() as g:\n        for n in range(4):\n            g.create_task(part(n))\n"
            "c.total(1)\nif RANK == 0:\n    asyncio.run(load())\nc.total(1)\n"
        ),
        wanted="OSError: [Errno 5] Input/output error: 'part2.arrow'",
        also_codes=("data_unavailable",),
        helpful=(r"part2\.arrow|train\.py",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="abort-one-of-3",
        way="one rank aborts in C++",
        convention="process",
        processes=3,
        code="signal",
        rank=2,
        command="./run.sh",
        files=star(
            "import ctypes\nc = Star()\nc.total(1)\nif RANK == 2:\n    ctypes.CDLL('./libq2.so').quant(5)\nc.total(1)\n",
            **{
                "q.cpp": '#include <stdexcept>\n#include <string>\nextern "C" void quant(int b) { throw std::runtime_error("quant: " + std::to_string(b) + " bits are not supported"); }\n',
                "run.sh": "#!/bin/bash\ng++ -shared -fPIC -o libq$RANK.so q.cpp && exec python train.py\n",
            },
        ),
        wanted="quant: 5 bits are not supported",
        helpful=(r"quant|bits|q\.cpp|libq",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="one-node-lacks-module",
        way="a module is missing on the second node alone",
        convention="process",
        processes=4,
        nodes=2,
        code="environment",
        rank=2,
        also=(3,),
        command="if [ $NODE_RANK = 0 ]; then export PYTHONPATH=$PYTHONPATH:extra; fi; exec python train.py",
        files=star("time.sleep(0.3)\nimport fastops\nc = Star()\nc.total(1)\n", **{"extra/fastops.py": "x = 1\n"}),
        wanted="No module named 'fastops'",
        helpful=(r"fastops|node-1|node 1",),
        misleading=(r"memory|firewall|NCCL",),
    ),
    Failure(
        name="wrong-port-on-one-node",
        way="the second node connects to another port",
        convention="process",
        processes=4,
        nodes=2,
        code="rendezvous",
        also_codes=("exception",),
        rank=2,
        also=(3,),
        command="if [ $NODE_RANK = 1 ]; then export MASTER_PORT=1099; fi; exec python train.py",
        files={
            "star.py": STAR.replace("range(400)", "range(40)"),
            "train.py": "from star import *\nc = Star(timeout=30)\nprint(c.total(1))\n",
        },
        wanted=("no coordinator at 127.0.0.1:1099", "Connection refused"),
        helpful=(r"1099|MASTER_PORT",),
        misleading=(r"memory|pip",),
    ),
    Failure(
        name="flood-from-the-others",
        way="the others print a lot while one has raised",
        convention="process",
        processes=3,
        code="exception",
        rank=1,
        command="python -u train.py",
        files={
            "train.py": "import os, sys, time\nif os.environ['RANK'] == '1':\n    time.sleep(0.5)\n    raise LookupError('no checkpoint matches step=20000')\n"
            "end = time.monotonic() + 4\ni = 0\nwhile time.monotonic() < end:\n    i += 1\n    print(f'W batch {i}: Error: sample skipped: bad aspect ratio')\n    time.sleep(0.0005)\n"
        },
        wanted="LookupError: no checkpoint matches step=20000",
        helpful=(r"step=20000|checkpoint|train\.py",),
        misleading=(r"memory|pip|firewall|aspect ratio",),
    ),
    Failure(
        name="argparse-in-all-ranks",
        way="every rank rejects an option",
        convention="process",
        processes=4,
        code="exit_code",
        also_codes=("bad_input",),
        rank=0,
        also=(1, 2, 3),
        command="python train.py --fp16 yes",
        files={"train.py": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--fp16', action='store_true')\np.parse_args()\n"},
        wanted="error: unrecognized arguments: yes",
        helpful=(r"--fp16|\byes\b",),
        misleading=(r"memory|pip|firewall",),
    ),
    Failure(
        name="signal-handler-hides-first-cause",
        way="ranks end each other with SIGUSR1 after one raised",
        convention="process",
        processes=4,
        code="exception",
        rank=3,
        command="python -u train.py",
        files=files(
            "import signal, sys\nopen(f'pid.{RANK}', 'w').write(str(os.getpid()))\nbarrier('p', 8)\n"
            "def hook(kind, value, tb):\n    sys.__excepthook__(kind, value, tb)\n    for r in range(WORLD):\n        if r != RANK:\n"
            "            os.kill(int(open(f'pid.{r}').read()), signal.SIGUSR1)\n    time.sleep(0.2)\nsys.excepthook = hook\n"
            "if RANK == 3:\n    [].pop()\nbarrier('q', 30)\n"
        ),
        wanted="IndexError: pop from empty list",
        helpful=(r"train\.py|pop",),
        misleading=(r"memory|pip|firewall|SIGUSR1",),
    ),
]
