"""`muster shell`: a command or a terminal where a rank runs."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import termios
import time
from collections.abc import Callable

from tests.conftest import wait_until
from tests.integration.tunnels.conftest import Running, Terminal, exists


def test_a_command_has_the_ranks_environment_and_its_exit_code_is_passed_on(running: Running) -> None:
    said = running.shell("sh", "-c", "echo $RANK of $WORLD_SIZE in $PWD; echo wrong >&2; exit 7", rank=1)
    assert said.returncode == 7
    assert re.fullmatch(rf"1 of 2 in .*/attempts/{running.id}\.1/work\n", said.stdout)
    assert said.stderr == "wrong\n"

    given = os.urandom(300_000)
    back = running.shell("cat", text=False, input=given)
    assert back.stdout == given and back.returncode == 0

    killed = running.shell("sh", "-c", "kill -9 $$")
    assert killed.returncode == 137
    absent = running.shell("no-such-program")
    assert absent.returncode == 2 and "no-such-program cannot be run here: No such file" in absent.stderr
    wrong = running.shell("true", rank=5)
    assert wrong.returncode == 2 and "has no rank 5" in wrong.stderr and "Its ranks are 0 to 1." in wrong.stderr


def test_a_command_that_ends_after_its_output_is_noticed(running: Running) -> None:
    said = running.shell("sh", "-c", "echo last; exec >&- 2>&-; sleep 0.5; exit 7")
    assert (said.stdout, said.returncode) == ("last\n", 7)

    held = running.shell("sh", "-c", "sleep 4000 & sleep 0.5; exit 7")
    assert held.returncode == 7


def test_what_a_session_started_ends_with_it(running: Running) -> None:
    left = running.shell("sh", "-c", "sleep 4000 & setsid sleep 4000 & echo $!; jobs -p")
    pids = [int(line) for line in left.stdout.split()]
    assert len(pids) >= 2
    wait_until(lambda: not any(map(exists, pids)), what="the end of what the session had started")
    assert running.site.view(running.id)["status"] == "Running"


def test_a_terminal_is_one(running: Running, terminal: Callable[..., Terminal]) -> None:
    shown = terminal("shell", running.id, "--rank", "1", SHELL="/bin/sh", PS1="$ ")
    shown.until("rank 1 of .* on local-0; `exit` or Ctrl-D leaves")
    shown.press(b"PS1='ready> '; tty; stty size; echo rank=$RANK\r")
    shown.until(r"/dev/pts/\d+")
    shown.until("30 100")
    shown.until("rank=1")
    fcntl.ioctl(shown._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 41, 77, 0, 0))
    os.kill(shown.pid, 28)
    # The size is on its way while this is typed, so it is asked for until it has come.
    shown.press(b"until stty size | grep '41 77'; do sleep 0.1; done\r")
    shown.until(r"\r41 77|\n41 77|l41 77")
    shown.press(b"sleep 4000\r")
    wait_until(lambda: "sleep" in _names(running), what="sleep")
    shown.press(b"\x03")
    wait_until(lambda: "sleep" not in _names(running), what="the end of sleep by Ctrl-C")
    shown.press(b"exit 5\r")
    assert shown.end() == 5


def test_a_closed_terminal_ends_the_shell(running: Running, terminal: Callable[..., Terminal]) -> None:
    shown = terminal("shell", running.id)
    shown.until("leaves")
    shown.press(b"sleep 4321\r")
    wait_until(lambda: "sleep" in _names(running), what="sleep")
    shown.hang_up()
    wait_until(lambda: not running.sessions(), what="the end of the session")
    assert "sleep" not in _names(running)


def test_a_shell_does_not_hold_up_the_end_of_its_attempt(own_run: Running) -> None:
    running = own_run
    shell = running.cli.start(
        "shell", running.id, "--", "sh", "-c", "trap '' TERM HUP; echo in; while :; do sleep 1; done"
    )
    assert shell.stdout.readline() == "in\n"
    begin = time.monotonic()
    running.site.client.cancel(running.id)
    ended = running.site.wait(running.id)
    # The ranks end at once; only something that holds out would use the grace of 30 seconds.
    assert ended["status"] == "Canceled" and time.monotonic() - begin < 25
    _, errors = shell.communicate(timeout=30)
    assert shell.returncode in (2, 3)
    assert "the attempt is being stopped" in errors or "was cut" in errors


def _names(running: Running) -> set[str]:
    found = set()
    for rank in range(2):
        for child in running.site.keeper(running.id, rank).children(recursive=True):
            try:
                found.add(child.name())
            except Exception:
                continue
    return found
