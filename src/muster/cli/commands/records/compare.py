"""`muster compare`: how two runs differ."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from muster.cli.console import Paint, columns, print_lines, say
from muster.cli.options import Json, Run, print_json, switch
from muster.cli.views.difference import Differing, code_difference, differences, lines
from muster.client.api import Client
from muster.client.connect import connect_to_read
from muster.client.provenance import read
from muster.wire.codec import to_json
from muster.wire.runs import RunView


@dataclass(frozen=True)
class Comparison:
    """The JSON of `muster compare --json`."""

    left: str
    right: str
    differences: tuple[Differing, ...]
    code: str
    """A unified diff of their code; empty where it is the same."""


def compare(
    left: Run,
    right: Run,
    with_code: Annotated[bool, switch("Print how the code differs, as `diff` does.", "--code")] = False,
    as_json: Json = False,
) -> None:
    """Show how two runs differ: command, inputs, code, packages, machines, metrics.

    \b
    Examples:
      muster compare 4f2c 90ab
      muster compare 4f2c @latest --code
    """
    client = connect_to_read()
    one, other = client.run(left), client.run(right)
    code = _code(client, one, other)
    origins = [read(client, view.id, [file.path for file in view.files]) for view in (one, other)]
    found = differences(one, other, origins[0], origins[1], code, time.time())
    if as_json:
        print_json(to_json(Comparison(one.id, other.id, tuple(found), code)))
        return
    if not found:
        say("no differences in command, inputs, code, packages, machines and metrics")
        return
    paint = Paint.of(sys.stdout)
    print_lines(lines(one, other, found, paint, columns(sys.stdout)))
    if code and with_code:
        print_lines(["", *code.splitlines()])
    elif code:
        say("--code prints how the code differs")


def _code(client: Client, one: RunView, other: RunView) -> str:
    """How the code of two runs differs."""
    if one.snapshot == other.snapshot:
        return ""
    with TemporaryDirectory(prefix="muster-compare-") as folder:
        roots = []
        for name, view in (("a", one), ("b", other)):
            root = Path(folder) / name
            root.mkdir()
            if view.snapshot is not None:
                client.download_snapshot(view.snapshot, root)
            roots.append(root)
        return code_difference(*roots)
