"""What a release is made of, as a CycloneDX document, from its lock: `python -m tools.sbom > sbom.json`."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "locks" / "base.txt"
_LINE = re.compile(r"^(?P<name>[A-Za-z0-9_.-]+)==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:(?P<sha256>[0-9a-f]{64})")
_VIA = re.compile(r"^ +#(?: via)? +(?!via$)(?P<parent>[A-Za-z0-9_.-]+)")


def locked(lock: Path = LOCK) -> list[dict[str, Any]]:
    """The packages of a lock, with the hashes of their files and what asked for them."""
    found: list[dict[str, Any]] = []
    for line in lock.read_text().splitlines():
        if match := _LINE.match(line):
            found.append({"name": match["name"].lower(), "version": match["version"], "sha256": [], "via": []})
        if match := _HASH.search(line):
            found[-1]["sha256"].append(match["sha256"])
        if match := _VIA.match(line):
            found[-1]["via"].append(match["parent"])
    return found


def document(lock: Path = LOCK) -> dict[str, Any]:
    """The bill of materials."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = re.search(r'VERSION = "([^"]+)"', (ROOT / "src/muster/version.py").read_text())
    assert version is not None
    packages = locked(lock)
    refs = {item["name"]: f"pkg:pypi/{item['name']}@{item['version']}" for item in packages}
    own = f"pkg:pypi/{project['name']}@{version[1]}"
    needs: dict[str, list[str]] = {own: [], **{ref: [] for ref in refs.values()}}
    for item in packages:
        for parent in item["via"]:
            needs[refs.get(parent.lower(), own)].append(refs[item["name"]])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": project["name"],
                "version": version[1],
                "purl": own,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": [
            {
                "type": "library",
                "bom-ref": refs[item["name"]],
                "name": item["name"],
                "version": item["version"],
                "purl": refs[item["name"]],
                # One for each file that the index has of this version.
                "hashes": [{"alg": "SHA-256", "content": text} for text in item["sha256"]],
            }
            for item in packages
        ],
        "dependencies": [{"ref": ref, "dependsOn": sorted(set(inner))} for ref, inner in sorted(needs.items())],
    }


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=2)
    print()
