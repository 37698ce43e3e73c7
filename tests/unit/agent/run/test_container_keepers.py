"""The keeper inside an image runs in that image's Python, which may be an old one."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.agent.run import runtime_copy
from muster.agent.run.container import keeper
from muster.agent.run.container.inside import copy_twice, found


@pytest.fixture
def library(tmp_path: Path) -> Path:
    runtime_copy.install(tmp_path / "1")
    return tmp_path / "1-keeper"


def test_the_keepers_copy_imports_with_the_standard_library_alone(library: Path) -> None:
    text = f"import sys; sys.path.append({str(library)!r})\nfrom muster.agent.run.mpi import rank, remote\n"
    text += "from muster.agent.run import keeper\nfrom muster.launch import expand\n"
    text += "print(*(module.__file__ for module in (keeper, rank, remote, expand)), sep='\\n')"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", text], capture_output=True, text=True, check=True)
    assert all(line.startswith(str(library)) for line in done.stdout.splitlines())


def test_the_keepers_copy_reads_as_python_3_8(library: Path) -> None:
    for path in library.rglob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 8))
        plain = _BUILTIN | {
            alias.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module == "collections.abc"
            for alias in node.names
        }
        for node in tree.body:
            if isinstance(node, ast.Assign):
                subscripts = [part for part in ast.walk(node.value) if isinstance(part, ast.Subscript)]
                generic = [part for part in subscripts if isinstance(part.value, ast.Name) and part.value.id in plain]
                assert not generic, f"{path.name}:{node.lineno}: Python 3.8 has no {ast.unparse(generic[0])}"


_BUILTIN = {"dict", "list", "tuple", "set", "frozenset", "type"}


def test_a_program_is_looked_for_inside(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    rank = {"argv": ["tool", "-x"], "env": {"PATH": str(tmp_path)}, "cwd": "/work"}
    assert found(rank)["program"] == str(tmp_path / "tool")
    assert found({**rank, "argv": ["none"]})["program"] == ""
    assert found({**rank, "argv": ["./run.sh"]})["argv"] == ["/work/run.sh"]


def test_ranks_that_may_not_read_each_others_memory_are_told_but_the_user_wins() -> None:
    own = {"OMPI_MCA_smsc": "knem"}
    launch = {"mpi": {"daemon_env": dict(own)}, "ranks": [{"env": {}}]}
    copy_twice(launch["mpi"], launch["ranks"])
    assert launch["mpi"]["daemon_env"] == {"OMPI_MCA_btl_vader_single_copy_mechanism": "none", **own}
    assert launch["ranks"][0]["env"] == {
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
        "OMPI_MCA_smsc": "^cma",
    }


def test_what_the_engine_said_last_is_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\n\ntwo\nthree\nfour\n")
    assert keeper.said_last(str(log)) == "two | three | four"
    assert keeper.said_last(os.devnull) == "it printed nothing"
