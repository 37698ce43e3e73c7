"""Shell scripts, make, Java, Node, Perl, awk, C++: jobs whose command is not Python."""

from functools import partial

from recorder import Failure

Shell = partial(Failure, convention="shell")
Gang = partial(Failure, convention="process", processes=3)

FAILURES = [
    Shell(
        name="v-sh-pipefail-curl",
        way="a download in a pipeline fails under set -euo pipefail",
        code="exit_code",
        also_codes=("data_unavailable",),
        command="./get_data.sh",
        files={
            "get_data.sh": """#!/usr/bin/env bash
set -euo pipefail
mkdir -p data
echo "-- fetching labels"
curl --fail --silent --show-error http://127.0.0.1:9/labels.csv.gz | gunzip > data/labels.csv
echo "-- training"
python -c 'print("training")'
"""
        },
        wanted=("curl: (7)", "Failed to connect to 127.0.0.1 port 9"),
        helpful=(r"127\.0\.0\.1|url|curl|server|address|get_data\.sh|download",),
        misleading=(r"out of memory|MASTER_PORT",),
    ),
    Shell(
        name="v-sh-make-target-fails",
        way="make stops because a script of a target raises",
        code="exception",
        also_codes=("exit_code",),
        command="make -j2 all",
        files={
            "Makefile": """all: model.bin report.txt

clean.csv: raw.csv
\tpython clean.py raw.csv > clean.csv

model.bin: clean.csv
\tpython -c "open('model.bin','w').write('m')"

report.txt: clean.csv
\twc -l clean.csv > report.txt
""",
            "raw.csv": "id,price\n1,3.50\n2,free\n",
            "clean.py": """import csv, sys
with open(sys.argv[1]) as f:
    for row in csv.DictReader(f):
        print(row["id"], float(row["price"]) * 100, sep=",")
""",
        },
        wanted="could not convert string to float: 'free'",
        helpful=(r"clean\.py|raw\.csv|price|free",),
        misleading=(r"firewall|memory",),
    ),
    Shell(
        name="v-sh-crlf-script",
        way="a script written on Windows",
        code="launcher_missing",
        also_codes=("exit_code", "bad_input", "exception"),
        command="./train.sh",
        files={"train.sh": "#!/bin/bash\r\nset -e\r\necho start\r\npython -c 'print(1)'\r\n"},
        wanted=("bad interpreter", "bash\r", "^M", "No such file or directory", "cannot execute"),
        helpful=(r"line end|dos2unix|\\r|CRLF|Windows",),
        misleading=(r"firewall|memory|install bash",),
    ),
    Shell(
        name="v-sh-not-executable",
        way="the start script lost its x bit in a zip",
        code="launcher_missing",
        command="./start",
        files={"start": "#!/bin/bash\necho training\n"},
        wanted="Permission denied",
        helpful=(r"chmod|executable|bash start|x bit",),
        misleading=(r"firewall|memory|network",),
    ),
    Shell(
        name="v-sh-swallowed-code",
        way="a wrapper prints its own end after the program inside failed and exits with 1",
        code="exception",
        command="bash wrapper.sh python eval.py",
        files={
            "wrapper.sh": """log() { printf '%s [wrapper] %s\\n' "$(date +%T)" "$*"; }
log "starting: $*"
"$@" || failed=1
for i in $(seq 1 30); do log "uploading artifact $i/30 ... ok"; done
log "cleaning up scratch"
log "all artifacts uploaded"
exit ${failed:-0}
""",
            "eval.py": """results = {"acc": 0.91}
print("evaluating")
print("f1 is", results["f1"])
""",
        },
        wanted="KeyError: 'f1'",
        helpful=(r"eval\.py|f1",),
        misleading=(r"firewall|memory|network|upload",),
    ),
    Shell(
        name="v-sh-unbound-variable",
        way="set -u and a variable that the job does not set",
        code="exit_code",
        also_codes=("bad_input",),
        command="bash launch.sh",
        files={
            "launch.sh": """set -eu
echo "dataset: ${DATASET_DIR}"
python train.py --data "$DATASET_DIR"
"""
        },
        wanted="DATASET_DIR: unbound variable",
        helpful=(r"DATASET_DIR|environment_variables|variable",),
        misleading=(r"firewall|memory|network",),
    ),
    Shell(
        name="v-sh-command-missing",
        way="a tool of another image is not there",
        code="launcher_missing",
        also_codes=("exit_code", "environment"),
        command="bash pipeline.sh",
        files={
            "pipeline.sh": """set -e
echo "[1/3] converting audio"
ffmpeg -loglevel error -i in.mp3 out.wav
echo "[2/3] extracting features"
"""
        },
        wanted=("ffmpeg: command not found",),
        helpful=(r"ffmpeg|install|image",),
        misleading=(r"firewall|memory|network",),
    ),
    Shell(
        name="v-sh-cpp-no-such-header",
        way="a C++ program does not compile",
        code="exit_code",
        also_codes=("environment",),
        command="g++ -O1 -o trainer trainer.cc && ./trainer",
        files={
            "trainer.cc": """#include <iostream>
#include <Eigen/Dense>

int main() {
    Eigen::MatrixXd w = Eigen::MatrixXd::Zero(3, 3);
    std::cout << w << std::endl;
}
"""
        },
        wanted="Eigen/Dense: No such file or directory",
        helpful=(r"eigen|install|header|include",),
        misleading=(r"firewall|memory|network",),
    ),
    Shell(
        name="v-sh-cpp-uncaught",
        way="a C++ program ends by an uncaught std::out_of_range",
        code="exception",
        also_codes=("signal",),
        command="g++ -O1 -o sampler sampler.cc && ./sampler 12",
        files={
            "sampler.cc": """#include <iostream>
#include <map>
#include <string>
#include <vector>

int main(int argc, char **argv) {
    std::map<std::string, int> vocab{{"a", 1}, {"b", 2}};
    std::vector<std::string> text{"a", "b", "c"};
    for (const auto &w : text) {
        int id = vocab.at(w);
        std::cerr << "token " << w << " -> " << id << std::endl;
    }
    return 0;
}
"""
        },
        wanted=("std::out_of_range", "map::at"),
        helpful=(r"sampler|map::at|vocab|out_of_range|key",),
        misleading=(r"firewall|memory limit|network",),
    ),
    Shell(
        name="v-sh-java-null",
        way="a Java program with a cause below a RuntimeException",
        code="exception",
        command="javac Score.java && java -Xmx64m Score",
        files={
            "Score.java": """import java.util.*;

public class Score {
    static Map<String, Double> weights = new HashMap<>(Map.of("clicks", 0.4, "views", 0.1));

    static double score(String feature, double value) {
        return weights.get(feature) * value;
    }

    public static void main(String[] args) {
        System.out.println("INFO  scoring 3 features");
        try {
            for (String f : List.of("clicks", "views", "dwell")) System.out.printf("%s %.2f%n", f, score(f, 3));
        } catch (Exception e) {
            throw new RuntimeException("scoring failed", e);
        }
    }
}
"""
        },
        wanted="java.lang.NullPointerException",
        helpful=(r"Score\.java|dwell|weights|null",),
        misleading=(r"firewall|memory|network",),
    ),
    Shell(
        name="v-sh-java-heap",
        way="Java's heap is too small",
        code="host_oom",
        also_codes=("exception",),
        command="java -Xmx24m Load.java",
        files={
            "Load.java": """import java.util.*;
public class Load {
    public static void main(String[] args) {
        List<long[]> rows = new ArrayList<>();
        for (int i = 0; ; i++) {
            rows.add(new long[100_000]);
            if (i % 10 == 0) System.out.println("rows loaded: " + i * 100_000);
        }
    }
}
"""
        },
        wanted="java.lang.OutOfMemoryError: Java heap space",
        helpful=(r"-?Xmx|heap",),
        misleading=(r"firewall|network|batch size",),
    ),
    Shell(
        name="v-sh-node-rejection",
        way="an unhandled rejection in Node",
        code="exception",
        command="node export.js",
        files={
            "export.js": """const fs = require('fs').promises;

async function readShard(n) {
  const text = await fs.readFile(`shards/${n}.json`, 'utf8');
  return JSON.parse(text);
}

async function main() {
  const rows = [];
  for (let n = 0; n < 4; n++) rows.push(...await readShard(n));
  console.log(rows.length, 'rows');
}

main();
""",
            "shards/0.json": "[1, 2]",
            "shards/1.json": "[3]",
            "shards/2.json": "[4, ]",
            "shards/3.json": "[5]",
        },
        wanted=("SyntaxError: Unexpected token", "Unexpected token ]", "Unexpected token"),
        helpful=(r"export\.js|2\.json|json|shards",),
        misleading=(r"firewall|memory|network",),
    ),
    Shell(
        name="v-sh-perl-die",
        way="a Perl script dies at a line of its input",
        code="exit_code",
        also_codes=("exception",),
        command="perl tokenize.pl corpus.txt > tokens.txt",
        files={
            "corpus.txt": "good line\nanother good line\n\tbroken\tline\n",
            "tokenize.pl": """use strict; use warnings;
my $n = 0;
while (my $line = <>) {
    chomp $line;
    my ($a, $b, $c) = split / /, $line;
    die "expected at least two words, got '$line'" unless defined $b;
    print join("|", $a, $b), "\\n";
}
""",
        },
        wanted="expected at least two words, got",
        helpful=(r"corpus\.txt|tokenize\.pl|line 3|line",),
        misleading=(r"firewall|memory|network",),
    ),
    Shell(
        name="v-sh-awk-check",
        way="awk checks a table and exits with 2",
        code="exit_code",
        command="bash check.sh",
        files={
            "splits.tsv": "train\t800\nvalid\t100\ntest\t0\n",
            "check.sh": """set -e
echo "checking splits.tsv"
awk -F'\\t' '$2 < 1 { print "split " $1 " is empty (" FILENAME ":" FNR ")" > "/dev/stderr"; bad = 1 } END { exit bad ? 2 : 0 }' splits.tsv
echo "ok, training"
""",
        },
        wanted="split test is empty (splits.tsv:3)",
        helpful=(r"splits\.tsv|split|check\.sh",),
        misleading=(r"firewall|memory|network|usage",),
    ),
    Gang(
        name="v-shg-one-rank-lacks-mount",
        way="a gang of shell scripts; one node lacks its mount",
        code="exit_code",
        also_codes=("data_unavailable",),
        rank=1,
        command="./prepare.sh",
        files={
            "prepare.sh": """#!/bin/bash
set -e
src=/mnt/shared/corpus
[ "$RANK" = 1 ] || src=$PWD
echo "rank $RANK: copying from $src"
ls -d $src > /dev/null
echo "rank $RANK: ok"
while [ ! -f all_ready ]; do sleep 0.5; done
"""
        },
        wanted="ls: cannot access '/mnt/shared/corpus': No such file or directory",
        helpful=(r"/mnt/shared|mount|corpus",),
        misleading=(r"firewall|out of memory|port\b",),
    ),
    Gang(
        name="v-shg-node-cluster-refused",
        way="a Node coordinator throws at a bad message and its two workers lose it",
        code="exception",
        rank=0,
        command="node cluster.js",
        files={
            "cluster.js": """const net = require('net');
const rank = Number(process.env.RANK), port = Number(process.env.MASTER_PORT);

if (rank === 0) {
  const totals = {};
  net.createServer((sock) => {
    sock.on('data', (d) => {
      for (const line of d.toString().trim().split('\\n')) {
        const { worker, stats } = JSON.parse(line);
        totals[worker] = (totals[worker] || 0) + stats.count;
        console.log('worker', worker, 'total', totals[worker]);
      }
      sock.write('ok\\n');
    });
  }).listen(port, '127.0.0.1');
} else {
  let sent = 0;
  const dial = () => {
    const s = net.connect(port, '127.0.0.1', tick);
    function tick() {
      sent++;
      s.write(JSON.stringify(rank === 2 && sent === 4 ? { worker: rank } : { worker: rank, stats: { count: 10 } }) + '\\n');
    }
    s.on('data', () => setTimeout(tick, 100));
    s.on('close', () => { if (!sent) return; console.error(`worker ${rank}: coordinator closed the connection`); process.exit(1); });
    s.on('error', (e) => { if (!sent) setTimeout(dial, 200); });
  };
  dial();
}
"""
        },
        wanted="Cannot read properties of undefined (reading 'count')",
        helpful=(r"cluster\.js|stats|count|worker 2",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-shg-perl-worker-kill",
        way="ranks are Perl programs; one is ended by SIGTERM from inside",
        code="signal",
        rank=2,
        command="perl work.pl",
        files={
            "work.pl": """$| = 1;
my $rank = $ENV{RANK};
for my $i (1 .. 200) {
    print "worker $rank item $i\\n" if $i % 5 == 0;
    kill 'TERM', $$ if $rank == 2 && $i == 12;
    select undef, undef, undef, 0.1;
}
"""
        },
        wanted=("SIGTERM", "signal 15", "Terminated"),
        helpful=(r"SIGTERM|kill|sent|outside|scheduler|work\.pl",),
        misleading=(r"firewall|interface",),
    ),
    Gang(
        name="v-shg-tool-version",
        way="each rank checks the Java version in its script, all leave",
        code="exit_code",
        also_codes=("environment",),
        rank=0,
        also=(1, 2),
        command="./env_check.sh",
        files={
            "env_check.sh": """#!/bin/bash
v=$(java -version 2>&1 | head -1 | cut -d'"' -f2 | cut -d. -f1)
echo "java $v found"
if [ "$v" -lt 21 ]; then
  echo "this pipeline needs Java 21 or newer, found $v" >&2
  exit 78
fi
"""
        },
        wanted="this pipeline needs Java 21 or newer, found 17",
        helpful=(r"java",),
        misleading=(r"firewall|memory|network",),
    ),
    Gang(
        name="v-shg-flock-waits",
        way="one rank holds a flock during a long copy, the others wait for it with flock -w and give up",
        code="exit_code",
        also_codes=("collective", "timeout"),
        rank=0,
        command="./stage_in.sh",
        files={
            "stage_in.sh": """#!/bin/bash
exec 9> stage.lock
if [ "$RANK" != 0 ]; then sleep 1; fi
echo "$(date +%T) rank $RANK wants stage.lock"
if ! flock -w 4 9; then
  echo "$(date +%T) rank $RANK: could not get stage.lock within 4 s" >&2
  exit 1
fi
echo "$(date +%T) rank $RANK has stage.lock, copying 900 GB"
sleep 60
"""
        },
        wanted=("rank 0 has stage.lock, copying 900 GB", "could not get stage.lock within 4 s"),
        helpful=(r"stage\.lock|lock|flock|copy|stage_in\.sh",),
        misleading=(r"firewall|memory|interface",),
    ),
]
