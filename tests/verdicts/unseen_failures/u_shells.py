"""Shell scripts and programs of other languages."""

from functools import partial

from recorder import Failure

Shell = partial(Failure, convention="shell")

FAILURES = [
    Shell(
        name="u-sh-set-e-grep",
        way="set -e ends a script at a grep without a match",
        code="exit_code",
        command="bash nightly.sh",
        files={
            "nightly.sh": """#!/bin/bash
set -eux
echo "model=base acc=0.81" > eval.log
best=$(grep -o 'f1=[0-9.]*' eval.log | cut -d= -f2 || true)
grep -q 'f1=' eval.log
echo "best f1 $best"
""",
        },
        wanted="grep -q f1= eval.log",
        helpful=(r"nightly\.sh", r"grep|eval\.log|f1"),
        misleading=(r"network|memory|install",),
    ),
    Shell(
        name="u-sh-unbound-variable",
        way="set -u meets a variable that the scheduler would set",
        code="exit_code",
        also_codes=("bad_input",),
        command="bash launch.sh",
        files={
            "launch.sh": """set -euo pipefail
echo "launching on $(nproc) cores"
NODES=${NODES:-1}
JOB=$SLURM_JOB_ID
python train.py --run $JOB --nodes $NODES
""",
            "train.py": "print('training')\n",
        },
        wanted="SLURM_JOB_ID: unbound variable",
        helpful=(r"SLURM_JOB_ID", r"launch\.sh"),
        misleading=(r"network|memory|install",),
    ),
    Shell(
        name="u-sh-command-not-found",
        way="a program that a script calls is not installed",
        code="launcher_missing",
        also_codes=("exit_code", "environment"),
        command="bash encode.sh in.wav",
        files={
            "encode.sh": """#!/usr/bin/env bash
set -e
echo "encoding $1"
sox-ng "$1" -r 16000 out.wav
echo "training on out.wav"
""",
        },
        wanted="sox-ng: command not found",
        helpful=(r"sox-ng|sox", r"install|PATH"),
        misleading=(r"network|memory",),
    ),
    Shell(
        name="u-sh-hidden-code-of-training",
        way="training fails in a pipe, the packing after it fails for want of its product",
        code="exception",
        also_codes=("exit_code",),
        command="bash pipeline.sh",
        files={
            "pipeline.sh": """#!/bin/bash
set -e
echo "== train"
python train.py | tee train.out
echo "== pack"
tar czf model.tgz model/weights.bin
echo "== done"
""",
            "train.py": """import sys
hparams = dict(layers=4, heads=6, width=256)
print("hparams", hparams, flush=True)
if hparams["width"] % hparams["heads"]:
    raise ValueError(f"width {hparams['width']} is not a multiple of heads {hparams['heads']}")
""",
        },
        wanted="width 256 is not a multiple of heads 6",
        helpful=(r"train\.py", r"heads|width"),
        misleading=(r"network|memory|tar\b|install",),
    ),
    Shell(
        name="u-sh-background-jobs-wait",
        way="four background trainings, the third fails, wait collects codes",
        code="exception",
        command="bash sweep.sh",
        files={
            "sweep.sh": """#!/bin/bash
pids=()
for lr in 0.1 0.01 fast 0.001; do
  python fit.py --lr $lr > fit_$lr.log 2>&1 &
  pids+=($!)
done
failed=0
for p in "${pids[@]}"; do wait $p || failed=$((failed + 1)); done
tail -n 20 fit_*.log
echo "$failed of ${#pids[@]} runs failed"
exit $failed
""",
            "fit.py": """import sys
lr = float(sys.argv[2])
for epoch in range(3):
    print(f"lr {lr} epoch {epoch} loss {1 / (epoch + 1):.3f}")
""",
        },
        wanted="could not convert string to float: 'fast'",
        helpful=(r"sweep\.sh|fit\.py", r"fast|--lr|learning rate"),
        misleading=(r"network|memory|install",),
    ),
    Shell(
        name="u-sh-make-compile-error",
        way="the kernel does not compile",
        code="exit_code",
        also_codes=("exception",),
        command="bash build.sh && ./kernel",
        files={
            "build.sh": "set -e\ng++ -O2 -std=c++17 -c kernel.cpp -o kernel.o\ng++ kernel.o -o kernel\n",
            "kernel.cpp": """#include <vector>
#include <numeric>
#include <cstdio>

template <typename T>
T dot(const std::vector<T>& a, const std::vector<T>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), T{});
}

int main() {
    std::vector<float> a{1, 2, 3};
    std::vector<double> b{4, 5, 6};
    std::printf("%f\\n", dot(a, b));
}
""",
        },
        wanted="no matching function for call to",
        helpful=(r"kernel\.cpp", r"dot|float|double|type"),
        misleading=(r"network|out of memory",),
    ),
    Shell(
        name="u-sh-java-heap",
        way="a Java program runs out of its heap",
        code="exception",
        also_codes=("host_oom",),
        command="java -Xmx32m Indexer.java",
        files={
            "Indexer.java": """import java.util.*;

public class Indexer {
    public static void main(String[] args) {
        Map<Integer, long[]> index = new HashMap<>();
        for (int doc = 0; doc < 10000; doc++) {
            index.put(doc, new long[20000]);
            if (doc % 50 == 0) System.out.println("indexed " + doc + " documents");
        }
        System.out.println(index.size());
    }
}
"""
        },
        wanted="java.lang.OutOfMemoryError: Java heap space",
        helpful=(r"Xmx|heap", r"Indexer\.java"),
        misleading=(r"network|GPU|install",),
    ),
    Shell(
        name="u-sh-node-unhandled-rejection",
        way="a rejected promise is not handled",
        code="exception",
        command="node prefetch.mjs",
        files={
            "prefetch.mjs": """import { setTimeout as sleep } from 'node:timers/promises';

class QuotaError extends Error {
  constructor(used, limit) {
    super(`bucket quota exceeded: ${used} of ${limit} objects`);
    this.name = 'QuotaError';
  }
}

async function put(n) {
  await sleep(20);
  if (n > 4) throw new QuotaError(n, 4);
  console.log(`put object ${n}`);
}

for (let n = 1; n < 8; n++) await put(n);
"""
        },
        wanted="bucket quota exceeded: 5 of 4 objects",
        helpful=(r"quota|bucket", r"prefetch\.mjs"),
        misleading=(r"out of memory|install",),
    ),
    Shell(
        name="u-sh-cpp-segfault-in-script",
        way="a C++ program crashes, its script passes the code on",
        code="signal",
        command="bash simulate.sh",
        files={
            "simulate.sh": """#!/bin/bash
g++ -O0 -g -o sim sim.cpp || exit 1
./sim 12
rc=$?
[ $rc -eq 0 ] || { echo "simulation ended with $rc" >&2; exit $rc; }
""",
            "sim.cpp": """#include <cstdio>
#include <cstdlib>
struct Cell { double rho; Cell* next; };
int main(int argc, char** argv) {
    int n = atoi(argv[1]);
    Cell* head = nullptr;
    for (int i = 0; i < n; i++) head = new Cell{1.0 * i, head};
    std::printf("cells: %d\\n", n);
    std::fflush(stdout);
    double sum = 0;
    for (int i = 0; i <= n; i++) { sum += head->rho; head = head->next; }
    std::printf("mass %f\\n", sum);
}
""",
        },
        wanted=("Segmentation fault",),
        helpful=(r"sim\.cpp|sim\b", r"core|debug|gdb|sanitize|native"),
        misleading=(r"network|firewall|install",),
    ),
    Shell(
        name="u-sh-timeout-command",
        way="the script's own timeout ends the program with 124",
        code="exit_code",
        also_codes=("timeout",),
        command="bash guarded.sh",
        files={
            "guarded.sh": """#!/bin/bash
set -e
echo "waiting for license daemon (at most 4 s)"
timeout 4 bash -c 'until [ -e /run/licd.sock ]; do sleep 0.5; done'
echo "license ok"
python train.py
""",
            "train.py": "print('training')\n",
        },
        wanted=("waiting for license daemon", "124"),
        helpful=(r"timeout|license|licd|guarded\.sh",),
        misleading=(r"memory|install python",),
    ),
    Shell(
        name="u-sh-perl-missing-module",
        way="a Perl module is not installed",
        code="environment",
        also_codes=("exception",),
        command="perl tokenize.pl corpus.txt",
        files={
            "corpus.txt": "hello world\n",
            "tokenize.pl": """#!/usr/bin/perl
use strict;
use warnings;
use Lingua::EN::Segmenter::Fast;

while (<>) { print join(' ', split), "\\n" }
""",
        },
        wanted="Can't locate Lingua/EN/Segmenter/Fast.pm in @INC",
        helpful=(r"Lingua", r"install|cpan"),
        misleading=(r"network|memory",),
    ),
]
