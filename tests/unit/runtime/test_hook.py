"""What Muster puts into a rank's process: parts by switch, never in the way of the script."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from muster.agent.run import runtime_copy

STACKS_SIGNAL = signal.SIGRTMAX - 6
PRINT_HANDLED = "print(open('/proc/self/status').read().split('SigCgt:')[1].split()[0])"


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """The folder as an agent lays it out."""
    runtime_copy.install(tmp_path / "node" / "1")
    return tmp_path / "node" / "1"


def run(
    runtime: Path, code: str, *options: str, hooks: str | None = "stacks", path: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    whole = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{runtime}:{path}" if path else str(runtime), **env}
    if hooks is not None:
        whole["MUSTER_HOOKS"] = hooks
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, env=whole, capture_output=True, text=True, timeout=60, check=False)


def is_handled(done: subprocess.CompletedProcess[str]) -> bool:
    assert done.returncode == 0, done.stderr
    return bool(int(done.stdout.split()[-1], 16) >> (STACKS_SIGNAL - 1) & 1)


def add_part(runtime: Path, name: str, text: str) -> None:
    (runtime / "muster/runtime/parts" / f"{name}.py").write_text(text)


def customize(folder: Path, text: str) -> str:
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(text)
    return str(folder)


def test_a_part_is_on_where_it_is_named_and_off_elsewhere(runtime: Path) -> None:
    assert is_handled(run(runtime, PRINT_HANDLED))
    assert not is_handled(run(runtime, PRINT_HANDLED, hooks=""))
    assert not is_handled(run(runtime, PRINT_HANDLED, hooks=None))


@pytest.mark.parametrize("option", ["-S", "-I", "-E"])
def test_pythons_own_switches_leave_it_out(runtime: Path, option: str) -> None:
    assert not is_handled(run(runtime, PRINT_HANDLED, option))


def test_processes_that_a_launcher_starts_have_it_too(runtime: Path) -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {PRINT_HANDLED!r}], check=True)"
    assert is_handled(run(runtime, code))


def test_a_signal_shows_where_every_thread_is_and_the_script_goes_on(runtime: Path) -> None:
    code = (
        "import os, threading, time\n"
        "def waiting_for_data(): time.sleep(0.5)\n"
        "threading.Thread(target=waiting_for_data).start()\n"
        f"os.kill(os.getpid(), {int(STACKS_SIGNAL)})\n"
        "print('goes on')"
    )
    done = run(runtime, code)
    assert (done.returncode, done.stdout.strip()) == (0, "goes on")
    assert "waiting_for_data" in done.stderr
    assert "most recent call first" in done.stderr


def test_a_signal_that_is_ignored_stays_so(runtime: Path) -> None:
    trap = f"trap '' {int(STACKS_SIGNAL)}; exec {sys.executable} -c \"{PRINT_HANDLED}\""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(runtime), "MUSTER_HOOKS": "stacks"}
    done = subprocess.run(["bash", "-c", trap], env=env, capture_output=True, text=True, check=False)
    assert not is_handled(done)


def test_the_users_own_sitecustomize_runs_once_and_under_its_name(runtime: Path, tmp_path: Path) -> None:
    text = "import os, sys\nos.environ['SEEN'] = os.environ.get('SEEN', '') + 'x'\nMINE = 1\n"
    path = customize(tmp_path / "own", text)
    code = f"import os, sitecustomize; print(os.environ['SEEN'], sitecustomize.MINE); {PRINT_HANDLED}"
    done = run(runtime, code, path=path)
    assert done.stdout.splitlines()[0] == "x 1"
    assert is_handled(done)


def test_the_users_own_sitecustomize_fails_as_it_would_without_muster(runtime: Path, tmp_path: Path) -> None:
    path = customize(tmp_path / "own", "raise RuntimeError('mine')")
    done = run(runtime, PRINT_HANDLED, path=path)
    assert "RuntimeError: mine" in done.stderr
    assert is_handled(done)


def test_one_copy_inside_another_does_not_go_round_in_circles(runtime: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner" / "1"
    runtime_copy.install(inner)
    last = customize(tmp_path / "own", "print('last')")
    done = run(runtime, PRINT_HANDLED, path=f"{inner}:{last}")
    assert done.stdout.splitlines()[0] == "last"
    assert is_handled(done)


@pytest.mark.parametrize(
    "text", ["raise ValueError('broken')", "def install(): raise ValueError('broken')", "def install(:", "", None]
)
def test_a_broken_part_costs_one_line_and_no_script(runtime: Path, text: str | None) -> None:
    if text is not None:
        add_part(runtime, "broken", text)
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {PRINT_HANDLED!r}], check=True)"
    done = run(runtime, child, hooks="broken,stacks")
    assert is_handled(done)
    assert done.stderr.count("muster: the hook 'broken' is left out") == len(done.stderr.splitlines()) == 1


def test_without_standard_error_a_broken_part_is_as_quiet(runtime: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(runtime), "MUSTER_HOOKS": "absent"}
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -c 'print(1)' 2>&-"], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "1")


def test_a_script_may_have_a_module_called_muster(runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "muster.py").write_text("MINE = 1")
    (tmp_path / "train.py").write_text("import muster; print(muster.MINE)")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(runtime), "MUSTER_HOOKS": "stacks"}
    done = subprocess.run([sys.executable, tmp_path / "train.py"], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "1", done.stderr


def test_it_takes_about_a_millisecond(runtime: Path) -> None:
    code = "import sys, time; print(sum(name.startswith('muster') for name in sys.modules))"
    assert run(runtime, code).stdout.strip() == "0"
    measured = "import sys, time; t = time.perf_counter(); exec(open(sys.argv[1]).read(), "
    measured += "{'__name__': 'sitecustomize', '__file__': sys.argv[1]}); print(time.perf_counter() - t)"
    best = 1.0
    for _ in range(5):
        began = time.monotonic()
        file = str(runtime / "sitecustomize.py")
        env = {"PATH": os.environ["PATH"], "MUSTER_HOOKS": "stacks"}
        command = [sys.executable, "-c", measured, file]
        best = min(best, float(subprocess.run(command, env=env, capture_output=True, check=True).stdout))
        assert time.monotonic() - began < 30
    assert best < 0.01
