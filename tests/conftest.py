"""Fixtures of all tests: a clean environment, leak checks, a workspace that must end clean, a private PostgreSQL."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
MUSTER = Path(sys.executable).with_name("muster")
KEPT_VARIABLES = {"CI", "HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
KEPT_PREFIXES = ("HYPOTHESIS_", "LC_", "MUSTER_TEST_", "PIP_", "PYTEST_", "SSL_", "UPDATE_")
KEPT_PROXIES = {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE"}

# Folders whose tests share a Ray, a Slurm, the machine's containers, or a workspace that is dear to start.
TOGETHER = tuple(f"tests/integration/{name}" for name in ("containers", "mpi", "ray", "slurm"))
LONGEST_FIRST = ("tests/integration/ray", "tests/integration/test_", *TOGETHER, "tests/integration/")


def pytest_configure(config: pytest.Config) -> None:
    """Tests see a known environment, whatever the shell exports, and never the user's own home."""
    for name in list(os.environ):
        if name not in KEPT_VARIABLES and name.upper() not in KEPT_PROXIES and not name.startswith(KEPT_PREFIXES):
            del os.environ[name]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background of a script; what tests start would ignore Ctrl-C, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Short, because socket paths are limited to about a hundred characters.
    private = Path(tempfile.mkdtemp(prefix="mt-"))
    for variable, folder in (("HOME", "home"), ("XDG_RUNTIME_DIR", "run")):
        (private / folder).mkdir(mode=0o700)
        os.environ[variable] = str(private / folder)
    config.add_cleanup(lambda: _leave_home(private))


