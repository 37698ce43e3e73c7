"""Gangs of Python processes that talk to each other by hand: sockets, files, gRPC; no torch."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "does not respond", "not respond")
LEFT = ("code 0", "exited early", "ended early", "left early", "finished before", "had ended")
STAR = """\
import json, os, socket, struct, time

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
    \"\"\"Rank 0 adds what all others send.\"\"\"

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
"""
FILES = """\
import os, pathlib, time

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
"""

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
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
import time
c = Star(timeout=2)
for step in range(3):
    print('sum', c.total(step), flush=True)
def compact():
    time.sleep(600)
if RANK == 2:
    compact()
c.total(1)
""",
        },
        wanted=(
            *HUNG,
            "compact",
        ),
        helpful=(
            "rank 2",
            r"compact|train\.py",
        ),
        misleading=(r"firewall|memory|\bpip\b|rank [013]\b.{0,20}(hung|hang|not respond)",),
    ),
    Failure(
        name="star-hung-hub-of-3",
        way="the coordinator itself hangs; the workers time out",
        convention="process",
        processes=3,
        code="collective",
        also_codes=("exception",),
        command="python train.py",
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
import subprocess
c = Star(timeout=2)
c.total(1)
def checkpoint():
    subprocess.run(['sleep', '600'])
if RANK == 0:
    print('saving', flush=True)
    checkpoint()
c.total(2)
""",
        },
        wanted=(
            *HUNG,
            "checkpoint",
        ),
        helpful=(
            "rank 0",
            r"checkpoint|subprocess|train\.py",
        ),
        misleading=(r"firewall|memory|\bpip\b",),
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
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
c = Star()
batches = 4 if RANK == 3 else 6
for step in range(batches):
    c.total(step)
print('rank', RANK, 'finished')
""",
        },
        wanted=(
            *LEFT,
            "the other side closed the connection",
        ),
        helpful=(
            "rank 3",
            "batches|drop_last|same number|uneven",
        ),
        misleading=(r"firewall|memory|\bpip\b|interface",),
    ),
    Failure(
        name="star-worker-raises",
        way="a worker raises; the hub sees its connection close",
        convention="process",
        processes=4,
        code="exception",
        rank=3,
        command="python -u train.py",
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
c = Star()
targets = {0: 'cat', 1: 'dog'}
for step in range(5):
    c.total(step)
    if RANK == 3 and step == 2:
        print(targets[7])
""",
        },
        wanted="KeyError: 7",
        helpful=(
            r"train\.py",
            "targets|rank 3",
        ),
        misleading=(r"firewall|memory|\bpip\b|closed the connection",),
    ),
    Failure(
        name="star-victims-fail-first",
        way="the culprit takes long to exit; the hub fails before it does",
        convention="process",
        processes=4,
        code="exception",
        rank=1,
        command="python -u train.py",
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
import atexit
c = Star()
c.total(1)
if RANK == 1:
    atexit.register(lambda: (print('uploading logs'), time.sleep(0.4), print('upload done')))
    try:
        lr = float('1e-3x')
    finally:
        c.hub.close()
c.total(2)
""",
        },
        wanted="ValueError: could not convert string to float: '1e-3x'",
        helpful=(
            r"train\.py",
            r"1e-3x|\blr\b",
        ),
        misleading=(r"firewall|memory|\bpip\b|network",),
    ),
    Failure(
        name="star-segv-one-of-6",
        way="a native crash of one worker",
        convention="process",
        processes=6,
        code="signal",
        rank=4,
        command="python train.py",
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
import ctypes
c = Star()
c.total(1)
if RANK == 4:
    ctypes.string_at(1)
c.total(2)
""",
        },
        wanted=(
            "SIGSEGV",
            "Segmentation fault",
            "signal 11",
        ),
        helpful=("faulthandler|native|rank 4",),
        misleading=(r"firewall|memory limit|\bpip\b|smaller batch",),
    ),
    Failure(
        name="star-sigkill-one-of-3",
        way="somebody kills one worker",
        convention="process",
        processes=3,
        code="signal",
        rank=2,
        command="python train.py",
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
c = Star()
c.total(1)
if RANK == 2:
    os.system(f'sh -c "kill -KILL {os.getpid()}"')
c.total(2)
""",
        },
        wanted=(
            "SIGKILL",
            "Killed",
            "signal 9",
        ),
        helpful=("SIGKILL|kill|rank 2",),
        misleading=(r"firewall|\bpip\b|faulthandler",),
    ),
    Failure(
        name="star-oom-one-of-3",
        way="the kernel ends one worker for lack of memory",
        convention="process",
        processes=3,
        code="host_oom",
        rank=1,
        command="./rank.sh",
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
c = Star()
c.total(1)
if RANK == 1:
    cache = []
    while True:
        cache.append(bytearray(4 << 20))
c.total(2)
""",
            "rank.sh": """\
#!/bin/bash
if [ $RANK = 1 ]; then
  g=/sys/fs/cgroup/memory/job-$$; mkdir $g; echo 70M > $g/memory.limit_in_bytes; echo $$ > $g/cgroup.procs
fi
exec python train.py
""",
        },
        wanted=("memory",),
        helpful=(r"memory|cache|train\.py",),
        misleading=(r"firewall|\bpip\b|faulthandler|network",),
    ),
    Failure(
        name="star-hub-port-taken",
        way="the port of the coordinator is fixed and taken",
        convention="process",
        processes=3,
        code="port_trouble",
        command="python train.py",
        files={
            "train.py": """\
import os, socket, time
RANK = int(os.environ['RANK'])
PORT = 23456
if RANK == 0:
    sidecar = socket.create_server(('127.0.0.1', PORT))
    hub = socket.create_server(('127.0.0.1', PORT))
else:
    time.sleep(0.3)
    s = socket.create_connection(('127.0.0.1', PORT), timeout=5)
    print(s.recv(1))
"""
        },
        wanted="Address already in use",
        helpful=(r"23456|MASTER_PORT|train\.py",),
        misleading=(r"firewall|memory|\bpip\b",),
    ),
    Failure(
        name="star-coordinator-name-unknown",
        way="MASTER_ADDR is a name that nobody knows",
        convention="process",
        processes=3,
        code="rendezvous",
        also_codes=(
            "exception",
            "bad_input",
        ),
        also=(
            1,
            2,
        ),
        variables={"MASTER_ADDR": "trainer-0.invalid"},
        command="python train.py",
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
c = Star(timeout=2)
print(c.total(1))
""",
        },
        wanted=(
            "Name or service not known",
            "Temporary failure in name resolution",
            "gaierror",
        ),
        helpful=("MASTER_ADDR|trainer-0",),
        misleading=(r"memory|\bpip\b",),
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
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
def unpack():
    time.sleep(300)
