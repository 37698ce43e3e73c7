"""Shell scripts, wrappers, and programs in other languages."""

from recorder import Failure

FAILURES = [
    Failure(
        name="bash-e-missing-folder",
        way="bash -e stops at cp",
        convention="shell",
        code="exit_code",
        also_codes=("data_unavailable",),
        command="bash -e prepare.sh",
        files={
            "prepare.sh": """\
echo preparing
mkdir -p stage
cp -r /data/wikitext stage/
python train.py
""",
            "train.py": "print('never')\n",
        },
        wanted="cp: cannot stat '/data/wikitext': No such file or directory",
        helpful=(
            "/data/wikitext",
            r"prepare\.sh",
        ),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"train\.py",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="nounset-variable",
        way="set -u and a variable that is not set",
        convention="shell",
        code="exit_code",
        also_codes=("bad_input",),
        command="./launch.sh",
        files={
            "launch.sh": """\
#!/bin/bash
set -euo pipefail
echo start
python -c 'pass' --out "$EXPERIMENT_DIR"
"""
        },
        wanted="EXPERIMENT_DIR: unbound variable",
        helpful=("EXPERIMENT_DIR",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="crlf-shebang",
        way="a shell script with Windows line ends",
        convention="shell",
        code="launcher_missing",
        command="./start.sh",
        files={"start.sh": "#!/bin/bash\r\necho hello\r\npython train.py\r\n", "train.py": "print(1)\n"},
        wanted=(
            "bash^M",
            "cannot execute: required file not found",
            "bad interpreter",
            "/bin/bash\r",
            "start.sh",
        ),
        helpful=("CRLF|Windows|dos2unix|line end|sed -i|carriage",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            "pip install|chmod",
        ),
    ),
    Failure(
        name="crlf-inside-bash",
        way="bash reads a script with Windows line ends",
        convention="shell",
        code="exit_code",
        also_codes=("launcher_missing",),
        command="bash run.sh",
        files={"run.sh": "set -e\r\ncd data\r\npython ../train.py\r\n", "data/x": "", "train.py": "print(1)\n"},
        wanted=(
            "set: -\r",
            "invalid option",
            "No such file or directory",
            "$'\\r'",
        ),
        helpful=("CRLF|Windows|dos2unix|line end|sed -i|carriage",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            "pip install",
        ),
    ),
    Failure(
        name="no-execute-bit",
        way="a program without the right to be run",
        convention="shell",
        code="launcher_missing",
        command="./main.py --epochs 1",
        files={
            "main.py": """\
#!/usr/bin/env python
print('hi')
"""
        },
        wanted="./main.py: Permission denied",
        helpful=(r"chmod|python main\.py",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"\bpip\b|sudo",
        ),
    ),
    Failure(
        name="shebang-of-another-machine",
        way="the shebang names an interpreter that is not here",
        convention="shell",
        code="launcher_missing",
        command="chmod +x tool.py; ./tool.py",
        files={
            "tool.py": """\
#!/opt/conda/envs/ml/bin/python3
print('hi')
"""
        },
        wanted=(
            "cannot execute: required file not found",
            "bad interpreter",
            "/opt/conda/envs/ml/bin/python3",
        ),
        helpful=(r"shebang|first line|python tool\.py|/opt/conda",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            "chmod",
        ),
    ),
    Failure(
        name="command-not-found",
        way="the first word is not a program",
        convention="shell",
        code="launcher_missing",
        command="colossalai --ntasks 2 python train.py | cat; exit ${PIPESTATUS[0]}",
        files={"train.py": "print(1)\n"},
        wanted="colossalai: command not found",
        helpful=("colossalai",),
        misleading=("network|firewall|smaller batch|MASTER_PORT",),
    ),
    Failure(
        name="script-misspelt",
        way="python cannot find the script; a similar one is there",
        code="exit_code",
        also_codes=(
            "bad_input",
            "launcher_missing",
        ),
        command="python trian.py --epochs 2",
        files={"train.py": "print(1)\n", "README.md": "x"},
        wanted="can't open file",
        helpful=(r"train\.py",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="pipefail-python-tee",
        way="a traceback through tee",
        convention="shell",
        code="exception",
        command="bash -o pipefail -c 'python -u steps.py 2>&1 | tee out.log'",
        files={
            "steps.py": """\
for s in range(5):
    print('step', s)
raise OverflowError('loss scale 2**128 is too large')
"""
        },
        wanted="OverflowError: loss scale 2**128 is too large",
        helpful=(
            r"steps\.py",
            "loss scale",
        ),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"\btee\b",
        ),
    ),
    Failure(
        name="make-target-fails",
        way="make reports an error after the traceback",
        convention="shell",
        code="exception",
        also_codes=("exit_code",),
        command="make -s train",
        files={
            "Makefile": """\
train: vocab
	python train.py vocab.txt
vocab:
	echo a > vocab.txt
""",
            "train.py": """\
import sys
words = open(sys.argv[1]).read().split()
assert len(words) > 100, f'vocab.txt has {len(words)} words, need 100'
""",
        },
        wanted="AssertionError: vocab.txt has 1 words, need 100",
        helpful=(
            r"vocab\.txt",
            r"train\.py",
        ),
        misleading=("Makefile:|memory|network",),
    ),
    Failure(
        name="make-missing-rule",
        way="make lacks a rule",
        convention="shell",
        code="exit_code",
        also_codes=("bad_input",),
        command="make train",
        files={
            "Makefile": """\
train: data/train.bin
	python train.py
"""
        },
        wanted="No rule to make target 'data/train.bin', needed by 'train'",
        helpful=(r"data/train\.bin",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="cpp-exception-uncaught",
        way="a C++ program throws",
        convention="shell",
        code="signal",
        also_codes=("exception",),
        command="g++ -O0 -o solver solver.cpp && ./solver --grid 10",
        files={
            "solver.cpp": """\
#include <vector>
#include <iostream>
int main() {
  std::vector<double> u(10);
  std::cout << "grid 10" << std::endl;
  for (int i = 0; i <= 10; i++) u.at(i) = i;
}
"""
        },
        wanted=(
            "vector::_M_range_check: __n (which is 10) >= this->size() (which is 10)",
            "std::out_of_range",
        ),
        helpful=("range|out_of_range|solver",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"PYTHONFAULTHANDLER|\bpip\b|memory",
        ),
    ),
    Failure(
        name="cpp-exception-from-python",
        way="a C++ library that Python loads throws",
        code="signal",
        command="g++ -shared -fPIC -o libops.so ops.cpp && python use_ops.py",
        files={
            "ops.cpp": """\
#include <stdexcept>
extern "C" int rope(int dim) { if (dim % 2) throw std::invalid_argument("rope: head dimension 65 must be \
even"); return dim; }
""",
            "use_ops.py": """\
import ctypes
lib = ctypes.CDLL('./libops.so')
print('step 1', flush=True)
lib.rope(64)
print('step 2', flush=True)
lib.rope(65)
""",
        },
        wanted="rope: head dimension 65 must be even",
        helpful=(r"rope|head dim|ops\.cpp|libops|use_ops",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="illegal-instruction",
        way="a program built for another processor",
        convention="shell",
        code="signal",
        command="gcc -O0 -o kern kern.c && ./kern; exit $?",
        files={
            "kern.c": """\
#include <stdio.h>
int main() { puts("kernel: AVX-512 path"); fflush(stdout); __builtin_trap(); }
"""
        },
        wanted=(
            "Illegal instruction",
            "SIGILL",
            "signal 4",
        ),
        helpful=("instruction|processor|CPU|AVX|march",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="sigfpe-integer-division",
        way="an integer division by zero in C below Python",
        code="signal",
        command="gcc -O0 -shared -fPIC -o libstep.so step.c; exec python loopc.py",
        files={
            "step.c": "int steps(int n, int per) { return n / per; }\n",
            "loopc.py": """\
import ctypes
c = ctypes.CDLL('./libstep.so')
for per in (4, 2, 0):
    print('per', per, flush=True)
    c.steps(100, per)
""",
        },
        wanted=(
            "SIGFPE",
            "Floating point exception",
            "signal 8",
        ),
        helpful=("faulthandler|division|zero|native|libstep|loopc",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b|learning rate",
        ),
    ),
    Failure(
        name="glibc-double-free",
        way="free() twice",
        convention="shell",
        code="signal",
        command="gcc -O0 -o aug aug.c 2>/dev/null && exec ./aug",
        files={
            "aug.c": """\
#include <stdlib.h>
#include <stdio.h>
int main() { puts("augmenting"); fflush(stdout); void *volatile p = malloc(64); free(p); free(p); }
"""
        },
        wanted=(
            "free(): double free detected",
            "SIGABRT",
        ),
        helpful=(r"double free|aug\b|native|valgrind|gdb|core",),
        misleading=("network|smaller batch|out of memory|PYTHONFAULTHANDLER",),
    ),
    Failure(
        name="c-assert",
        way="an assertion of C",
        convention="shell",
        code="signal",
        command="gcc -o shard shard.c && exec ./shard",
        files={
            "shard.c": """\
#include <assert.h>
int main() { int world = 3, blocks = 8; assert(blocks % world == 0 && "blocks must divide by world"); }
"""
        },
        wanted=(
            "blocks must divide by world",
            "Assertion `blocks % world == 0",
        ),
        helpful=(r"shard\.c|blocks|world",),
        misleading=(r"network|memory|\bpip\b|PYTHONFAULTHANDLER",),
    ),
    Failure(
        name="java-stack-trace",
        way="a Java program with a cause below the exception",
        convention="shell",
        code="exception",
        also_codes=("exit_code",),
        command="java Feeder.java train.csv",
        files={
            "Feeder.java": """\
import java.util.*;
public class Feeder {
  static double parse(String s) { return Double.parseDouble(s); }
  public static void main(String[] a) {
    System.out.println("feeding " + a[0]);
    try { for (String s : List.of("1.0", "n/a")) parse(s); }
    catch (NumberFormatException e) { throw new IllegalStateException("row 2 of " + a[0] + " is bad", e); }
  }
}
"""
        },
        wanted=(
            'java.lang.NumberFormatException: For input string: "n/a"',
            'NumberFormatException: For input string: "n/a"',
        ),
        helpful=(r"Feeder|train\.csv|n/a|row 2",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="java-heap-space",
        way="the Java heap is too small",
        convention="shell",
        code="host_oom",
        also_codes=(
            "exception",
            "exit_code",
        ),
        command="java -Xmx16m Cache.java",
        files={
            "Cache.java": """\
import java.util.*;
public class Cache { public static void main(String[] a) { List<byte[]> l = new ArrayList<>(); while (true) \
l.add(new byte[1 << 20]); } }
"""
        },
        wanted="java.lang.OutOfMemoryError: Java heap space",
        helpful=("-Xmx|heap",),
        misleading=("network|data-loader|smaller batch|num_workers",),
    ),
    Failure(
        name="rust-panic",
        way="a Rust program panics",
        convention="shell",
        code="exit_code",
        also_codes=("exception",),
        command="/root/.cargo/bin/rustc -o tok tok.rs && ./tok",
        files={
            "tok.rs": """\
fn main() {
    println!("tokenizing");
    let merges: Result<u32, String> = Err("merges.txt:17: expected two tokens, found 3".into());
    let n = merges.expect("cannot read merges");
    println!("{n}");
}
"""
        },
        wanted=(
            "cannot read merges",
            "merges.txt:17: expected two tokens, found 3",
        ),
        helpful=(r"merges|tok\.rs",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="node-unhandled-rejection",
        way="a Node.js program throws",
        convention="shell",
        code="exit_code",
        also_codes=("exception",),
        command="node convert.js",
        files={
            "convert.js": """\
const rows = [{id: 1, text: 'a'}, null];
const upper = rows.map(r => r.text.toUpperCase());
console.log(upper);
"""
        },
        wanted="TypeError: Cannot read properties of null (reading 'text')",
        helpful=(r"convert\.js|null|text",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="perl-dies",
        way="a Perl script dies",
        convention="shell",
        code="exit_code",
        command="perl clean.pl corpus.de corpus.en",
        files={
            "clean.pl": """\
use strict;
print "cleaning\\n";
my ($a, $b) = (10, 12);
die "corpus.de has $a lines, corpus.en has $b" if $a != $b;
"""
        },
        wanted="corpus.de has 10 lines, corpus.en has 12 at clean.pl line 4.",
        helpful=(r"corpus\.(de|en)|clean\.pl",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="compile-error",
        way="the compiler rejects a kernel",
        convention="shell",
        code="exit_code",
        command="g++ -o k kernel.cpp && ./k",
        files={
            "kernel.cpp": """\
#include <cstdio>
int main() {
  int n = blocksize * 2;
  std::printf("%d\\n", n);
}
"""
        },
        wanted="‘blocksize’ was not declared in this scope",
        helpful=(r"kernel\.cpp|blocksize",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="missing-shared-library",
        way="a program lacks a library",
        convention="shell",
        code="environment",
        also_codes=(
            "launcher_missing",
            "exit_code",
        ),
        command=(
            "gcc -shared -o libfoo2.so -x c /dev/null && gcc -o prog prog.c "
            "-Wl,--no-as-needed -L. -lfoo2 && rm libfoo2.so && ./prog"
        ),
        files={"prog.c": "int main() { return 0; }\n"},
        wanted="error while loading shared libraries: libfoo2.so: cannot open shared object file",
        helpful=("libfoo2|LD_LIBRARY_PATH",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|pip: \[",
        ),
    ),
    Failure(
        name="oom-killed-in-a-group",
        way="the kernel kills a process for lack of memory",
        convention="shell",
        code="host_oom",
        also_codes=("signal",),
        command="./confined.sh",
        files={
            "confined.sh": """\
#!/bin/bash
group=/sys/fs/cgroup/memory/job-$$
mkdir $group
echo 60M > $group/memory.limit_in_bytes
trap 'rmdir $group 2>/dev/null' EXIT
(echo $BASHPID > $group/cgroup.procs; exec python cache_all.py)
exit $?
""",
            "cache_all.py": """\
cache = []
for i in range(400):
    cache.append(bytearray(1 << 20))
    if i % 10 == 0:
        print('cached', i, 'MB', flush=True)
""",
        },
        wanted=(
            "memory",
            "Killed",
        ),
        helpful=("memory|cache_all",),
        misleading=(r"network|PYTHONFAULTHANDLER|\bpip\b",),
    ),
    Failure(
        name="killed-by-somebody",
        way="SIGKILL from an operator's script, with memory to spare",
        convention="shell",
        code="signal",
        command="python quiet.py & sleep 0.7; kill -9 $!; wait $!",
        files={
            "quiet.py": """\
import time
print('epoch 1', flush=True)
time.sleep(60)
"""
        },
        wanted=(
            "SIGKILL",
            "Killed",
            "signal 9",
            "137",
        ),
        helpful=("SIGKILL|kill",),
        misleading=(r"network|smaller batch|\bpip\b",),
    ),
    Failure(
        name="disk-full-tofile",
        way="NumPy writes less than it wanted",
        convention="shell",
        code="disk_full",
        also_codes=("exception",),
        command="./small_disk.sh",
        files={
            "small_disk.sh": """\
#!/bin/bash
set -e
mkdir -p scratch
exec unshare -m bash -c 'mount -t tmpfs -o size=1m small scratch && exec python tofile.py'
""",
            "tofile.py": """\
import numpy as np
np.zeros(1_000_000, dtype=np.float32).tofile('scratch/memmap.bin')
""",
        },
        wanted=(
            "requested and",
            "No space left on device",
        ),
        helpful=(r"disk|space|scratch|memmap\.bin",),
        misleading=(r"network|out of memory|smaller batch|\bpip\b",),
    ),
    Failure(
        name="disk-full-tar",
        way="tar finds no space while it unpacks",
        convention="shell",
        code="disk_full",
        also_codes=("exit_code",),
        command="./unpack.sh",
        files={
            "unpack.sh": """\
#!/bin/bash
set -e
mkdir -p stage
exec unshare -m bash -c 'mount -t tmpfs -o size=200k small stage && exec bash fill.sh'
""",
            "fill.sh": """\
set -e
head -c 2000000 /dev/urandom > images.raw
tar cf images.tar images.raw
tar xf images.tar -C stage
python train.py
""",
        },
        wanted=(
            "Wrote only 512 of 10240 bytes",
            "No space left on device",
        ),
        helpful=("disk|space|stage",),
        misleading=(r"network|memory|\bpip\b",),
    ),
    Failure(
        name="read-only-file-system",
        way="outputs go to a folder that may not be written",
        convention="shell",
        code="exception",
        command="./ro.sh",
        files={
            "ro.sh": """\
#!/bin/bash
set -e
mkdir -p models
exec unshare -m bash -c 'mount -t tmpfs -o ro,size=1m ro models && exec python export.py'
""",
            "export.py": """\
import json
json.dump({'w': [1]}, open('models/final.json', 'w'))
""",
        },
        wanted="OSError: [Errno 30] Read-only file system: 'models/final.json'",
        helpful=("models|read-only|outputs|writ",),
        misleading=("network|out of memory|muster rm|disk is full",),
    ),
    Failure(
        name="broken-pipe-head",
        way="head closes the pipe",
        convention="shell",
        code="exception",
        also_codes=(
            "exit_code",
            "signal",
        ),
        command="set -o pipefail; python -u chatty.py | head -n 3",
        files={
            "chatty.py": """\
import time
for i in range(200):
    print('step', i)
    time.sleep(0.005)
"""
        },
        wanted="BrokenPipeError: [Errno 32] Broken pipe",
        helpful=("head|pipe",),
        misleading=("network|memory|peer",),
    ),
    Failure(
        name="heredoc-python-error",
        way="a Python program on standard input",
        convention="shell",
        code="exception",
        command="bash sweep.sh",
        files={
            "sweep.sh": """\
set -e
for lr in 0.1 0.01; do
  echo "lr $lr"
  python - "$lr" <<'PY'
import sys
lr = sys.argv[1]
print(lr / 10)
PY
done
"""
        },
        wanted="TypeError: unsupported operand type(s) for /: 'str' and 'int'",
        helpful=(r"sweep\.sh|float\(|\blr\b",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="bash-exit-code-only",
        way="a wrapper that hides everything but its code",
        convention="shell",
        code="exit_code",
        command="./wrapper.sh",
        files={
            "wrapper.sh": """\
#!/bin/bash
echo 'node check: 3 of 4 mounts present'
echo 'stage: scratch'
python -c 'raise SystemExit(9)' > /dev/null 2>&1 || exit 77
"""
        },
        wanted=(
            "77",
            "stage: scratch",
        ),
        helpful=(r"wrapper\.sh|77",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b|python -c",
        ),
    ),
    Failure(
        name="timeout-command",
        way="coreutils timeout ends the training",
        convention="shell",
        code="exit_code",
        also_codes=(
            "timeout",
            "signal",
        ),
        command="timeout 1 python -u slow.py",
        files={
            "slow.py": """\
import time
for s in range(100):
    print('step', s)
    time.sleep(0.2)
"""
        },
        wanted=(
            "124",
            "timeout 1",
            "step 4",
        ),
        helpful=("timeout 1|`timeout`|124",),
        misleading=(r"network|memory|\bpip\b|limits\.timeout",),
    ),
    Failure(
        name="dd-file-size",
        way="SIGXFSZ",
        convention="shell",
        code="signal",
        also_codes=("disk_full",),
        command="ulimit -f 50; exec head -c 1000000 /dev/zero > cache.bin",
        files={"readme.txt": "x"},
        wanted=(
            "SIGXFSZ",
            "File size limit exceeded",
            "signal 25",
        ),
        helpful=("file size|ulimit",),
        misleading=(r"network|out of memory|PYTHONFAULTHANDLER|\bpip\b",),
    ),
    Failure(
        name="shell-syntax-error",
        way="a quote that is not closed",
        convention="shell",
        code="exit_code",
        also_codes=("bad_input",),
        command="bash job.sh",
        files={
            "job.sh": """\
echo start
python train.py --name "exp 1 --lr 0.1
echo done
""",
            "train.py": "print(1)\n",
        },
        wanted="unexpected EOF while looking for matching `\"'",
        helpful=(r"job\.sh|quote",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory|\bpip\b",
        ),
    ),
    Failure(
        name="conda-activate-missing",
        way="conda is not on the node",
        convention="shell",
        code="launcher_missing",
        also_codes=(
            "exit_code",
            "environment",
        ),
        command="bash -e env.sh",
        files={
            "env.sh": """\
conda activate ml
python train.py
""",
            "train.py": "print(1)\n",
        },
        wanted="conda: command not found",
        helpful=(r"conda|activate|environment|env\.sh",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            "memory",
        ),
    ),
    Failure(
        name="sudo-apt-inside",
        way="python3.12 is not installed",
        convention="shell",
        code="launcher_missing",
        also_codes=("exit_code",),
        command="bash -c 'set -e; echo checking; python3.14t train.py'",
        files={"train.py": "print(1)\n"},
        wanted="python3.14t: command not found",
        helpful=(r"python3\.14t?",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT",
            r"memory",
        ),
    ),
]
