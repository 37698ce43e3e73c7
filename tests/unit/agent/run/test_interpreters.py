"""Why a script could not be started whose first line names an interpreter that is not there."""

from __future__ import annotations

from pathlib import Path

from muster.agent.run.keeper import _no_interpreter


def test_the_interpreter_is_named_with_the_carriage_return_that_ends_it(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_bytes(b"#!/bin/bash\r\necho start\r\n")
    assert _no_interpreter(str(script)).startswith("the interpreter '/bin/bash\\r' that ")
    script.write_bytes(b"#! /opt/conda/bin/python -u\nprint()\n")
    assert _no_interpreter(str(script)).startswith("the interpreter '/opt/conda/bin/python' that ")


def test_a_program_of_another_system_lacks_its_loader(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_bytes(b"\x7fELF\x02\x01")
    assert "not the loader that it needs" in _no_interpreter(str(program))
