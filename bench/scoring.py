"""A served model that does nothing, against FastAPI with uvicorn and LitServe; requests in batches against one by one.

Each server runs alone on the same port in turn, one process, the same body; `ab` (apache2-utils) uses persistent
connections. LitServe has its own environment, which is made once and kept (`~/.cache/muster-bench`). The model for
batches takes 5 ms per call, however many requests it gets; a request in a batch may wait for the stated time, for the
batch before its own, and for its own. To measure what Muster adds to a request, a single client calls Muster and an
application of a few lines on bare uvicorn.
"""

from __future__ import annotations

import csv
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.measure import Figure, interleave, median, quick, report

CALL_MS, WAIT_MS = 5, 5
LITSERVE_VERSION = "0.2.19"
NOOP = "import json\ndef run(data):\n    return json.loads(data)\n"
SLOW = f"import time\ndef run(data):\n    time.sleep({CALL_MS / 1000})\n    return data\n"
FASTAPI = """
import uvicorn
from fastapi import FastAPI, Request
app = FastAPI()
@app.post("/score")
async def score(request: Request):
    return await request.json()
uvicorn.run(app, port=PORT, log_level="warning", access_log=False)
"""
BARE = """
import uvicorn
async def app(scope, receive, send):
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})
uvicorn.run(app, port=PORT, log_level="warning", access_log=False, lifespan="off")
"""
LITSERVE = """
import litserve
class Noop(litserve.LitAPI):
    def setup(self, device): pass
    def decode_request(self, request): return request
    def predict(self, value): return value
    def encode_response(self, value): return value
if __name__ == "__main__":
    server = litserve.LitServer(Noop(api_path="/score"), accelerator="cpu")
    server.run(port=PORT, generate_client_file=False, log_level="warning")
"""


