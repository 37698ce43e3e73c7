"""ResNet-50 in `muster serve` and `muster score` on a GPU, against a bare loop that decodes and classifies in parallel.

`wrk` sends requests over persistent connections, with JPEGs of about 110 kB: one in a request, or sixteen as a form.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

from bench.gpu.__main__ import EXAMPLE, muster
from bench.gpu.jpegs import jpeg
from bench.measure import Figure, Workspace, report, temporary_workspace

OFFLINE, LUA = Path(__file__).with_name("offline.py"), Path(__file__).with_name("post.lua")
BOUNDARY = "muster-bench"
PORT = 5001


@dataclass(frozen=True)
class Load:
    """The measurements of wrk."""

    requests: int
    seconds: float
    failed: int
    p50_ms: float
    p99_ms: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=512, help="different ones")
    parser.add_argument(
        "--images",
        type=int,
        default=60_000,
        help="for the loop and `muster score`, which goes through half and four times as many",
    )
    parser.add_argument("--loops", default="2,4,8", help="processes with the bare loop")
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--procs", type=int, default=8, help="of `muster score`")
    parser.add_argument("--mini-batch", type=int, default=1024)
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--connections", default="64,128,192")
    parser.add_argument("--seconds", type=int, default=8, help="of each load")
    parser.add_argument("--parts", default="offline,serve,score")
    args = parser.parse_args()
    if not torch.cuda.is_available() or shutil.which("wrk") is None:
        sys.exit("bench.gpu.serving needs a GPU and wrk")
    with temporary_workspace() as workspace:
        folder = workspace.folder
        prepare(folder, args)
        figures: list[Figure] = []
        for part in args.parts.split(","):
            figures += PARTS[part](workspace, args)
            print(json.dumps([(figure.name, round(figure.value, 3)) for figure in figures]), flush=True)
    report("gpu-scoring", compared(figures), "offline" not in args.parts)


def prepare(folder: Path, args: argparse.Namespace) -> None:
    """Pictures, forms of sixteen, weights."""
    (folder / "pictures").mkdir()
    (folder / "forms").mkdir()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        made = list(pool.map(partial(jpeg, quality=91), range(args.pictures), chunksize=16))
    for number, picture in enumerate(made):
        (folder / "pictures" / f"{number:04d}.jpg").write_bytes(picture)
    for first in range(0, len(made), 16):
        (folder / "forms" / f"{first:04d}").write_bytes(form(made[first : first + 16]))
    print(f"pictures of {sum(map(len, made)) / len(made) / 1e3:.1f} kB", flush=True)
    sys.path.insert(0, str(EXAMPLE))
    from model import ResNet50

    torch.save(ResNet50(1000).state_dict(), folder / "model.pt")


def form(pictures: Sequence[bytes]) -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="picture"\r\n\r\n'.encode()
    return b"".join(head + picture + b"\r\n" for picture in pictures) + f"--{BOUNDARY}--\r\n".encode()


def offline(workspace: Workspace, args: argparse.Namespace) -> list[Figure]:
    """The loop in one process, and in several that share the GPU; the best of them is the reference."""
    (found,) = loops(workspace, args, 1)
    alone = found.pop("alone_ms")
    rates = [found[name] for name in found if name.startswith("loop")]
    figures = [Figure(f"offline, {name} at a time", value, "images/s") for name, value in found.items()]
    for count in map(int, args.loops.split(",")):
        several = loops(workspace, args, count)
        rates += [sum(one[name] for one in several) for name in several[0]]
        figures.append(Figure(f"offline, loop in {count} processes", max(rates[-len(several[0]) :]), "images/s"))
    return [*figures, Figure("bare loop", max(rates), "images/s"), Figure("decode and network, one image", alone, "ms")]


def loops(workspace: Workspace, args: argparse.Namespace, count: int) -> list[dict[str, float]]:
    folder = workspace.folder
    meet = folder / f"meet-{count}"
    meet.mkdir()
    command = [sys.executable, str(OFFLINE), "--example", str(EXAMPLE), "--weights", str(folder / "model.pt")]
    command += ["--pictures", str(folder / "pictures"), "--images", str(args.images // 2 // count)]
    command += ["--together", str(count), "--meet", str(meet)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    said = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        sys.exit("the bare loop failed")
    return [json.loads(text.splitlines()[-1]) for text in said]


def serve(workspace: Workspace, args: argparse.Namespace) -> list[Figure]:
    pictures = sorted((workspace.folder / "pictures").iterdir())
    forms = sorted((workspace.folder / "forms").iterdir())
    connections = [int(text) for text in args.connections.split(",")]
    with served(workspace, args):
        ask(pictures, "image/jpeg", 64, 3)
        loads = [ask(pictures, "image/jpeg", count, args.seconds) for count in connections]
        single = max(loads, key=lambda load: load.rate)
        # Many connections that pause, so that requests come independently of the answers.
        pause_ms = 1000 * 512 / (0.7 * single.rate)
        calm = ask(pictures, "image/jpeg", 512, args.seconds, pause_ms - single.p50_ms / 2)
        several = max(
            (ask(forms, f"multipart/form-data; boundary={BOUNDARY}", count, args.seconds) for count in (16, 32, 48)),
            key=lambda load: load.rate,
        )
        alone = ask(pictures, "image/jpeg", 1, args.seconds)
    failed = sum(load.failed for load in (*loads, calm, several, alone))
    return [
        Figure("single requests", single.rate, "images/s"),
        Figure("single requests, p99 at the peak", single.p99_ms, "ms"),
        Figure("load for the next figure, of the peak", calm.rate / single.rate, ""),
        Figure("single requests, p99 at 70 % of the peak", calm.p99_ms, "ms", at_most=25),
        Figure("requests of 16 images", 16 * several.rate, "images/s"),
        Figure("one request at a time, p50", alone.p50_ms, "ms"),
        Figure("failed requests", failed, "", at_most=0),
    ]


@contextmanager
def served(workspace: Workspace, args: argparse.Namespace) -> Iterator[None]:
    command = ["serve", str(EXAMPLE / "score.py"), "--model", "./model.pt", "--port", str(PORT), "--detach"]
    command += ["--replicas", str(args.replicas), "--max-batch", str(args.max_batch), "--max-wait-ms", "0"]
    run(workspace, [*command, "--max-queue", "4096", "--gpus-per-node", "1"])
    deadline = time.monotonic() + 60
    while not answers():
        if time.monotonic() > deadline:
            run(workspace, ["logs", "@latest"])
            sys.exit("nothing answers")
        time.sleep(0.5)
    time.sleep(10)  # for the other replicas, which take as long to load as the first one
    try:
        yield
    finally:
        run(workspace, ["cancel", "@latest"])
        while workspace.client.run("@latest").status != "Canceled":
            time.sleep(0.2)


def answers() -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/", timeout=1) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def ask(files: Sequence[Path], kind: str, connections: int, seconds: int, pause_ms: float = 0) -> Load:
    command = ["wrk", "-t", str(min(4, connections)), "-c", str(connections), "-d", f"{seconds}s", "--timeout", "10s"]
    command += ["-s", str(LUA), f"http://127.0.0.1:{PORT}/score", "--", kind, f"{pause_ms:.1f}", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    load = Load(**json.loads(done.stdout.splitlines()[-1]))
    print(f"    {len(files)} bodies, {connections} connections: {load.rate:.1f}/s {load}", flush=True)
    return load


def score(workspace: Workspace, args: argparse.Namespace) -> list[Figure]:
    """Score few and many pictures: the difference excludes the time to load the model."""
    few, many = args.images // 2, 4 * args.images
    (few_whole_s, few_s), (many_whole_s, many_s) = (scored(workspace, args, count) for count in (few, many))
    return [
        Figure("muster score, start, model and delivery included", many / many_whole_s, "images/s"),
        Figure("muster score, from command to result", (many - few) / (many_whole_s - few_whole_s), "images/s"),
        Figure("muster score", (many - few) / (many_s - few_s), "images/s"),
    ]


def scored(workspace: Workspace, args: argparse.Namespace, count: int) -> tuple[float, float]:
    """Seconds for `count` pictures (the same ones under other names): of the command, and of the ranks."""
    folder = workspace.folder / f"pictures-{count}"
    folder.mkdir()
    pictures = sorted((workspace.folder / "pictures").iterdir())
    for number in range(count):
        os.link(pictures[number % len(pictures)], folder / f"{number:06d}.jpg")
    command = ["score", "./model.pt", "--script", str(EXAMPLE / "score.py"), "--input", str(folder)]
    command += ["--procs", str(args.procs), "--mini-batch-size", str(args.mini_batch), "--gpus-per-node", "1"]
    began = time.monotonic()
    run(workspace, command)
    whole_s, client = time.monotonic() - began, workspace.client
    points = client.metrics(client.run("@latest").id)
    return whole_s, count / next(point.value for point in points if point.name == "items_per_s")


def run(workspace: Workspace, command: list[str]) -> None:
    done = subprocess.run(
        [*muster(), *command], cwd=workspace.folder, capture_output=True, text=True, timeout=300, check=False
    )
    print(done.stdout[-1500:], flush=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")


def compared(figures: list[Figure]) -> list[Figure]:
    """The figures with their ratios to the bare loop, if it was measured."""
    values = {figure.name: figure.value for figure in figures}
    bare, further = values.get("bare loop"), list(figures)
    if bare is None:
        return further
    targets = {"single requests": 0.6, "requests of 16 images": 0.8, "muster score": 0.9}
    for name, least in targets.items():
        if name in values:
            further.append(Figure(f"{name} against the bare loop", values[name] / bare, "", at_least=least))
    if "one request at a time, p50" in values:
        added = values["one request at a time, p50"] - values["decode and network, one image"]
        further.append(Figure("one request at a time, over decode and network", added, "ms", at_most=2))
    return further


PARTS = {"offline": offline, "serve": serve, "score": score}

if __name__ == "__main__":
    main()