print('rank', RANK, flush=True)
if RANK == 1:
    print('unpacking images', flush=True)
    unpack()
c = Star(timeout=2)
print(c.total(1))
""",
        },
        wanted=(
            *HUNG,
            "late",
            "unpack",
            "did not join",
            "missing",
        ),
        helpful=(
            "rank 1",
            r"unpack|train\.py",
        ),
        misleading=(r"firewall|memory|\bpip\b",),
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
        files={
            "sync.py": FILES,
            "train.py": """\
from sync import *
barrier('start')
print('started', flush=True)
if RANK == 4:
    import threading
    threading.Event().wait()
barrier('epoch1')
""",
        },
        wanted=(
            *HUNG,
            "4 of 5 ranks arrived in time",
        ),
        helpful=(
            "rank 4",
            r"train\.py",
        ),
        misleading=(r"firewall|memory|\bpip\b|rank [0123] (hung|did not)",),
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
            "sync.py": """\
import os, pathlib, time

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


MESSAGE = "barrier {name}: only ranks {here} arrived"
""",
            "train.py": """\
from sync import *
barrier('start', 6)
print('epoch 0', flush=True)
def tokenize():
    while True:
        time.sleep(0.1)
if RANK == 5:
    tokenize()
barrier('epoch0')
""",
        },
        wanted=(
            *HUNG,
            "only ranks [0, 1, 2, 3, 4, 6, 7] arrived",
            "tokenize",
        ),
        helpful=(
            "rank 5",
            r"tokenize|train\.py",
        ),
        misleading=(r"firewall|memory|\bpip\b",),
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
        files={
            "sync.py": FILES,
            "train.py": """\
from sync import *
MESSAGE = ''
import sync
sync.MESSAGE = 'rendezvous: {count} of {world} workers registered within 2 s'
def stage_in():
    time.sleep(100)
if os.environ['NODE_RANK'] == '1':
    print('copying data set to local disk', flush=True)
    stage_in()
barrier('init')
""",
        },
        wanted=(
            *HUNG,
            "rendezvous: 2 of 4 workers registered",
            "late",
            "stage_in",
        ),
        helpful=("rank 2|rank 3|node-1|stage_in",),
        misleading=(r"memory|\bpip\b",),
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
            "train.py": """\