def _leave_home(private: Path) -> None:
    """End the server of the workspace in that home, where a command made one."""
    if (private / "home" / ".muster").exists():
        subprocess.run([MUSTER, "down"], cwd=private / "home", capture_output=True, check=False)
    shutil.rmtree(private, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What `-n auto` means: most tests start several processes, so more workers would only be in each other's way."""
    return min(2, os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Units of work for several workers, in the order in which the tests were collected."""
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _unit(nodeid)

    # Otherwise those with most tests go first, which says nothing about how long they take.
    config.option.loadscopereorder = False
    return Units(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers the long units go first, so that all workers end at about the same time."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _turn(_unit(item.nodeid)))


def _unit(nodeid: str) -> str:
    """What one worker runs in one piece: a file, or a folder whose tests share what a machine has only once."""
    file = nodeid.partition("::")[0]
    return next((folder for folder in TOGETHER if file.startswith(f"{folder}/")), file)


def _turn(unit: str) -> int:
    return next((turn for turn, prefix in enumerate(LONGEST_FIRST) if unit.startswith(prefix)), len(LONGEST_FIRST))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    return _failed_if_skipped(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    report = yield
    return _failed_if_skipped(report)


def _failed_if_skipped(report: Any) -> Any:
    """In CI everything must run: a skip there is a hole in the tests."""
    if IN_CI and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {reason}"
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was left out, and how to have it run."""
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    reasons = Counter(_reason(report) for report in skipped)
    terminalreporter.section(f"{len(skipped)} tests were left out")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:6}  {reason}")
    terminalreporter.write_line("`make system` installs what the system lacks (packages of Debian, as root).")


def _reason(report: Any) -> str:
    text = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return str(text).removeprefix("Skipped: ")


def wait_until(condition: Callable[[], Any], timeout_s: float = 20.0, what: str = "the condition") -> Any:
    """Poll until the condition is true and return its value; fail after the deadline."""
    pause_s, deadline = 0.02, time.monotonic() + timeout_s
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come true within {timeout_s:g} s")
        time.sleep(pause_s)
        # Asking takes time away from what is waited for.
        pause_s = min(pause_s * 1.1, 0.1)


def process(find_pid: Callable[[], int | None], what: str) -> psutil.Process:
    """A process, once its id is known: psutil takes None for the test's own, and the test would signal itself."""
    return psutil.Process(wait_until(find_pid, what=f"the id of {what}"))


@pytest.fixture(autouse=True)
def leaks_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """A unit test leaves no thread, child process or environment variable behind."""
    if "unit" not in request.node.path.parts:
        yield
        return
    threads, children, environment = set(threading.enumerate()), _children(), dict(os.environ)
    yield
    left_variables = {
        name for name in environment.keys() | os.environ.keys() if environment.get(name) != os.environ.get(name)
    } - {"PYTEST_CURRENT_TEST"}
    assert not left_variables, f"the test changed environment variables: {sorted(left_variables)}"
    wait_until(lambda: set(threading.enumerate()) <= threads, 2.0, "the end of the threads that the test started")
    wait_until(lambda: _children() <= children, 2.0, "the end of the processes that the test started")


def _children() -> set[int]:
    """Read from /proc where it can be: psutil scans every process, which is too slow for each test."""
    try:
        lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    except OSError:
        lists = []
    if not lists:
        return {child.pid for child in psutil.Process().children()}
    return {int(pid) for text in lists for pid in text.split()}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a workspace in it, as current folder; afterwards no process of it may be left."""
    from muster.client.workspace import create_workspace

    folder = tmp_path / "w"
    folder.mkdir()
    monkeypatch.chdir(folder)
    create_workspace(folder, "test")
    yield folder
    _end_workspace(folder)


def _end_workspace(folder: Path) -> None:
    """Cancel what still runs, end the server and its agents, and fail if a process outlives that."""
    if not processes_of(folder):
        return
    _cancel_all(folder)
    # A test may have killed the server; `down` says so, and nothing of it may be left either.
    subprocess.run([MUSTER, "down"], cwd=folder, capture_output=True, check=False)
    deadline = time.monotonic() + 20
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    if not left:
        return
    described = "\n".join(f"  {process.pid} {' '.join(_command_line(process))}" for process in left)
    for process in left:
        _kill(process)
    pytest.fail(f"processes of the workspace were left:\n{described}")


def _cancel_all(folder: Path) -> None:
    """With the help of a new server, if there is none: only a server can end a gang that its agents keep."""
    from muster.client.connect import connect
    from muster.client.workspace import find_workspace

    with closing(connect(find_workspace(folder))) as client:

        def active() -> list[str]:
            return [run.id for run in client.runs() if run.status not in {"Completed", "Failed", "Canceled"}]

        for run_id in active():
            client.cancel(run_id, force=True)
        wait_until(lambda: not active(), 60.0, "the end of the cancelled runs")


def processes_of(folder: Path) -> list[psutil.Process]:
    """Living processes that carry the folder's path in their command line or environment."""
    needle = str(folder).encode()
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            described = b"".join(
                (Path("/proc") / str(process.pid) / name).read_bytes() for name in ("cmdline", "environ")
            )
            if needle in described and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (OSError, psutil.Error):
            continue
    return found


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return ["(gone)"]


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.Error:
        pass


class Postgres:
    """A private PostgreSQL server on a Unix socket."""

    def __init__(self, bin_dir: Path) -> None:
        # PostgreSQL refuses to run as root.
        self.user = _unprivileged_user() if os.getuid() == 0 else None
        self.bin_dir = bin_dir
        self.root = Path(tempfile.mkdtemp(prefix="mpg-"))
        if self.user:
            shutil.chown(self.root, self.user)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        data = str(self.root / "data")
        self._run("initdb", "-D", data, "-U", "muster", "-A", "trust", "-E", "UTF8", "--no-sync")
        self._options = ["-D", data, "-k", str(self.root), "-p", str(self.port), "-c", "listen_addresses=", "-F"]
        self.start()

    def start(self) -> None:
        with (self.root / "postgres.log").open("ab") as log:
            command = [str(self.bin_dir / "postgres"), *self._options]
            self.process = subprocess.Popen(command, user=self.user, cwd=self.root, stdout=log, stderr=log)
        wait_until(self._answers, 20.0, "the start of PostgreSQL")

    def stop(self, at_once: bool = False) -> None:
        """End it; `at_once`: as in a crash, so that it has to recover."""
        self.process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
        self.process.wait(20)

    def new_database(self) -> str:
        """The SQLAlchemy URL of a fresh, empty database."""
        name = f"m{uuid.uuid4().hex[:12]}"
        self._run("createdb", "-h", str(self.root), "-p", str(self.port), "-U", "muster", name)
        return f"postgresql+psycopg://muster@/{name}?host={self.root}&port={self.port}"

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        shutil.rmtree(self.root, ignore_errors=True)

    def _answers(self) -> bool:
        command = [str(self.bin_dir / "pg_isready"), "-q", "-h", str(self.root), "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.bin_dir / program), *arguments]
        done = subprocess.run(command, user=self.user, cwd=self.root, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.fail(f"{program} failed: {done.stderr}")


def _unprivileged_user() -> str:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _postgres_bin_dir() -> Path | None:
    if os.environ.get("MUSTER_TEST_BARE"):
        # As on a machine without it: its programs are not on the PATH, and so could not be hidden there.
        return None
    installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest_first = sorted(installed, key=lambda path: float(path.parts[4]), reverse=True)
    if newest_first:
        return newest_first[0].parent
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    bin_dir = _postgres_bin_dir()
    if bin_dir is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    server = Postgres(bin_dir)
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgres_url(postgres: Postgres) -> str:
    """One database for the whole session."""
    return postgres.new_database()


@pytest.fixture
def fresh_postgres_url(postgres: Postgres) -> str:
    """A database for this test alone."""
    return postgres.new_database()
