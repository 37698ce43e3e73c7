"""Which archives a build installed, by sha256: as pip reports them, or as uv finds them in the indexes."""

from __future__ import annotations

import json
import platform
import subprocess
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from muster.environments.venvs import locks
from muster.environments.venvs.recipe import normalised, requirement_name

Hashes = dict[str, list[str]]
"""By the normalised names of packages."""


def of_lock(lines: Iterable[str]) -> Hashes:
    """What the lines of a lock say."""
    return {requirement_name(line) or line: sorted(locks.hashes(line)) for line in lines}


def of_reports(files: Iterable[Path]) -> Hashes:
    """What pip reports (`--report`) say."""
    found: Hashes = {}
    for file in files:
        for item in json.loads(file.read_text())["install"] if file.exists() else ():
            text = _sha256(item["download_info"].get("archive_info", {}))
            found[normalised(item["metadata"]["name"])] = [text] if text else []
    return found


def _sha256(archive: Mapping[str, Any]) -> str | None:
    """As pip says it from 23.1 on, or as it said it before."""
    kind, _, text = archive.get("hash", "").partition("=")
    return archive.get("hashes", {}).get("sha256") or (text if kind == "sha256" else None)


def of_indexes(
    uv: str, python: Path, version: tuple[int, ...], listed: Path, environment: Mapping[str, str]
) -> Hashes | str:
    """The archives of the exact versions in a requirements file; where uv cannot tell them, what it says."""
    command = [uv, "pip", "compile", "--no-deps", "--quiet", "--format", "pylock.toml", "--python", str(python)]
    done = subprocess.run(
        [*command, str(listed)], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
    packages: Sequence[Mapping[str, Any]] = tomllib.loads(done.stdout).get("packages", [])
    return {normalised(item["name"]): _archives(item, version) for item in packages}


def _archives(item: Mapping[str, Any], version: tuple[int, ...]) -> list[str]:
    """Hashes of what this machine may install of a package: all of an index would be a hundred for some."""
    archives = [*item.get("wheels", ()), *([item["sdist"]] if "sdist" in item else ())]
    machine = platform.machine()
    return sorted(
        {
            str(archive["hashes"]["sha256"])
            for archive in archives
            if "sha256" in archive.get("hashes", {}) and locks.fits(_file(archive), version, machine)
        }
    )


def _file(archive: Mapping[str, Any]) -> str:
    return str(archive.get("name") or unquote(str(archive.get("url") or archive.get("path") or "")).rpartition("/")[2])
