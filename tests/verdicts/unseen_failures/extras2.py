"""More gangs and forms of output; plain Python."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "does not respond", "not respond")
LEFT = ("code 0", "exited early", "ended early", "left early", "finished before", "had ended")
PIPES = """\
import os, sys, time, threading
from multiprocessing.connection import Client, Listener
R, W = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
A = ('127.0.0.1', int(os.environ['MASTER_PORT']))
def join():
    if R == 0:
        listener = Listener(A, backlog=16)
        return [listener.accept() for _ in range(W - 1)]
    for _ in range(300):
        try:
            return [Client(A)]
        except ConnectionRefusedError:
            time.sleep(0.05)
links = join()
def gather(value):
    if R:
        links[0].send(value)
        return links[0].recv()
    values = [value] + [link.recv() for link in links]
    for link in links:
        link.send(values)
    return values
"""

FAILURES = [
    Failure(
        name="progress-line-glued",
        way="a progress line without an end stands before the traceback",
        code="exception",
        command="python -u prog.py",
        files={
            "prog.py": """\
import time
for i in range(60):
    print(f'\\r[{"=" * (i // 3):<20}] {i}/60 loss=0.{i:03}', end='')
    time.sleep(0.005)
    if i == 47:
        raise BufferError('ring buffer of 4096 tokens is full')
"""
        },
        wanted="BufferError: ring buffer of 4096 tokens is full",
        helpful=(r"prog\.py|ring buffer|4096",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="two-tracebacks-interleaved",
        way="two threads write their tracebacks at once; the main thread raises the second",
        code="exception",
        command="python -u twice.py",
        files={
            "twice.py": """\
from concurrent.futures import ThreadPoolExecutor
import logging, time
logging.basicConfig(format='%(asctime)s %(levelname)s %(message)s')
def read(n):
    try:
        if n == 1:
            raise TimeoutError('replica 1 is slow')
    except TimeoutError:
        logging.exception('falling back to replica 0')
        return 0
    if n == 3:
        raise ValueError('row group 3 has a negative length')
    return n
with ThreadPoolExecutor(2) as pool:
    print(sum(pool.map(read, range(5))))
"""
        },
        wanted="ValueError: row group 3 has a negative length",
        helpful=(r"twice\.py|row group 3",),
        misleading=(r"replica|slow|network|memory|\bpip\b",),
    ),
    Failure(
        name="bare-assert",
        way="an assertion without a message",
        code="exception",
        command="python bare.py",
        files={
            "bare.py": """\
def split(x, parts):
    assert len(x) % parts == 0
    return parts
split([1, 2, 3], 2)
"""
        },
        wanted=(
            "AssertionError",
            "assert len(x) % parts == 0",
        ),
        helpful=(r"bare\.py|parts",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="traceback-in-the-middle",
        way=("a traceback, then the process goes on and is ended by SIGKILL from its own supervisor"),
        convention="shell",
        code="signal",
        also_codes=("host_oom",),
        command="bash supervise.sh",
        files={
            "supervise.sh": """\
python -u serve.py &
pid=$!
sleep 1.2
echo "supervisor: memory of $pid is above 2 GB, killing it"
kill -9 $pid
wait $pid
""",
            "serve.py": """\
import time, traceback
try:
    {}['plugin']
except KeyError:
    traceback.print_exc()
    print('plugin is optional, going on')
for i in range(100):
    print('request', i)
    time.sleep(0.3)
