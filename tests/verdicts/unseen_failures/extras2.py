"""More gangs and forms of output; plain Python."""

from recorder import Failure

INFRA = r"network|firewall|smaller batch|MASTER_PORT"
HUNG = ("did not", "hung", "stuck", "does not respond", "not respond")
LEFT = ("code 0", "exited early", "ended early", "left early", "finished before", "had ended")
PIPES = (
    "import os, sys, time, threading\nfrom multiprocessing.connection import Client, Listener\n"
    "R, W = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\nA = ('127.0.0.1', int(os.environ['MASTER_PORT']))\n"
    "def join():\n    if R == 0:\n        listener = Listener(A, backlog=16)\n        return [listener.accept() for _ in range(W - 1)]\n"
    "    for _ in range(300):\n        try:\n            return [Client(A)]\n        except ConnectionRefusedError:\n            time.sleep(0.05)\n"
    "links = join()\ndef gather(value):\n    if R:\n        links[0].send(value)\n        return links[0].recv()\n"
    "    values = [value] + [link.recv() for link in links]\n    for link in links:\n        link.send(values)\n    return values\n"
)

FAILURES = [
    Failure(
        name="progress-line-glued",
        way="a progress line without an end stands before the traceback",
        code="exception",
        command="python -u prog.py",
        files={
            "prog.py": "import time\nfor i in range(60):\n    print(f'\\r[{\"=\" * (i // 3):<20}] {i}/60 loss=0.{i:03}', end='')\n    time.sleep(0.005)\n    if i == 47:\n        raise BufferError('ring buffer of 4096 tokens is full')\n"
        },
        wanted="BufferError: ring buffer of 4096 tokens is full",
        helpful=(r"prog\.py|ring buffer|4096",),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="two-tracebacks-interleaved",
        way="two threads write their tracebacks at once; the main thread raises the second",
        code="exception",
        command="python -u twice.py",
        files={
            "twice.py": "from concurrent.futures import ThreadPoolExecutor\nimport logging, time\nlogging.basicConfig(format='%(asctime)s %(levelname)s %(message)s')\n"
            "def read(n):\n    try:\n        if n == 1:\n            raise TimeoutError('replica 1 is slow')\n    except TimeoutError:\n        logging.exception('falling back to replica 0')\n        return 0\n"
            "    if n == 3:\n        raise ValueError('row group 3 has a negative length')\n    return n\n"
            "with ThreadPoolExecutor(2) as pool:\n    print(sum(pool.map(read, range(5))))\n"
        },
        wanted="ValueError: row group 3 has a negative length",
        helpful=(r"twice\.py|row group 3",),
        misleading=(r"replica|slow|network|memory|pip",),
    ),
    Failure(
        name="bare-assert",
        way="an assertion without a message",
        code="exception",
        command="python bare.py",
        files={"bare.py": "def split(x, parts):\n    assert len(x) % parts == 0\n    return parts\nsplit([1, 2, 3], 2)\n"},
        wanted=("AssertionError", "assert len(x) % parts == 0"),
        helpful=(r"bare\.py|parts",),
        misleading=(INFRA, r"memory|pip"),
    ),
    Failure(
        name="traceback-in-the-middle",
        way="a traceback, then the process goes on and is ended by SIGKILL from its own supervisor",
        convention="shell",
        code="signal",
        command="bash supervise.sh",
        files={
            "supervise.sh": "python -u serve.py &\npid=$!\nsleep 1.2\necho \"supervisor: memory of $pid is above 2 GB, killing it\"\nkill -9 $pid\nwait $pid\n",
            "serve.py": "import time, traceback\ntry:\n    {}['plugin']\nexcept KeyError:\n    traceback.print_exc()\n    print('plugin is optional, going on')\nfor i in range(100):\n    print('request', i)\n    time.sleep(0.3)\n",
        },
        also_codes=("host_oom",),
        wanted=("supervisor: memory of", "SIGKILL", "Killed"),
        helpful=(r"supervis|memory|kill",),
        misleading=(r"plugin|KeyError|network|pip",),
    ),
    Failure(
        name="exit-code-255-ssh",
        way="ssh to a host that does not exist",
        convention="shell",
        code="exit_code",
        command="ssh -o BatchMode=yes -o ConnectTimeout=2 node-17.invalid python train.py",
        files={"train.py": "print(1)\n"},
        wanted="Could not resolve hostname node-17.invalid",
        helpful=(r"node-17|hostname",),
        misleading=(r"memory|pip|train\.py|NCCL",),
    ),
    Failure(
        name="docker-daemon-absent",
        way="a command that needs the Docker daemon",
        convention="shell",
        code="exit_code",
        also_codes=("launcher_missing", "environment"),
        command="DOCKER_HOST=unix:///nonexistent/docker.sock docker run --rm pytorch/pytorch python train.py",
        files={"train.py": "print(1)\n"},
        wanted="Cannot connect to the Docker daemon",
        helpful=(r"docker|daemon|container",),
        misleading=(r"memory|pip install|train\.py",),
    ),
    Failure(
        name="java-npe-in-worker-thread",
        way="a Java thread dies, the program exits with 2",
        convention="shell",
        code="exit_code",
        also_codes=("exception",),
        command="java Pool.java",
        files={
            "Pool.java": "public class Pool {\n  public static void main(String[] a) throws Exception {\n    Thread t = new Thread(() -> { String s = System.getenv(\"SHARD_DIR\"); System.out.println(s.length()); }, \"loader-1\");\n"
            "    boolean[] bad = {false};\n    t.setUncaughtExceptionHandler((x, e) -> { e.printStackTrace(); bad[0] = true; });\n    t.start(); t.join();\n    if (bad[0]) { System.err.println(\"1 of 1 loaders failed\"); System.exit(2); }\n  }\n}\n"
        },
        wanted=("java.lang.NullPointerException: Cannot invoke \"String.length()\"", "NullPointerException"),
        helpful=(r"Pool|SHARD_DIR|loader",),
        misleading=(INFRA, r"memory|pip"),
    ),
    Failure(
        name="rust-index-panic-backtrace",
        way="a Rust panic with a backtrace",
        convention="shell",
        code="exit_code",
        also_codes=("exception",),
        command="/root/.cargo/bin/rustc -g -o bpe bpe.rs 2>/dev/null && RUST_BACKTRACE=1 ./bpe",
        files={"bpe.rs": 'fn lookup(v: &[u32], i: usize) -> u32 {\n    v[i]\n}\nfn main() {\n    let n = std::env::args().count();\n    println!("{}", lookup(&[1, 2, 3], n + 6));\n}\n'},
        wanted="index out of bounds: the len is 3 but the index is 7",
        helpful=(r"bpe\.rs|lookup|index",),
        misleading=(INFRA, r"memory|pip|RUST_BACKTRACE"),
    ),
    Failure(
        name="node-module-missing",
        way="Node.js lacks a package",
        convention="shell",
        code="environment",
        also_codes=("exit_code", "exception"),
        command="node viz.js",
        files={"viz.js": "const d3 = require('d3-array');\nconsole.log(d3.max([1]));\n"},
        wanted="Cannot find module 'd3-array'",
        helpful=(r"d3-array|npm",),
        misleading=(INFRA, r"memory|pip"),
    ),
    Failure(
        name="pipes-eof-one-of-5-raises",
        way="multiprocessing.connection: one rank raises, the hub gets EOFError",
        convention="process",
        processes=5,
        code="exception",
        rank=3,
        command="python -u train.py",
        files={"train.py": PIPES + "gather(1)\nif R == 3:\n    stats = {'mean': 0.1}\n    raise TypeError(f'std is missing in {stats}')\ngather(2)\n"},
        wanted="TypeError: std is missing in {'mean': 0.1}",
        helpful=(r"train\.py|std",),
        misleading=(r"firewall|memory|pip",),
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
        files={"train.py": PIPES + "for epoch in range(5):\n    gather(epoch)\n    if R == 2 and epoch == 2:\n        print('target accuracy reached, stopping')\n        sys.exit(0)\nprint('all epochs done')\n"},
        wanted=(*LEFT, "target accuracy reached, stopping", "EOFError"),
        helpful=(r"rank 2|target accuracy",),
        misleading=(r"firewall|memory|pip|interface",),
    ),
    Failure(
        name="pipes-limit-hung-of-5",
        way="the limit passes; one rank waits for an event that never comes",
        convention="process",
        processes=5,
        nodes=1,
        code="timeout",
        also_codes=("collective",),
        rank=0,
        limit_s=4.0,
        command="python -u train.py",
        files={"train.py": PIPES + "gather(1)\nready = threading.Event()\ndef wait_for_operator():\n    ready.wait()\nif R == 0:\n    wait_for_operator()\ngather(2)\n"},
        wanted=(*HUNG, "wait_for_operator"),
        helpful=(r"rank 0|wait_for_operator",),
        misleading=(r"firewall|memory|pip|raise .{0,20}limits\.timeout",),
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
            "auth.py": "import os, time\nfrom multiprocessing.connection import Client, Listener\nR = int(os.environ['RANK'])\nA = ('127.0.0.1', int(os.environ['MASTER_PORT']))\n"
            "key = b'old-secret' if R == 2 else b'secret'\nif R == 0:\n    l = Listener(A, authkey=key)\n    peers = [l.accept() for _ in range(2)]\n    time.sleep(5)\nelse:\n    time.sleep(0.5 * R)\n    c = Client(A, authkey=key)\n    time.sleep(10)\n"
        },
        wanted=("digest sent was rejected", "digest received was wrong"),
        helpful=(r"auth|key|secret|rank 2",),
        misleading=(r"firewall|memory|pip",),
    ),
    Failure(
        name="out-of-order-logs-of-3",
        way="every rank logs caught tracebacks; one then exits with a message",
        convention="process",
        processes=3,
        code="exit_code",
        rank=0,
        command="python -u train.py",
        files={
            "train.py": "import logging, os, sys, time\nlogging.basicConfig(level=logging.INFO, format='%(asctime)s [%(levelname)s] %(message)s')\n"
            "for url in ('a', 'b'):\n    try:\n        raise ConnectionError(f'mirror {url} is down')\n    except ConnectionError:\n        logging.warning('mirror failed', exc_info=True)\n"
            "logging.info('using the local copy')\ntime.sleep(0.5)\nif os.environ['RANK'] == '0':\n    logging.critical('run directory runs/17 belongs to another experiment')\n    sys.exit(12)\ntime.sleep(30)\n"
        },
        wanted="run directory runs/17 belongs to another experiment",
        helpful=(r"runs/17|experiment",),
        misleading=(r"mirror|network|firewall|memory|pip",),
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
        files={"mem.py": "import time\ntime.sleep(0.3)\nbuf = bytearray(400_000_000 if __import__('os').environ['RANK'] == '3' else 10)\ntime.sleep(20)\n"},
        wanted="MemoryError",
        helpful=(r"memory|ulimit|mem\.py",),
        misleading=(r"firewall|network|pip",),
    ),
    Failure(
        name="port-taken-by-sibling-rank",
        way="every rank opens the same port for its metrics",
        convention="process",
        processes=3,
        code="port_trouble",
        also_codes=("exception",),
        rank=0,
        also=(1, 2),
        command="python metrics.py",
        files={"metrics.py": "import http.server, os, time\ntime.sleep(0.2)\ns = http.server.HTTPServer(('127.0.0.1', 18123), http.server.SimpleHTTPRequestHandler)\ntime.sleep(8)\n"},
        wanted="Address already in use",
        helpful=(r"18123|metrics\.py|LOCAL_RANK|port",),
        misleading=(r"firewall|memory|pip",),
    ),
    Failure(
        name="permission-port-80",
        way="a port below 1024 without the right to it",
        convention="process",
        processes=3,
        code="exception",
        also_codes=("port_trouble",),
        rank=0,
        command="python low.py",
        files={
            "low.py": "import os, socket, time\nif os.environ['RANK'] == '0':\n    time.sleep(0.3)\n    os.setgid(65534); os.setuid(65534)\n    socket.create_server(('127.0.0.1', 80))\ntime.sleep(10)\n"
        },
        wanted="Permission denied",
        helpful=(r"\b80\b|port|1024|low\.py",),
        misleading=(r"firewall|memory|pip|chmod",),
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
        files={"train.py": PIPES + "data = iter(range(6 if R == 7 else 10))\nfor step in range(10):\n    gather(next(data))\n"},
        wanted="StopIteration",
        helpful=(r"train\.py|rank 7|data",),
        misleading=(r"firewall|memory|pip",),
    ),
    Failure(
        name="same-error-seven-of-eight",
        way="seven ranks find a file that the eighth should have written",
        convention="process",
        processes=8,
        code="collective",
        also_codes=("exception", "data_unavailable"),
        rank=0,
        command="python -u idx.py",
        files={
            "idx.py": "import os, time\nR = int(os.environ['RANK'])\ndef build_index():\n    time.sleep(60)\nif R == 0:\n    print('building index', flush=True)\n    build_index()\n    open('index.bin', 'w').close()\n"
            "for _ in range(40):\n    if os.path.exists('index.bin'):\n        break\n    time.sleep(0.05)\nelse:\n    raise FileNotFoundError('index.bin was not written by rank 0 within 2 s')\n"
        },
        wanted=(*HUNG, "index.bin was not written by rank 0 within 2 s", "build_index"),
        helpful=(r"rank 0|build_index|index\.bin",),
        misleading=(r"firewall|memory|pip",),
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
            "rank.sh": "#!/bin/bash\n# each rank runs two programs\necho \"rank $RANK: preprocessing\"\nif [ $RANK = 1 ]; then\n  python -c 'import ctypes; ctypes.string_at(0)'\n  code=$?\n  echo \"preprocessing ended with $code\"\n  exit $code\nfi\nsleep 15\n"
        },
        wanted=("Segmentation fault", "SIGSEGV", "139"),
        helpful=(r"faulthandler|native|rank\.sh|rank 1",),
        misleading=(r"firewall|memory limit|pip",),
    ),
    Failure(
        name="late-rank-names-itself",
        way="the hub gives up; the late rank logs what it does",
        convention="process",
        processes=5,
        code="rendezvous",
        also_codes=("collective", "exception"),
        rank=4,
        command="python -u late.py",
        files={
            "late.py": "import os, socket, time\nR, W = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\nA = ('127.0.0.1', int(os.environ['MASTER_PORT']))\n"
            "def compile_kernels():\n    for i in range(1000):\n        print('compiling kernel', i, 'of 1000')\n        time.sleep(0.2)\n"
            "if R == 4:\n    compile_kernels()\nif R == 0:\n    s = socket.create_server(A)\n    s.settimeout(2.5)\n    got = []\n    try:\n        while len(got) < W - 1:\n            c, _ = s.accept()\n            c.recv(1)\n            got.append(c)\n"
            "    except TimeoutError:\n        raise RuntimeError(f'only {len(got) + 1} of {W} workers connected before the deadline') from None\nelse:\n    time.sleep(0.3)\n    c = socket.create_connection(A)\n    c.send(str(R).encode())\n    c.recv(1)\n    raise SystemExit('coordinator closed')\n"
        },
        wanted=(*HUNG, "only 4 of 5 workers connected before the deadline", "compile_kernels", "late"),
        helpful=(r"rank 4|compile_kernels|compil",),
        misleading=(r"firewall|memory|pip",),
    ),
]
