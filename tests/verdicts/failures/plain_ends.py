"""Single programs and shell scripts whose cause stands in the middle of what they print, or in another tool's words."""

from recorder import Failure


def end(
    name: str, code: str, files: dict[str, str], command: str, wanted: str | tuple[str, ...], **more: object
) -> Failure:
    shell = {} if command.startswith("python") else {"convention": "shell"}
    given: dict[str, object] = {
        "name": f"end-{name}",
        "code": code,
        "files": files,
        "command": command,
        "wanted": wanted,
        "misleading": ("firewall", r"smaller batch"),
        **shell,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


FAILURES = [
    end(
        "gcc-type-error",
        "exit_code",
        {
            "build.sh": "set -e\necho compiling\ngcc -Wall -c step.c -o step.o\necho done\n",
            "step.c": (
                "#include <stdio.h>\nint scale(int x) { int unused; return x * factr; }\nint main(void) { return scale(3); }\n"
            ),
        },
        "bash build.sh",
        "undeclared (first use in this function)",
        helpful=(r"step\.c",),
    ),
    end(
        "cmake-no-package",
        "exit_code",
        {"CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(fast C)\nfind_package(Zoltan REQUIRED)\n"},
        "cmake -S . -B out",
        ("Zoltan", "FindZoltan.cmake"),
        helpful=("Zoltan", "CMakeLists"),
        also_codes=("environment",),
    ),
    end(
        "jq-bad-json",
        "exit_code",
        {
            "prepare.sh": "set -euo pipefail\necho reading\njq .shards index.json > shards.txt\necho ready\n",
            "index.json": '{"shards": [1, 2,, 3]}\n',
        },
        "bash prepare.sh",
        ("parse error", "Expected"),
    ),
    end(
        "sqlite-no-table",
        "exit_code",
        {"load.sh": "set -e\nsqlite3 runs.db 'select loss from results;'\n"},
        "bash load.sh",
        "no such table: results",
    ),
    end(
        "git-not-a-repository",
        "exit_code",
        {"version.sh": "set -e\nrevision=$(git rev-parse HEAD)\necho $revision\n"},
        "bash version.sh",
        "not a git repository",
    ),
    end(
        "java-own-exception",
        "exception",
        {
            "Rank.java": (
                "import java.util.*;\npublic class Rank {\n  static int depth(Map<String, Integer> m, String k) { return m.get(k); }\n"
                '  public static void main(String[] a) {\n    System.out.println("start");\n'
                '    System.out.println(depth(new HashMap<>(), "leaf"));\n  }\n}\n'
            )
        },
        "java Rank.java",
        "NullPointerException",
        helpful=(r"Rank\.java",),
        also_codes=("exit_code",),
    ),
    end(
        "java-does-not-compile",
        "exit_code",
        {"Mean.java": 'public class Mean {\n  public static void main(String[] a) {\n    int n = "three";\n  }\n}\n'},
        "java Mean.java",
        "incompatible types",
        helpful=(r"Mean\.java",),
    ),
    end(
        "make-test-fails",
        "exit_code",
        {
            "Makefile": "all: check\ncheck:\n\t@echo checking\n\t@test -s weights.bin || (echo 'weights.bin is empty' >&2; exit 3)\n"
        },
        "make",
        "weights.bin is empty",
        helpful=(r"weights\.bin",),
    ),
    end(
        "curl-no-host",
        "exit_code",
        {"fetch.sh": "set -e\necho fetching\ncurl -sS -o data.bin https://data.example.invalid/v1.bin\n"},
        "bash fetch.sh",
        "Could not resolve host",
        helpful=(r"data\.example\.invalid",),
        also_codes=("data_unavailable",),
    ),
    end(
        "tool-of-own-then-quiet",
        "exit_code",
        {
            "stage.py": (
                "import sys\nprint('stage: 14 of 15 archives are readable')\n"
                "print('stage: archive 15: checksum 9af3 expected, 77b1 found', file=sys.stderr)\nprint('stage: summary written')\n"
                "sys.exit(5)\n"
            )
        },
        "python stage.py",
        "checksum 9af3 expected, 77b1 found",
    ),
    end(
        "pydantic-settings",
        "exception",
        {
            "main.py": (
                "from pydantic import BaseModel, Field\nclass Model(BaseModel):\n    layers: int\n    width: int = Field(gt=0)\n"
                "def load():\n    return Model(layers='many', width=-1)\nload()\n"
            )
        },
        "python main.py",
        ("validation errors for Model", "unable to parse string as an integer"),
        helpful=(r"main\.py",),
    ),
    end(
        "json-config",
        "exception",
        {
            "train.py": "import json\nwith open('config/run.json') as f:\n    settings = json.load(f)\n",
            "config/run.json": '{"rate": 0.1,\n "steps": 10,\n}\n',
        },
        "python train.py",
        "JSONDecodeError",
        helpful=(r"run\.json|train\.py",),
    ),
    end(
        "toml-config",
        "exception",
        {
            "train.py": "import tomllib\nwith open('run.toml', 'rb') as f:\n    settings = tomllib.load(f)\n",
            "run.toml": "[model]\nlayers = 12\nwidth = \n",
        },
        "python train.py",
        "Invalid value",
        helpful=(r"train\.py|run\.toml",),
    ),
    end(
        "jinja-undefined",
        "exception",
        {
            "render.py": (
                "from jinja2 import Environment, StrictUndefined\n"
                "t = Environment(undefined=StrictUndefined).from_string('lr={{ rate }} wd={{ decay }}')\nprint(t.render(rate=1))\n"
            )
        },
        "python render.py",
        "'decay' is undefined",
        helpful=(r"render\.py|decay",),
    ),
    end(
        "sqlalchemy-unique",
        "exception",
        {
            "log.py": (
                "import sqlalchemy as sa\ne = sa.create_engine('sqlite://')\nm = sa.MetaData()\n"
                "t = sa.Table('runs', m, sa.Column('id', sa.Integer, primary_key=True))\nm.create_all(e)\n"
                "with e.begin() as c:\n    c.execute(t.insert(), [{'id': 1}])\n    c.execute(t.insert(), [{'id': 1}])\n"
            )
        },
        "python log.py",
        "UNIQUE constraint failed",
        helpful=(r"log\.py",),
    ),
    end(
        "aiohttp-refused",
        "exception",
        {
            "push.py": (
                "import asyncio, aiohttp\nasync def main():\n    async with aiohttp.ClientSession() as s:\n"
                "        async with s.post('http://127.0.0.1:9/metrics', json={}) as r:\n            print(r.status)\nasyncio.run(main())\n"
            )
        },
        "python push.py",
        ("Cannot connect to host 127.0.0.1:9", "Connect call failed"),
        helpful=(r"push\.py|127\.0\.0\.1:9",),
    ),
    end(
        "requests-500",
        "exception",
        {
            "register.py": (
                "import http.server, threading, requests\nclass H(http.server.BaseHTTPRequestHandler):\n"
                "    def do_POST(self):\n        self.send_response(500); self.end_headers()\n    def log_message(self, *a): pass\n"
                "s = http.server.HTTPServer(('127.0.0.1', 0), H)\nthreading.Thread(target=s.serve_forever, daemon=True).start()\n"
                "def register():\n    r = requests.post(f'http://127.0.0.1:{s.server_port}/models')\n    r.raise_for_status()\nregister()\n"
            )
        },
        "python register.py",
        "500 Server Error",
        helpful=(r"register\.py",),
    ),
    end(
        "scipy-singular",
        "exception",
        {
            "solve.py": "import numpy as np\nfrom scipy import linalg\nprint('solving')\nlinalg.cho_factor(np.array([[1., 2.], [2., 1.]]))\n"
        },
        "python solve.py",
        "leading minor",
        helpful=(r"solve\.py",),
    ),
    end(
        "exit-in-finally",
        "exit_code",
        {
            "clean.py": (
                "import sys\ndef work():\n    raise KeyError('labels')\ntry:\n    work()\nexcept KeyError as e:\n"
                "    print(f'work failed: no column {e}', file=sys.stderr)\nfinally:\n    print('cleaned up')\n    sys.exit(9)\n"
            )
        },
        "python clean.py",
        "no column 'labels'",
    ),
    end(
        "cpp-throws-own",
        "signal",
        {
            "run.sh": "set -e\ng++ -o sim sim.cpp\n./sim\n",
            "sim.cpp": (
                "#include <stdexcept>\n#include <iostream>\nstruct Bad : std::runtime_error { using std::runtime_error::runtime_error; };\n"
                'int main() { std::cout << "step 1" << std::endl; throw Bad("time step 0 is too small"); }\n'
            ),
        },
        "bash run.sh",
        "time step 0 is too small",
    ),
    end(
        "node-rejects",
        "exception",
        {
            "serve.js": "async function load(p) { const t = require('fs').readFileSync(p); return JSON.parse(t); }\nload('model.json');\n",
            "model.json": "{bad",
        },
        "node serve.js",
        "SyntaxError",
        helpful=(r"serve\.js|model\.json",),
        also_codes=("exit_code",),
    ),
    end(
        "perl-strict",
        "exit_code",
        {"sum.pl": 'use strict;\nmy $total = 0;\nwhile (<>) { $total += $_; }\nprint "$totl\\n";\n', "in.txt": "1\n"},
        "perl sum.pl in.txt",
        'Global symbol "$totl" requires explicit package name',
        helpful=(r"sum\.pl",),
        also_codes=("exception",),
    ),
    end(
        "click-choice",
        "bad_input",
        {
            "cli.py": (
                "import click\n@click.command()\n@click.option('--precision', type=click.Choice(['fp32', 'bf16']))\n"
                "def main(precision):\n    print(precision)\nmain()\n"
            )
        },
        "python cli.py --precision fp8",
        "Invalid value for '--precision'",
        helpful=("precision",),
        also_codes=("exit_code",),
    ),
    end(
        "deadline-of-own",
        "exit_code",
        {
            "wait.py": (
                "import sys, time\nend = time.monotonic() + 1\nwhile time.monotonic() < end:\n    print('waiting for the licence')\n"
                "    time.sleep(0.3)\nprint('no licence within 1 s', file=sys.stderr)\nsys.exit(75)\n"
            )
        },
        "python -u wait.py",
        "no licence within 1 s",
    ),
    end(
        "process-pool-child-dies",
        "exception",
        {
            "pool.py": (
                "import os\nfrom concurrent.futures import ProcessPoolExecutor\ndef work(n):\n    if n == 3:\n        os._exit(11)\n"
                "    return n\nif __name__ == '__main__':\n    with ProcessPoolExecutor(2) as p:\n        print(sum(p.map(work, range(6))))\n"
            )
        },
        "python pool.py",
        "BrokenProcessPool",
        helpful=(r"pool\.py",),
    ),
]