""",
        },
        wanted=(
            "supervisor: memory of",
            "SIGKILL",
            "Killed",
        ),
        helpful=("supervis|memory|kill",),
        misleading=(r"plugin|KeyError|network|\bpip\b",),
    ),
    Failure(
        name="exit-code-255-ssh",
        way="ssh to a host that does not exist",
        convention="shell",
        code="exit_code",
        command="ssh -o BatchMode=yes -o ConnectTimeout=2 node-17.invalid python train.py",
        files={"train.py": "print(1)\n"},
        wanted="Could not resolve hostname node-17.invalid",
        helpful=("node-17|hostname",),
        misleading=(r"memory|\bpip\b|train\.py|NCCL",),
    ),
    Failure(
        name="docker-daemon-absent",
        way="a command that needs the Docker daemon",
        convention="shell",
        code="exit_code",
        also_codes=(
            "launcher_missing",
            "environment",
        ),
        command=("DOCKER_HOST=unix:///nonexistent/docker.sock docker run --rm pytorch/pytorch python train.py"),
        files={"train.py": "print(1)\n"},
        wanted="Cannot connect to the Docker daemon",
        helpful=("docker|daemon|container",),
        misleading=(r"memory|pip install",),
    ),
    Failure(
        name="java-npe-in-worker-thread",
        way="a Java thread dies, the program exits with 2",
        convention="shell",
        code="exit_code",
        also_codes=("exception",),
        command="java Pool.java",
        files={
            "Pool.java": """\
public class Pool {
  public static void main(String[] a) throws Exception {
    Thread t = new Thread(() -> { String s = System.getenv("SHARD_DIR"); System.out.println(s.length()); }, \
"loader-1");
    boolean[] bad = {false};
    t.setUncaughtExceptionHandler((x, e) -> { e.printStackTrace(); bad[0] = true; });
    t.start(); t.join();
    if (bad[0]) { System.err.println("1 of 1 loaders failed"); System.exit(2); }
  }
}
"""
        },
        wanted=(
            'java.lang.NullPointerException: Cannot invoke "String.length()"',
            "NullPointerException",
        ),
        helpful=("Pool|SHARD_DIR|loader",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="rust-index-panic-backtrace",
        way="a Rust panic with a backtrace",
        convention="shell",
        code="exit_code",
        also_codes=("exception",),
        command="/root/.cargo/bin/rustc -g -o bpe bpe.rs 2>/dev/null && RUST_BACKTRACE=1 ./bpe",
        files={
            "bpe.rs": """\
fn lookup(v: &[u32], i: usize) -> u32 {
    v[i]
}
fn main() {
    let n = std::env::args().count();
    println!("{}", lookup(&[1, 2, 3], n + 6));
}
"""
        },
        wanted="index out of bounds: the len is 3 but the index is 7",
        helpful=(r"bpe\.rs|lookup|index",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b|RUST_BACKTRACE",
        ),
    ),
    Failure(
        name="node-module-missing",
        way="Node.js lacks a package",
        convention="shell",
        code="environment",
        also_codes=(
            "exit_code",
            "exception",
        ),
        command="node viz.js",
        files={
            "viz.js": """\
const d3 = require('d3-array');
console.log(d3.max([1]));
"""
        },
        wanted="Cannot find module 'd3-array'",
        helpful=("d3-array|npm",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="pipes-eof-one-of-5-raises",
        way="multiprocessing.connection: one rank raises, the hub gets EOFError",
        convention="process",
        processes=5,
        code="exception",
        rank=3,
        command="python -u train.py",
        files={
            "train.py": PIPES
            + """\
gather(1)
if R == 3:
    stats = {'mean': 0.1}
    raise TypeError(f'std is missing in {stats}')
gather(2)
"""
        },
        wanted="TypeError: std is missing in {'mean': 0.1}",
        helpful=(r"train\.py|std",),
        misleading=(r"firewall|memory|\bpip\b",),
    ),
    Failure(
        name="pipes-one-leaves-of-4",
        way="multiprocessing.connection: one rank leaves with 0",
        convention="process",
        processes=4,
        code="collective",
        also_codes=("exception",),
        rank=2,
        command="python -u train.py",
        files={
            "train.py": PIPES
            + """\
for epoch in range(5):
    gather(epoch)
    if R == 2 and epoch == 2:
        print('target accuracy reached, stopping')
        sys.exit(0)
print('all epochs done')
"""
        },
        wanted=(
            *LEFT,
            "target accuracy reached, stopping",
            "EOFError",
        ),
        helpful=("rank 2|target accuracy",),
        misleading=(r"firewall|memory|\bpip\b|interface",),
    ),
    Failure(
        name="pipes-limit-hung-of-5",
        way="the limit passes; one rank waits for an event that never comes",
        convention="process",
        processes=5,
        code="timeout",
        also_codes=("collective",),
        limit_s=4.0,
        command="python -u train.py",
        files={
            "train.py": PIPES
            + """\
