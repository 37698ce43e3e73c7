"""1.28 million small files, as in ImageNet: listed, packed and opened, with the memory that this takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import Figure, quick, report

FILES, CLASSES, CONTENTS = 1_280_000, 1000, 40
MOST_MB = 350.0
"""What the command may take, with its names, and each of its processes."""

LIST = """
import json, resource, sys, time
from pathlib import Path
from muster.shards.listing import listed
began = time.monotonic()
names = listed(Path(sys.argv[1]))
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
took = time.monotonic() - began
print(json.dumps({"samples": len(names), "seconds": took, "mb": used, "names_mb": names.memory / 1e6}))
"""
PACK = """
import json, resource, sys, time
from pathlib import Path
from muster.shards.pack import Request, pack
began = time.monotonic()
index = pack(Request(Path(sys.argv[1]), Path(sys.argv[2]), 1000, 0, True, 2), lambda n: None, lambda n, size: None)
used = [resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps({"samples": index.samples, "seconds": time.monotonic() - began, "mb": used[0], "worker_mb": used[1]}))
"""
OPEN = """
import json, resource, sys, time
from muster.training.data import Stream, numpy_batches
began = time.monotonic()
stream = Stream(sys.argv[1], 256)
next(iter(numpy_batches(stream)))
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"samples": stream.samples, "seconds": time.monotonic() - began, "mb": used}))
"""


def main() -> None:
    is_quick = quick(__doc__)
    count = FILES // 20 if is_quick else FILES
    with tempfile.TemporaryDirectory(prefix="muster-names-") as name:
        folder = Path(name)
        make_files(folder / "files", count)
        listing = measured(LIST, folder / "files")
        packing = measured(PACK, folder / "files", folder / "packed")
        opening = {kind: measured(OPEN, folder / kind) for kind in ("packed", "files")}
    assert listing["samples"] == packing["samples"] == opening["packed"]["samples"] == count
    figures = [
        Figure("listing: samples", listing["samples"], ""),
        Figure("listing", listing["seconds"], "s"),
        Figure("listing: names in memory", listing["names_mb"], "MB"),
        Figure("listing: peak memory of the process", listing["mb"], "MiB", at_most=MOST_MB),
        Figure("packing", packing["seconds"], "s"),
        Figure("packing: peak memory of the command", packing["mb"], "MiB", at_most=MOST_MB),
        Figure("packing: peak memory of a process", packing["worker_mb"], "MiB", at_most=MOST_MB),
        Figure("shards opened, first batch", opening["packed"]["seconds"], "s"),
        Figure("shards opened, first batch: peak memory", opening["packed"]["mb"], "MiB", at_most=MOST_MB),
        Figure("files opened, first batch", opening["files"]["seconds"], "s"),
        Figure("files opened, first batch: peak memory", opening["files"]["mb"], "MiB", at_most=2 * MOST_MB),
    ]
    report("names", figures, is_quick)


def make_files(folder: Path, count: int) -> None:
    """Make many names for a few contents: hard links take no space."""
    contents = folder.parent / "contents"
    contents.mkdir()
    for number in range(CONTENTS):
        (contents / str(number)).write_bytes(bytes([number]) * 200)
    for label in range(CLASSES):
        inside = folder / f"n{label:08d}"
        inside.mkdir(parents=True)
        for number in range(count // CLASSES):
            os.link(contents / str((label + number) % CONTENTS), inside / f"n{label:08d}_{number}.JPEG")


def measured(code: str, *folders: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", code, *map(str, folders)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
