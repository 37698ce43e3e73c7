"""Children that speak lines of JSON, with real processes."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.conftest import wait_until

from muster.host import children
from muster.host.children import Abandoned, Child, ChildEnded, own_children

SOURCE = str(Path(__file__).parents[3] / "src")
ECHO = """
from muster.host.children import Parent
parent = Parent()
for request in parent.requests():
    parent.send({"echo": request})
"""

Start = Callable[..., Child]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Child] = []

    def start(code: str, **options: object) -> Child:
        environment = {**os.environ, "PYTHONPATH": SOURCE}
        started.append(Child([sys.executable, "-Sc", code], environment=environment, **options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for child in started:
        child.end()


def test_a_child_answers_until_its_input_ends(start: Start) -> None:
    child = start(ECHO)
    child.send({"text": "ä\n"})
    assert child.receive() == {"echo": {"text": "ä\n"}}
    child.send(list(range(100_000)))
    assert child.receive()["echo"][-1] == 99_999
    child.close_input()
    with pytest.raises(ChildEnded):
        child.receive()
    assert child.wait() == 0
    with pytest.raises(ChildEnded):
        child.send({})


def test_while_a_child_is_silent_whoever_waits_for_it_is_told(start: Start) -> None:
    child = start(ECHO)
    # It would stay silent for ever.
    assert child.receive(threading.Event(), lambda: child.send("spoken to"))["echo"] == "spoken to"


def test_ending_by_itself_is_waited_for(start: Start) -> None:
    child = start(ECHO)
    assert child.end(grace_s=10.0) == 0


def test_one_that_does_not_listen_is_killed(start: Start) -> None:
    child = start("import signal; signal.pause()")
    assert child.end() == -9
    stubborn = start("import signal; signal.pause()")
    assert stubborn.end(grace_s=0.001) == -9


def test_what_else_is_printed_is_no_answer(start: Start) -> None:
    code = """
print("before", flush=True)
import os, subprocess, sys
from muster.host.children import Parent
parent = Parent()
print("a library", flush=True)
subprocess.run(["echo", "a tool"])
parent.send("answer")
"""
    child = start(code, keep_lines=2)
    assert list(child.messages()) == ["answer"]
    child.wait()
    assert child.last_words() == ["a library", "a tool"]


def test_the_last_words_of_one_that_fails(start: Start) -> None:
    child = start("raise SystemExit('no such cluster')", keep_lines=20)
    with pytest.raises(ChildEnded):
        child.receive()
    assert child.wait() == 1
    assert child.last_words() == ["no such cluster"]


def test_errors_go_where_they_are_wanted(start: Start, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        child = start("from muster.host.children import Parent; Parent(); print('building')", errors=log.fileno())
        child.wait()
    assert (tmp_path / "log").read_text() == "building\n"


def test_whoever_loses_interest_stops_waiting(start: Start) -> None:
    child = start(ECHO)
    unwanted = threading.Event()
    child.send(1)
    assert child.receive(unwanted) == {"echo": 1}
    threading.Timer(0.02, unwanted.set).start()
    with pytest.raises(Abandoned):
        child.receive(unwanted)


def test_many_threads_may_send(start: Start) -> None:
    child = start(ECHO)
    texts = [letter * 20_000 for letter in "abcdefgh"]
    threads = [threading.Thread(target=child.send, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    assert sorted(child.receive()["echo"] for _ in texts) == texts
    for thread in threads:
        thread.join()


def test_a_child_notices_that_its_parent_is_gone(start: Start, tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from muster.host.children import Parent, ParentGone
parent = Parent(ended=lambda: Path({str(tmp_path)!r}, "ended").touch())
parent.send("ready")
parent.gone.wait()
try:
    parent.receive()
except ParentGone:
    parent.send("nobody hears this")
"""
    child = start(code)
    assert child.receive() == "ready"
    assert child.end(grace_s=10.0) == 0
    assert (tmp_path / "ended").exists()


def test_a_child_that_hangs_ends_after_a_while(start: Start) -> None:
    code = """
import signal
from muster.host.children import Parent
Parent(exit_after_s=0.01).send("ready")
signal.pause()
"""
    child = start(code)
    assert child.receive() == "ready"
    assert child.end(grace_s=10.0) == 1


TOOL = """
import subprocess
from muster.host.children import Parent, end_own_group
parent = Parent(ended=end_own_group)
tool = subprocess.Popen(["sleep", "1000"])
parent.send(tool.pid)
tool.wait()
"""


@pytest.mark.parametrize("how", ["the child itself", "its parent"])
def test_a_group_ends_as_a_whole(start: Start, how: str) -> None:
    child = start(TOOL)
    tool = os.pidfd_open(child.receive())
    try:
        assert (child.end(grace_s=10.0) if how == "the child itself" else child.end_group()) == -9
        # A pidfd is readable once its process has ended.
        assert select.select([tool], [], [], 10.0)[0]
    finally:
        os.close(tool)


def test_a_program_that_cannot_be_started() -> None:
    with pytest.raises(FileNotFoundError):
        Child(["/missing/python"])


def test_a_process_ends_with_all_that_it_started() -> None:
    process = children.start(["sh", "-c", "sleep 600 & echo $!; wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.pid in own_children
    assert process.stdout is not None and process.stdin is not None
    grandchild = psutil.Process(int(process.stdout.readline()))
    children.end_group(process)
    process.stdout.close()
    assert process.returncode == -9 and process.pid not in own_children and process.stdin.closed
    wait_until(lambda: not _lives(grandchild), 10.0, "the end of what it started")


def test_a_child_is_no_orphan_until_it_has_ended(start: Start) -> None:
    child = start(ECHO)
    assert child.pid in own_children
    child.end()
    assert child.pid not in own_children


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
