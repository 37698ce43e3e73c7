"""Which modules a job's code imports, by its text; no code is run."""

from __future__ import annotations

import itertools
import re
from importlib.util import find_spec
from pathlib import Path

from muster.environments import catalogue, names
from muster.environments.current import installed
from muster.environments.venvs.recipe import package_names

_SCANNED_FILES, _SCANNED_BYTES = 500, 1 << 20
_IMPORT = re.compile(rb"^[ \t]*(?:import|from)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
# Modules whose package has another name.
_MODULES = {
    "mlflow-skinny": "mlflow",
    "scikit-learn": "sklearn",
    "xgboost-cpu": "xgboost",
    "tensorflow-cpu": "tensorflow",
}


def imported_modules(code: Path) -> frozenset[str]:
    """The top-level modules that the code's Python files import, from the first few hundred files."""
    files = [code] if code.is_file() else itertools.islice(sorted(code.rglob("*.py")), _SCANNED_FILES)
    return frozenset(name.decode() for file in files for name in _IMPORT.findall(_content(file)))


def lacking(name: str, code: Path) -> list[str]:
    """Modules that the code imports and this curated environment provides, and that this Python lacks, so that it
    cannot stand in for the environment."""
    meaning = names.meaning(name, is_mpi=False)
    if meaning is None or meaning.curated is None:
        return []
    entry = catalogue.load(meaning.curated)
    if not entry.is_met_by(installed()):
        return []
    packages = package_names(entry.recipes["cpu"])
    brought = {_MODULES.get(package, package.replace("-", "_")) for package in packages}
    return sorted(module for module in imported_modules(code) & brought if find_spec(module) is None)


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(_SCANNED_BYTES)
    except OSError:
        return b""
