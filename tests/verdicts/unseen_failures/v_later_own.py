"""Later gangs without torch: asyncio, managers, XML-RPC, Java, C++, more of MPI."""

from functools import partial

from recorder import Failure

Gang = partial(Failure, convention="process", processes=3)
Mpi = partial(Failure, convention="mpi", processes=4)
Own = partial(Failure, convention="mpirun", processes=1, num_ranks=4)
RUN = "mpirun --oversubscribe --mca btl self,sm -n "

FAILURES = [
    Gang(
        name="v-late-asyncio-server-handler",
        way="the handler of an asyncio server raises, its log has it, the workers read a closed stream",
        code="exception",
        rank=0,
        command="python -u averaging.py",
        files={
            "averaging.py": """import asyncio, json, os

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
port = int(os.environ["MASTER_PORT"])
weights = {"w": 0.0, "b": 0.0}


async def handle(reader, writer):
    while line := await reader.readline():
        update = json.loads(line)
        for name, delta in update["delta"].items():
            weights[name] += delta / world
        writer.write(json.dumps(weights).encode() + b"\\n")
        await writer.drain()


async def serve():
    server = await asyncio.start_server(handle, "127.0.0.1", port)
    print("server: ready")
    async with server:
        await asyncio.wait_for(server.serve_forever(), 20)


async def work():
    for _ in range(50):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            break
        except OSError:
            await asyncio.sleep(0.2)
    for step in range(10):
        delta = {"w": 0.1, "b": 0.2, **({"scale": 0.3} if rank == 2 and step == 5 else {})}
        writer.write(json.dumps({"from": rank, "delta": delta}).encode() + b"\\n")
        answer = await asyncio.wait_for(reader.readuntil(b"\\n"), 4)
        print("worker", rank, "step", step, answer.decode().strip())
        await asyncio.sleep(0.1)


asyncio.run(serve() if rank == 0 else work())
"""
        },
        wanted="KeyError: 'scale'",
        helpful=(r"averaging\.py|scale|weights",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-late-manager-authkey",
        way="one rank has another secret for the shared queue",
        code="exception",
        also_codes=("rendezvous", "bad_input"),
        rank=2,
        command='[ "$RANK" = 2 ] && export QUEUE_SECRET=old-secret; python -u shared_queue.py',
        files={
            "shared_queue.py": """import os, queue, time
from multiprocessing.managers import BaseManager

rank = int(os.environ["RANK"])
address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
secret = os.environ.get("QUEUE_SECRET", "s3cret").encode()
tasks = queue.Queue()

class Jobs(BaseManager):
    pass

if rank == 0:
    Jobs.register("tasks", callable=lambda: tasks)
    for n in range(100):
        tasks.put(n)
    print("queue server on", address)
    Jobs(address, secret).get_server().serve_forever()
else:
    Jobs.register("tasks")
    jobs = Jobs(address, secret)
    for _ in range(40):
        try:
            jobs.connect()
            break
        except ConnectionRefusedError:
            time.sleep(0.2)
    work = jobs.tasks()
    while True:
        print("worker", rank, "task", work.get(timeout=2))
        time.sleep(0.1)
"""
        },
        wanted="AuthenticationError: digest",
        helpful=(r"secret|authkey|QUEUE_SECRET|shared_queue\.py",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-late-xmlrpc-fault",
        way="an XML-RPC server answers with a fault of its own exception",
        code="exception",
        rank=0,
        also=(1, 2),
        command="python -u registry.py",
        files={
            "registry.py": """import os, time, xmlrpc.client
from xmlrpc.server import SimpleXMLRPCServer

rank = int(os.environ["RANK"])
port = int(os.environ["MASTER_PORT"])

if rank == 0:
    shards = {1: ["a", "b"], 2: []}

    def next_shard(worker):
        return shards[worker].pop()

    server = SimpleXMLRPCServer(("127.0.0.1", port), logRequests=False)
    server.register_function(next_shard)
    server.serve_forever()
else:
    proxy = xmlrpc.client.ServerProxy(f"http://127.0.0.1:{port}")
    n = 0
    while n < 4:
        try:
            print("worker", rank, "has shard", proxy.next_shard(1))
            n += 1
            time.sleep(0.5)
        except ConnectionRefusedError:
            time.sleep(0.2)
"""
        },
        wanted="pop from empty list",
        helpful=(r"registry\.py|next_shard|empty",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-late-java-worker-number",
        way="a Java worker cannot parse its split, the Java master sees a closed stream later",
        code="exception",
        rank=2,
        command='[ "$RANK" = 0 ] || sleep 1.5; java -Xshare:auto -XX:TieredStopAtLevel=1 Grid.java $RANK $MASTER_PORT',
        files={
            "Grid.java": """import java.io.*;
import java.net.*;

public class Grid {
    public static void main(String[] a) throws Exception {
        int rank = Integer.parseInt(a[0]), port = Integer.parseInt(a[1]);
        if (rank == 0) master(port); else worker(rank, port);
    }

    static void master(int port) throws Exception {
        try (ServerSocket server = new ServerSocket(port)) {
            Socket[] socks = {server.accept(), server.accept()};
            double sum = 0;
            for (Socket s : socks) {
                DataInputStream in = new DataInputStream(s.getInputStream());
                for (int i = 0; i < 3; i++) sum += in.readDouble();
                System.out.println("[master] partial sum " + sum);
            }
        }
    }

    static void worker(int rank, int port) throws Exception {
        String[] values = rank == 2 ? new String[] {"1.5", "2.5", "n/a"} : new String[] {"1", "2", "3"};
        Socket sock = null;
        for (int n = 0; sock == null; n++)
            try { sock = new Socket("127.0.0.1", port); } catch (ConnectException e) { if (n > 60) throw e; Thread.sleep(200); }
        DataOutputStream out = new DataOutputStream(sock.getOutputStream());
        for (String v : values) {
            System.out.println("[worker " + rank + "] sending " + v);
            out.writeDouble(Double.parseDouble(v));
        }
    }
}
"""
        },
        wanted='java.lang.NumberFormatException: For input string: "n/a"',
        helpful=(r"Grid\.java|n/a|parse|number|input",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-late-cpp-bad-header",
        way="a C++ program throws at the header of its shard",
        code="exception",
        also_codes=("signal",),
        rank=1,
        command="[ -x reader ] || { g++ -O0 -o reader.$RANK reader.cc && mv reader.$RANK reader; }; ./reader shard$RANK.bin",
        files={
            "shard0.bin": "MAGIC1 data",
            "shard1.bin": "<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>",
            "shard2.bin": "MAGIC1 data",
            "reader.cc": """#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <unistd.h>

int main(int, char **argv) {
    std::ifstream in(argv[1]);
    std::string magic(6, ' ');
    in.read(&magic[0], 6);
    std::cout << "reading " << argv[1] << std::endl;
    if (magic != "MAGIC1")
        throw std::runtime_error("bad magic '" + magic + "' in " + argv[1]);
    sleep(20);
}
""",
        },
        wanted="bad magic '<?xml ' in shard1.bin",
        helpful=(r"shard1\.bin|magic|header|reader",),
        misleading=(r"firewall|out of memory|interface",),
    ),
    Gang(
        name="v-late-illegal-instruction",
        way="one node's processor lacks an instruction of the compiled program",
        code="signal",
        also_codes=("environment",),
        rank=0,
        command="[ -x kern ] || { gcc -o kern.$RANK kern.c && mv kern.$RANK kern; }; ./kern $RANK",
        files={
            "kern.c": """#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    printf("node %s: dispatching avx512 kernel\\n", argv[1]);
    fflush(stdout);
    if (atoi(argv[1]) == 0)
        __builtin_trap();
    sleep(15);
    return 0;
}
"""
        },
        wanted=("SIGILL", "signal 4", "Illegal instruction"),
        helpful=(r"cpu|processor|instruction|avx|compil|native|build",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-late-dead-dns-of-hub",
        way="every rank asks a model hub without network",
        code="exception",
        also_codes=("data_unavailable", "environment"),
        rank=0,
        also=(1, 2),
        command="python -u pull.py",
        files={
            "pull.py": """import os, requests

def snapshot(repo):
    url = f"https://hub.models.invalid/{repo}/resolve/main/config.json"
    try:
        return requests.get(url, timeout=3).json()
    except requests.exceptions.ConnectionError as e:
        raise OSError(
            f"We couldn't connect to 'https://hub.models.invalid' to load the files, and couldn't find them in the cached "
            f"files. Check your internet connection or run in offline mode: {repo}"
        ) from e

print("rank", os.environ["RANK"], snapshot("tiny/llm-2b"))
"""
        },
        wanted=("We couldn't connect to 'https://hub.models.invalid'", "Failed to resolve 'hub.models.invalid'"),
        helpful=(r"hub\.models\.invalid|offline|network|internet|download|cache",),
        misleading=(r"out of memory|MASTER_PORT|between the nodes",),
    ),
    Gang(
        name="v-late-socketserver-goes-on",
        way="a socketserver prints the exception of a request and goes on; the asking rank waits until the limit",
        code="exception",
        also_codes=("timeout",),
        rank=0,
        limit_s=10,
        command="python -u dispatch.py",
        files={
            "dispatch.py": """import json, os, socket, socketserver, threading, time

rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
work = {"1": "fold-a"}
keep = []

class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        keep.append(self.request.dup())          # connections are pooled
        who = self.rfile.readline().decode().strip()
        self.wfile.write((work[who] + "\\n").encode())

if rank == 0:
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", port), Handler) as server:
        server.shutdown_request = lambda request: None
        server.serve_forever()
else:
    while True:
        try:
            s = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            time.sleep(0.2)
    s.sendall(f"{rank}\\n".encode())
    print("rank", rank, "asked for work")
    print("rank", rank, "got", s.makefile().readline().strip())
"""
        },
        wanted="KeyError: '2'",
        helpful=(r"dispatch\.py|work\b|KeyError",),
        misleading=(r"firewall|memory|interface|increase the limit",),
    ),
    Gang(
        name="v-late-usage-on-all",
        way="a required argument is missing on all ranks of a gang",
        code="bad_input",
        rank=0,
        also=(1, 2),
        command="python cli.py train --epochs 3",
        files={
            "cli.py": """import click

@click.group()
def main(): pass

@main.command()
@click.option("--epochs", type=int)
@click.option("--data-dir", required=True, type=click.Path())
def train(epochs, data_dir):
    click.echo(f"training {epochs} epochs on {data_dir}")

main()
"""
        },
        wanted="Missing option '--data-dir'",
        helpful=(r"--data-dir",),
        misleading=(r"firewall|memory|network",),
    ),
    Gang(
        name="v-late-sleep-in-one-limit",
        way="two ranks are ready, one sleeps in a throttled API call until the limit",
        code="timeout",
        rank=1,
        limit_s=9,
        command="python -u annotate.py",
        files={
            "annotate.py": """import os, time, random
rank = int(os.environ["RANK"])

def call_api(i):
    if rank == 1 and i > 3:
        wait = 3600
        print(f"429 Too Many Requests, Retry-After: {wait}")
        time.sleep(wait)
    time.sleep(0.05)

for i in range(10):
    call_api(i)
    print(f"rank {rank} annotated {i + 1}/10")
print(f"rank {rank} finished")
"""
        },
        wanted=("429 Too Many Requests, Retry-After: 3600", "time.sleep(wait)"),
        helpful=(r"annotate\.py|429|Retry-After|rate|throttl|quota",),
        misleading=(r"firewall|memory|interface",),
    ),
    Mpi(
        name="v-late-mpi-allreduce-sizes",
        way="one rank's gradient buffer is longer than the others'",
        code="exception",
        also_codes=("collective",),
        rank=3,
        also=(0, 1, 2),
        command="python -m mpi4py grads.py",
        files={
            "grads.py": """import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
layers = [1000, 10] if comm.rank != 3 else [1000, 12, 10]
grad = np.ones(sum(layers) * 50)
print("rank", comm.rank, "gradient of", grad.size, "values", flush=True)
comm.Bcast(grad, root=0)
out = np.empty_like(grad)
comm.Allreduce(grad, out)
print("rank", comm.rank, out[:2])
"""
        },
        wanted=("MPI_ERR_TRUNCATE", "message truncated", "gradient of 51100 values"),
        helpful=(r"grads\.py|size|layers|same|length|shape",),
        misleading=(r"firewall|out of memory|interface",),
    ),
    Mpi(
        name="v-late-mpi-oom",
        way="one rank of mpirun is killed in a cgroup of 120 MB",
        code="host_oom",
        also_codes=("signal",),
        rank=1,
        processes=3,
        command="./slot.sh",
        files={
            "slot.sh": """#!/bin/bash
if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then
  g=/sys/fs/cgroup/memory/v_mpi_oom_$$
  mkdir -p $g && echo 120M > $g/memory.limit_in_bytes && echo $$ > $g/cgroup.procs
fi
exec python -u histo.py
""",
            "histo.py": """import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
blocks = []
for i in range(40):
    if comm.rank == 1:
        blocks.append(np.random.rand(1_000_000))
    print("rank", comm.rank, "block", i)
    comm.Barrier()
""",
        },
        wanted=("SIGKILL", "killed", "out of memory", "signal 9", "Killed"),
        helpful=(r"memory|blocks|fewer|smaller",),
        misleading=(r"firewall|interface|MASTER_PORT",),
    ),
    Mpi(
        name="v-late-mpi-send-open-file",
        way="an open file is sent to another rank",
        code="exception",
        rank=0,
        processes=2,
        command="python -m mpi4py pass_on.py",
        files={
            "pass_on.py": """from mpi4py import MPI
comm = MPI.COMM_WORLD
if comm.rank == 0:
    job = {"name": "fold-3", "log": open("fold3.log", "w")}
    comm.send(job, dest=1)
else:
    print("got", comm.recv(source=0))
"""
        },
        wanted=("cannot pickle '_io.TextIOWrapper' object", "TextIOWrapper"),
        helpful=(r"pass_on\.py|pickle|file",),
        misleading=(r"firewall|memory|interface",),
    ),
    Mpi(
        name="v-late-mpi-sys-exit-no-abort",
        way="one rank finds a bad option and leaves by sys.exit(2), the others wait in a barrier",
        code="exit_code",
        also_codes=("timeout", "bad_input"),
        rank=2,
        limit_s=15,
        command="python -u options.py",
        files={
            "options.py": """import json, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
config = json.loads('{"precision": "fp8"}') if comm.rank == 2 else {"precision": "fp32"}
print(f"({comm.rank}) precision={config['precision']}")
if config["precision"] not in ("fp32", "bf16"):
    print(f"({comm.rank}) ERROR: unsupported precision fp8, choose fp32 or bf16", file=sys.stderr)
    sys.exit(2)
comm.Barrier()
print(f"({comm.rank}) start")
"""
        },
        wanted="ERROR: unsupported precision fp8, choose fp32 or bf16",
        helpful=(r"precision|fp8|options\.py",),
        misleading=(r"firewall|memory|interface|increase the limit",),
    ),
    Mpi(
        name="v-late-mpi-disk-full",
        way="rank 3 writes its part to a disk of two megabytes",
        code="disk_full",
        rank=3,
        command="unshare -m ./part.sh",
        files={
            "part.sh": """#!/bin/bash
mkdir -p out$OMPI_COMM_WORLD_RANK
[ "$OMPI_COMM_WORLD_RANK" = 3 ] && mount -t tmpfs -o size=2m out out3
exec python -m mpi4py dump.py
""",
            "dump.py": """import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
for step in range(8):
    data = np.random.rand(50_000)
    np.save(f"out{comm.rank}/step{step}.npy", data)
    print(f"[{comm.rank}] wrote step {step}", flush=True)
    comm.Barrier()
""",
        },
        wanted=("No space left on device", "requested and 0 written", "written"),
        helpful=(r"disk|space|out3",),
        misleading=(r"firewall|interface|out of memory",),
    ),
    Own(
        name="v-late-mpirun-module-on-all",
        way="tensorflow is not installed",
        code="environment",
        rank=0,
        also=(1, 2),
        num_ranks=3,
        command=RUN + "3 python train_tf.py",
        files={
            "train_tf.py": """import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
from mpi4py import MPI
print(tf.__version__)
"""
        },
        wanted="No module named 'tensorflow'",
        helpful=(r"tensorflow|install",),
        misleading=(r"firewall|memory|interface",),
    ),
    Own(
        name="v-late-mpirun-segfault-c",
        way="a null pointer in C on rank 2 of four",
        code="signal",
        rank=2,
        num_ranks=4,
        command="mpicc -g -o walk walk.c && " + RUN + "4 ./walk",
        files={
            "walk.c": """#include <mpi.h>
#include <stdio.h>
#include <string.h>

struct node { int value; struct node *next; };

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct node b = {2, NULL}, a = {1, &b};
    int steps = rank == 2 ? 3 : 1;
    struct node *p = &a;
    for (int i = 0; i < steps; i++) {
        printf("rank %d node %d\\n", rank, p->value);
        fflush(stdout);
        p = p->next;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"""
        },
        wanted=("SIGSEGV", "Segmentation fault", "signal 11"),
        helpful=(r"walk|native|core|gdb|debug|address",),
        misleading=(r"firewall|interface|MASTER_PORT",),
    ),
    Own(
        name="v-late-mpirun-python-typo",
        way="a name is misspelt in the branch of the workers",
        code="exception",
        rank=1,
        also=(2,),
        num_ranks=3,
        command=RUN + "3 python -u -m mpi4py workers.py",
        files={
            "workers.py": """from mpi4py import MPI
comm = MPI.COMM_WORLD
if comm.rank == 0:
    for i in range(1, comm.size):
        comm.send({"task": i}, dest=i)
    print([comm.recv(source=i) for i in range(1, comm.size)])
else:
    job = comm.recv(source=0)
    reslut = job["task"] ** 2
    comm.send(result, dest=0)
"""
        },
        wanted="NameError: name 'result' is not defined",
        helpful=(r"workers\.py|result",),
        misleading=(r"firewall|memory|interface",),
    ),
]
