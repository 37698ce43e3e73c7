"""What an environment costs a job: an existing one, and one that differs by a small package."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
from pathlib import Path

from bench.measure import Figure, Workspace, interleave, median, quick, report, temporary_workspace, wait_for_run
from muster.client.submit import submit
from muster.job.explain import make_spec

PACKAGES = ["numpy", "pandas", "scikit-learn", "pyyaml", "requests", "tqdm"]


def main() -> None:
    is_quick = quick(__doc__)
    with tempfile.TemporaryDirectory(prefix="muster-bench-env-") as name:
        os.environ["MUSTER_ENVIRONMENTS_DIR"] = str(Path(name) / "environments")
        with temporary_workspace() as workspace:
            shelf = Path(name) / "shelf"
            shelf.mkdir()
            first_s = prepared_s(workspace, {"pip": PACKAGES})
            samples = interleave(
                2 if is_quick else 15,
                {
                    "without": lambda: prepared_s(workspace, None),
                    "with": lambda: prepared_s(workspace, {"pip": PACKAGES}),
                },
            )
            changed = interleave(
                1 if is_quick else 5,
                {
                    "bare uv": lambda: by_uv(Path(name), small_package(shelf)),
                    "muster": lambda: prepared_s(workspace, {"pip": [*PACKAGES, small_package(shelf)]}),
                },
            )
    cost = statistics.median(samples["with"]) - statistics.median(samples["without"])
    figures = [
        Figure("the first job: built", first_s, "s"),
        median("preparing without an environment", samples["without"], "s"),
        median("preparing with one that is there", samples["with"], "s"),
        Figure("what the second job pays for its environment", cost, "s", at_most=0.05),
        median("uv itself: the same packages and one more", changed["bare uv"], "s"),
        median("a job with one more small package", changed["muster"], "s", at_most=5.0),
    ]
    report("environments", figures, is_quick)


def prepared_s(workspace: Workspace, environment: dict[str, list[str]] | None) -> float:
    """From the order to prepare to the start of the rank."""
    spec = make_spec({"command": "true", "environment": environment})
    run = submit(workspace.client, spec, workspace.folder, python=sys.executable).id
    attempt = wait_for_run(workspace.client, run).attempts[-1]
    return float(attempt.ranks[0].started_at - attempt.created_at)


def by_uv(folder: Path, package: str) -> float:
    """The same with the bare tool."""
    uv = Path(sys.executable).with_name("uv")
    target = folder / f"bare-{uuid.uuid4().hex}"
    listed = folder / "bare.txt"
    listed.write_text("\n".join([*PACKAGES, package]))
    began = time.monotonic()
    subprocess.run([uv, "venv", "-q", "--no-project", "--python", sys.executable, target], check=True)
    subprocess.run([uv, "pip", "install", "-q", "--python", target / "bin" / "python", "-r", listed], check=True)
    return time.monotonic() - began


def small_package(shelf: Path) -> str:
    """A new package with one module, as a requirement."""
    name = f"small_{uuid.uuid4().hex[:8]}"
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    wheel = shelf / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return f"{name} @ {wheel.as_uri()}"


if __name__ == "__main__":
    main()