def main() -> None:
    is_quick = quick(__doc__)
    if shutil.which("ab") is None:
        sys.exit("bench.scoring needs ab (apache2-utils)")
    rounds, count = (1, 3000) if is_quick else (3, 20_000)
    with tempfile.TemporaryDirectory(prefix="bench-scoring-") as name:
        folder = Path(name)
        (folder / "noop.py").write_text(NOOP)
        (folder / "slow.py").write_text(SLOW)
        (folder / "body.json").write_text('{"a": 1}')
        ways = {
            "muster": partial(rate, folder, serve(script="noop.py"), count, 32),
            "FastAPI and uvicorn": partial(rate, folder, script(folder, "fast.py", FASTAPI), count, 32),
        }
        if python := litserve_python():
            ways["LitServe"] = partial(rate, folder, [python, *script(folder, "lit.py", LITSERVE)[1:]], count // 4, 32)
        ways["one by one"] = partial(rate, folder, serve(script="slow.py"), count // 20, 32)
        batching = serve(script="slow.py", max_batch=32, max_wait_ms=WAIT_MS)
        ways["in batches"] = partial(rate, folder, batching, count // 5, 32)
        samples = interleave(rounds, ways)
        times = interleave(
            rounds,
            {
                "bare": partial(percentile, folder, script(folder, "bare.py", BARE), count // 4, 1, 50),
                "alone": partial(percentile, folder, serve(script="noop.py"), count // 4, 1, 50),
                "in batches": partial(percentile, folder, batching, count // 5, 32, 99),
            },
        )
    figures = [median(f"{name}, requests", values, "1/s") for name, values in samples.items()]
    figures.append(ratio("muster over FastAPI and uvicorn", samples, "muster", "FastAPI and uvicorn", 1.0))
    if "LitServe" in samples:
        figures.append(ratio("muster over LitServe", samples, "muster", "LitServe", 2.0))
    figures.append(ratio("in batches over one by one", samples, "in batches", "one by one", 3.0))
    added = [mine - other for mine, other in zip(times["alone"], times["bare"], strict=True)]
    figures.append(median("one client, bare uvicorn, p50", times["bare"], "ms"))
    figures.append(median("one client, added to bare uvicorn, p50", added, "ms", at_most=0.5))
    figures.append(median("in batches, p99", times["in batches"], "ms", at_most=WAIT_MS + 2 * CALL_MS))
    report("scoring", figures, is_quick)


def litserve_python() -> str | None:
    """The interpreter of an environment with LitServe; None where it cannot be made, with the reason."""
    folder = Path.home() / ".cache" / "muster-bench" / f"litserve-{LITSERVE_VERSION}-py{sys.version_info.minor}"
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return str(python)
    wanted = [f"litserve=={LITSERVE_VERSION}", "uvicorn", "uvloop", "httptools"]
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"LitServe is not measured: its environment could not be made ({error})", file=sys.stderr)
        return None
    (folder / "complete").touch()
    return str(python)


def ratio(name: str, samples: Mapping[str, Sequence[float]], ours: str, theirs: str, least: float) -> Figure:
    pairs = zip(samples[ours], samples[theirs], strict=True)
    return median(name, [mine / other for mine, other in pairs], "times", at_least=least)


def serve(**settings: str | int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "muster.scoring.serve",
        json.dumps({**settings, "port": "PORT"}).replace('"PORT"', "PORT"),
    ]


def script(folder: Path, name: str, text: str) -> list[str]:
    (folder / name).write_text(text)
    return [sys.executable, name]


def rate(folder: Path, command: list[str], count: int, at_once: int) -> float:
    """Requests per second."""
    return measured(folder, command, count, at_once).rate


def percentile(folder: Path, command: list[str], count: int, at_once: int, percent: int) -> float:
    """Milliseconds within which so many of a hundred requests were answered."""
    return measured(folder, command, count, at_once).times_ms[percent]


class Asked(NamedTuple):
    """What a client saw."""

    rate: float
    times_ms: Mapping[int, float]
    """By percent."""


def measured(folder: Path, command: list[str], count: int, at_once: int) -> Asked:
    """What a client sees of a server that is started for this alone."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    if command[1].endswith(".py"):
        (folder / command[1]).write_text((folder / command[1]).read_text().replace("PORT", port))
    words = [word.replace("PORT", port) for word in command]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(words, cwd=folder, stdout=quiet, stderr=quiet, start_new_session=True) as server:
        try:
            wait_for(port, server)
            ask(folder, port, min(count, 200), at_once)
            return ask(folder, port, count, at_once)
        finally:
            server.terminate()
            server.wait(30)
            # Some servers leave workers behind, which would slow the next one down.
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            if command[1].endswith(".py"):
                (folder / command[1]).write_text((folder / command[1]).read_text().replace(port, "PORT"))


def wait_for(port: str, server: subprocess.Popen[bytes]) -> None:
    """Until it answers: some listen before they can."""
    deadline = time.monotonic() + 120
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=10)
        with suppress(OSError, http.client.HTTPException):
            connection.request("POST", "/score", '{"a": 1}', {"Content-Type": "application/json"})
            answered = connection.getresponse().status == 200
            connection.close()
            if answered:
                return
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the server did not come up")
        time.sleep(0.1)


def ask(folder: Path, port: str, count: int, at_once: int) -> Asked:
    done = subprocess.run(
        ["ab", "-q", "-k", "-e", "times.csv", "-c", str(at_once), "-n", str(count), "-p", "body.json",
         "-T", "application/json", f"http://127.0.0.1:{port}/score"],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    failed = re.search(r"Non-2xx responses:\s+(\d+)", done.stdout)
    if failed:
        raise RuntimeError(f"{failed[1]} requests failed")
    found = re.search(r"Requests per second:\s+([\d.]+)", done.stdout)
    assert found is not None, done.stdout
    with (folder / "times.csv").open() as file:
        rows = list(csv.reader(file))[1:]
    return Asked(float(found[1]), {int(percent): float(time_ms) for percent, time_ms in rows})


if __name__ == "__main__":
    main()