gather(1)
ready = threading.Event()
def wait_for_operator():
    ready.wait()
if R == 0:
    wait_for_operator()
gather(2)
"""
        },
        wanted=(
            *HUNG,
            "wait_for_operator",
        ),
        helpful=("rank 0|wait_for_operator",),
        misleading=(r"firewall|memory|\bpip\b|raise .{0,20}limits\.timeout",),
    ),
    Failure(
        name="auth-key-differs",
        way="one rank's key is wrong, the hub refuses it",
        convention="process",
        processes=3,
        code="exception",
        also_codes=("rendezvous",),
        rank=2,
        also=(0,),
        command="python -u auth.py",
        files={
            "auth.py": """\
import os, time
from multiprocessing.connection import Client, Listener
R = int(os.environ['RANK'])
A = ('127.0.0.1', int(os.environ['MASTER_PORT']))
key = b'old-secret' if R == 2 else b'secret'
if R == 0:
    l = Listener(A, authkey=key)
    peers = [l.accept() for _ in range(2)]
    time.sleep(5)
else:
    time.sleep(0.5 * R)
    c = Client(A, authkey=key)
    time.sleep(10)
"""
        },
        wanted=(
            "digest sent was rejected",
            "digest received was wrong",
        ),
        helpful=("auth|key|secret|rank 2",),
        misleading=(r"firewall|memory|\bpip\b",),
    ),
    Failure(
        name="out-of-order-logs-of-3",
        way="every rank logs caught tracebacks; one then exits with a message",
        convention="process",
        processes=3,
        code="exit_code",
        command="python -u train.py",
        files={
            "train.py": """\
import logging, os, sys, time
logging.basicConfig(level=logging.INFO, format='%(asctime)s [%(levelname)s] %(message)s')
for url in ('a', 'b'):
    try:
        raise ConnectionError(f'mirror {url} is down')
    except ConnectionError:
        logging.warning('mirror failed', exc_info=True)
logging.info('using the local copy')
time.sleep(0.5)
if os.environ['RANK'] == '0':
    logging.critical('run directory runs/17 belongs to another experiment')
    sys.exit(12)
time.sleep(30)
"""
        },
        wanted="run directory runs/17 belongs to another experiment",
        helpful=("runs/17|experiment",),
        misleading=(r"mirror|network|firewall|memory|\bpip\b",),
    ),
    Failure(
        name="memory-error-one-of-4",
        way="one rank's limit of memory is lower",
        convention="process",
        processes=4,
        code="host_oom",
        also_codes=("exception",),
        rank=3,
        command="[ $RANK = 3 ] && ulimit -v 300000; exec python mem.py",
        files={
            "mem.py": """\
import time
time.sleep(0.3)
buf = bytearray(400_000_000 if __import__('os').environ['RANK'] == '3' else 10)
time.sleep(20)
"""
        },
        wanted="MemoryError",
        helpful=(r"memory|ulimit|mem\.py",),
        misleading=(r"firewall|network|\bpip\b",),
    ),
    Failure(
        name="port-taken-by-sibling-rank",
        way="every rank opens the same port for its metrics",
        convention="process",
        processes=3,
        code="port_trouble",
        also_codes=("exception",),
        also=(
            1,
            2,
        ),
        command="python metrics.py",
        files={
            "metrics.py": """\
import http.server, os, time
time.sleep(0.2)
s = http.server.HTTPServer(('127.0.0.1', 18123), http.server.SimpleHTTPRequestHandler)
time.sleep(8)
"""
        },
        wanted="Address already in use",
        helpful=(r"18123|metrics\.py|LOCAL_RANK|port",),
        misleading=(r"firewall|memory|\bpip\b",),
    ),
    Failure(
        name="permission-port-80",
        way="a port below 1024 without the right to it",
        convention="process",
        processes=3,
        code="exception",
        also_codes=("port_trouble",),
        command="python low.py",
        files={
            "low.py": """\