import os, socket, sys, time
R, W = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
A = ('127.0.0.1', int(os.environ['MASTER_PORT']))
def load_next():
    time.sleep(1000)
if R == 0:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(A)
    s.settimeout(0.2)
    seen = {}
    while True:
        try:
            r = int(s.recv(16)); seen[r] = time.monotonic()
        except socket.timeout:
            pass
        for r, t in seen.items():
            if time.monotonic() - t > 1.5:
                print(f'[coordinator] ERROR worker {r} missed 3 heartbeats, aborting the job', file=sys.stderr)
                sys.exit(13)
else:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    time.sleep(0.5)
    for i in range(1000):
        s.sendto(str(R).encode(), A)
        if R == 5 and i == 3:
            load_next()
        time.sleep(0.2)
"""
        },
        wanted=(
            *HUNG,
            "worker 5 missed 3 heartbeats",
        ),
        helpful=("rank 5|worker 5|load_next",),
        misleading=(r"memory|\bpip\b",),
    ),
    Failure(
        name="all-ranks-lack-module",
        way="every rank lacks a package",
        convention="process",
        processes=3,
        code="environment",
        also=(
            1,
            2,
        ),
        command="python train.py",
        files={
            "train.py": """\
import os
import webdataset as wds
"""
        },
        wanted="ModuleNotFoundError: No module named 'webdataset'",
        helpful=("webdataset",),
        misleading=("network|memory|NCCL",),
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
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
from pathlib import Path
Path('local0').mkdir(exist_ok=True)
Path('local0/index.json').write_text('{}')
c = Star()
root = f"local{os.environ['NODE_RANK']}"
time.sleep(0.2)
open(f'{root}/index.json').read()
c.total(1)
""",
        },
        wanted="No such file or directory: 'local1/index.json'",
        helpful=(r"local1|index\.json|node-1|node 1",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="one-shard-corrupt",
        way="one rank's shard holds a bad record, others wait",
        convention="process",
        processes=8,
        code="exception",
        rank=6,
        command="python train.py",
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
c = Star()
lines = ['{"x": 1}'] * 3
if RANK == 6:
    lines[2] = '{"x": 1'
class BadRecord(Exception):
    pass
for n, line in enumerate(lines):
    try:
        c.total(json.loads(line)['x'])
    except ValueError as error:
        raise BadRecord(f'part-{RANK:05}.jsonl line {n + 1}') from error
""",
        },
        wanted=(
            "Expecting ',' delimiter: line 1 column 8",
            "BadRecord: part-00006.jsonl line 3",
        ),
        helpful=(r"part-00006|train\.py",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="one-rank-disk-full",
        way="one rank's checkpoint finds no space",
        convention="process",
        processes=3,
        code="disk_full",
        rank=1,
        command="python train.py",
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
import shutil
c = Star()
c.total(1)
if RANK == 1:
    os.symlink('/dev/full', 'optim_1.bin')
with open(f'optim_{RANK}.bin', 'wb') as f:
    f.write(bytes(100_000))
c.total(1)
""",
        },
        wanted="No space left on device",
        helpful=("disk|space|optim_1|muster rm",),
        misleading=(r"out of memory|\bpip\b|firewall",),
    ),
    Failure(
        name="one-rank-exit-message",
        way=("one rank leaves with code 3 and a message, the others print tracebacks on SIGTERM"),
        convention="process",
        processes=4,
        code="exit_code",
        rank=1,
        command="python -u train.py",
        files={
            "train.py": """\
import os, signal, sys, time
class Stopped(Exception):
    pass
def on_term(*_):
    raise Stopped('SIGTERM received, saving')
signal.signal(signal.SIGTERM, on_term)
if os.environ['RANK'] == '1':
    time.sleep(0.5)
    print('error: tokenizer hash 9f3e differs from that of the checkpoint (77ab)', file=sys.stderr)
    sys.exit(3)
for i in range(100):
    time.sleep(0.2)
"""
        },
        wanted="error: tokenizer hash 9f3e differs from that of the checkpoint (77ab)",
        helpful=("tokenizer|checkpoint",),
        misleading=(r"memory|\bpip\b|firewall|SIGTERM",),
    ),
    Failure(
        name="world-size-assertion",
        way="every rank finds that the world size does not fit",
        convention="process",
        processes=3,
        code="exception",
        also_codes=("bad_input",),
        also=(
            1,
            2,
        ),
        command="python train.py --tp 2",
        files={
            "train.py": """\
import os, sys
world, tp = int(os.environ['WORLD_SIZE']), int(sys.argv[2])
if world % tp:
    raise RuntimeError(f'world size {world} is not divisible by tensor parallel size {tp}')
"""
        },
        wanted="RuntimeError: world size 3 is not divisible by tensor parallel size 2",
        helpful=("--tp|tensor parallel|world size|process count|--procs",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="local-rank-without-device",
        way="the last local rank finds no device in the list",
        convention="process",
        processes=4,
        code="exception",
        rank=3,
        command="python train.py",
        files={
            "sync.py": FILES,
            "train.py": """\
from sync import *
devices = ['0', '1', '2']
barrier('a', 8)
mine = devices[int(os.environ['LOCAL_RANK'])]
print('on device', mine, flush=True)
barrier('b', 5)
""",
        },
        wanted="IndexError: list index out of range",
        helpful=(r"LOCAL_RANK|devices|process count|train\.py|--procs",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="error-flag-all-raise",
        way="one rank logs its error; then all raise because a flag is set",
        convention="process",
        processes=4,
        code="exception",
        rank=2,
        command="python train.py",
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
import logging
logging.basicConfig(format=f'%(levelname)s rank{RANK} %(message)s')
c = Star()
flag = 0
try:
    if RANK == 2:
        raise PermissionError(13, 'Permission denied', '/scratch/tmp/cache.lock')
except OSError:
    logging.exception('evaluation failed')
    flag = 1
if c.total(flag):
    raise RuntimeError('evaluation failed on at least one rank, see its log')
""",
        },
        wanted="PermissionError: [Errno 13] Permission denied: '/scratch/tmp/cache.lock'",
        helpful=(r"cache\.lock|/scratch|permission",),
        misleading=(r"memory|\bpip\b|firewall",),
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
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
import sys
c = Star()
bad = RANK == 3
if bad:
    print('ERROR checksum of shard 3/0007.tar is wrong: 0x5f31, manifest has 0x11aa', flush=True)
if c.total(int(bad)):
    print('another rank failed, leaving', flush=True)
    sys.exit(1)
""",
        },
        wanted="ERROR checksum of shard 3/0007.tar is wrong: 0x5f31, manifest has 0x11aa",
        helpful=(r"0007\.tar|checksum|shard",),
        misleading=(r"memory|\bpip\b|firewall",),
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
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
c = Star()
def read_next():
    os.mkfifo('pipe')
    return open('pipe').read()
for step in range(5):
    print('step', step, c.total(1), flush=True)
if RANK == 3:
    read_next()
c.total(1)
""",
        },
        wanted=(
            *HUNG,
            "read_next",
        ),
        helpful=("rank 3|read_next",),
        misleading=(r"memory|\bpip\b|firewall|raise .{0,20}limits\.timeout",),
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
        files={
            "sync.py": FILES,
            "train.py": """\
from sync import *
barrier('s', 10)
if RANK == 1:
    print('early stopping: no improvement for 3 epochs', flush=True)
    raise SystemExit(0)
barrier('e', 500)
""",
        },
        wanted=(
            *LEFT,
            "early stopping",
        ),
        helpful=("rank 1|early stopping|all ranks",),
        misleading=(r"memory|\bpip\b|firewall|raise .{0,20}limits\.timeout",),
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
        files={
            "sync.py": FILES,
            "train.py": """\
from sync import *
import threading
barrier('s', 10)
threading.Thread(target=lambda: time.sleep(600)).start() if RANK == 2 else None
if RANK == 2:
    config = {}
    print(config['num_labels'])
barrier('e', 500)
""",
        },
        wanted="KeyError: 'num_labels'",
        helpful=(r"num_labels|train\.py",),
        misleading=(r"memory|\bpip\b|firewall|raise .{0,20}limits\.timeout",),
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
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
c = Star()
for step in range(100000):
    time.sleep(0.05)
    n = c.total(1)
    if RANK == 0:
        print('step', step, 'sum', n)
""",
        },
        wanted=(
            "time limit",
            "limits.timeout",
            "timed out",
            "4 s",
            "4.0 s",
            "did not end",
        ),
        helpful=(r"limits\.timeout|--timeout|checkpoint|longer",),
        misleading=(r"memory|\bpip\b|firewall|hung",),
    ),
    Failure(
        name="grpc-server-raises",
        way="the parameter server raises; workers get UNAVAILABLE",
        convention="process",
        processes=3,
        code="exception",
        command="python -u train.py",
        files={
            "train.py": """\
import os, sys, time
from concurrent import futures
import grpc
R = int(os.environ['RANK'])
A = f"127.0.0.1:{os.environ['MASTER_PORT']}"
count = 0
def push(request, context):
    global count
    count += 1
    return b'ok'
if R == 0:
    h = grpc.method_handlers_generic_handler('PS', {'Push': grpc.unary_unary_rpc_method_handler(push)})
    s = grpc.server(futures.ThreadPoolExecutor(4)); s.add_generic_rpc_handlers((h,)); s.add_insecure_port(A); \
s.start()
    while count < 20:
        time.sleep(0.05)
    decay = 10.0 ** 400
else:
    ch = grpc.insecure_channel(A)
    call = ch.unary_unary('/PS/Push')
    for i in range(10000):
        call(b'grad', wait_for_ready=i == 0)
        time.sleep(0.02)
"""
        },
        wanted="OverflowError: (34, 'Numerical result out of range')",
        helpful=(
            r"train\.py",
            r"decay|10\.0 \*\* 400",
        ),
        misleading=(r"memory|\bpip\b|firewall|UNAVAILABLE",),
    ),
    Failure(
        name="grpc-deadline-hung-server",
        way="workers' deadlines pass because the server hangs",
        convention="process",
        processes=3,
        code="collective",
        also_codes=("exception",),
        command="python -u train.py",
        files={
            "train.py": """\
import os, threading, time
from concurrent import futures
import grpc
R = int(os.environ['RANK'])
A = f"127.0.0.1:{os.environ['MASTER_PORT']}"
lock = threading.Lock()
def pull(request, context):
    with lock:
        return b'weights'
def merge():
    with lock:
        time.sleep(600)
if R == 0:
    h = grpc.method_handlers_generic_handler('PS', {'Pull': grpc.unary_unary_rpc_method_handler(pull)})
    s = grpc.server(futures.ThreadPoolExecutor(4)); s.add_generic_rpc_handlers((h,)); s.add_insecure_port(A); \
s.start()
    time.sleep(1)
    merge()
else:
    call = grpc.insecure_channel(A).unary_unary('/PS/Pull')
    while True:
        call(b'', wait_for_ready=True, timeout=3)
        time.sleep(0.05)
"""
        },
        wanted=(
            *HUNG,
            "Deadline Exceeded",
            "merge",
        ),
        helpful=(r"rank 0|merge|train\.py|lock",),
        misleading=(r"memory|\bpip\b|firewall",),
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
            "train.py": """\
import os, socket, sys, time
R, W, P = int(os.environ['RANK']), int(os.environ['WORLD_SIZE']), int(os.environ['MASTER_PORT'])
server = socket.create_server(('127.0.0.1', 20000 + (P + R) % 10000))
right = None
while right is None:
    try:
        right = socket.create_connection(('127.0.0.1', 20000 + (P + (R + 1) % W) % 10000))
    except ConnectionRefusedError:
        time.sleep(0.05)
left, _ = server.accept()
def exchange(data):
    right.sendall(data)
    got = left.recv(len(data), socket.MSG_WAITALL)
    if len(got) < len(data):
        raise ConnectionError(f'ring broken: rank {(R - 1) % W} sent {len(got)} of {len(data)} bytes')
    return got
for step in range(10):
    exchange(b'g' * 1000)
    if R == 2 and step == 5:
        print('max steps reached')
        os._exit(0)
    time.sleep(0.05)
"""
        },
        wanted=(
            *LEFT,
            "ring broken: rank 2 sent 0 of 1000 bytes",
            "max steps reached",
        ),
        helpful=("rank 2",),
        misleading=(r"memory|\bpip\b|firewall|interface",),
    ),
    Failure(
        name="chinese-exception-in-gang",
        way="one rank raises with a Chinese message",
        convention="process",
        processes=3,
        code="exception",
        rank=1,
        command="python train.py",
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
c = Star()
c.total(1)
if RANK == 1:
    raise ValueError('第 17 行的标签无效:期望 0-9,得到 12')
c.total(1)
""",
        },
        wanted="ValueError: 第 17 行的标签无效:期望 0-9,得到 12",
        helpful=(r"train\.py|17",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="exception-group-in-gang",
        way="one rank raises an exception group",
        convention="process",
        processes=3,
        code="exception",
        also_codes=("data_unavailable",),
        command="python train.py",
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
import asyncio
c = Star()
async def part(n):
    await asyncio.sleep(0.01)
    if n == 2:
        raise OSError(5, 'Input/output error', 'part2.arrow')
async def load():
    async with asyncio.TaskGroup() as g:
        for n in range(4):
            g.create_task(part(n))
c.total(1)
if RANK == 0:
    asyncio.run(load())
c.total(1)
""",
        },
        wanted="OSError: [Errno 5] Input/output error: 'part2.arrow'",
        helpful=(r"part2\.arrow|train\.py",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="abort-one-of-3",
        way="one rank aborts in C++",
        convention="process",
        processes=3,
        code="signal",
        rank=2,
        command="./run.sh",
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
import ctypes
c = Star()
c.total(1)
if RANK == 2:
    ctypes.CDLL('./libq2.so').quant(5)
c.total(1)
""",
            "q.cpp": """\
#include <stdexcept>
#include <string>
extern "C" void quant(int b) { throw std::runtime_error("quant: " + std::to_string(b) + " bits are not \
supported"); }
""",
            "run.sh": """\
#!/bin/bash
g++ -shared -fPIC -o libq$RANK.so q.cpp && exec python train.py
""",
        },
        wanted="quant: 5 bits are not supported",
        helpful=(r"quant|bits|q\.cpp|libq",),
        misleading=(r"memory|\bpip\b|firewall",),
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
        command=("if [ $NODE_RANK = 0 ]; then export PYTHONPATH=$PYTHONPATH:extra; fi; exec python train.py"),
        files={
            "star.py": STAR,
            "train.py": """\
from star import *
time.sleep(0.3)
import fastops
c = Star()
c.total(1)
""",
            "extra/fastops.py": "x = 1\n",
        },
        wanted="No module named 'fastops'",
        helpful=("fastops|node-1|node 1",),
        misleading=("memory|firewall|NCCL",),
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
            "star.py": """\
import json, os, socket, struct, time

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
    \"\"\"Rank 0 adds what all others send.\"\"\"

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
            for _ in range(40):
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
""",
            "train.py": """\
from star import *
c = Star(timeout=30)
print(c.total(1))
""",
        },
        wanted=(
            "no coordinator at 127.0.0.1:1099",
            "Connection refused",
        ),
        helpful=("1099|MASTER_PORT",),
        misleading=(r"memory|\bpip\b",),
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
            "train.py": """\
import os, sys, time
if os.environ['RANK'] == '1':
    time.sleep(0.5)
    raise LookupError('no checkpoint matches step=20000')
end = time.monotonic() + 4
i = 0
while time.monotonic() < end:
    i += 1
    print(f'W batch {i}: Error: sample skipped: bad aspect ratio')
    time.sleep(0.0005)
"""
        },
        wanted="LookupError: no checkpoint matches step=20000",
        helpful=(r"step=20000|checkpoint|train\.py",),
        misleading=(r"memory|\bpip\b|firewall|aspect ratio",),
    ),
    Failure(
        name="argparse-in-all-ranks",
        way="every rank rejects an option",
        convention="process",
        processes=4,
        code="exit_code",
        also_codes=("bad_input",),
        also=(
            1,
            2,
            3,
        ),
        command="python train.py --fp16 yes",
        files={
            "train.py": """\
import argparse
p = argparse.ArgumentParser()
p.add_argument('--fp16', action='store_true')
p.parse_args()
"""
        },
        wanted="error: unrecognized arguments: yes",
        helpful=(r"--fp16|\byes\b",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="signal-handler-hides-first-cause",
        way="ranks end each other with SIGUSR1 after one raised",
        convention="process",
        processes=4,
        code="exception",
        rank=3,
        command="python -u train.py",
        files={
            "sync.py": FILES,
            "train.py": """\
from sync import *
import signal, sys
open(f'pid.{RANK}', 'w').write(str(os.getpid()))
barrier('p', 8)
def hook(kind, value, tb):
    sys.__excepthook__(kind, value, tb)
    for r in range(WORLD):
        if r != RANK:
            os.kill(int(open(f'pid.{r}').read()), signal.SIGUSR1)
    time.sleep(0.2)
sys.excepthook = hook
if RANK == 3:
    [].pop()
barrier('q', 30)
""",
        },
        wanted="IndexError: pop from empty list",
        helpful=(r"train\.py|pop",),
        misleading=(r"memory|\bpip\b|firewall|SIGUSR1",),
    ),
]
