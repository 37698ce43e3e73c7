"""The versions that an environment came to, as a conda file that builds just these again. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from muster.environments.venvs import locks


def conda_text(name: str, facts: Mapping[str, Any]) -> str:
    """A conda file of exact versions, with hashes where all are known; `facts` has python, lock and recipe."""
    recipe = facts.get("recipe", {})
    conda = [line.removeprefix("conda:") for line in facts["lock"] if line.startswith("conda:")]
    pip = [line for line in facts["lock"] if not line.startswith("conda:")]
    version = ".".join(str(facts["python"]).split(".")[:2])
    named = [line for line in conda if not line.startswith(("python=", "pip="))]
    lines = [f"name: {json.dumps(name)}"]
    if recipe.get("channels"):
        lines.append(f"channels: {json.dumps(list(recipe['channels']))}")
    lines += ["dependencies:", f"  - python={version}", "  - pip", *(f"  - {json.dumps(line)}" for line in named)]
    options = [*recipe.get("options", ()), *(f"--extra-index-url {url}" for url in facts.get("indexes", ()))]
    if pip or options:
        # What conda has installed shows among pip's packages, too.
        own = {line.split("=")[0].lower() for line in conda}
        wanted = [line for line in pip if line.split("==")[0].lower().replace("_", "-") not in own]
        # pip takes either all with hashes or all without.
        wanted = wanted if all(map(locks.hashes, wanted)) else [locks.plain(line) for line in wanted]
        lines += ["  - pip:", *(f"      - {json.dumps(line)}" for line in (*options, *wanted))]
    if recipe.get("variables"):
        lines += ["variables:", *(f"  {key}: {json.dumps(value)}" for key, value in recipe["variables"].items())]
    return "\n".join(lines) + "\n"
