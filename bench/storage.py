"""Staging against the alternatives: adlfs, Azure's own library, cp with a hash; and the cost of encryption.

Needs Azurite (npm), azure-storage-blob and adlfs. The alternatives are timed without their imports, Muster with the
start of its process, its hashing and its cache.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure import Figure, interleave, median, quick, report, temporary_workspace, wait_for_run
from muster.client.storage import Storage
from muster.client.submit import submit
from muster.job.explain import make_spec
from muster.wire.data.datastores import NewDatastore

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

ACCOUNT = "devstoreaccount1"
# The well-known key of every Azurite, which is valid nowhere else.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
MANY = 10_000
TOOLS = Path(os.environ.get("MUSTER_TEST_TOOLS") or Path.home() / ".cache/muster-tests")

ADLFS = """
import os, time, adlfs
fs = adlfs.AzureBlobFileSystem(account_name=os.environ["ACCOUNT"], connection_string=os.environ["CONNECTION"])
began = time.perf_counter()
fs.get(os.environ["SOURCE"], os.environ["TARGET"], recursive=True)
print(time.perf_counter() - began)
"""

SDK = """
import os, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from azure.storage.blob import ContainerClient
block = 8 << 20
container, _, prefix = os.environ["SOURCE"].partition("/")
client = ContainerClient.from_connection_string(
    os.environ["CONNECTION"], container, max_single_get_size=block, max_chunk_get_size=block
)
target = Path(os.environ["TARGET"])
began = time.perf_counter()
names = [item.name for item in client.list_blobs(name_starts_with=prefix)]
at_once = int(os.environ["AT_ONCE"])
def one(name):
    path = target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        client.download_blob(name, max_concurrency=at_once if len(names) == 1 else 1).readinto(file)
with ThreadPoolExecutor(1 if len(names) == 1 else at_once) as pool:
    list(pool.map(one, names))
print(time.perf_counter() - began)
"""


BARE = """
import http.client, os, threading, time
from collections import deque
count = int(os.environ["FILES"])
base, sas = os.environ["BASE"], os.environ["SAS"]
targets = deque(f"{base}/{number % 100:02}/{number:06}.jpg?{sas}" for number in range(count))
def work():
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["PORT"]))
    buffer = bytearray(1 << 20)
    while targets:
        try:
            connection.request("GET", targets.popleft())
        except IndexError:
            return
        response = connection.getresponse()
        assert response.status == 200, response.read()
        while response.readinto(buffer):
            pass
