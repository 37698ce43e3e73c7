"""3,000 small files into a datastore and back: `muster data cp` against one call to the server per file.

The calls are those that `muster data upload` and `download` made before: four at once, all bytes through the server.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from bench.measure import Figure, quick, report, temporary_workspace
from muster.client.storage import Storage
from muster.client.transfer.copying import Choices, carry_out, prepare

STORE = "workspaceblobstore"


class Unwatched:
    """Nobody follows these copies."""

    def begin(self, name: str) -> None: ...
    def expect(self, total: int) -> None: ...
    def add(self, count: int) -> None: ...


def main() -> None:
    is_quick = quick(__doc__)
    count, rounds = (300, 1) if is_quick else (3_000, 3)
    samples: dict[str, list[float]] = {}
    with temporary_workspace() as workspace:
        storage = Storage(workspace.client.calls)
        source = workspace.folder / "source"
        make(source, count)
        for number in range(rounds):
            back = workspace.folder / f"back-{number}"
            ways: dict[str, Callable[[], object]] = {
                "up, one call for each file": lambda n=number: each_up(storage, source, f"calls-{n}"),
                "up, muster data cp": lambda n=number: copy(storage, str(source), address(f"copy-{n}")),
                "down, one call for each file": lambda n=number, b=back: each_down(storage, f"calls-{n}", b / "calls"),
                "down, muster data cp": lambda n=number, b=back: copy(storage, address(f"copy-{n}"), str(b / "copy")),
            }
            for name, work in ways.items():
                os.sync()
                began = time.perf_counter()
                work()
                samples.setdefault(name, []).append(time.perf_counter() - began)
                print(f"round {number + 1}: {name}: {samples[name][-1]:.2f} s", flush=True)
            for way in ("calls", "copy"):
                assert same(source, back / way), way
            shutil.rmtree(back)
    figures = [Figure(f"{name}, {count:,} files", middle(found), "s", samples=found) for name, found in samples.items()]
    for way in ("up", "down"):
        before, after = samples[f"{way}, one call for each file"], samples[f"{way}, muster data cp"]
        ratio = middle([old / new for old, new in zip(before, after, strict=True)])
        figures.append(Figure(f"{way}: ratio", ratio, "", at_least=3.0))
    report("copies", figures, is_quick)


def make(folder: Path, count: int) -> None:
    for number in range(count):
        path = folder / f"{number % 10}" / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(10_000))


def copy(storage: Storage, source: str, target: str) -> None:
    carry_out(prepare(storage, source, target, Choices(), Unwatched()), storage, Unwatched())


def each_up(storage: Storage, source: Path, folder: str) -> None:
    storage.upload(source, STORE, folder, fresh=True)


def each_down(storage: Storage, folder: str, target: Path) -> None:
    """A connection for each file, four at once."""

    def fetch(path: str) -> None:
        storage.calls.download(f"/data/{STORE}/{folder}/{path}", target / path)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fetch, [replace(entry).path for entry in storage.files(STORE, folder)]))


def address(folder: str) -> str:
    return f"azureml://datastores/{STORE}/paths/{folder}"


def same(left: Path, right: Path) -> bool:
    names = [sorted(str(path.relative_to(folder)) for path in folder.rglob("*.jpg")) for folder in (left, right)]
    return names[0] == names[1] and all((left / name).read_bytes() == (right / name).read_bytes() for name in names[0])


def middle(samples: list[float]) -> float:
    return sorted(samples)[len(samples) // 2]


if __name__ == "__main__":
    main()
