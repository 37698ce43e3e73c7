"""More forms: prefixes before lines, launchers written by hand, tools of the shell, other runtimes, trackers."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "does not respond", "not respond")

FAILURES = [
    Failure(
        name="labelled-lines-of-four-ranks",
        way="one shell starts four ranks and labels their lines, as srun --label does",
        convention="shell",
        code="exception",
        command="bash fan.sh",
        files={
            "fan.sh": """\
set -o pipefail
pids=()
for r in 0 1 2 3; do
  (RANK=$r python -u train.py 2>&1 | sed -u "s/^/$r: /") & pids+=($!)
done
rc=0
for p in ${pids[@]}; do wait $p || rc=$?; done
exit $rc
""",
            "train.py": """\
import os, time
r = int(os.environ['RANK'])
print('hello from', r)
if r == 2:
    tags = ('O', 'B-PER')
    print(tags.index('I-PER'))
time.sleep(0.5)
print('bye', r)
""",
        },
        wanted="ValueError: tuple.index(x): x not in tuple",
        helpful=(r"train\.py|I-PER|tags|rank 2",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="timestamped-traceback",
        way="a log prefix with the time stands before every line of the traceback",
        convention="shell",
        code="exception",
        command="bash -o pipefail stamped.sh",
        files={
            "stamped.sh": """\
python -u eval.py 2>&1 | while IFS= read -r line; do printf '2026-11-16T10:00:00Z INFO worker-0 | %s\\n' \
"$line"; done
""",
            "eval.py": """\
def bleu(refs, hyps):
    if len(refs) != len(hyps):
        raise ValueError(f'{len(refs)} references for {len(hyps)} hypotheses')
bleu([1, 2], [1])
""",
        },
        wanted="ValueError: 2 references for 1 hypotheses",
        helpful=(r"eval\.py|references|hypotheses",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="hand-launcher-called-process-error",
        way="a launcher of the project starts four children and raises CalledProcessError",
        convention="spawn",
        code="exception",
        command="python launch.py --nproc 4 train.py",
        files={
            "launch.py": """\
import os, subprocess, sys, time
n = int(sys.argv[2])
cmd = [sys.executable, '-u', sys.argv[3]]
ps = [subprocess.Popen(cmd, env={**os.environ, 'RANK': str(r)}) for r in range(n)]
while ps:
    for p in list(ps):
        if p.poll() is not None:
            ps.remove(p)
            if p.returncode:
                for q in ps:
                    q.terminate()
                raise subprocess.CalledProcessError(p.returncode, cmd)
    time.sleep(0.02)
""",
            "train.py": """\
import os, time
if os.environ['RANK'] == '3':
    time.sleep(0.3)
    bins = [0, 10, 20]
    assert bins[-1] >= 32, f'histogram ends at {bins[-1]}, samples reach 32'
time.sleep(10)
""",
        },
        wanted="AssertionError: histogram ends at 20, samples reach 32",
        helpful=(r"train\.py|histogram|bins",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b|launch\.py",
        ),
    ),
    Failure(
        name="xargs-one-of-many",
        way="xargs runs jobs; one fails",
        convention="shell",
        code="exception",
        also_codes=("exit_code",),
        command="seq 1 5 | xargs -P 2 -I{} python fold.py {}",
        files={
            "fold.py": """\
import sys
k = int(sys.argv[1])
print('fold', k)
if k == 4:
    raise ValueError(f'fold {k} has one class only')
"""
        },
        wanted="ValueError: fold 4 has one class only",
        helpful=("fold",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b|xargs",
        ),
    ),
    Failure(
        name="time-verbose-after-traceback",
        way="/usr/bin/time prints figures after the traceback",
        convention="shell",
        code="exception",
        command="/usr/bin/time -v python gen.py",
        files={
            "gen.py": """\
