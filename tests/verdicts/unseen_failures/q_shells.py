"""Shells, compilers and programs in other languages."""

from recorder import Failure

WRONG_WAY = r"network|firewall|smaller batch|out of memory|raise .{0,20}timeout|submit again"

FAILURES = [
    Failure(
        name="q-sh-crlf-shebang",
        code="launcher_missing",
        convention="shell",
        command="./run.sh",
        files={"run.sh": "#!/bin/bash\r\necho start\r\npython train.py\r\n", "train.py": "print(1)\n"},
        wanted=("bad interpreter", "cannot execute: required file not found"),
        helpful=(r"CRLF|line end|dos2unix|\\r", r"run\.sh"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-sh-crlf-in-bash-argument",
        code="exit_code",
        also_codes=("bad_input",),
        convention="shell",
        command="bash run.sh",
        files={"run.sh": "set -e\r\ncd src\r\npython train.py\r\n", "src/train.py": "print(1)\n"},
        wanted=("invalid option", "No such file or directory", "$'\\r'"),
        helpful=(r"CRLF|line end|dos2unix|\\r", r"run\.sh"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-sh-not-executable",
        code="launcher_missing",
        convention="shell",
        command="./launch --all",
        files={"launch": "#!/bin/sh\necho x\n"},
        wanted="./launch: Permission denied",
        helpful=(r"chmod|executable", r"bash \./?launch|sh \./?launch"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-sh-unbound-variable",
        code="exit_code",
        convention="shell",
        command="bash job.sh",
        files={
            "job.sh": """set -euo pipefail
echo "staging to ${STAGE_DIR:-/tmp}"
tar -C "$DATASET_ROOT" -cf /dev/null .
"""
        },
        wanted="DATASET_ROOT: unbound variable",
        helpful=(r"DATASET_ROOT", r"environment_variables"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-sh-pipefail-hidden",
        code="exception",
        convention="shell",
        command="set -o pipefail; python -u step.py 2>&1 | tee train.log; rc=$?; echo 'report skipped'; exit $rc",
        files={
            "step.py": """rows = [{"id": 1}, {"id": 2, "label": "x"}]
for r in rows:
    print(r["id"], r["label"])
"""
        },
        wanted="KeyError: 'label'",
        helpful=(r"step\.py", r"label"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-sh-set-e-grep",
        code="exit_code",
        convention="shell",
        command="bash -ex prepare.sh",
        files={
            "manifest.txt": "a.bin\nb.bin\n",
            "prepare.sh": """echo "preparing"
wc -l manifest.txt
N=$(grep -c '\\.tfrecord$' manifest.txt)
echo "found $N records"
""",
        },
        wanted=("grep -c", "exit code 1", "exited with code 1", "ended with code 1"),
        helpful=(r"grep", r"prepare\.sh", r"set -e"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-sh-makefile-python-error",
        code="exception",
        convention="shell",
        command="make -f train.mk all",
        files={
            "train.mk": "all: features model\n\nfeatures:\n\t@echo building features\n\nmodel:\n\tpython model.py\n",
            "model.py": "import math\nprint('fit')\nmath.log(0)\n",
        },
        wanted=("ValueError: math domain error", "ValueError: expected a positive input"),
        helpful=(r"model\.py",),
        misleading=(WRONG_WAY, r"install make"),
    ),
    Failure(
        name="q-sh-python3-alias-missing",
        code="launcher_missing",
        convention="shell",
        command="python3.7 train.py",
        files={"train.py": "print(1)\n"},
        wanted="python3.7: command not found",
        helpful=(r"python3\.7", r"python train\.py"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-sh-srun-no-cluster",
        code="exit_code",
        convention="shell",
        command="source setup.sh && srun --ntasks 4 python train.py",
        files={"setup.sh": "export FOO=1\necho environment ready\n", "train.py": "print(1)\n"},
        wanted=("srun: fatal: Could not establish a configuration source", "srun: error: fetch_config"),
        helpful=(r"srun|[Ss]lurm",),
        misleading=(r"smaller batch|out of memory|pip install",),
    ),
    Failure(
        name="q-sh-conda-activate",
        code="launcher_missing",
        also_codes=("environment",),
        convention="shell",
        command="conda activate research && python train.py",
        files={"train.py": "print(1)\n"},
        wanted="conda: command not found",
        helpful=(r"conda", r"environment"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-sh-kill-self-by-ulimit-cpu",
        code="signal",
        convention="shell",
        command="ulimit -St 1; python spin.py",
        files={"spin.py": "print('spinning', flush=True)\nwhile True:\n    pass\n"},
        wanted=("SIGXCPU", "CPU time limit exceeded", "signal 24"),
        helpful=(r"CPU time|ulimit",),
        misleading=(r"network|firewall|smaller batch|pip install",),
    ),
    Failure(
        name="q-sh-file-size-limit",
        code="exception",
        convention="shell",
        command="ulimit -f 100; python save.py",
        files={"save.py": "with open('ckpt.bin', 'wb') as f:\n    f.write(b'0' * 10_000_000)\n"},
        wanted="OSError: [Errno 27] File too large",
        helpful=(r"ulimit|limit", r"save\.py"),
        misleading=(r"network|firewall|smaller batch|pip install",),
    ),
    Failure(
        name="q-sh-cpp-out-of-range",
        code="exception",
        also_codes=("signal",),
        convention="shell",
        command="g++ -O0 -o tok tok.cpp && ./tok",
        files={
            "tok.cpp": """#include <iostream>
#include <vector>
#include <string>
int lookup(const std::vector<int>& ids, size_t i) { return ids.at(i); }
int main() {
  std::vector<int> ids{1, 2, 3};
  std::cout << "tokenizer loaded, " << ids.size() << " ids" << std::endl;
  return lookup(ids, 7);
}
"""
        },
        wanted="vector::_M_range_check: __n (which is 7) >= this->size() (which is 3)",
        helpful=(r"tok\.cpp|\btok\b", r"lookup|\.at|gdb"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-sh-cpp-link-error",
        code="exit_code",
        convention="shell",
        command="g++ -o app app.cpp -lcudnn_q && ./app",
        files={"app.cpp": "int main() { return 0; }\n"},
        wanted="cannot find -lcudnn_q",
        helpful=(r"cudnn_q", r"-L|library|install"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-sh-shared-library-missing",
        code="environment",
        also_codes=("launcher_missing",),
        convention="shell",
        command=("gcc -shared -fPIC -o libkern.so kern.c && gcc -o app app.c -L. -lkern && ./app"),
        files={
            "kern.c": "int kern(void) { return 0; }\n",
            "app.c": "int kern(void);\nint main(void) { return kern(); }\n",
        },
        wanted="error while loading shared libraries: libkern.so",
        helpful=(r"LD_LIBRARY_PATH", r"libkern"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-sh-c-abort-malloc",
        code="signal",
        convention="shell",
        command="gcc -w -O0 -o heap heap.c && ./heap",
        files={
            "heap.c": """#include <stdlib.h>
#include <stdio.h>
int main(void) {
  char *p = malloc(24);
  puts("allocated"); fflush(stdout);
  free(p);
  free(p);
  return 0;
}
"""
        },
        wanted=("double free detected", "SIGABRT"),
        helpful=(r"heap", r"native|valgrind|sanitizer|gdb"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-sh-java-class-not-found",
        code="environment",
        also_codes=("exception", "bad_input"),
        convention="shell",
        command="java -cp lib com.example.Trainer --epochs 1",
        files={"lib/readme.txt": "jars go here\n"},
        wanted=("Could not find or load main class com.example.Trainer", "ClassNotFoundException: com.example.Trainer"),
        helpful=(r"com\.example\.Trainer", r"class ?path|-cp"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-sh-java-heap",
        code="host_oom",
        also_codes=("exception",),
        convention="shell",
        command="java -Xmx24m Grow.java",
        files={
            "Grow.java": """import java.util.*;
public class Grow {
    public static void main(String[] a) {
        List<long[]> keep = new ArrayList<>();
        for (int i = 0; ; i++) {
            keep.add(new long[200_000]);
            if (i % 5 == 0) System.out.println("loaded " + i + " blocks");
        }
    }
}
"""
        },
        wanted="java.lang.OutOfMemoryError: Java heap space",
        helpful=(r"-Xmx|heap",),
        misleading=(r"network|firewall|pip install",),
    ),
    Failure(
        name="q-sh-node-unhandled-rejection",
        code="exception",
        convention="shell",
        command="node eval.js",
        files={
            "eval.js": """const fs = require('fs').promises;
async function load(p) {
  const t = await fs.readFile(p, 'utf8');
  return JSON.parse(t).metrics.accuracy.toFixed(3);
}
load('metrics.json').then(console.log);
""",
            "metrics.json": '{"metrics": {}}\n',
        },
        wanted="TypeError: Cannot read properties of undefined (reading 'toFixed')",
        helpful=(r"eval\.js", r"accuracy|metrics"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-sh-node-module-missing",
        code="environment",
        convention="shell",
        command="node dash.js",
        files={"dash.js": "const express = require('express');\nexpress().listen(0);\n"},
        wanted="Cannot find module 'express'",
        helpful=(r"npm", r"express"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-sh-perl-die",
        code="exit_code",
        also_codes=("exception",),
        convention="shell",
        command="perl normalise.pl corpus.txt",
        files={
            "normalise.pl": """use strict; use warnings;
my $path = shift;
print "normalising $path\\n";
open(my $fh, '<', $path) or die "cannot read $path: $!";
""",
        },
        wanted="cannot read corpus.txt: No such file or directory at normalise.pl line 4.",
        helpful=(r"corpus\.txt", r"normalise\.pl"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-sh-perl-module",
        code="environment",
        convention="shell",
        command="perl multi-bleu.pl ref.txt < out.txt",
        files={"multi-bleu.pl": "use strict;\nuse Text::Levenshtein::XS;\nprint 1;\n", "ref.txt": "", "out.txt": ""},
        wanted="Can't locate Text/Levenshtein/XS.pm in @INC",
        helpful=(r"cpan|Text::Levenshtein|Levenshtein",),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-sh-rust-panic-unwrap",
        code="exception",
        convention="shell",
        command="bash build.sh",
        files={
            "build.sh": "#!/bin/bash\nset -e\nPATH=$PATH:$HOME/.cargo/bin\nrustc -o reader reader.rs 2>&1\n./reader\n",
            "reader.rs": """use std::fs;

fn main() {
    println!("reading index");
    let text = fs::read_to_string("index.csv").unwrap();
    println!("{}", text.len());
}
""",
        },
        wanted="called `Result::unwrap()` on an `Err` value",
        helpful=(r"index\.csv", r"reader\.rs"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-sh-here-doc-python-indent",
        code="exception",
        convention="shell",
        command="bash inline.sh",
        files={
            "inline.sh": """#!/bin/bash
echo "[1/2] fetch"
python - <<'PY'
import os
  print(os.getcwd())
PY
"""
        },
        wanted="IndentationError: unexpected indent",
        helpful=(r"inline\.sh|indent|line 2",),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-sh-tar-corrupt",
        code="exit_code",
        also_codes=("data_unavailable",),
        convention="shell",
        command="mkdir -p data && tar -xzf dataset.tar.gz -C data && python train.py",
        files={"dataset.tar.gz": "<html><body>403 Forbidden</body></html>\n", "train.py": "print(1)\n"},
        wanted=("gzip: stdin: not in gzip format",),
        helpful=(r"dataset\.tar\.gz", r"download|archive|gzip"),
        misleading=(r"firewall|smaller batch|out of memory|pip install",),
    ),
    Failure(
        name="q-sh-curl-refused",
        code="exit_code",
        also_codes=("data_unavailable",),
        convention="shell",
        command="curl -fsS -o weights.bin http://127.0.0.1:9/weights.bin && python train.py",
        files={"train.py": "print(1)\n"},
        wanted=("curl: (7)",),
        helpful=(r"127\.0\.0\.1|weights|reach|curl",),
        misleading=(r"smaller batch|out of memory|pip install",),
    ),
    Failure(
        name="q-sh-trap-exit-noise",
        code="exit_code",
        convention="shell",
        command="bash wrap.sh",
        files={
            "wrap.sh": """#!/bin/bash
cleanup() { echo "cleanup: removing scratch"; echo "cleanup: done"; echo "== job epilogue: 0 errors in epilogue =="; }
trap cleanup EXIT
echo "phase 1"
test -s model.onnx || { echo "model.onnx is missing or empty: export it first (tools/export.sh)"; exit 20; }
"""
        },
        wanted="model.onnx is missing or empty: export it first",
        helpful=(r"model\.onnx|export",),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-sh-sigbus-in-child",
        code="signal",
        also_codes=("exit_code",),
        convention="shell",
        command="bash outer.sh",
        files={
            "outer.sh": '#!/bin/bash\npython inner.py\nrc=$?\necho "inner ended with $rc"\nexit $rc\n',
            "inner.py": """import os, signal, time
print("epoch 1", flush=True)
os.kill(os.getpid(), signal.SIGBUS)
""",
        },
        wanted=("Bus error", "SIGBUS", "signal 7", "inner ended with 135"),
        helpful=(r"inner\.py|native|PYTHONFAULTHANDLER|shm",),
        misleading=(r"network|firewall|pip install",),
    ),
]
