"""What cannot be opened because descriptors are used up is there all the same: it is sent later, whole and once."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.ship.test_refusals import KEY, Owner, Server, tell

from muster.agent.ship import checkpoints, files, strays
from muster.agent.ship.shipper import Shipper
from muster.host import files as host_files
from muster.paths import AttemptPaths
from muster.wire.node.agents import Delivered


class Shortage:
    """Stands in for a function of `os` that finds no descriptor for a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> None:
        self.left, self._real = times, getattr(os, name)
        monkeypatch.setattr(os, name, self)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._real(*arguments, **options)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_files, "_SHORTAGE_PAUSE_S", 0.0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "streams/user_logs/a.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"one\n")
    return path


def _shipper(server: Server, tmp_path: Path) -> Shipper:
    made = Shipper(server)  # type: ignore[arg-type]
    made._owner = Owner()
    made.track(KEY, AttemptPaths(tmp_path), 1 << 20)
    made._take(0.0)
    return made


@pytest.mark.parametrize("name", ["open", "scandir"])
def test_a_log_that_cannot_be_opened_now_arrives_once_and_before_the_last_word(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path, name: str
) -> None:
    server = Server()
    shipper = _shipper(server, tmp_path)
    shipper._pass()
    with log.open("ab") as file:
        file.write(b"two\n")
    shipper.finish(KEY)
    tell(shipper, Delivered())
    shortage = Shortage(monkeypatch, name, 3)
    while shortage.left:
        assert shipper._pass() > 0, "it does not spin"
        assert [event.kind for event in server.events] == []
    while shipper._outbox:
        shipper._pass()
    assert server.bytes == {"user_logs/a.txt": b"one\ntwo\n"}
    assert [event.kind for event in server.events] == ["delivered"]


def test_a_log_that_was_never_seen_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path) -> None:
    server = Server()
    shipper = _shipper(server, tmp_path)
    shipper.finish(KEY)
    tell(shipper, Delivered())
    Shortage(monkeypatch, "scandir", 1)
    shipper._pass()
    assert server.events == []
    shipper._pass()
    assert (server.bytes, len(server.events)) == ({"user_logs/a.txt": b"one\n"}, 1)


def _outputs(root: Path) -> set[str]:
    found = files.find(AttemptPaths(root))
    assert found.left_out == []
    return set(found.files)


def _strays(root: Path) -> set[str]:
    return set(host_files.despite_shortages(lambda: strays.find(AttemptPaths(root).work, 0.0))[0])


def _checkpoints(root: Path) -> set[str]:
    folder = AttemptPaths(root).checkpoints
    found = host_files.despite_shortages(lambda: checkpoints.look(folder, set(), {}, 0.0))
    return {entry.path.name for entry in found}


@pytest.mark.parametrize(
    ("find", "wanted"),
    [(_outputs, {"outputs/a/b.txt"}), (_strays, {"outputs/mlruns/c"}), (_checkpoints, {"step_1"})],
)
def test_files_in_folders_that_cannot_be_listed_now_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, find: Callable[[Path], set[str]], wanted: set[str]
) -> None:
    paths = AttemptPaths(tmp_path)
    paths.launch.parent.mkdir(parents=True, exist_ok=True)
    written = {_outputs: "outputs/a/b.txt", _strays: "mlruns/c"}
    place = paths.work / written[find] if find in written else paths.checkpoints / "step_1/weights"
    place.parent.mkdir(parents=True)
    place.write_text("x")
    Shortage(monkeypatch, "scandir", 3)
    assert find(tmp_path) == wanted


def test_another_error_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        raise PermissionError(errno.EACCES, "no")

    with pytest.raises(PermissionError):
        host_files.despite_shortages(work)


def test_patience_ends() -> None:
    def work() -> None:
        raise OSError(errno.ENFILE, "Too many open files in system")

    with pytest.raises(OSError, match="in system"):
        host_files.despite_shortages(work, patience_s=-1.0)
