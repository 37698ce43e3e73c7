"""Puts packages on top of an image: runs in a container of it, in the image's own Python, from 3.8 on.

Reads `request.json` next to it, and writes the installed versions into the image. It ends when standard input closes:
then the process that started it is gone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OWN = Path("/opt/muster")
LOCK = OWN / "packages.json"
"""The installed packages; written last."""
PREFIX = OWN / "conda"


def main() -> None:
    threading.Thread(target=_end_with_asker, daemon=True).start()
    request = json.loads((HERE / "request.json").read_text())
    OWN.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **request["variables"]}
    python = sys.executable or "python3"
    if request["conda"]:
        tool, *words = request["conda"]
        _run([tool, "create", "-y", "-q", "-p", str(PREFIX), *words], environment)
        python = str(PREFIX / "bin" / "python")
    if request["lent"]:
        environment["PYTHONPATH"] = str(HERE / "lent")
    lock = [f"conda:{name}={version}" for name, version in map(_conda_name, (PREFIX / "conda-meta").glob("*.json"))]
    lock += [
        line for number, step in enumerate(request["steps"]) for line in _install(number, step, python, environment)
    ]
    LOCK.write_text(json.dumps({"lock": sorted(lock, key=str.lower)}))
    LOCK.chmod(0o644)


def _install(number: int, step: Any, python: str, environment: dict[str, str]) -> list[str]:
    missing = [tool for tool in step["tools"] if shutil.which(tool) is None]
    if missing:
        sys.exit(f"error: {step['requirements'][0]} is compiled, and the image has no {' and no '.join(missing)}")
    report = HERE / f"report-{number}.json"
    command = [python, "-m", "pip", "install", "--progress-bar", "off", "--report", str(report)]
    command += ["-r", str(HERE / f"requirements-{number}.txt")]
    command += ["--no-deps"] if step["no_deps"] else []
    command += ["--require-hashes"] if step["hashed"] else []
    variables = dict(environment)
    if step["from_source"]:
        command += ["--no-build-isolation", "--no-cache-dir"]
        variables.update(CXX=str(HERE / "compiler"), MAKEFLAGS=f"-j{os.cpu_count() or 1}", **step["variables"])
    _run(command, variables)
    return [_line(item) for item in json.loads(report.read_text())["install"]]


def _conda_name(record: Path) -> tuple[str, str]:
    """Name and version of a conda package, from the name of its record."""
    name, version, _ = record.stem.rsplit("-", 2)
    return name, version


def _line(item: Any) -> str:
    """The exact requirement for an installed package."""
    source, name = item["download_info"], item["metadata"]["name"]
    archive = source.get("archive_info", {})
    # pip before 23.1 reports one hash, as kind=text.
    text = archive.get("hashes", {}).get("sha256") or archive.get("hash", "").partition("sha256=")[2]
    if "vcs_info" in source:
        return f"{name} @ {source['vcs_info']['vcs']}+{source['url']}@{source['vcs_info']['commit_id']}"
    if item.get("is_direct"):
        return f"{name} @ {source['url']}" + (f"#sha256={text}" if text else "")
    return f"{name}=={item['metadata']['version']}" + (f" --hash=sha256:{text}" if text else "")


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, env=environment, cwd="/", check=False)
    if done.returncode != 0:
        sys.exit(abs(done.returncode))


def _end_with_asker() -> None:
    while os.read(0, 4096):
        pass
    # As process 1 it ends everything in the container.
    os._exit(137)


if __name__ == "__main__":
    main()
