"""Shell scripts, C++, Java, Rust, Node and Perl programs, other languages of the system, and peers that vanish.

Cases with LOCPATH need `localedef -i de_DE -f UTF-8 /tmp/loc/de_DE.UTF-8` and so on first.
"""

from recorder import Failure

BUG = (r"MASTER_|network|memory|traceback",)
NATIVE = (r"native|core|faulthandler|gdb|sanitiz",)


def shell(name, command, code, wanted, helpful=(), misleading=BUG, files=None, **more):
    return Failure(f"shell-{name}", code, command, wanted, files or {}, helpful, misleading, convention="shell", **more)


def compiled(
    name,
    source,
    code,
    wanted,
    helpful=NATIVE,
    misleading=(r"MASTER_|network|traceback",),
    flags="",
    run="./a.out",
    **more,
):
    return Failure(
        f"cpp-{name}", code, f"g++ -O0 {flags} -o a.out main.cpp -lpthread && {run}", wanted, {"main.cpp": source}, helpful, misleading,
        convention="shell", **more,
    )  # fmt: skip


def german(text):
    return {"LOCPATH": "/tmp/loc", "LC_ALL": f"{text}.UTF-8"}


FAILURES = [
    shell(
        "not-found",
        "trian --epochs 3",
        "launcher_missing",
        "trian: command not found",
        (r"trian|first word|environment",),
    ),
    shell(
        "not-found-inside",
        "bash run.sh",
        "launcher_missing",
        "nvcx: command not found",
        (r"nvcx",),
        files={"run.sh": "echo building\nnvcx -o kernel kernel.cu\n"},
    ),
    shell(
        "not-found-then-on",
        "bash run.sh",
        "launcher_missing",
        "aws: command not found",
        (r"aws",),
        files={"run.sh": "set -e\necho fetching\naws s3 cp s3://b/c .\npython train.py\n"},
    ),
    shell(
        "crlf-shebang",
        "./run.sh",
        "launcher_missing",
        ("bad interpreter", "required file not found", "cannot execute"),
        (r"dos2unix|CRLF|line ending|\\r",),
        files={"run.sh": "#!/bin/bash\r\necho hi\r\n"},
    ),
    shell(
        "crlf-body",
        "bash run.sh",
        "exit_code",
        ("$'\\r': command not found", "\\r", "command not found"),
        (r"dos2unix|CRLF|line ending|\\r",),
        files={"run.sh": "set -e\r\ncd data\r\npython train.py\r\n"},
        also_codes=("launcher_missing", "bad_input"),
    ),
    shell(
        "crlf-env-shebang",
        "./train.sh",
        "launcher_missing",
        ("python3", "No such file or directory"),
        (r"dos2unix|CRLF|line ending|\\r",),
        files={"train.sh": "#!/usr/bin/env python3\r\nprint(1)\r\n"},
    ),
    shell(
        "shebang-missing-interpreter",
        "./run.sh",
        "launcher_missing",
        ("bad interpreter", "/opt/conda/bin/python", "required file not found"),
        (r"/opt/conda/bin/python|first line|shebang",),
        files={"run.sh": "#!/opt/conda/bin/python\nprint(1)\n"},
    ),
    shell(
        "no-chmod",
        "./run.txt",
        "launcher_missing",
        "Permission denied",
        (r"chmod",),
        files={"run.txt": "#!/bin/bash\necho hi\n"},
    ),
    shell(
        "no-shebang-python",
        "./main.sh",
        "exit_code",
        ("syntax error", "command not found", "import"),
        (r"#!|shebang|python",),
        files={"main.sh": "import os\nprint(os.getcwd())\n"},
        also_codes=("launcher_missing", "bad_input"),
    ),
    shell(
        "folder", "./data", "launcher_missing", "Is a directory", (r"data|folder|directory",), files={"data/x.txt": ""}
    ),
    shell(
        "exec-format",
        "chmod +x x.bin && ./x.bin",
        "launcher_missing",
        ("Exec format error", "cannot execute binary file"),
        (r"architecture|format|built for",),
        files={"x.bin": "\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00"},
    ),
    shell(
        "syntax",
        "bash run.sh",
        "bad_input",
        ("syntax error", "unexpected end of file"),
        (r"run\.sh",),
        files={"run.sh": "if true; then\necho hi\n"},
        also_codes=("exit_code",),
    ),
    shell(
        "unbound",
        "bash run.sh",
        "exit_code",
        "DATA_DIR: unbound variable",
        (r"DATA_DIR",),
        files={"run.sh": "set -u\nls $DATA_DIR\n"},
        also_codes=("bad_input",),
    ),
    shell(
        "cd-missing",
        "cd /mnt/data/imagenet && ls",
        "exit_code",
        "/mnt/data/imagenet: No such file or directory",
        (r"/mnt/data/imagenet",),
        BUG,
        also_codes=("data_unavailable",),
    ),
    shell(
        "cp-missing",
        "set -e; cp /mnt/store/weights.bin . ; echo done",
        "exit_code",
        "cannot stat '/mnt/store/weights.bin'",
        (r"/mnt/store/weights\.bin",),
        BUG,
        also_codes=("data_unavailable",),
    ),
    shell(
        "cp-full",
        "set -e; head -c 100000 /dev/zero > /dev/full",
        "disk_full",
        "No space left on device",
        (r"space|disk",),
        (r"MASTER_|network",),
    ),
    shell(
        "curl-refused",
        "curl -fsS http://127.0.0.1:9/data.tar",
        "exit_code",
        ("Failed to connect", "Couldn't connect"),
        (r"127\.0\.0\.1|reach|server",),
        (r"rank|peer|MASTER_",),
        also_codes=("data_unavailable",),
    ),
    shell(
        "tar-broken",
        "head -c 2000 /dev/urandom > d.tar.gz; tar xzf d.tar.gz",
        "exit_code",
        ("not in gzip format",),
        (r"d\.tar\.gz|archive|gzip",),
        BUG,
        also_codes=("data_unavailable",),
    ),
    shell(
        "pip-fails",
        "pip install --no-index no-such-package-zz",
        "exit_code",
        "No matching distribution found for no-such-package-zz",
        (r"no-such-package-zz|pip",),
        (r"MASTER_|memory",),
        also_codes=("environment",),
    ),
    shell(
        "killed-inside",
        "python x.py; exit $?",
        "signal",
        ("SIGKILL", "Killed"),
        (r"outside|memory|limit",),
        (r"network|MASTER_",),
        files={"x.py": "import os\nos.kill(os.getpid(), 9)\n"},
        also_codes=("host_oom",),
    ),
    shell(
        "segv-inside",
        "set -e\npython x.py\necho done",
        "signal",
        ("SIGSEGV", "Segmentation fault"),
        NATIVE,
        (r"network|MASTER_",),
        files={"x.py": "import ctypes\nctypes.string_at(0)\n"},
    ),
    shell(
        "python-then-words",
        "python x.py || { echo 'training failed, see above'; exit 3; }",
        "exception",
        "ValueError: bad seed",
        (r"x\.py",),
        (r"network|MASTER_",),
        files={"x.py": "raise ValueError('bad seed')\n"},
        also_codes=("exit_code",),
    ),
    shell(
        "pipefail-tee",
        "set -o pipefail; python x.py 2>&1 | tee log.txt",
        "exception",
        "ValueError: bad fold",
        (r"x\.py",),
        (r"network|MASTER_",),
        files={"x.py": "raise ValueError('bad fold')\n"},
    ),
    shell(
        "timeout-command",
        "timeout 1 python x.py",
        "exit_code",
        ("code 124", "timeout"),
        (r"timeout",),
        (r"network|limits\.timeout",),
        files={"x.py": "import time\ntime.sleep(60)\n"},
        also_codes=("timeout", "signal"),
    ),
    shell(
        "german-not-found",
        "trian --epochs 3",
        "launcher_missing",
        "trian: Kommando nicht gefunden",
        (r"trian|first word|environment",),
        variables=german("de_DE"),
    ),
    shell(
        "french-not-found",
        "trian --epochs 3",
        "launcher_missing",
        "trian : commande introuvable",
        (r"trian|first word|environment",),
        variables=german("fr_FR"),
    ),
    shell(
        "japanese-not-found",
        "trian --epochs 3",
        "launcher_missing",
        "trian: コマンドが見つかりません",
        (r"trian|first word|environment",),
        variables=german("ja_JP"),
    ),
    shell(
        "german-no-chmod",
        "./run.txt",
        "launcher_missing",
        "Keine Berechtigung",
        (r"chmod",),
        variables=german("de_DE"),
        files={"run.txt": "echo\n"},
    ),
    shell(
        "german-full",
        "set -e; head -c 100000 /dev/zero > /dev/full",
        "disk_full",
        "Auf dem Gerät ist kein Speicherplatz mehr verfügbar",
        (r"space|disk",),
        (r"network",),
        variables=german("de_DE"),
    ),
    shell(
        "spanish-cp",
        "set -e; cp /mnt/pesos.bin .",
        "exit_code",
        "'/mnt/pesos.bin'",
        (r"/mnt/pesos\.bin",),
        BUG,
        variables=german("es_ES"),
        also_codes=("data_unavailable",),
    ),
    shell(
        "german-python-full",
        "python x.py",
        "disk_full",
        "[Errno 28]",
        (r"space|disk",),
        (r"network",),
        variables=german("de_DE"),
        files={
            "x.py": "import locale\nlocale.setlocale(locale.LC_ALL, '')\nopen('/dev/full', 'w').write('x' * 99999)\n"
        },
    ),
    shell(
        "french-python-errno",
        "python x.py",
        "exception",
        "'/donnees/index.csv'",
        (r"/donnees/index\.csv",),
        BUG,
        variables=german("fr_FR"),
        files={"x.py": "import locale\nlocale.setlocale(locale.LC_ALL, '')\nopen('/donnees/index.csv')\n"},
        also_codes=("data_unavailable",),
    ),
    compiled(
        "throw",
        '#include <stdexcept>\nint main() { throw std::runtime_error("tensor 7 has no storage"); }\n',
        "signal",
        "tensor 7 has no storage",
        (r"main\.cpp|throw|catch|uncaught|native",),
        also_codes=("exception",),
    ),
    compiled(
        "throw-own",
        "struct Bad {};\nint main() { throw Bad(); }\n",
        "signal",
        ("terminate called after throwing an instance of 'Bad'",),
        also_codes=("exception",),
    ),
    compiled(
        "bad-alloc",
        "#include <vector>\nint main() { std::vector<char> v(1ul << 60); }\n",
        "host_oom",
        ("std::bad_alloc", "std::length_error"),
        (r"memory",),
    ),
    compiled(
        "assert",
        "#include <cassert>\nint main(int n, char**) { assert(n > 5); }\n",
        "signal",
        "Assertion `n > 5' failed",
        (r"main\.cpp|native",),
        also_codes=("exception",),
    ),
    compiled(
        "double-free",
        "#include <cstdlib>\nint main() { void* p = malloc(5000); free(p); free(p); }\n",
        "signal",
        ("double free",),
    ),
    compiled("segv-in-script", "int main() { *(volatile int*)0 = 1; }\n", "signal", ("SIGSEGV", "Segmentation fault")),
    compiled(
        "stack-smash",
        '#include <cstring>\nint main(int c, char** v) { char b[4]; strcpy(b, "0123456789012345678901234567890"); return b[c]; }\n',
        "signal",
        ("stack smashing detected", "buffer overflow detected", "SIGSEGV"),
        flags="-fstack-protector-all",
    ),
    compiled(
        "asan",
        "int main() { int* p = new int[4]; return p[9]; }\n",
        "exit_code",
        ("AddressSanitizer: heap-buffer-overflow",),
        (r"main\.cpp|native|AddressSanitizer",),
        flags="-g -fsanitize=address",
        also_codes=("exception", "signal"),
    ),
    compiled(
        "compile-error",
        "int main() { return x; }\n",
        "exit_code",
        ("'x' was not declared in this scope", "‘x’ was not declared in this scope"),
        (r"main\.cpp",),
        also_codes=("exception", "bad_input"),
    ),
    compiled(
        "fpe",
        "int main(int n, char**) { volatile int z = 0; return n / z; }\n",
        "signal",
        ("SIGFPE", "Floating point exception"),
    ),
    compiled(
        "library-missing",
        '#include <cstdio>\nint main() { puts("x"); }\n',
        "environment",
        ("libgone.so", "cannot open shared object file"),
        (r"libgone|LD_LIBRARY_PATH|image",),
        (r"MASTER_",),
        run="echo 'void g() {}' > g.cpp && g++ -shared -fPIC -o libgone.so g.cpp && g++ -o b.out main.cpp -Wl,--no-as-needed -L. -lgone && rm libgone.so && ./b.out",
    ),
    compiled(
        "says-and-returns",
        '#include <cstdio>\nint main() { puts("iteration 3"); fprintf(stderr, "error: residual grew by 1e6, stopping\\n"); return 8; }\n',
        "exit_code",
        "error: residual grew by 1e6, stopping",
        (),
        (r"MASTER_|core",),
    ),
    Failure(
        "java-exception",
        "exception",
        "java Main.java",
        "java.io.IOException: part-0003.parquet is truncated",
        {
            "Main.java": """
public class Main {
    static void read(String name) throws Exception { throw new java.io.IOException(name + " is truncated"); }
    public static void main(String[] a) {
        try { read("part-0003.parquet"); } catch (Exception e) { throw new RuntimeException("cannot prepare the data", e); }
    }
}
"""
        },
        (r"Main\.java|part-0003",),
        (r"python|MASTER_",),
        convention="shell",
        also_codes=("exit_code",),
    ),
    Failure(
        "java-memory",
        "host_oom",
        "java -Xmx16m Main.java",
        "java.lang.OutOfMemoryError: Java heap space",
        {
            "Main.java": """
public class Main { public static void main(String[] a) { int[][] x = new int[1000][]; for (int i = 0; ; i++) x[i] = new int[1 << 20]; } }
"""
        },
        (r"-Xmx|heap",),
        (r"MASTER_|batch",),
        convention="shell",
    ),
    Failure(
        "java-no-class",
        "environment",
        "java -cp . Traner",
        ("ClassNotFoundException: Traner", "Could not find or load main class Traner"),
        {"x.txt": ""},
        (r"Traner|class",),
        (r"MASTER_|pip",),
        convention="shell",
        also_codes=("launcher_missing", "bad_input", "exception"),
    ),
    Failure(
        "rust-panic",
        "exception",
        "PATH=$PATH:$HOME/.cargo/bin; rustc -o a.out main.rs && ./a.out",
        "index out of bounds: the len is 3 but the index is 7",
        {
            "main.rs": """
fn main() { let v = vec![1, 2, 3]; let n = std::env::args().count() + 6; println!("{}", v[n]); }
"""
        },
        (r"main\.rs",),
        (r"python|MASTER_",),
        convention="shell",
        also_codes=("exit_code",),
    ),
    Failure(
        "node-throw",
        "exception",
        "node main.js",
        "Error: manifest has no entries",
        {
            "main.js": """
function load() { throw new Error("manifest has no entries"); }
load();
"""
        },
        (r"main\.js",),
        (r"python|MASTER_",),
        convention="shell",
        also_codes=("exit_code",),
    ),
    Failure(
        "perl-die",
        "exit_code",
        "perl main.pl",
        "cannot open vocab.txt: No such file or directory",
        {"main.pl": 'open(F, "vocab.txt") or die "cannot open vocab.txt: $!";\n'},
        (r"vocab\.txt",),
        (r"python|MASTER_",),
        convention="shell",
        also_codes=("exception", "data_unavailable"),
    ),
]
