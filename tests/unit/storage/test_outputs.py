"""Outputs: whose file gets which name, how progress reads, what is sent and what is there already."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import pytest
from sqlalchemy import create_engine, insert
from tests.conftest import wait_until

from muster import errors
from muster.agent import mover
from muster.agent.mover import Rate, Repeated
from muster.host.children import Child, ChildEnded
from muster.server.database import tables
from muster.server.runs import outputs
from muster.storage.connectors.base import TransferError
from muster.storage.connectors.credentials import FreshTokens
from muster.storage.connectors.files import Folder
from muster.storage.staging import process as staging
from muster.storage.staging.messages import Done, ProgressReport, Report, Sending
from muster.storage.staging.model import Progress
from muster.storage.staging.upload import measure, send
from muster.wire.codec import from_json, to_json
from muster.wire.data.access import HashedFile
from muster.wire.node.requests import OutputClaim, OutputNames


@pytest.fixture
def transaction():  # type: ignore[no-untyped-def]
    engine = create_engine("sqlite://")
    tables.metadata.create_all(engine)
    with engine.connect() as connection:
        yield SimpleNamespace(execute=connection.execute, connection=connection)
    engine.dispose()


def gang(transaction, *exits: int | None, stop: str | None = None) -> None:  # type: ignore[no-untyped-def]
    """An attempt with a rank on each of its nodes; None still runs."""
    row = {"run_id": "r", "number": 1, "status": "Running", "created_at": 0.0, "stop_reason": stop}
    transaction.execute(insert(tables.attempts).values(**_filled(tables.attempts, row)))
    for number, code in enumerate(exits):
        place = {"run_id": "r", "number": 1, "node_rank": number, "node": f"n{number}", "phase": "ended"}
        transaction.execute(insert(tables.placements).values(**_filled(tables.placements, place)))
        state = "running" if code is None else "ended"
        rank = {"run_id": "r", "number": 1, "rank": number, "node_rank": number, "state": state, "exit_code": code}
        transaction.execute(insert(tables.ranks).values(**_filled(tables.ranks, {**rank, "essential": True})))


def _filled(table, row):  # type: ignore[no-untyped-def]
    """The row with something harmless in every other column that needs a value."""
    empty = {"STRING": "", "TEXT": "", "INTEGER": 0, "BIGINTEGER": 0, "FLOAT": 0.0, "BOOLEAN": False, "JSON": {}}
    needed = [column for column in table.c if not column.nullable and column.name not in row and column.default is None]
    return {**row, **{column.name: empty[type(column.type).__name__.upper()] for column in needed}}


def claim(transaction, node: str, **files: str):  # type: ignore[no-untyped-def]
    listed = tuple(HashedFile(path, 1, content) for path, content in files.items())
    return outputs.claim(transaction, node, OutputClaim("r", 1, "model", listed))


def test_names_are_given_once_the_whole_gang_has_succeeded(transaction) -> None:  # type: ignore[no-untyped-def]
    gang(transaction, 0, 0)
    assert claim(transaction, "n0", same="x", diff="0", own0="a").names == {
        "same": "same",
        "diff": "diff",
        "own0": "own0",
    }
    second = claim(transaction, "n1", same="x", diff="1", own1="b")
    assert second == OutputNames("succeeded", {"same": None, "diff": "node_1/diff", "own1": "own1"})
    # Asked again after a restart: the same answer.
    assert claim(transaction, "n1", same="x", diff="1", own1="b") == second


@pytest.mark.parametrize(
    ("exits", "stop", "outcome"),
    [
        ((0, None), None, "running"),
        ((0, 3), None, "failed"),
        ((0, 0), "cancelled", "failed"),
        ((0, 0), "done", "succeeded"),
    ],
)
def test_the_outcome_is_that_of_the_gang(transaction, exits, stop, outcome) -> None:  # type: ignore[no-untyped-def]
    gang(transaction, *exits, stop=stop)
    assert claim(transaction, "n0").outcome == outcome


def test_a_name_that_leaves_its_folder_is_not_given(transaction) -> None:  # type: ignore[no-untyped-def]
    gang(transaction, 0)
    with pytest.raises(errors.JobError, match="leaves its folder"):
        claim(transaction, "n0", **{"../x": "1"})


def test_progress_says_how_much_how_fast_and_how_long() -> None:
    now = [100.0]
    rate = Rate("fetching input x", clock=lambda: now[0])
    seen = ProgressReport("", 0, 1 << 30, 1, 1, 0)
    assert rate.text(replace(seen, done_bytes=0)) == "fetching input x: 0 B of 1.0 GiB"
    now[0] += 2
    text = rate.text(replace(seen, done_bytes=256 << 20))
    assert text == "fetching input x: 256.0 MiB of 1.0 GiB, 128.0 MiB/s, about 6 s left"
    text = rate.text(replace(seen, phase="copying", done_bytes=0, total_files=1200))
    assert text == "copying input x: 0 B of 1.0 GiB, 1 of 1,200 files"


def test_progress_says_how_much_comes_from_other_nodes() -> None:
    now = [100.0]
    rate = Rate("fetching input x", clock=lambda: now[0])
    seen = ProgressReport("", 0, 1 << 30, 0, 1, 0)
    rate.text(seen)
    now[0] += 2
    text = rate.text(replace(seen, done_bytes=256 << 20, peer_bytes=192 << 20, nodes=3))
    assert "128.0 MiB/s (96.0 MiB/s from 3 other nodes, 32.0 MiB/s from the source), about 6 s left" in text


def test_what_has_come_of_parts_that_are_not_whole_counts() -> None:
    progress = Progress(total_bytes=100, total_files=1)
    progress.arriving(30)
    other = threading.Thread(target=progress.arriving, args=(20,))
    other.start()
    other.join()
    assert progress.report().done_bytes == 50
    progress.arriving(10)  # it was broken off, and is asked for again
    assert progress.report().done_bytes == 30
    progress.add(40)
    assert (progress.report().done_bytes, progress.done_bytes) == (60, 40)


def test_what_was_resumed_does_not_count_as_speed() -> None:
    now = [0.0]
    rate = Rate("x", clock=lambda: now[0])
    seen = ProgressReport("", 0, 1000, 0, 1, 0)
    rate.text(replace(seen, done_bytes=900, resumed_bytes=900))
    now[0] = 10.0
    assert rate.text(replace(seen, done_bytes=950, resumed_bytes=900)).endswith("5 B/s, about 10 s left")


def test_a_mover_that_says_nothing_shows_no_old_rate() -> None:
    now, texts = [0.0], list[str]()
    rate = Rate("x", clock=lambda: now[0])
    last = Repeated(lambda progress: texts.append(rate.text(progress)), clock=lambda: now[0])
    last.repeat()
    for done_bytes in (0, 500):
        now[0] += 5
        last.tell(ProgressReport("", done_bytes, 1000, 0, 1, 0))
    now[0] += 5
    last.repeat()
    assert texts[1:] == ["x: 500 B of 1000 B, 100 B/s, about 5 s left"]
    now[0] += 5
    last.repeat()
    assert texts[2:] == ["x: 500 B of 1000 B, nothing for 10 s"]


def test_a_mover_that_does_not_even_say_that_nothing_moves_is_given_up() -> None:
    now = [0.0]
    last = Repeated(lambda progress: None, clock=lambda: now[0])
    last.listens()
    now[0] = 299.0
    # It may take long to start.
    last.repeat()
    now[0] = 300.0
    with pytest.raises(ChildEnded, match="said nothing for 300 s"):
        last.repeat()
    last.is_up = True
    last.listens()
    now[0] += 59
    last.repeat()
    now[0] += 1
    with pytest.raises(ChildEnded, match="said nothing for 60 s"):
        last.repeat()


def test_a_mover_that_makes_a_list_says_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Report] = []
    parent = SimpleNamespace(receive=None, gone=Event(), send=lambda message: said.append(from_json(Report, message)))
    monkeypatch.setattr(staging, "Parent", lambda **_: parent)
    monkeypatch.setattr(staging, "_REPORT_S", 0.01)
    staging.Line()
    wait_until(lambda: len(said) > 1, 10.0, "its words")
    parent.gone.set()
    assert set(said) == {Report()}


def test_a_mover_that_stops_while_a_job_waits_for_it_is_ended_and_the_job_hears_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mover, "_SILENT_S", 0.2)
    said = json.dumps(to_json(Report(progress=ProgressReport("", 1, 10, 0, 1, 0))))
    stuck = Child([sys.executable, "-c", f"import time; print({said!r}, flush=True); time.sleep(60)"])
    heard: list[Report] = []
    serving = mover.Serving(stuck, Done(), lambda paths: FreshTokens(), on_report=heard.append)
    serving.listen()
    assert heard[-1].failed is not None and "said nothing for 0.2 s" in heard[-1].failed.message
    assert stuck.wait(0) is not None
    serving.close()


def test_a_transfer_that_stands_still_shows_no_old_rate() -> None:
    now = [0.0]
    rate = Rate("x", clock=lambda: now[0])
    seen = ProgressReport("", 0, 1000, 0, 1, 0)
    rate.text(seen)
    now[0] = 5.0
    assert rate.text(replace(seen, done_bytes=500)).endswith("500 B of 1000 B, 100 B/s, about 5 s left")
    for at in (10.0, 15.0, 20.0):
        now[0] = at
        text = rate.text(replace(seen, done_bytes=500))
    assert text == "x: 500 B of 1000 B, nothing for 15 s"


def sending(path: Path, name: str, already: str | None = None) -> Sending:
    return Sending(str(path), name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest(), already)


def test_files_are_sent_once_and_renamed_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"data")
    folder = Folder(str(tmp_path / "out"))
    send(folder, [sending(tmp_path / "a", "attempts/1/a")], Progress())
    puts: list[str] = []
    real: Callable[..., None] = folder.put
    folder.put = lambda name, *rest: (puts.append(name), real(name, *rest))[1]  # type: ignore[method-assign]
    for _ in range(2):
        send(folder, [sending(tmp_path / "a", "a", already="attempts/1/a")], Progress())
    assert not puts
    assert (tmp_path / "out/a").read_bytes() == b"data"
    assert not (tmp_path / "out/attempts").exists()


def test_a_file_that_changes_while_it_is_sent_is_not_stored(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"data")
    announced = sending(tmp_path / "a", "a")
    (tmp_path / "a").write_bytes(b"datb")
    with pytest.raises(TransferError, match="changed while"):
        send(Folder(str(tmp_path / "out")), [announced], Progress())
    assert not list((tmp_path / "out").iterdir())


def test_only_regular_files_are_measured_and_only_once(tmp_path: Path) -> None:
    import os

    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_bytes(b"data")
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo")
    found = measure(tmp_path, {})
    assert set(found) == {"sub/a"}
    known = {"sub/a": replace(found["sub/a"], name="x")}
    assert measure(tmp_path, known) == known


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("import os; os.kill(os.getpid(), 9)", "was killed"),
        ("import json, time; print(json.dumps({'need': ['a']}), flush=True); time.sleep(60)", "no fresh grant"),
    ],
)
def test_a_job_hears_that_what_it_reads_is_no_longer_served(script: str, why: str) -> None:
    """The mover was killed, or what it opens was taken back: reads must fail then, not wait."""

    def refused(paths: tuple[str, ...]) -> FreshTokens:
        raise mover.Failed("data_unavailable", "no fresh grant for input 'x'")

    child = Child([sys.executable, "-c", script])
    heard: list[Report] = []
    mover.Serving(child, Done(), refused, on_report=heard.append).listen()
    assert heard[-1].failed is not None and why in heard[-1].failed.message
    assert child.wait(0) is not None


def test_a_job_that_ends_hears_nothing_of_the_end_of_its_mover() -> None:
    child = Child([sys.executable, "-c", "import sys; sys.stdin.read()"])
    heard: list[Report] = []
    serving = mover.Serving(child, Done(), lambda paths: FreshTokens(), on_report=heard.append)
    listening = Thread(target=serving.listen)
    listening.start()
    serving.close()
    listening.join()
    assert heard == []
