"""The room that is kept for a server on a full disk."""

from pathlib import Path

from muster.server.database.connection import Database
from muster.server.database.reserve import Reserve, Room
from muster.server.disk import DiskState

MIB = 1 << 20


def room(free_mib: int, total_mib: int = 100_000) -> Room:
    return Room(Path("/data"), free_mib * MIB, total_mib * MIB)


def test_the_reserve_of_a_small_disk_is_a_share_of_it():
    assert room(0).reserve == 64 * MIB
    assert room(0, 100).reserve == 10 * MIB


def test_a_disk_that_was_full_needs_more_room_to_count_as_free_again():
    state = DiskState()
    state.see([room(1000), room(20)])
    assert not state.full
    state.see([room(1000), room(15)])
    assert state.full == "the disk of /data is full: 15.0 MiB are free"
    state.see([room(1000), room(20)])
    assert state.full
    state.see([room(1000), room(33)])
    assert not state.full


def test_room_is_kept_in_a_file_and_behind_the_databases_log(tmp_path):
    database = Database(f"sqlite:///{tmp_path}/muster.db")
    try:
        reserve = Reserve(tmp_path / "reserve")
        reserve.keep(database.file)
        kept = Room.of(tmp_path).reserve // 2
        journal = (tmp_path / "muster.db-wal").stat()
        assert journal.st_size < kept <= journal.st_blocks * 512
        assert (tmp_path / "reserve").stat().st_blocks * 512 >= kept
        assert reserve.release()
        assert not reserve.release()
    finally:
        database.close()


def test_a_write_that_finds_no_room_is_tried_again_when_some_was_made(tmp_path):
    from tests.unit.server.database.test_connection import fill_up

    database = Database(f"sqlite:///{tmp_path}/muster.db")
    tries = []
    database.writer.make_room = lambda: len(tries) < 2
    try:
        work = database.submit(lambda t: (tries.append(1), fill_up(t) if len(tries) < 2 else None))
        work.result(5)
        assert len(tries) == 2
    finally:
        database.close()
