"""Templates: each is a script that compiles and a job file that is accepted; nothing is written over."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.cli.templates import TEMPLATES, files_of, lacks_mpirun, missing, write
from muster.errors import Conflict, NotFound
from muster.job.jobfile import load_job_file


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_a_script_and_a_job(name: str, tmp_path: Path) -> None:
    script, job = write(tmp_path / "new" / "folder", name)
    compile(script.read_text(), str(script), "exec")
    assert max(map(len, script.read_text().splitlines())) <= 120
    loaded = load_job_file(job)
    assert loaded.spec.display_name == name and loaded.notices == ()
    assert isinstance(loaded.spec.command, str) and loaded.spec.command.startswith("python train.py")
    imported = script.read_text()
    assert all(f"import {module}" in imported or f"from {module}" in imported or module == "accelerate"
               for module in TEMPLATES[name].needs)  # fmt: skip


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "job.yml").write_text("mine")
    with pytest.raises(Conflict, match=r"job\.yml is in"):
        write(tmp_path, "ddp")
    assert [path.name for path in tmp_path.iterdir()] == ["job.yml"]
    assert (tmp_path / "job.yml").read_text() == "mine"


def test_an_unknown_template_names_those_there_are() -> None:
    with pytest.raises(NotFound, match="ddp, lightning, transformers, horovod, tensorflow, jax"):
        files_of("pytorch")


def test_what_a_template_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.cli.templates.find_spec", lambda name: None)
    assert list(missing("lightning")) == ["torch", "lightning"]


def test_horovod_needs_no_horovod_and_a_missing_mpirun_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.cli.templates.find_spec", lambda name: None)
    monkeypatch.setattr("muster.cli.templates.sys.executable", "/nowhere/bin/python")
    monkeypatch.setattr("muster.cli.templates.shutil.which", lambda program: None)
    assert list(missing("horovod")) == ["torch"]
    assert [name for name in TEMPLATES if lacks_mpirun(name)] == ["horovod", "jax"]
    monkeypatch.setattr("muster.cli.templates.shutil.which", lambda program: f"/usr/bin/{program}")
    assert not lacks_mpirun("jax")
