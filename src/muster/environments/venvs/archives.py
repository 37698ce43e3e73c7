"""Which archives a build installed, by sha256: as pip reports them, or as uv finds them in the indexes."""

from __future__ import annotations

import json
import platform
import subprocess
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from muster.environments.venvs import locks
from muster.environments.venvs.recipe import normalised, requirement_name

Hashes = dict[str, list[str]]
"""By the normalised names of packages."""


def of_lock(lines: Iterable[str]) -> Hashes:
    """The hashes in the lines of a lock."""
    return {requirement_name(line) or line: sorted(locks.hashes(line)) for line in lines}


def of_reports(files: Iterable[Path]) -> Hashes:
    """The hashes in pip's reports (`--report`)."""
    found: Hashes = {}
    for file in files:
        for item in json.loads(file.read_text())["install"] if file.exists() else ():
            text = _sha256(item["download_info"].get("archive_info", {}))
            found[normalised(item["metadata"]["name"])] = [text] if text else []
    return found


def _sha256(archive: Any) -> str | None:
    """In the form of pip 23.1 and later, or the earlier one."""
    kind, _, text = archive.get("hash", "").partition("=")
    return archive.get("hashes", {}).get("sha256") or (text if kind == "sha256" else None)


def of_indexes(
    uv: str, python: str, version: tuple[int, ...], listed: str, environment: Mapping[str, str]
) -> Hashes | str:
    """The archives of the exact versions in a requirements file; uv's error message if it cannot find them."""
    command = [uv, "pip", "compile", "--no-deps", "--quiet", "--format", "pylock.toml", "--python", python]
    done = subprocess.run(
        [*command, listed], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
    return {
        normalised(item["name"]): _archives(item, version) for item in tomllib.loads(done.stdout).get("packages", ())
    }


def _archives(item: Any, version: tuple[int, ...]) -> list[str]:
    """Hashes of the archives that this machine may install: some packages have a hundred in an index."""
    archives = [*item.get("wheels", ()), *([item["sdist"]] if "sdist" in item else ())]
    machine = platform.machine()
    return sorted(
        {
            str(archive["hashes"]["sha256"])
            for archive in archives
            if "sha256" in archive.get("hashes", {}) and fits(_file(archive), version, machine)
        }
    )


def fits(file: str, python: tuple[int, ...], machine: str) -> bool:
    """Whether a Python on Linux may install an archive: a wheel for it, or sources."""
    if not file.endswith(".whl"):
        return True
    try:
        tags = parse_wheel_filename(file)[3]
    except InvalidWheelFilename:
        return False
    own = {f"cp{python[0]}{python[1]}", f"py{python[0]}{python[1]}", f"py{python[0]}"}
    return any(
        (tag.interpreter in own or (tag.abi == "abi3" and tag.interpreter.startswith(f"cp{python[0]}")))
        and (tag.platform == "any" or ("linux" in tag.platform and tag.platform.endswith(machine)))
        for tag in tags
    )


def _file(archive: Any) -> str:
    return str(archive.get("name") or unquote(str(archive.get("url") or archive.get("path") or "")).rpartition("/")[2])