import os, socket, time
if os.environ['RANK'] == '0':
    time.sleep(0.3)
    os.setgid(65534); os.setuid(65534)
    socket.create_server(('127.0.0.1', 80))
time.sleep(10)
"""
        },
        wanted="Permission denied",
        helpful=(r"\b80\b|port|1024|low\.py",),
        misleading=(r"firewall|memory|\bpip\b|chmod",),
    ),
    Failure(
        name="generator-stops-rank-7-of-8",
        way="one of eight ranks runs out of data",
        convention="process",
        processes=8,
        nodes=4,
        code="exception",
        rank=7,
        command="python -u train.py",
        files={
            "train.py": PIPES
            + """\
data = iter(range(6 if R == 7 else 10))
for step in range(10):
    gather(next(data))
"""
        },
        wanted="StopIteration",
        helpful=(r"train\.py|rank 7|data",),
        misleading=(r"firewall|memory|\bpip\b",),
    ),
    Failure(
        name="same-error-seven-of-eight",
        way="seven ranks find a file that the eighth should have written",
        convention="process",
        processes=8,
        code="collective",
        also_codes=(
            "exception",
            "data_unavailable",
        ),
        command="python -u idx.py",
        files={
            "idx.py": """\
import os, time
R = int(os.environ['RANK'])
def build_index():
    time.sleep(60)
if R == 0:
    print('building index', flush=True)
    build_index()
    open('index.bin', 'w').close()
for _ in range(40):
    if os.path.exists('index.bin'):
        break
    time.sleep(0.05)
else:
    raise FileNotFoundError('index.bin was not written by rank 0 within 2 s')
"""
        },
        wanted=(
            *HUNG,
            "index.bin was not written by rank 0 within 2 s",
            "build_index",
        ),
        helpful=(r"rank 0|build_index|index\.bin",),
        misleading=(r"firewall|memory|\bpip\b",),
    ),
    Failure(
        name="core-dump-message-of-rank",
        way="ranks are shell scripts; one's program crashes and the shell reports it",
        convention="process",
        processes=4,
        code="signal",
        rank=1,
        command="./rank.sh",
        files={
            "rank.sh": """\
#!/bin/bash
# each rank runs two programs
echo "rank $RANK: preprocessing"
if [ $RANK = 1 ]; then
  python -c 'import ctypes; ctypes.string_at(0)'
  code=$?
  echo "preprocessing ended with $code"
  exit $code
fi
sleep 15
"""
        },
        wanted=(
            "Segmentation fault",
            "SIGSEGV",
            "139",
        ),
        helpful=(r"faulthandler|native|rank\.sh|rank 1",),
        misleading=(r"firewall|memory limit|\bpip\b",),
    ),
    Failure(
        name="late-rank-names-itself",
        way="the hub gives up; the late rank logs what it does",
        convention="process",
        processes=5,
        code="rendezvous",
        also_codes=(
            "collective",
            "exception",
        ),
        rank=4,
        command="python -u late.py",
        files={
            "late.py": """\
import os, socket, time
R, W = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
A = ('127.0.0.1', int(os.environ['MASTER_PORT']))
def compile_kernels():
    for i in range(1000):
        print('compiling kernel', i, 'of 1000')
        time.sleep(0.2)
if R == 4:
    compile_kernels()
if R == 0:
    s = socket.create_server(A)
    s.settimeout(2.5)
    got = []
    try:
        while len(got) < W - 1:
            c, _ = s.accept()
            c.recv(1)
            got.append(c)
    except TimeoutError:
        raise RuntimeError(f'only {len(got) + 1} of {W} workers connected before the deadline') from None
else:
    time.sleep(0.3)
    c = socket.create_connection(A)
    c.send(str(R).encode())
    c.recv(1)
    raise SystemExit('coordinator closed')
"""
        },
        wanted=(
            *HUNG,
            "only 4 of 5 workers connected before the deadline",
            "compile_kernels",
            "late",
        ),
        helpful=("rank 4|compile_kernels|compil",),
        misleading=(r"firewall|memory|\bpip\b",),
    ),
]
