"""What a Python is asked for: versions of modules, from the metadata beside them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from muster.environments.venvs.contents import MODULES, MPI_LIBRARY


def test_a_version_is_that_of_the_module_and_not_of_one_with_a_similar_name(tmp_path: Path) -> None:
    for name in ("torch", "torch_geometric", "tensorflow", "jax", "keras"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    for name in (
        "torch-2.13.0.dist-info",
        "torch_geometric-9.0.dist-info",
        "tensorflow_cpu-2.21.0.dist-info",
        "jax-0.10.2-py3.11.egg-info",
    ):
        (tmp_path / name).mkdir()
    names = ["torch", "tensorflow", "jax", "keras", "no_such_module"]
    found = json.loads(_ask(f"{MODULES}\nimport json\nprint(json.dumps(modules({names!r})))", tmp_path))
    assert found == {"torch": "2.13.0", "tensorflow": "2.21.0", "jax": "0.10.2", "keras": ""}


def test_horovods_library_names_its_mpi(tmp_path: Path) -> None:
    folder = tmp_path / "horovod" / "torch"
    folder.mkdir(parents=True)
    (tmp_path / "horovod" / "__init__.py").touch()
    (folder / "mpi_lib_v2.cpython-311.so").write_bytes(b"\0ELF\0libmpi.so.12\0")
    found = json.loads(_ask(f"{MPI_LIBRARY}\nimport json\nprint(json.dumps(mpi_library()))", tmp_path))
    assert found == {"by": "horovod", "text": "MPICH Version: 0"}


def _ask(program: str, place: Path) -> str:
    # Without site-packages: what is installed there must not be found.
    program = f"import sys; sys.path.append({str(place)!r})\n{program}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout
