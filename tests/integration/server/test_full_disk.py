"""A full workspace disk: the server says so, cancels, removes and recovers; what was lost is said on the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import _end_workspace, wait_until
from tests.integration.server.conftest import Site

from muster.client.connect import connect
from muster.client.workspace import create_workspace, find_workspace
from muster.errors import DiskFull, NotFound

SUDO = () if os.getuid() == 0 else ("sudo", "-n")

LOGGING = """
import sys, time
from pathlib import Path
from muster import Run
run, stop, count = Run.get_context(), Path(sys.argv[1]), 0
while not stop.exists():
    run.log("loss", count)
    count += 1
    Path(sys.argv[1] + ".count").write_text(str(count))
    time.sleep(0.001)
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A workspace on a disk of its own of 48 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = f"size=48m,uid={os.getuid()},mode=700"
    mounted = subprocess.run([*SUDO, "mount", "-t", "tmpfs", "-o", options, "muster-test", disk], check=False)
    if mounted.returncode:
        pytest.skip("a disk for the test cannot be mounted (needs root, or sudo without a password)")
    try:
        folder = disk / "w"
        folder.mkdir()
        monkeypatch.chdir(folder)
        create_workspace(folder, "small")
        client = connect(find_workspace(folder))
        yield Site(folder, client)
        client.close()
        free(folder)
        _end_workspace(folder)
    finally:
        os.chdir(tmp_path)
        subprocess.run([*SUDO, "umount", "-l", disk], check=True)


def fill(folder: Path) -> None:
    """Take every block that is left."""
    with (folder.parent / f"fill-{len(list(folder.parent.iterdir()))}").open("ab", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


def free(folder: Path) -> None:
    for path in folder.parent.glob("fill-*"):
        path.unlink()


def is_said_to_be_full(site: Site, run_id: str) -> bool:
    """Fills again what a new server set free, until it says so."""
    if "is full" not in site.view(run_id)["reason"]:
        fill(site.folder)
        return False
    return "is full" in site.client.health().trouble


def finds_no_room(folder: Path, events: Path, counted: Path) -> bool:
    """Whether a file does not grow while more and more is logged to it."""
    fill(folder)
    size, count = events.stat().st_size, int(counted.read_text() or 0)
    wait_until(lambda: int(counted.read_text() or 0) > count + 20, what="more of what is logged")
    return events.stat().st_size == size


def test_a_server_on_a_full_disk_says_so_cancels_removes_and_recovers(small: Site) -> None:
    run_id = small.run(command="while true; do head -c 5000 /dev/zero | tr '\\0' x; echo; sleep 0.05; done")
    small.wait(run_id, "Running")
    wait_until(lambda: (small.folder / ".muster/server/reserve").exists(), what="the reserve")
    wait_until(lambda: is_said_to_be_full(small, run_id), what="the word that the disk is full")
    assert "may be missing" in " ".join(small.view(run_id)["notices"])
    with pytest.raises(DiskFull, match=r"is full"):
        small.run(command="true")
    os.kill(small.client.health().pid, signal.SIGKILL)
    wait_until(lambda: is_said_to_be_full(small, run_id), what="the word of the next server")
    small.client.cancel(run_id, force=True)
    assert small.wait(run_id)["status"] == "Canceled"
    small.client.remove(run_id)
    with pytest.raises(NotFound):
        small.client.run(run_id)
    free(small.folder)
    wait_until(lambda: not small.client.health().trouble, what="the word that there is room again")
    assert small.wait(small.run(command="true"))["status"] == "Completed"


def test_metrics_that_found_no_room_are_counted_on_the_run(small: Site, tmp_path: Path) -> None:
    (small.folder / "train.py").write_text(LOGGING)
    stop, counted = tmp_path / "stop", tmp_path / "stop.count"
    run_id = small.run(command=f"{sys.executable} train.py {stop}", code=".")
    wait_until(lambda: small.view(run_id)["metrics"], what="the first metrics")
    wait_until(lambda: is_said_to_be_full(small, run_id), what="the word that the disk is full")
    events = next((small.folder / ".muster/nodes").glob(f"*/attempts/{run_id}.1/streams/events/rank_0.jsonl"))
    wait_until(lambda: finds_no_room(small.folder, events, counted), what="events that find no room")
    free(small.folder)
    wait_until(lambda: not small.client.health().trouble, what="the word that there is room again")
    grown = events.stat().st_size
    wait_until(lambda: events.stat().st_size > grown, what="events after that")
    stop.touch()
    view = small.wait(run_id)
    assert view["status"] == "Completed"
    said = [notice for notice in view["notices"] if "could not be written" in notice]
    lost = sum(int(notice.split(" logged ")[1].split()[0].replace(",", "")) for notice in said)
    points = sum(1 for point in small.client.metrics(run_id) if point.name == "loss")
    assert lost > 0
    assert points + lost == int(counted.read_text())
