"""Shell scripts, make, compiled programs, Java, Node, Rust, Perl."""
# ruff: noqa: E501

from recorder import Failure

WRONG_WAY = r"firewall|submit again|smaller batch|MASTER_PORT|PYTHONFAULTHANDLER"


def shell(name: str, command: str, code: str, **labels: object) -> Failure:
    labels = {"misleading": (WRONG_WAY,)} | labels
    return Failure(name=name, command=command, code=code, convention="shell", **labels)  # type: ignore[arg-type]


FAILURES = [
    shell(
        "r-sh-make-missing-rule",
        "make all",
        "exit_code",
        files={"Makefile": "all: model.bin\n\nmodel.bin: weights.txt\n\tcp weights.txt model.bin\n"},
        wanted="No rule to make target 'weights.txt', needed by 'model.bin'",
        helpful=(r"weights\.txt|Makefile",),
    ),
    shell(
        "r-sh-make-runs-python",
        "make -s train",
        "exception",
        also_codes=("exit_code",),
        files={
            "Makefile": "train:\n\t@echo training; python train.py\n",
            "train.py": "steps = '10'\nfor n in range(steps):\n    pass\n",
        },
        wanted="TypeError: 'str' object cannot be interpreted as an integer",
        helpful=(r"train\.py",),
    ),
    shell(
        "r-sh-gcc-undeclared",
        "gcc -O2 -o prep prep.c && ./prep",
        "exit_code",
        files={
            "prep.c": '#include <stdio.h>\nint main(void) {\n  for (int i = 0; i < n; i++) printf("%d\\n", i);\n  return 0;\n}\n'
        },
        wanted="error: ‘n’ undeclared",
        helpful=(r"prep\.c",),
    ),
    shell(
        "r-sh-linker",
        "g++ -o conv conv.cpp && ./conv",
        "exit_code",
        files={"conv.cpp": "double blur(double);\nint main() { return blur(2.0) > 1; }\n"},
        wanted="undefined reference to `blur(double)'",
        helpful=(r"blur|conv\.cpp|link",),
    ),
    shell(
        "r-sh-cpp-throws",
        "g++ -o conf conf.cpp && ./conf model.ini",
        "signal",
        also_codes=("exception",),
        files={
            "conf.cpp": """#include <iostream>
#include <stdexcept>
#include <string>
int main(int argc, char **argv) {
  std::cout << "reading " << argv[1] << std::endl;
  throw std::runtime_error(std::string("missing key 'layers' in ") + argv[1]);
}
"""
        },
        wanted="missing key 'layers' in model.ini",
        helpful=(r"layers|model\.ini|conf\.cpp",),
    ),
    shell(
        "r-sh-double-free",
        "gcc -o pool pool.c && ./pool",
        "signal",
        files={
            "pool.c": """#include <stdio.h>
#include <stdlib.h>
int main(void) {
  char *p = malloc(24);
  free(p);
  puts("releasing pool"); fflush(stdout);
  free(p);
  return 0;
}
"""
        },
        wanted=("double free", "free(): double free detected"),
        helpful=(r"pool\.c|valgrind|sanitize|gdb|free",),
    ),
    shell(
        "r-sh-divide-by-zero",
        "gcc -w -o split split.c && ./split 0",
        "signal",
        files={
            "split.c": """#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
  int parts = atoi(argv[1]);
  printf("%d rows each\\n", 1000 / parts);
  return 0;
}
"""
        },
        wanted=("SIGFPE", "Floating point exception", "signal 8"),
        helpful=(r"split\.c|zero|divi|gdb|core",),
    ),
    shell(
        "r-sh-address-sanitizer",
        "gcc -g -fsanitize=address -o ring ring.c && ./ring",
        "exit_code",
        also_codes=("signal", "exception"),
        files={
            "ring.c": """#include <stdlib.h>
int main(int argc, char **argv) {
  int *buffer = malloc(16 * sizeof(int));
  for (int i = 0; i <= 16; i++) buffer[i] = i;
  int last = buffer[argc];
  free(buffer);
  return last == 77;
}
"""
        },
        wanted="heap-buffer-overflow",
        helpful=(r"ring\.c",),
    ),
    shell(
        "r-sh-java-null",
        "javac Train.java && java Train",
        "exception",
        files={
            "Train.java": """import java.util.*;
public class Train {
  static int size(Map<String, List<Integer>> m, String k) { return m.get(k).size(); }
  public static void main(String[] a) {
    System.out.println("loading splits");
    System.out.println(size(new HashMap<>(), "valid"));
  }
}
"""
        },
        wanted="java.lang.NullPointerException",
        helpful=(r"Train\.java",),
    ),
    shell(
        "r-sh-java-heap",
        "javac Big.java && java -Xmx16m Big",
        "host_oom",
        also_codes=("exception",),
        files={
            "Big.java": """import java.util.*;
public class Big {
  public static void main(String[] a) {
    List<long[]> rows = new ArrayList<>();
    while (true) rows.add(new long[100000]);
  }
}
"""
        },
        wanted="java.lang.OutOfMemoryError: Java heap space",
        helpful=(r"Xmx|heap|Big\.java|memory",),
        misleading=(r"firewall|pip install|MASTER_PORT",),
    ),
    shell(
        "r-sh-java-caused-by",
        "javac Load.java && java Load",
        "exception",
        files={
            "Load.java": """public class Load {
  static int epochs(String s) {
    try { return Integer.parseInt(s); }
    catch (NumberFormatException e) { throw new IllegalStateException("cannot read the configuration", e); }
  }
  public static void main(String[] a) { System.out.println(epochs("12 epochs")); }
}
"""
        },
        wanted='java.lang.NumberFormatException: For input string: "12 epochs"',
        helpful=(r"Load\.java|12 epochs",),
    ),
    shell(
        "r-sh-node-module",
        "node index.js",
        "environment",
        also_codes=("exception",),
        files={"index.js": "const tf = require('@tensorflow/tfjs-node');\ntf.tensor([1]).print();\n"},
        wanted="Cannot find module '@tensorflow/tfjs-node'",
        helpful=(r"tfjs-node|npm",),
    ),
    shell(
        "r-sh-node-rejection",
        "node fetch.js",
        "exception",
        files={
            "fetch.js": """const fs = require('fs/promises');
async function main() {
  const rows = JSON.parse(await fs.readFile('labels.json', 'utf8'));
  console.log(rows.length);
}
main();
"""
        },
        wanted="ENOENT: no such file or directory, open 'labels.json'",
        helpful=(r"labels\.json|fetch\.js",),
    ),
    shell(
        "r-sh-rust-panic",
        "rustc -o pack pack.rs && ./pack",
        "exception",
        also_codes=("exit_code",),
        files={
            "pack.rs": """fn main() {
    let lines = vec!["3", "4", "x"];
    let total: i32 = lines.iter().map(|l| l.parse::<i32>().expect("bad count")).sum();
    println!("{total}");
}
"""
        },
        variables={"PATH": "/root/.cargo/bin:/usr/bin:/bin"},
        wanted="bad count: ParseIntError { kind: InvalidDigit }",
        helpful=(r"pack\.rs",),
    ),
    shell(
        "r-sh-perl-die",
        "perl clean.pl corpus.txt",
        "exit_code",
        also_codes=("exception",),
        files={
            "clean.pl": "use strict;\nopen(my $f, '<', $ARGV[0]) or die \"cannot open $ARGV[0]: $!\";\nprint while <$f>;\n"
        },
        wanted="cannot open corpus.txt: No such file or directory",
        helpful=(r"corpus\.txt|clean\.pl",),
    ),
    shell(
        "r-sh-unbound-variable",
        "bash run.sh",
        "exit_code",
        files={"run.sh": "set -euo pipefail\necho starting\npython -c 'print(1)' --out \"$OUTPUT_DIR/model\"\n"},
        wanted="OUTPUT_DIR: unbound variable",
        helpful=(r"OUTPUT_DIR",),
    ),
    shell(
        "r-sh-pipefail",
        "bash count.sh",
        "exit_code",
        files={"count.sh": "set -eo pipefail\necho counting rows\nzcat rows.csv.gz | wc -l\necho done\n"},
        wanted=("gzip: rows.csv.gz: No such file or directory",),
        helpful=(r"rows\.csv|count\.sh",),
    ),
    shell(
        "r-sh-crlf-script",
        "./run.sh",
        "launcher_missing",
        also_codes=("exit_code",),
        files={"run.sh": "#!/bin/bash\r\necho hi\r\npython train.py\r\n", "train.py": "print(1)\n"},
        wanted=("/bin/bash^M", "bad interpreter", "cannot execute: required file not found"),
        helpful=(r"CRLF|dos2unix|line end|\\r|run\.sh",),
    ),
    shell(
        "r-sh-not-executable",
        "./train --epochs 3",
        "launcher_missing",
        files={"train": "#!/usr/bin/env python\nprint('x')\n"},
        wanted="./train: Permission denied",
        helpful=(r"chmod|executable|train",),
    ),
    shell(
        "r-sh-program-unknown",
        "deepspeed train.py --zero 2",
        "launcher_missing",
        files={"train.py": "print(1)\n"},
        wanted="deepspeed: command not found",
        helpful=(r"deepspeed",),
    ),
    shell(
        "r-sh-cd-missing",
        "cd experiments/run7 && python train.py",
        "exit_code",
        also_codes=("bad_input", "exception"),
        files={"experiments/run6/train.py": "print(1)\n"},
        wanted="experiments/run7: No such file or directory",
        helpful=(r"run7|experiments",),
    ),
    shell(
        "r-sh-last-stage-of-three",
        "bash pipeline.sh",
        "exception",
        also_codes=("exit_code",),
        files={
            "pipeline.sh": """python prepare.py || echo "prepare had problems, going on"
python train.py && python report.py
status=$?
echo "pipeline finished with status $status at $(date +%F)"
exit $status
""",
            "prepare.py": "raise FileExistsError('cache is there already')\n",
            "train.py": "print('accuracy 0.91')\n",
            "report.py": "scores = {'top1': 0.91}\nprint(f\"{scores['top5']:.2f}\")\n",
        },
        wanted="KeyError: 'top5'",
        helpful=(r"report\.py|top5",),
    ),
    shell(
        "r-sh-curl-404",
        "bash get.sh",
        "exit_code",
        files={
            "get.sh": """python -m http.server 29891 --bind 127.0.0.1 >/dev/null 2>&1 &
server=$!
sleep 1
curl -fsS -o vocab.txt http://127.0.0.1:29891/models/v2/vocab.txt
status=$?
kill $server
exit $status
"""
        },
        wanted=("The requested URL returned error: 404",),
        helpful=(r"404|vocab\.txt|get\.sh|URL",),
    ),
    shell(
        "r-sh-timeout-command",
        "timeout 2 python train.py",
        "exit_code",
        also_codes=("timeout",),
        files={
            "train.py": "import time\nfor n in range(100):\n    print('step', n, flush=True)\n    time.sleep(0.4)\n"
        },
        wanted=("124", "timeout"),
        helpful=(r"timeout|124",),
        misleading=(r"firewall|pip install|MASTER_PORT|limits\.timeout",),
    ),
    shell(
        "r-sh-german-messages",
        "bash lauf.sh",
        "exit_code",
        files={
            "lauf.sh": """echo "Lese Konfiguration"
if [ ! -f daten/eingabe.csv ]; then
  echo "FEHLER: Eingabedatei daten/eingabe.csv wurde nicht gefunden" >&2
  echo "Abbruch." >&2
  exit 66
fi
"""
        },
        wanted="Eingabedatei daten/eingabe.csv wurde nicht gefunden",
        helpful=(r"eingabe\.csv|lauf\.sh",),
    ),
    shell(
        "r-sh-awk-syntax",
        "bash stats.sh",
        "exit_code",
        files={"stats.sh": "set -e\nseq 5 > n.txt\nawk '{ sum += $1 } END { print sum/NR ' n.txt\n"},
        wanted=("unexpected end of file", "syntax error", "awk:"),
        helpful=(r"stats\.sh|awk",),
    ),
    shell(
        "r-sh-pip-no-such-version",
        "pip install --no-index --disable-pip-version-check 'flash-attn==9.9.9' && python train.py",
        "environment",
        also_codes=("exit_code",),
        files={"train.py": "print(1)\n"},
        variables={"PIP_CONFIG_FILE": "/dev/null"},
        wanted=("No matching distribution found for flash-attn==9.9.9",),
        helpful=(r"flash-attn|flash_attn|version|index",),
    ),
    shell(
        "r-sh-git-not-a-repository",
        "bash tag.sh",
        "exit_code",
        files={
            "tag.sh": "set -e\nrev=$(git rev-parse --short HEAD)\npython train.py --rev $rev\n",
            "train.py": "print(1)\n",
        },
        wanted="fatal: not a git repository",
        helpful=(r"git|tag\.sh|repository",),
    ),
    shell(
        "r-sh-heredoc-python",
        "python - <<'PY'\nimport math\nvalues = [4, 1, -1]\nprint([math.sqrt(v) for v in values])\nPY",
        "exception",
        wanted=("ValueError: math domain error", "ValueError: expected a nonnegative input"),
        helpful=(r"sqrt|negative|line 3|stdin|values",),
    ),
    shell(
        "r-sh-trap-reports",
        "bash steps.sh",
        "exit_code",
        files={
            "steps.sh": """set -Ee
trap 'echo "[steps.sh] line $LINENO failed (exit $?): $BASH_COMMAND"' ERR
echo "[1/3] unpack"; mkdir data
echo "[2/3] check"; grep -q "^version=3$" data/VERSION
echo "[3/3] train"
"""
        },
        wanted=("data/VERSION: No such file or directory",),
        helpful=(r"data/VERSION|steps\.sh",),
    ),
]
