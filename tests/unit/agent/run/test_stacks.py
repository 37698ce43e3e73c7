"""Where processes are before they are ended, with the lines of their own code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import wait_until as until

from muster.agent.run import stacks
from muster.host import processes

SCRIPT = """\
import faulthandler, signal, time
faulthandler.register(signal.SIGRTMAX - 6, file=2, all_threads=True, chain=False)
def unpack():
    print("ready", flush=True)
    time.sleep(600)  # for ever
unpack()
"""


def test_a_stack_is_shown_with_the_source_of_its_lines(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    log = tmp_path / "log"
    with log.open("ab") as out:
        child = subprocess.Popen([sys.executable, "train.py"], cwd=tmp_path, stdout=out, stderr=out)
    try:
        until(lambda: b"ready" in log.read_bytes(), what="its first line")
        process = processes.read(child.pid)
        assert process is not None
        stacks.show([process], {child.pid: 3})
        until(lambda: b"line 6: unpack()" in log.read_bytes(), what="the source")
    finally:
        child.kill()
        child.wait()
    text = log.read_text()
    assert f"muster: where rank 3 (process {child.pid}) was when it was stopped:\n" in text
    assert re.search(r'^muster: ".*train\.py" line 6: unpack\(\)$', text, re.M)


def test_what_a_launcher_ended_is_added_to_its_log(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\ntime.sleep(9)\n")
    stack = f'Current thread 0x1 (most recent call first):\n  File "{tmp_path}/train.py", line 2 in <module>\n'
    (tmp_path / ".muster_stack_10_71").write_text(stack)
    (tmp_path / ".muster_stack_2_70").write_text('  File "gone.py", line 7 in <module>\n')
    (tmp_path / ".muster_stack_3_72").write_text("")
    (tmp_path / ".muster_stack_x_72").write_text("not ours")
    log = tmp_path / "log"
    log.write_text("torchrun said\n")
    stacks.collect(str(log), str(tmp_path), str(tmp_path))
    said = log.read_text()
    assert said.index("where rank 2 (process 70)") < said.index("where rank 10 (process 71)")
    assert said.endswith(f'muster: "{tmp_path}/train.py" line 2: time.sleep(9)\n')
    assert "rank 3" not in said and "not ours" not in said
    stacks.collect(str(log), str(tmp_path), str(tmp_path))
    assert log.read_text() == said
    stacks.collect(str(log), "/no/such/folder", "/")


@pytest.mark.parametrize(
    ("end", "complains"),
    [
        (b"RuntimeError: Timed out waiting 5000ms", True),
        (b"ready: gave up, only ranks [0, 2] are here", True),
        (b"ConnectionResetError: [Errno 104]", True),
        (b"    if rank == 0:\nValueError: no label", False),
        (b"", False),
    ],
)
def test_a_rank_that_speaks_of_others_has_them_show_where_they_are(end: bytes, complains: bool) -> None:
    assert stacks.complains(end) is complains
