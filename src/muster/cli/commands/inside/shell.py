"""`muster shell`: a shell on the node of a rank."""

from __future__ import annotations

import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated

import typer

from muster.cli.commands.inside.entering import once_started
from muster.cli.console import safe
from muster.cli.exits import EXIT_PIPE
from muster.cli.options import Run, argument, option
from muster.client.connect import connect
from muster.client.inside.tunnels import Session
from muster.host import frames
from muster.host.streams import End, SharedEnd
from muster.wire.tunnels import Terminal, TunnelTarget


def shell(
    run: Run,
    command: Annotated[
        list[str] | None, argument("COMMAND", "After `--`: a command to run instead of a shell, with its arguments.")
    ] = None,
    rank: Annotated[int | None, option("N", "Which rank (default: 0).", min=0, show_default=False)] = None,
) -> None:
    """Open a shell where a rank runs: with its environment, in its folder or container.

    Only while the rank runs. Everything that the shell has started ends with it, or with the attempt. The exit code
    is that of the shell or the command. Where input and output are no terminal, bytes go through as they are.

    \b
    Examples:
      muster shell @latest
      muster shell @latest --rank 1 -- ls -l
      muster shell @latest -- env > rank_0.env
    """
    terminal = _terminal()
    target = TunnelTarget("shell", rank, tuple(command or ()), terminal)
    client = connect()
    tunnel = once_started(lambda: client.open_tunnel(run, target))
    out, errors = SharedEnd(1), SharedEnd(2)
    sinks: dict[bytes, End] = {frames.DATA: out, frames.ERRORS: errors}
    session = Session(tunnel, {frames.DATA: SharedEnd(0)}, sinks)
    with _raw(session) if terminal is not None else nullcontext():
        if terminal is not None and not command:
            greeting = f"rank {rank or 0} of {tunnel.view.run} on {tunnel.view.node}; `exit` or Ctrl-D leaves"
            print(safe(greeting), end="\r\n", file=sys.stderr, flush=True)
        code = session.run(ended=lambda: out.broken)
    raise typer.Exit(EXIT_PIPE if out.broken else code)


def _terminal() -> Terminal | None:
    """This terminal, if both input and output are one."""
    if not (os.isatty(0) and os.isatty(1)):
        return None
    columns, rows = os.get_terminal_size(1)
    return Terminal(rows, columns, os.environ.get("TERM", "xterm")[:64])


@contextmanager
def _raw(session: Session) -> Iterator[None]:
    """Send every key to the other side, even Ctrl-C, and the window's size when it changes."""

    def resized(*_: object) -> None:
        columns, rows = os.get_terminal_size(1)
        session.send(frames.window(rows, columns))

    before = termios.tcgetattr(0)
    handler = signal.signal(signal.SIGWINCH, resized)
    # Input that was typed meanwhile is kept.
    tty.setraw(0, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
        sys.stdout.flush()
