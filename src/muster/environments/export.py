"""The versions that an environment came to, as a conda file that builds just these again. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from muster.environments.venvs import locks
from muster.wire.node.recipes import Recipe


def conda_text(name: str, recipe: Recipe, python: str, lock: Sequence[str], indexes: Sequence[str]) -> str:
    """A conda file of exact versions, with hashes where all are known."""
    conda = locks.conda(lock)
    pip = [line for line in lock if not line.startswith("conda:")]
    version = ".".join(python.split(".")[:2])
    named = [line for line in conda if not line.startswith(("python=", "pip="))]
    lines = [f"name: {json.dumps(name)}"]
    if recipe.channels:
        lines.append(f"channels: {json.dumps(list(recipe.channels))}")
    lines += ["dependencies:", f"  - python={version}", "  - pip", *(f"  - {json.dumps(line)}" for line in named)]
    options = [*recipe.options, *(f"--extra-index-url {url}" for url in indexes)]
    if pip or options:
        # What conda has installed shows among pip's packages, too.
        own = {line.split("=")[0].lower() for line in conda}
        wanted = [line for line in pip if line.split("==")[0].lower().replace("_", "-") not in own]
        # pip takes either all with hashes or all without.
        wanted = wanted if all(map(locks.hashes, wanted)) else [locks.plain(line) for line in wanted]
        lines += ["  - pip:", *(f"      - {json.dumps(line)}" for line in (*options, *wanted))]
    if recipe.variables:
        lines += ["variables:", *(f"  {key}: {json.dumps(value)}" for key, value in recipe.variables.items())]
    return "\n".join(lines) + "\n"