temps = []
print('mean', sum(temps) / len(temps))
"""
        },
        wanted="ZeroDivisionError: division by zero",
        helpful=(r"gen\.py|temps",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="env-i-loses-path",
        way="env -i loses PATH",
        convention="shell",
        code="launcher_missing",
        also_codes=("exit_code",),
        command="env -i PATH=/nowhere HOME=/tmp python3x train.py",
        files={"train.py": "print(1)\n"},
        wanted=(
            "No such file or directory",
            "command not found",
        ),
        helpful=("python3x|PATH",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|pip install",
        ),
    ),
    Failure(
        name="srun-without-slurm",
        way="srun without a Slurm cluster",
        convention="shell",
        code="exit_code",
        also_codes=(
            "launcher_missing",
            "bad_input",
        ),
        command="srun -n 4 python train.py",
        files={"train.py": "print(1)\n"},
        wanted=(
            "srun: error",
            "srun: fatal",
            "slurm.conf",
            "Could not establish a configuration source",
        ),
        helpful=("srun|slurm",),
        misleading=(r"memory|pip install",),
    ),
    Failure(
        name="requirements-no-such-version",
        way="pip inside the job finds no such version",
        convention="shell",
        code="environment",
        also_codes=("exit_code",),
        command="bash -e boot.sh",
        files={
            "boot.sh": """\
python -m venv --system-site-packages e
e/bin/python -m pip install --no-index -r requirements.txt
python train.py
""",
            "requirements.txt": "six==99.1\n",
            "train.py": "print(1)\n",
        },
        wanted="No matching distribution found for six==99.1",
        helpful=(r"six|requirements\.txt",),
        misleading=(r"memory|firewall|train\.py",),
    ),
    Failure(
        name="curl-cannot-resolve",
        way="curl cannot resolve the mirror",
        convention="shell",
        code="exit_code",
        also_codes=("data_unavailable",),
        command="bash -e dl.sh",
        files={
            "dl.sh": """\
curl -sSf -o corpus.zip https://mirror.example.invalid/corpus.zip
unzip corpus.zip
python train.py
"""
        },
        wanted="Could not resolve",
        helpful=(r"mirror\.example\.invalid|dl\.sh|corpus\.zip",),
        misleading=(r"memory|\bpip\b|MASTER_ADDR|NCCL",),
    ),
    Failure(
        name="tar-not-an-archive",
        way="an archive that is a web page",
        convention="shell",
        code="exit_code",
        also_codes=("data_unavailable",),
        command="bash -e untar.sh",
        files={
            "untar.sh": """\
