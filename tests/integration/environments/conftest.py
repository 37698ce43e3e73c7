"""Small packages that the tests make themselves, and a workspace whose environments are its own."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.server.conftest import Site, site

__all__ = ["Shelf", "Site", "shelf", "site"]

# Builds its own wheel, without any other package, once the gate is open.
_BACKEND = """
import os, time, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    if os.access({folder!r}, os.W_OK):
        open({begun!r}, "a").write("begun\\n")
    while not os.path.exists({gate!r}):
        time.sleep(0.02)
    name = "{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("{name}.py", "VERSION = '{version}'\\n")
        info = "{name}-{version}.dist-info/"
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return name
"""


@dataclass
class Shelf:
    """A folder of packages, used as the only index."""

    folder: Path

    @property
    def options(self) -> list[str]:
        return ["--no-index", f"--find-links {self.folder}"]

    def wheel(self, name: str, version: str, script: str = "") -> Path:
        """A package with one module; with `script`, a command of that name."""
        files = {f"{name}.py": f"VERSION = {version!r}\ndef main():\n    print('{name}', VERSION)\n"}
        info = f"{name}-{version}.dist-info"
        files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        if script:
            files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{script} = {name}:main\n"
        files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
        target = self.folder / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(target, "w") as wheel:
            for path, text in files.items():
                wheel.writestr(path, text)
        return target

    def gated(self, name: str, version: str = "1.0") -> Gate:
        """A package that is compiled only once its gate is open."""
        gate = Gate(self.folder / f"{name}.open", self.folder / f"{name}.begun")
        paths = {"gate": str(gate.path), "begun": str(gate.begun), "folder": str(self.folder)}
        backend = _BACKEND.format(name=name, version=version, **paths)
        files = {
            "pyproject.toml": f'[project]\nname = "{name}"\nversion = "{version}"\n'
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
            "backend.py": backend,
            "PKG-INFO": f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n",
        }
        with tarfile.open(self.folder / f"{name}-{version}.tar.gz", "w:gz") as archive:
            for path, text in files.items():
                entry = tarfile.TarInfo(f"{name}-{version}/{path}")
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        return gate


@dataclass(frozen=True)
class Gate:
    """Holds a build up."""

    path: Path
    begun: Path

    def has_begun(self) -> bool:
        return self.begun.exists()

    def open(self) -> None:
        self.path.touch()


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    """Packages of this test alone; environments go to a folder of their own."""
    monkeypatch.setenv("MUSTER_ENVIRONMENTS_DIR", str(tmp_path / "environments"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    folder = tmp_path / f"shelf-{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:6]}"
    folder.mkdir()
    yield Shelf(folder)
