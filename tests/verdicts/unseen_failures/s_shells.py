"""Shell scripts and small programs of other languages."""

from recorder import Failure

FAILURES = [
    Failure(
        name="s-sh-unset-variable",
        code="exit_code",
        convention="shell",
        command="./launch.sh",
        files={
            "launch.sh": (
                '#!/bin/bash\nset -eu\necho "== $(date +%F) nightly training =="\n'
                'echo "output goes to $OUTPUT_DIR"\npython train.py\n'
            ),
            "train.py": "print('ok')\n",
        },
        wanted="OUTPUT_DIR: unbound variable",
        helpful=(r"OUTPUT_DIR|launch\.sh|environment_variables",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-sh-windows-line-ends",
        code="launcher_missing",
        convention="shell",
        command="./run.sh",
        files={"run.sh": "#!/bin/bash\r\necho start\r\npython train.py\r\n", "train.py": "print('ok')\n"},
        wanted=("cannot execute: required file not found", "bad interpreter", "/bin/bash^M"),
        helpful=(r"line end|\\r|dos2unix|run\.sh|CRLF|interpreter",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-sh-pipeline-hides-tar",
        code="exit_code",
        convention="shell",
        command="bash unpack.sh",
        files={
            "unpack.sh": (
                "set -o pipefail\nhead -c 3000 /dev/urandom > archive.tar.gz\n"
                'echo "unpacking data set"\ntar xzf archive.tar.gz -C . 2>&1 | sed "s/^/  /" || { echo "unpacking failed"; exit 12; }\n'  # noqa: E501
                "echo done\n"
            ),
        },
        wanted=("gzip: stdin: not in gzip format", "not in gzip format"),
        helpful=(r"archive|gzip|tar|unpack",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-sh-make-stops",
        code="exit_code",
        convention="shell",
        command="make -s -C kernels all && ./kernels/bench",
        files={
            "kernels/Makefile": "all: bench\n\nbench: bench.c\n\tgcc -Wall -O2 -o bench bench.c\n",
            "kernels/bench.c": (
                "#include <stdio.h>\n\nint main(void)\n{\n    float *x = make_input(1024);\n"
                '    printf("%f\\n", x[0]);\n    return 0\n}\n'
            ),
        },
        wanted=("error: expected ‘;’ before ‘}’ token", "error: expected ';' before '}' token"),
        helpful=(r"bench\.c|compil",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-sh-java-missing-class-path",
        code="environment",
        convention="shell",
        command="javac -d build Main.java && java -cp build app.Mian",
        files={
            "Main.java": (
                "package app;\n\npublic class Main {\n    public static void main(String[] a) {\n"
                '        System.out.println("training");\n    }\n}\n'
            ),
        },
        wanted="Could not find or load main class app.Mian",
        helpful=(r"Mian|class",),
        misleading=(r"network|memory",),
        also_codes=("bad_input", "exit_code", "launcher_missing"),
    ),
    Failure(
        name="s-sh-java-heap",
        code="host_oom",
        convention="shell",
        command="java -Xmx48m Index.java 2000000",
        files={
            "Index.java": r"""import java.util.ArrayList;
import java.util.List;

public class Index {
    public static void main(String[] args) {
        List<long[]> rows = new ArrayList<>();
        int wanted = Integer.parseInt(args[0]);
        for (int i = 0; i < wanted; i++) {
            rows.add(new long[64]);
            if (i % 20000 == 0) {
                System.out.println("indexed " + i);
            }
        }
    }
}
""",
        },
        wanted="java.lang.OutOfMemoryError: Java heap space",
        helpful=(r"Xmx|heap|memory",),
        misleading=(r"network|gpu",),
        also_codes=("exception",),
    ),
    Failure(
        name="s-sh-node-promise",
        code="exception",
        convention="shell",
        command="node tokenize.mjs corpus.ndjson",
        files={
            "corpus.ndjson": '{"text": "eins"}\n{"text": "zwei"}\n{"txt": "drei"}\n',
            "tokenize.mjs": r"""import { readFile } from "node:fs/promises";

const lines = (await readFile(process.argv[2], "utf8")).trim().split("\n");
const count = async (line) => JSON.parse(line).text.split(" ").length;
let total = 0;
for (const [i, line] of lines.entries()) {
  total += await count(line);
  console.log(`${i + 1}/${lines.length} tokens ${total}`);
}
""",
        },
        wanted="TypeError: Cannot read properties of undefined (reading 'split')",
        helpful=(r"tokenize\.mjs|text|corpus",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-sh-perl-dies",
        code="exception",
        convention="shell",
        command="perl filter.pl < log.tsv",
        files={
            "log.tsv": "1\t0.5\n2\t0.25\n3\tabc\n4\n",
            "filter.pl": (
                "use strict;\nuse warnings;\nwhile (<STDIN>) {\n    chomp;\n    my ($step, $loss) = split /\\t/;\n"
                '    die "no loss in step $step" unless defined $loss;\n    print "$step ", $loss * 2, "\\n";\n}\n'
            ),
        },
        wanted="no loss in step 4 at filter.pl line 6",
        helpful=(r"filter\.pl|log\.tsv|step 4",),
        misleading=(r"network|memory",),
        also_codes=("exit_code",),
    ),
    Failure(
        name="s-sh-retry-loop-gives-up",
        code="exit_code",
        convention="shell",
        command="./with_retries.sh python -u sync.py",
        files={
            "with_retries.sh": (
                '#!/bin/bash\nfor try in 1 2 3; do\n  if "$@"; then exit 0; fi\n'
                '  code=$?; echo "try $try failed with $code, next in ${try}s"; sleep 0.$try\ndone\n'
                'echo "giving up after 3 tries"; exit 75\n'
            ),
            "sync.py": r"""import sys

manifest = {"train": 120, "valid": 0}
for split, files in manifest.items():
    if not files:
        print(f"sync: split {split!r} lists no files, nothing to train on", file=sys.stderr)
        sys.exit(4)
    print(f"sync: {split}: {files} files")
""",
        },
        wanted="split 'valid' lists no files, nothing to train on",
        helpful=(r"'valid'|sync\.py|manifest|split",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-sh-c-stack-overflow",
        code="signal",
        convention="shell",
        command="gcc -O0 -o tree tree.c && ./tree 100000000",
        files={
            "tree.c": (
                "#include <stdio.h>\n#include <stdlib.h>\n\nstatic long depth(long n)\n{\n    char pad[256];\n"
                "    pad[0] = (char)n;\n    if (n == 0)\n        return 0;\n    return 1 + depth(n - 1) + pad[0] - pad[0];\n}\n\n"  # noqa: E501
                'int main(int c, char **v)\n{\n    printf("building tree\\n");\n    fflush(stdout);\n'
                '    printf("%ld\\n", depth(atol(v[1])));\n    return 0;\n}\n'
            ),
        },
        wanted=("Segmentation fault", "SIGSEGV", "signal 11"),
        helpful=(r"native|stack|tree|gdb|core dump|FAULTHANDLER|debug",),
        misleading=(r"network",),
    ),
    Failure(
        name="s-sh-conda-activate",
        code="exit_code",
        convention="shell",
        command="bash job.sh",
        files={
            "job.sh": (
                '#!/bin/bash\nset -e\necho "host: $(uname -s)"\nsource ~/miniconda3/etc/profile.d/conda.sh\n'
                "conda activate gnn\npython train.py --data $SCRATCH/ogb\n"
            ),
        },
        wanted="miniconda3/etc/profile.d/conda.sh: No such file or directory",
        helpful=(r"conda",),
        misleading=(r"network|memory",),
        also_codes=("environment",),
    ),
    Failure(
        name="s-sh-program-not-executable",
        code="launcher_missing",
        convention="shell",
        command="bin/preprocess --input raw",
        files={"bin/preprocess": "#!/usr/bin/env python3\nprint('hi')\n"},
        wanted="bin/preprocess: Permission denied",
        helpful=(r"chmod|executable|bin/preprocess",),
        misleading=(r"network|memory|pip install",),
    ),
    Failure(
        name="s-sh-tool-not-installed",
        code="launcher_missing",
        convention="shell",
        command="deepspeed --num_gpus 4 train.py --deepspeed ds.json",
        files={"train.py": "print('x')\n", "ds.json": "{}\n"},
        wanted="deepspeed: command not found",
        helpful=(r"deepspeed|install",),
        misleading=(r"network|memory",),
        also_codes=("environment",),
    ),
    Failure(
        name="s-sh-curl-nothing-there",
        code="exit_code",
        convention="shell",
        command="./fetch_weights.sh",
        files={
            "fetch_weights.sh": (
                "#!/bin/bash\nset -e\nmkdir -p weights\n"
                'echo "fetching weights from the mirror"\n'
                "curl -sSf --max-time 10 -o weights/base.safetensors http://127.0.0.1:9/mirror/base.safetensors\n"
                "sha256sum weights/base.safetensors\n"
            ),
        },
        wanted=("curl: (7) Failed to connect", "Connection refused", "Couldn't connect to server"),
        helpful=(r"127\.0\.0\.1|mirror|server|address|connect|fetch_weights|url",),
        misleading=(r"memory|MASTER_PORT",),
        also_codes=("data_unavailable",),
    ),
    Failure(
        name="s-sh-tmpfs-full-sort",
        code="disk_full",
        convention="shell",
        command="unshare -m bash ./sorting.sh",
        files={
            "sorting.sh": (
                "mkdir -p spool\nmount -t tmpfs -o size=1m spool spool\nset -e\n"
                'echo "writing sorted index"\nseq 1 400000 | sort -n > spool/index.txt\necho done\n'
            ),
        },
        wanted=("No space left on device", "write failed"),
        helpful=(r"disk|space|spool",),
        misleading=(r"network|firewall",),
    ),
    Failure(
        name="s-sh-limit-simply-passed",
        code="timeout",
        convention="shell",
        command="./sweep.sh",
        limit_s=8,
        files={
            "sweep.sh": (
                "#!/bin/bash\nfor lr in 1 2 3 4 5 6 7 8 9 10 11 12; do\n"
                '  echo "lr=0.00$lr: training"; sleep 2; echo "lr=0.00$lr: loss 0.$((100 - lr * 3))"\ndone\n'
            ),
        },
        wanted=("time limit", "limit", "8 s"),
        helpful=(r"limit|timeout|longer|checkpoint",),
        misleading=(r"network|memory",),
        rank=None,
    ),
]
