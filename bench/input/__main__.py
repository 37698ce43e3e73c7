"""JPEG shards on two cores: muster.training.data against WebDataset, MosaicML Streaming, LitData and ImageFolder.

    python -m bench.input [--quick]

The first time, makes an environment with the other libraries, and one for MosaicML Streaming alone, in build/input.
Every round measures each library once, so that other load on the machine affects all of them; figures are medians over
rounds, also of ratios.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.gpu.jpegs import jpeg
from bench.measure import Figure, interleave, median, quick, report

ROOT = Path(__file__).parents[2]
READERS = Path(__file__).with_name("readers.py")
ENVIRONMENTS = ROOT / "build" / "input"
TORCH = ("torch==2.13.0", "torchvision==0.28.0", "numpy", "pillow")
PACKAGES = {"own": ("webdataset==1.0.2", "litdata==0.2.76"), "mosaic": ("mosaicml-streaming==0.13.0",)}
HOME = {"mosaicml-streaming": "mosaic", "write-mosaicml": "mosaic"}
WORKERS, CLASSES, DISTINCT = 2, 10, 60
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore"}
OTHERS = ("webdataset", "mosaicml-streaming", "litdata", "ImageFolder")


def main() -> None:
    is_quick = quick(__doc__)
    make_environments()
    with tempfile.TemporaryDirectory(prefix="muster-input-") as name, ExitStack() as open_readers:
        folder = Path(name)
        figures = []
        make_data(folder, 400 if is_quick else 2000)
        readers = {way: open_readers.enter_context(Reader(way, folder)) for way in ("muster", *OTHERS)}
        for decode, rounds in ((False, 9), (True, 5)):
            figures += compared(readers, decode, 1 if is_quick else rounds)
    report("input", figures, is_quick)


class Reader:
    """A process that goes through an epoch whenever it is asked."""

    def __init__(self, way: str, folder: Path) -> None:
        self._way = way
        self._errors = (folder / f"{way}.log").open("w+")
        self._process = subprocess.Popen(
            command(way, folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env=ENVIRONMENT,
        )  # fmt: skip

    def rate(self, decode: bool) -> float:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("decoded\n" if decode else "raw\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith('{"rate"'):
                return float(json.loads(line)["rate"])
        self._errors.seek(0)
        raise SystemExit(f"{self._way}: {self._errors.read()[-2000:]}")

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *about: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def compared(readers: Mapping[str, Reader], decode: bool, rounds: int) -> list[Figure]:
    ways = {way: partial(reader.rate, decode) for way, reader in readers.items()}
    samples = interleave(rounds, ways)
    what = "decoded" if decode else "not decoded"
    figures = [median(f"{way}, {what}", samples[way], "images/s") for way in ways]
    ratios = {way: [a / b for a, b in zip(samples["muster"], samples[way], strict=True)] for way in OTHERS}
    if not decode:
        return figures + [
            Figure(
                f"muster against {way}, {what}", statistics.median(ratios[way]), "", at_least=1.0, samples=ratios[way]
            )
            for way in OTHERS
        ]
    best = [a / max(others) for a, *others in zip(*(samples[way] for way in ("muster", *OTHERS)), strict=True)]
    return [
        *figures,
        *(Figure(f"muster against {way}, {what}", statistics.median(ratios[way]), "") for way in OTHERS),
        Figure(
            f"muster against the best by medians, {what}",
            statistics.median(samples["muster"]) / max(statistics.median(samples[way]) for way in OTHERS),
            "",
            at_least=0.98,
        ),
        Figure(f"muster against the best of each round, {what}", statistics.median(best), "", samples=best),
    ]


def command(way: str, folder: Path) -> list[str]:
    """In the environment that has the library; Muster itself needs no more than its source there."""
    python = ENVIRONMENTS / HOME.get(way, "own") / "bin" / "python"
    return ["taskset", "-c", "0,1", str(python), str(READERS), way, str(folder), str(WORKERS)]


def make_data(folder: Path, count: int) -> None:
    """Files, and what each library's own writer makes of them; WebDataset reads the shards of `muster data pack`."""
    jpegs = [jpeg(number) for number in range(DISTINCT)]
    for label in range(CLASSES):
        (folder / "files" / str(label)).mkdir(parents=True)
    for number in range(count):
        (folder / "files" / str(number % CLASSES) / f"{number:06d}.jpg").write_bytes(jpegs[number % DISTINCT])
    muster = Path(sys.executable).with_name("muster")
    pack = [muster, "data", "pack", folder / "files", folder / "muster", "--per-shard", "250"]
    subprocess.run(pack, check=True, capture_output=True)
    for way in ("write-mosaicml", "write-litdata"):
        subprocess.run(command(way, folder), check=True, capture_output=True, env=ENVIRONMENT)


def make_environments() -> None:
    for name, packages in PACKAGES.items():
        python = ENVIRONMENTS / name / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENTS / name)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *TORCH, *packages], check=True)


if __name__ == "__main__":
    main()