began = time.perf_counter()
workers = [threading.Thread(target=work) for _ in range(8)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
print(time.perf_counter() - began)
"""


def main() -> None:
    is_quick = quick(__doc__)
    large_mib, small_files, small_bytes = (256, 500, 20_000) if is_quick else (2048, 20_000, 107_374)
    with tempfile.TemporaryDirectory(prefix="muster-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # Before the blob server starts, which uses the CPU now and then even when idle.
        own = [
            *local(folder, large_mib, 1 if is_quick else 5),
            *encryption(folder, 64 if is_quick else 512, 2 if is_quick else 5),
        ]
        with azurite() as service:
            service.fill_one(large_mib)
            one = download(service, folder, "one", large_mib, "one file", rounds=1 if is_quick else 7)
            jobs = second_job(service, folder)
            # Last, since with many blobs it takes longer for each, and collects garbage for minutes.
            service.fill_many(small_files, small_bytes)
            mib = small_files * small_bytes / (1 << 20)
            many = download(service, folder, "many", mib, f"{small_files:,} files", small_files)
            figures = [*one, *many, *own, *jobs]
    report("storage", figures, is_quick)


@dataclass
class Service:
    """A blob server with a container."""

    port: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    @property
    def connection(self) -> str:
        account = f"AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY}"
        return f"DefaultEndpointsProtocol=http;{account};BlobEndpoint={self.endpoint};"

    def fill_one(self, mib: int) -> None:
        with self._container() as client:
            client.create_container()
            piece = os.urandom(1 << 20)
            client.upload_blob("one/data.bin", (piece for _ in range(mib)), length=mib << 20)

    def fill_many(self, files: int, size: int) -> None:
        content = os.urandom(size - 8)
        with self._container() as client, ThreadPoolExecutor(8) as pool:
            list(
                pool.map(
                    lambda n: client.upload_blob(f"many/{n % 100:02}/{n:06}.jpg", content + n.to_bytes(8, "big")),
                    range(files),
                )
            )

    def _container(self) -> ContainerClient:
        from azure.storage.blob import ContainerClient

        return ContainerClient.from_connection_string(self.connection, "data", max_block_size=8 << 20)

    def sas(self) -> str:
        from azure.storage.blob import generate_container_sas

        until = datetime.now(UTC) + timedelta(days=1)
        return str(generate_container_sas(ACCOUNT, "data", account_key=ACCOUNT_KEY, permission="rl", expiry=until))


@contextmanager
def azurite() -> Iterator[Service]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="muster-bench-", ignore_cleanup_errors=True) as folder:
        program = TOOLS / "azurite/node_modules/.bin/azurite-blob"
        options = ["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--location", folder]
        process = subprocess.Popen(
            [str(program), *options, "--blobPort", str(port)], start_new_session=True, stdout=subprocess.DEVNULL
        )
        try:
            while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
                time.sleep(0.05)
            yield Service(port)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def download(
    service: Service, folder: Path, what: str, mib: float, words: str, small_files: int = 0, rounds: int = 1
) -> list[Figure]:
    """MiB/s of each way, from the same server in turn; of several rounds every other one backwards.

    For minutes at a time Azurite is several times slower for the same requests, so ratios are taken within a round.
    It also searches all blobs for each request: with many small ones it limits the rate, and no client is 1.5 times as
    fast as another. Bare requests whose answers are thrown away measure that limit and are the reference there. With
    few files, the start of a process counts more.
    """
    is_limited = small_files >= MANY
    ways = {
        "adlfs get": lambda: others(ADLFS, service, folder, what),
        "Azure's library, 4 at once": lambda: others(SDK, service, folder, what, at_once=4),
        "Azure's library, 8 at once": lambda: others(SDK, service, folder, what, at_once=8),
        "muster": lambda: staged(service, folder, what),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways) if number % 2 == 0 else reversed(ways):
            rates[name].append(mib / ways[name]())
    bare: list[Figure] = []
    if small_files:
        rate = mib / small_files * (small_files // 5) / thrown_away(service, small_files // 5)
        mark = 0.9 if is_limited else None
        bare = [
            Figure(f"{words}: bare requests, thrown away", rate, "MiB/s"),
            Figure(f"{words}: bare requests against adlfs", rate / statistics.median(rates["adlfs get"]), ""),
            Figure(
                f"{words}: muster against bare requests", statistics.median(rates["muster"]) / rate, "", at_least=mark
            ),
        ]
    against = {name: [mine / other for mine, other in zip(rates["muster"], rates[name], strict=True)] for name in ways}
    library = (values for name, values in against.items() if name.startswith("Azure"))
    to_adlfs = median(f"{words}: muster against adlfs", against["adlfs get"], "")
    return [
        *(median(f"{words}: {name}", values, "MiB/s") for name, values in rates.items()),
        replace(to_adlfs, at_least=None if is_limited else 1.5),
        median(f"{words}: muster against Azure's library", min(library, key=statistics.median), "", at_least=0.9),
        *bare,
    ]


def thrown_away(service: Service, files: int) -> float:
    """The least that a client can do: it lists, checks, hashes and keeps nothing."""
    told = {"FILES": str(files), "BASE": f"/{ACCOUNT}/data/many", "SAS": service.sas(), "PORT": str(service.port)}
    return _seconds(BARE, told)


def others(script: str, service: Service, folder: Path, what: str, at_once: int = 8) -> float:
    target = folder / "theirs"
    target.mkdir()
    told = {
        "ACCOUNT": ACCOUNT,
        "CONNECTION": service.connection,
        "SOURCE": f"data/{what}",
        "TARGET": str(target),
        "AT_ONCE": str(at_once),
    }
    seconds = _seconds(script, told)
    shutil.rmtree(target)
    return seconds


def _seconds(script: str, told: dict[str, str]) -> float:
    """The time that a script reports, without its imports."""
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **told}, check=True, stdout=subprocess.PIPE, text=True
    )
    return float(done.stdout)


def staged(service: Service, folder: Path, what: str) -> float:
    access = {"kind": "azure-blob", "url": f"{service.endpoint}/data/{what}", "token": service.sas()}
    seconds, _ = mover({"do": "stage", "what": what, "access": access, "cache": str(folder / "cache")})
    subprocess.run(["chmod", "-R", "u+w", str(folder / "cache")], check=True)
    shutil.rmtree(folder / "cache")
    return seconds


def mover(request: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """One transfer by the process that agents start; its time includes its start."""
    began = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "muster.storage.staging"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin and child.stdout
    child.stdin.write(json.dumps(request) + "\n")
    child.stdin.flush()
    message: dict[str, Any] = {}
    for line in child.stdout:
        message = json.loads(line)
        if "progress" not in message:
            break
    seconds = time.perf_counter() - began
    child.stdin.close()
    child.wait()
    if "done" not in message:
        raise SystemExit(f"the transfer failed: {message}")
    return seconds, message["done"]


def local(folder: Path, mib: int, rounds: int) -> list[Figure]:
    """A local input in mode download, against cp and then the same hash."""
    source = folder / "local"
    source.mkdir()
    with (source / "data.bin").open("wb") as file:
        piece = os.urandom(1 << 20)
        for _ in range(mib):
            file.write(piece)

    def by_cp() -> float:
        began = time.perf_counter()
        subprocess.run(["cp", "-r", str(source), str(folder / "copy")], check=True)
        subprocess.run(["sha256sum", str(folder / "copy" / "data.bin")], check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - began
        shutil.rmtree(folder / "copy")
        return seconds

    def by_muster() -> float:
        (folder / "copy").mkdir()
        access = {"kind": "file", "url": str(source)}
        seconds, _ = mover({"do": "copy", "what": "local", "access": access, "copy_to": str(folder / "copy")})
        shutil.rmtree(folder / "copy")
        return seconds

    samples = interleave(rounds, {"cp, then sha256sum": by_cp, "muster": by_muster})
    shutil.rmtree(source)
    ratio = statistics.median(samples["cp, then sha256sum"]) / statistics.median(samples["muster"])
    rates = [median(f"local: {name}", [mib / value for value in values], "MiB/s") for name, values in samples.items()]
    return [*rates, Figure("local: muster against cp and the hash", ratio, "", at_least=0.9)]


def encryption(folder: Path, mib: int, rounds: int) -> list[Figure]:
    """An object into the workspace store and out again, with and without encryption."""
    from muster.store.backend import Store
    from muster.store.keyring import Key, KeyRing
    from muster.store.pieces import pieces_of

    piece = os.urandom(1 << 20)

    def through(store: Store) -> float:
        began = time.perf_counter()
        store.put("object", (piece for _ in range(mib)))
        with store.open("object") as file:
            for _ in pieces_of(file):
                pass
        return time.perf_counter() - began

    plain = Store(str(folder / "plain"))
    sealed = Store(str(folder / "sealed"), ring=KeyRing(Key.of(os.urandom(32))))
    samples = interleave(rounds, {"plain": lambda: through(plain), "encrypted": lambda: through(sealed)})
    # The smallest of each, so that other work of the disk does not count.
    ratio = min(samples["encrypted"]) / min(samples["plain"])
    rates = [
        median(f"store, {name}: put and read", [2 * mib / value for value in values], "MiB/s")
        for name, values in samples.items()
    ]
    return [*rates, Figure("what encryption costs", ratio, "", at_most=1.15)]


def second_job(service: Service, folder: Path) -> list[Figure]:
    """From the submission to the first line, with the data on the node already."""
    os.environ["MUSTER_CACHE_DIR"] = str(folder / "jobs-cache")
    with temporary_workspace() as workspace:
        options = {"account": ACCOUNT, "container": "data", "endpoint": service.endpoint}
        body = NewDatastore("blob", "azure-blob", options, {"account_key": ACCOUNT_KEY})
        Storage(workspace.client.calls).create_datastore(body)
        item = {"type": "uri_folder", "path": "azureml://datastores/blob/paths/one", "mode": "ro_mount"}
        code = workspace.folder / "code"
        code.mkdir()

        def run(**job: Any) -> float:
            began = time.time()
            spec = make_spec({"command": "date +%s.%N", **job})
            found = submit(workspace.client, spec, code, python=sys.executable)
            view = wait_for_run(workspace.client, found.id)
            printed = workspace.client.read_file(view.id, view.attempts[-1].ranks[0].log)
            return float(printed) - began

        first = run(inputs={"data": item})
        ways = {"with": lambda: run(inputs={"data": item}), "without": lambda: run()}
        samples = interleave(5, ways)
        fetched = sum(path.stat().st_blocks * 512 for path in workspace.folder.rglob("*") if path.is_file())
    subprocess.run(["chmod", "-R", "u+w", str(folder / "jobs-cache")], check=False)
    return [
        Figure("first job: submission to its first line", first, "s"),
        median("second job: submission to its first line", samples["with"], "s"),
        median("a job without data: submission to its first line", samples["without"], "s"),
        Figure("left in the workspace by all of them", fetched / (1 << 20), "MiB", at_most=50.0),
    ]


if __name__ == "__main__":
    main()
