"""Jobs that are no Python: shells, compilers, other languages. The labels were given before any verdict was seen."""

from functools import partial

from recorder import Failure

shell = partial(Failure, convention="shell", misleading=(r"firewall|smaller batch|\bGPU\b",))

FAILURES = [
    shell(
        name="n-bash-pipefail-in-middle",
        code="exit_code",
        command="bash pipeline.sh",
        files={
            "pipeline.sh": """\
#!/bin/bash
set -euo pipefail
log() { echo "$(date +%H:%M:%S) $*"; }
log "stage 1: sampling"
seq 1 1000 > numbers.txt
log "stage 2: filtering"
sort -n numbers.txt | grep -E '[5' | wc -l > count.txt
log "stage 3: report"
cat count.txt
""",
        },
        wanted=("Unmatched [", "Invalid regular expression"),
        helpful=(r"pipeline\.sh", r"\bgrep\b|\[5|stage 2|regular expression"),
    ),
    shell(
        name="n-tool-inside-script-missing",
        code="launcher_missing",
        also_codes=("exit_code",),
        command="./prepare.sh /data/audio",
        files={
            "prepare.sh": """\
#!/usr/bin/env bash
set -e
echo "preparing audio in $1"
mkdir -p wav
for name in one two; do
  echo "  converting $name.flac"
  soxconvert --rate 16000 "$name.flac" "wav/$name.wav"
done
echo "all converted"
""",
        },
        wanted="soxconvert: command not found",
        helpful=(r"soxconvert", r"install|\bPATH\b"),
    ),
    shell(
        name="n-not-executable-runner",
        code="launcher_missing",
        command="./run_training --epochs 3",
        files={"run_training": "#!/bin/bash\necho training\n", "README.txt": "start with ./run_training\n"},
        wanted="Permission denied",
        helpful=(r"chmod|executable|bash run_training", r"run_training"),
        misleading=(r"firewall|smaller batch|pip install",),
    ),
    shell(
        name="n-crlf-in-started-script",
        code="launcher_missing",
        also_codes=("exit_code",),
        command="./train.sh",
        files={"train.sh": "#!/bin/bash\r\nset -e\r\necho training\r\npython train.py\r\n", "train.py": "print(1)\n"},
        wanted=("bad interpreter", "cannot execute", "required file not found"),
        helpful=(r"CRLF|dos2unix|line ending|carriage", r"train\.sh"),
    ),
    shell(
        name="n-java-out-of-heap",
        code="host_oom",
        also_codes=("exception",),
        command="javac Index.java && java -Xmx48m Index",
        files={
            "Index.java": """\
import java.util.ArrayList;
import java.util.List;

public class Index {
    static List<long[]> postings = new ArrayList<>();

    static void add(int document) {
        postings.add(new long[200_000]);
        if (document % 5 == 0) System.out.println("documents: " + document);
    }

    public static void main(String[] args) {
        for (int document = 0; document < 1000; document++) add(document);
        System.out.println("indexed");
    }
}
""",
        },
        wanted="java.lang.OutOfMemoryError: Java heap space",
        helpful=(r"-Xmx|heap", r"Index\.java"),
        misleading=(r"firewall|pip install",),
    ),
    shell(
        name="n-java-caused-by-number-format",
        code="exception",
        command="javac -d out src/*.java && java -cp out Main limits.properties",
        files={
            "limits.properties": "threads=4\nbatch=1O0\n",
            "src/Limits.java": """\
import java.io.FileReader;
import java.util.Properties;

class Limits {
    final int threads, batch;

    Limits(String path) throws Exception {
        Properties p = new Properties();
        p.load(new FileReader(path));
        threads = Integer.parseInt(p.getProperty("threads"));
        batch = Integer.parseInt(p.getProperty("batch"));
    }
}
""",
            "src/Main.java": """\
public class Main {
    public static void main(String[] args) {
        System.out.println("reading " + args[0]);
        try {
            System.out.println(new Limits(args[0]).batch);
        } catch (Exception e) {
            throw new IllegalStateException("cannot configure the worker", e);
        }
    }
}
""",
        },
        wanted='For input string: "1O0"',
        helpful=(r"limits\.properties|Limits\.java", r"batch|1O0"),
    ),
    shell(
        name="n-rust-unwrap-on-none",
        code="exception",
        command="rustc --edition 2021 -O -o tally tally.rs && ./tally",
        variables={"PATH": "/root/.cargo/bin:/usr/local/bin:/usr/bin:/bin"},
        files={
            "tally.rs": """\
use std::collections::HashMap;

fn weight(table: &HashMap<&str, f64>, name: &str) -> f64 {
    *table.get(name).expect("every class has a weight")
}

fn main() {
    let table: HashMap<&str, f64> = [("cat", 0.5), ("dog", 0.25)].into_iter().collect();
    let mut total = 0.0;
    for name in ["cat", "dog", "cow"] {
        total += weight(&table, name);
        println!("{name}: {total}");
    }
}
""",
        },
        wanted="every class has a weight",
        helpful=(r"tally\.rs", r"\bweight\b|\bcow\b|RUST_BACKTRACE"),
    ),
    shell(
        name="n-rust-borrow-check-fails",
        code="exit_code",
        command="bash build.sh",
        variables={"PATH": "/root/.cargo/bin:/usr/local/bin:/usr/bin:/bin"},
        files={
            "build.sh": "#!/bin/bash\nset -e\necho 'building'\nrustc -O -o tok tok.rs\n./tok < corpus.txt\n",
            "tok.rs": """\
fn longest(words: Vec<String>) -> String {
    let mut best = String::new();
    for word in words {
        if word.len() > best.len() {
            best = word;
        }
    }
    best
}

fn main() {
    let words: Vec<String> = "to be or not".split(' ').map(String::from).collect();
    println!("{}", longest(words));
    println!("{} words", words.len());
}
""",
            "corpus.txt": "to be or not to be\n",
        },
        wanted=("borrow of moved value: `words`", "error[E0382]"),
        helpful=(r"tok\.rs", r"moved|clone|borrow|\bwords\b"),
    ),
    shell(
        name="n-node-unhandled-rejection",
        code="exception",
        command="node fetch.js",
        files={
            "fetch.js": """\
const stages = { raw: [3, 1, 2], clean: null };

async function load(name) {
  await new Promise((resolve) => setTimeout(resolve, 20));
  return stages[name];
}

async function main() {
  for (const name of ["raw", "clean"]) {
    const values = await load(name);
    console.log(name, values.map((v) => v * 2));
  }
}

main();
""",
        },
        wanted="Cannot read properties of null (reading 'map')",
        helpful=(r"fetch\.js", r"\bvalues\b|null|clean"),
    ),
    shell(
        name="n-perl-die-with-line",
        code="exit_code",
        also_codes=("exception",),
        command="perl -w merge.pl counts.txt",
        files={
            "counts.txt": "the 10\nof 7\nand\n",
            "merge.pl": """\
use strict;
my %count;
while (my $line = <>) {
    chomp $line;
    my ($word, $n) = split ' ', $line;
    die "counts.txt: no number after '$word'" unless defined $n;
    $count{$word} += $n;
    print "$word $count{$word}\\n";
}
""",
        },
        wanted="no number after 'and'",
        helpful=(r"counts\.txt|merge\.pl", r"line"),
    ),
    shell(
        name="n-make-compile-stops",
        code="exit_code",
        command="make -s all",
        files={
            "Makefile": "CFLAGS=-Wall -O1\nall: sim\n\t./sim\nsim: sim.o grid.o\n\t$(CC) -o $@ $^\n",
            "grid.h": "int cells(int rows, int columns);\n",
            "grid.c": '#include "grid.h"\nint cells(int rows, int columns) { return rows * columns; }\n',
            "sim.c": """\
#include <stdio.h>
#include "grid.h"

int main(void) {
    printf("%d\\n", cells(3, 4, 5));
    return 0;
}
""",
        },
        wanted="too many arguments to function",
        helpful=(r"sim\.c|grid\.h", r"\bcells\b"),
    ),
    shell(
        name="n-linker-undefined-reference",
        code="exit_code",
        command="bash build.sh",
        files={
            "build.sh": """\
#!/bin/bash
set -e
echo "compiling two units"
g++ -std=c++17 -c main.cpp
g++ -std=c++17 -c kernel.cpp
g++ -o app main.o kernel.o
./app
""",
            "main.cpp": """\
double energy(const double*, int);

int main() {
    double a[2] = {1, 2};
    return energy(a, 2) > 3;
}
""",
            "kernel.cpp": 'extern "C" double energy(const double* a, int n) { return a[0] * n; }\n',
        },
        wanted="undefined reference to `energy(double const*, int)'",
        helpful=(r"energy", r"kernel\.cpp|main\.cpp|extern"),
    ),
    shell(
        name="n-cpp-vector-at-throws",
        code="signal",
        also_codes=("exception",),
        command="g++ -O1 -o rank rank.cpp && ./rank 4",
        files={
            "rank.cpp": """\
#include <cstdlib>
#include <iostream>
#include <vector>

int main(int argc, char** argv) {
    std::vector<int> scores{5, 3, 9};
    int top = std::atoi(argv[1]);
    std::cout << "top " << top << " of " << scores.size() << std::endl;
    for (int i = 0; i < top; ++i) std::cout << scores.at(i) << std::endl;
}
""",
        },
        wanted=("vector::_M_range_check", "std::out_of_range"),
        helpful=(r"rank\.cpp", r"range|\btop\b|scores|\bat\b"),
        misleading=(r"firewall|pip install|\bmemory\b",),
    ),
    shell(
        name="n-cpp-bad-alloc-under-limit",
        code="host_oom",
        command="g++ -O0 -o cache cache.cpp && ./run.sh",
        files={
            "run.sh": "#!/bin/bash\nulimit -v 300000\nexec ./cache\n",
            "cache.cpp": """\
#include <iostream>
#include <memory>
#include <vector>

int main() {
    std::vector<std::unique_ptr<char[]>> blocks;
    for (int i = 0;; ++i) {
        blocks.emplace_back(new char[32 << 20]);
        blocks.back()[0] = 1;
        std::cout << "cached block " << i << std::endl;
    }
}
""",
        },
        wanted="std::bad_alloc",
        helpful=(r"\bmemory\b|ulimit", r"cache\.cpp"),
        misleading=(r"firewall|pip install",),
    ),
    shell(
        name="n-double-free-abort",
        code="signal",
        command="gcc -o pool pool.c && ./pool",
        files={
            "pool.c": """\
#include <stdio.h>
#include <stdlib.h>

struct item { struct item *next; int value; };

static void release(struct item *i) { free(i); }

int main(void) {
    struct item *a = malloc(sizeof *a), *b = a;
    a->value = 1;
    printf("releasing two items\\n");
    fflush(stdout);
    release(a);
    release(b);
    printf("done\\n");
    return 0;
}
""",
        },
        wanted=("double free", "SIGABRT"),
        helpful=(r"pool\.c|\bpool\b", r"double free|valgrind|sanitize|twice|gdb"),
        misleading=(r"firewall|pip install|out of memory",),
    ),
    shell(
        name="n-dd-fills-scratch",
        code="disk_full",
        command="unshare -m ./spill.sh",
        files={
            "spill.sh": """\
#!/bin/bash
set -e
mkdir -p spill && mount -t tmpfs -o size=3m spill spill
echo "spilling partitions"
for part in 1 2 3 4 5; do
  head -c 1000000 /dev/zero | tr '\\0' 'x' > spill/part.$part
  echo "part $part written"
done
sort -m spill/part.* > merged
""",
        },
        wanted="No space left on device",
        helpful=(r"\bdisk\b|space|spill",),
        misleading=(r"firewall|pip install|\bmemory\b",),
    ),
]