mkdir -p out
tar xzf weights.tar.gz -C out
python train.py
""",
            "weights.tar.gz": "<html><title>Sign in</title></html>\n",
        },
        wanted=(
            "gzip: stdin: not in gzip format",
            "not in gzip format",
        ),
        helpful=(r"weights\.tar\.gz|untar",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="cmake-package-missing",
        way="cmake does not find a package",
        convention="shell",
        code="exit_code",
        also_codes=("environment",),
        command="cmake -S . -B build && make -C build && ./build/app",
        files={
            "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.10)
project(app LANGUAGES NONE)
find_package(Cutlass 3.1 REQUIRED)
"""
        },
        wanted=(
            'By not providing "FindCutlass.cmake"',
            'Could not find a package configuration file provided by "Cutlass"',
            "CMake Error at CMakeLists.txt:3 (find_package)",
        ),
        helpful=("Cutlass|CMakeLists",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|pip: \[",
        ),
    ),
    Failure(
        name="node-heap-out-of-memory",
        way="Node.js runs out of its heap",
        convention="shell",
        code="host_oom",
        also_codes=("signal",),
        command="exec node --max-old-space-size=12 build.js",
        files={
            "build.js": """\
const rows = [];
while (true) rows.push({id: rows.length, text: 'x'.repeat(50) + rows.length});
"""
        },
        wanted="JavaScript heap out of memory",
        helpful=(r"max-old-space-size|heap|build\.js",),
        misleading=(r"network|data-loader|PYTHONFAULTHANDLER|\bpip\b",),
    ),
    Failure(
        name="java-main-class-missing",
        way="java does not find the main class",
        convention="shell",
        code="exit_code",
        also_codes=(
            "launcher_missing",
            "environment",
        ),
        command="java -cp lib org.example.TrainJob --epochs 2",
        files={"lib/readme": "x"},
        wanted="Could not find or load main class org.example.TrainJob",
        helpful=(r"TrainJob|-cp|classpath|\blib\b",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="perl-module-missing",
        way="a Perl script lacks a module",
        convention="shell",
        code="environment",
        also_codes=("exit_code",),
        command="perl tok.pl < in.txt > out.txt",
        files={
            "tok.pl": """\
use strict;
use Text::Moses::Tokenizer;
print while <>;
""",
            "in.txt": "a\n",
        },
        wanted="Can't locate Text/Moses/Tokenizer.pm in @INC",
        helpful=(r"Text::Moses::Tokenizer|Tokenizer\.pm|cpan",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|pip: \[|pip install",
        ),
    ),
    Failure(
        name="tcl-error",
        way="a Tcl script fails",
        convention="shell",
        code="exit_code",
        command="tclsh flow.tcl",
        files={
            "flow.tcl": """\
proc place {n} { expr {$n / 0} }
puts "placing"
place 3
"""
        },
        wanted="divide by zero",
        helpful=(r"flow\.tcl|place",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="stack-smashing",
        way="a buffer overflow that the compiler's guard finds",
        convention="shell",
        code="signal",
        command="gcc -O0 -fstack-protector-all -w -o parse parse.c && exec ./parse",
        files={
            "parse.c": """\
#include <string.h>
#include <stdio.h>
void f(const char *s) { char b[8]; strcpy(b, s); puts(b); }
int main() { f("a header that is far too long for it"); }
"""
        },
        wanted="*** stack smashing detected ***",
        helpful=("stack smashing|overflow|parse",),
        misleading=(r"network|out of memory|PYTHONFAULTHANDLER|\bpip\b",),
    ),
    Failure(
        name="address-sanitizer",
        way="a sanitizer's report",
        convention="shell",
        code="exit_code",
        also_codes=("signal",),
        variables={"ASAN_OPTIONS": "detect_leaks=0"},
        command="gcc -g -fsanitize=address -o win win.c && ./win",
        files={
            "win.c": """\
#include <stdlib.h>
int main(int c, char **v) { int *p = malloc(4 * sizeof *p); int s = p[c + 4]; free(p); return s; }
"""
        },
        wanted="AddressSanitizer: heap-buffer-overflow",
        helpful=(r"win\.c|heap-buffer-overflow",),
        misleading=(r"network|out of memory|smaller batch|\bpip\b",),
    ),
    Failure(
        name="bad-alloc-under-limit",
        way="std::bad_alloc",
        convention="shell",
        code="host_oom",
        also_codes=("signal",),
        command="g++ -o index index.cpp && ulimit -v 500000 && exec ./index",
        files={
            "index.cpp": """\
#include <vector>
#include <cstdio>
int main() { std::vector<std::vector<char>> all; for (;;) { all.emplace_back(50 << 20); std::printf("%zu \
blocks\\n", all.size()); std::fflush(stdout); } }
"""
        },
        wanted="std::bad_alloc",
        helpful=("memory|ulimit|index",),
        misleading=(r"network|PYTHONFAULTHANDLER|\bpip\b|data-loader",),
    ),
    Failure(
        name="faulthandler-timeout-exit",
        way="dump_traceback_later ends a script that hangs",
        code="exit_code",
        command="python stuck.py",
        files={
            "stuck.py": """\
import faulthandler, queue
faulthandler.dump_traceback_later(1.5, exit=True)
jobs = queue.Queue()
def next_job():
    return jobs.get()
print('waiting', flush=True)
next_job()
"""
        },
        wanted=(
            "Timeout (0:00:01.500000)!",
            "next_job",
        ),
        helpful=(r"stuck\.py|next_job|dump_traceback_later",),
        misleading=(r"limits\.timeout|memory|firewall|\bpip\b",),
    ),
    Failure(
        name="alarm-clock",
        way="SIGALRM without a handler",
        code="signal",
        command="python alarm.py",
        files={
            "alarm.py": """\
import signal, time
signal.alarm(1)
print('solving', flush=True)
time.sleep(30)
"""
        },
        wanted=(
            "SIGALRM",
            "Alarm clock",
            "signal 14",
        ),
        helpful=("alarm",),
        misleading=(r"memory|firewall|\bpip\b|limits\.timeout",),
    ),
    Failure(
        name="pytest-fails",
        way="the job is a test run",
        code="exception",
        also_codes=("exit_code",),
        command="python -m pytest -q -p no:cacheprovider test_loss.py",
        files={
            "test_loss.py": """\
def test_sum():
    assert sum([1, 2]) == 3
def test_mean():
    values = [1, 2, 4]
    assert sum(values) / 3 == 2
"""
        },
        wanted=(
            "assert (7 / 3) == 2",
            "test_mean",
            "FAILED test_loss.py::test_mean",
        ),
        helpful=("test_loss|test_mean",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="warnings-as-errors",
        way="python -W error",
        code="exception",
        command="python -W error::UserWarning train_w.py",
        files={
            "train_w.py": """\
import warnings
def schedule():
    warnings.warn('lr_scheduler.step() before optimizer.step()')
schedule()
"""
        },
        wanted="UserWarning: lr_scheduler.step() before optimizer.step()",
        helpful=(r"train_w\.py|-W error|lr_scheduler",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="exception-with-notes",
        way="add_note puts lines below the message",
        code="exception",
        command="python notes.py",
        files={
            "notes.py": """\
try:
    int('abc')
except ValueError as e:
    e.add_note('while reading column: age')
    e.add_note('Hint: use --skip-bad-rows')
    raise
"""
        },
        wanted="ValueError: invalid literal for int() with base 10: 'abc'",
        helpful=(r"notes\.py|age|--skip-bad-rows",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="message-begins-with-blank-lines",
        way="a message that begins with empty lines and has bullets",
        code="exception",
        command="python -m proj.train",
        files={
            "proj/__init__.py": "",
            "proj/errors.py": """\
class ConfigError(Exception):
    pass
""",
            "proj/train.py": """\
from proj.errors import ConfigError
raise ConfigError('\\n\\nThe configuration is not valid:\\n  * scheduler: unknown name: cosin\\n  * ema: must \
be in [0, 1]: 1.2\\n')
""",
        },
        wanted=(
            "scheduler: unknown name: cosin",
            "The configuration is not valid",
        ),
        helpful=(r"scheduler|cosin|ema|proj/train|proj\.train",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="requests-max-retries",
        way="requests hides a refused connection below three exceptions",
        code="exception",
        also_codes=("data_unavailable",),
        command="python rq.py",
        files={
            "rq.py": """\
import requests
requests.get('http://127.0.0.1:9/v1/tokens', timeout=2)
"""
        },
        wanted=(
            "Connection refused",
            "Max retries exceeded with url: /v1/tokens",
        ),
        helpful=(r"127\.0\.0\.1|rq\.py|port 9|listen|running",),
        misleading=(r"memory|MASTER_PORT|NCCL|\bpip\b",),
    ),
    Failure(
        name="self-signed-certificate",
        way="a certificate that the machine does not trust",
        convention="shell",
        code="data_unavailable",
        also_codes=("exception",),
        command="bash tls.sh",
        files={
            "tls.sh": """\
openssl req -x509 -newkey rsa:2048 -nodes -keyout k.pem -out c.pem -subj /CN=localhost -days 2 2>/dev/null
exec python tls.py
""",
            "tls.py": """\
import http.server, ssl, threading, urllib.request
s = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
c.load_cert_chain('c.pem', 'k.pem')
s.socket = c.wrap_socket(s.socket, server_side=True)
s.handle_error = lambda *a: None
threading.Thread(target=s.serve_forever, daemon=True).start()
urllib.request.urlopen(f'https://localhost:{s.server_port}/train.bin')
""",
        },
        wanted=(
            "CERTIFICATE_VERIFY_FAILED",
            "certificate verify failed",
        ),
        helpful=("SSL_CERT_FILE|certificate|CA",),
        misleading=(r"memory|MASTER_PORT|NCCL|\bpip\b",),
    ),
    Failure(
        name="parquet-magic-bytes",
        way="a Parquet file that is none",
        code="exception",
        also_codes=("data_unavailable",),
        venv="scratch2",
        command="python pq.py",
        files={
            "pq.py": """\
import pyarrow.parquet as pq
pq.read_table('train-00000.parquet')
""",
            "train-00000.parquet": "not parquet at all, not at all\n",
        },
        wanted="Parquet magic bytes not found in footer",
        helpful=(r"train-00000\.parquet|pq\.py",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"out of memory|\bpip\b",
        ),
    ),
    Failure(
        name="wandb-no-key",
        way="wandb is not logged in",
        code="exception",
        venv="scratch2",
        variables={"WANDB_DIR": "/tmp/w-unseen", "WANDB_ERROR_REPORTING": "false", "HOME": "/tmp/w-unseen/nohome"},
        command="python track.py",
        files={
            "track.py": """\
import wandb
run = wandb.init(project='demo')
"""
        },
        wanted=(
            "api_key not configured (no-tty)",
            "No API key configured",
        ),
        helpful=("WANDB_API_KEY|wandb login|WANDB_MODE|offline",),
        misleading=("memory|MASTER_PORT|NCCL|pip install",),
    ),
    Failure(
        name="wandb-offline-lines-after-traceback",
        way="wandb offline talks after the traceback",
        code="exception",
        venv="scratch2",
        variables={"WANDB_MODE": "offline", "WANDB_DIR": "/tmp/w-unseen", "WANDB_ERROR_REPORTING": "false"},
        command="python tracked.py",
        files={
            "tracked.py": """\
import wandb
run = wandb.init(project='demo')
run.log({'loss': 1.0})
model = None
model.train()
"""
        },
        wanted="AttributeError: 'NoneType' object has no attribute 'train'",
        helpful=(r"tracked\.py|model|None",),
        misleading=("wandb sync|memory|network|pip install",),
    ),
    Failure(
        name="sklearn-nan-input",
        way="scikit-learn finds NaN in its input",
        code="exception",
        venv="scratch2",
        command="python linreg.py",
        files={
            "linreg.py": """\
import numpy as np
from sklearn.linear_model import LinearRegression
LinearRegression().fit(np.array([[1.0], [np.nan]]), [1, 2])
"""
        },
        wanted="ValueError: Input X contains NaN.",
        helpful=(r"NaN|impute|linreg\.py",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="optuna-trial-fails",
        way="optuna logs a trial's failure as a warning, then raises it",
        code="exception",
        venv="scratch2",
        command="python study.py",
        files={
            "study.py": """\
import optuna
def objective(trial):
    lr = trial.suggest_float('lr', 1e-5, 1e-1, log=True)
    if trial.number == 2:
        raise ArithmeticError('loss exploded in trial 2')
    return lr
optuna.create_study().optimize(objective, n_trials=5)
"""
        },
        wanted="ArithmeticError: loss exploded in trial 2",
        helpful=(r"study\.py|trial 2|objective",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"out of memory|\bpip\b",
        ),
    ),
    Failure(
        name="fd-limit-one-of-3",
        way="one rank runs out of file descriptors",
        convention="process",
        processes=3,
        code="exception",
        rank=1,
        command="[ $RANK = 1 ] && ulimit -n 40; exec python many.py",
        files={
            "many.py": """\
import os, time, tempfile
handles = []
for i in range(100):
    handles.append(tempfile.TemporaryFile())
print('opened', len(handles), flush=True)
time.sleep(20)
"""
        },
        wanted="Too many open files",
        helpful=(r"ulimit|descriptor|open files|many\.py",),
        misleading=("network|firewall|out of memory|disk",),
    ),
    Failure(
        name="watchdog-in-every-rank",
        way="each rank's watchdog ends it because one hangs; all have the same words",
        convention="process",
        processes=4,
        code="collective",
        also_codes=("exit_code",),
        rank=1,
        command="python -u wd.py",
        files={
            "wd.py": """\
import faulthandler, os, pathlib, sys, time
R, W = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
def arrive(name):
    pathlib.Path(f'{name}.{R}').touch()
    while len(list(pathlib.Path('.').glob(f'{name}.*'))) < W:
        time.sleep(0.02)
arrive('init')
if R != 1:
    faulthandler.dump_traceback_later(2, exit=True)
def rebuild_index():
    time.sleep(100)
if R == 1:
    rebuild_index()
arrive('step')
"""
        },
        wanted=(
            *HUNG,
            "rebuild_index",
        ),
        helpful=("rank 1|rebuild_index",),
        misleading=(r"firewall|memory|\bpip\b",),
    ),
    Failure(
        name="two-ranks-hang-of-six",
        way="two ranks wait for each other; four time out",
        convention="process",
        processes=6,
        code="collective",
        also_codes=("exception",),
        rank=2,
        also=(5,),
        command="python -u pair.py",
        files={
            "pair.py": """\
import os, pathlib, time
R, W = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
def meet(name, seconds):
    pathlib.Path(f'{name}.{R}').touch()
    end = time.monotonic() + seconds
    while len(list(pathlib.Path('.').glob(f'{name}.*'))) < W:
        if time.monotonic() > end:
            raise TimeoutError(f'{name}: not all ranks came within {seconds} s')
        time.sleep(0.02)
def exchange(with_rank):
    while not os.path.exists(f'mail.{with_rank}.{R}'):
        time.sleep(0.05)
    open(f'mail.{R}.{with_rank}', 'w').close()
meet('init', 20)
if R in (2, 5):
    exchange(7 - R)
meet('reduce', 2)
"""
        },
        wanted=(
            *HUNG,
            "exchange",
            "reduce: not all ranks came within 2 s",
        ),
        helpful=("rank 2|rank 5|exchange",),
        misleading=(r"firewall|memory|\bpip\b",),
    ),
    Failure(
        name="many-different-tracebacks-one-cause",
        way="each victim fails in another way when the first dies",
        convention="process",
        processes=5,
        code="exception",
        command="python -u srv.py",
        files={
            "srv.py": """\
import os, socket, sys, time
R = int(os.environ['RANK'])
A = ('127.0.0.1', int(os.environ['MASTER_PORT']))
def connect():
    for _ in range(200):
        try:
            return socket.create_connection(A)
        except OSError:
            time.sleep(0.05)
if R == 0:
    s = socket.create_server(A)
    cs = [s.accept()[0] for _ in range(4)]
    time.sleep(0.3)
    vocab = {'a': 0}
    ids = [vocab[t] for t in 'ab']
c = connect()
if R == 1:
    c.sendall(b'x')
    assert c.recv(8) == b'ok', 'server gave no answer'
elif R == 2:
    int(c.recv(8))
elif R == 3:
    if not c.recv(8):
        sys.exit('scheduler is gone')
else:
    while True:
        c.sendall(b'y' * 1000)
        time.sleep(0.05)
"""
        },
        wanted="KeyError: 'b'",
        helpful=(r"srv\.py|vocab",),
        misleading=(r"firewall|memory|\bpip\b|scheduler is gone",),
    ),
    Failure(
        name="six-ranks-one-permission",
        way="one rank of six may not write its output",
        convention="process",
        processes=6,
        nodes=3,
        code="exception",
        also_codes=("data_unavailable",),
        rank=4,
        command="python out.py",
        files={
            "out.py": """\
import os, time
r = os.environ['RANK']
os.makedirs('out', exist_ok=True)
time.sleep(0.4)
if r == '4':
    os.setgid(65534); os.setuid(65534)
open(f'/tmp/w-unseen/secret/pred_{r}.csv' if r == '4' else f'out/pred_{r}.csv', 'w').write('x')
time.sleep(15)
"""
        },
        wanted="PermissionError: [Errno 13] Permission denied",
        helpful=(r"pred_4|permission|writ|out\.py",),
        misleading=(r"firewall|memory|\bpip\b",),
    ),
]
