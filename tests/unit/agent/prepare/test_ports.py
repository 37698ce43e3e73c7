from __future__ import annotations

import socket
from pathlib import Path

import pytest

from muster.agent.prepare import ports
from muster.agent.refusal import Refusal


def _free() -> int:
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        return int(probe.getsockname()[1])


def test_the_preferred_port_is_held_and_then_those_above(tmp_path: Path) -> None:
    first = _free()
    held = ports.hold(1, first, folder=tmp_path)
    more = ports.hold(2, first, folder=tmp_path)
    assert held[0].port == first
    assert all(one.port != first for one in more)
    for one in (*held, *more):
        one.lock.release()
    again = ports.hold(1, first, folder=tmp_path)
    assert again[0].port == first
    again[0].lock.release()


def test_ports_to_avoid_are_avoided(tmp_path: Path) -> None:
    port = _free()
    held = ports.hold(1, port, avoid=(port,), folder=tmp_path)
    assert held[0].port != port
    held[0].lock.release()


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1"])
def test_a_port_with_a_listener_is_passed_over(tmp_path: Path, address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as taken:
        try:
            taken.bind((address, 0))
        except OSError as error:
            pytest.skip(f"no {address} on this machine: {error}")
        taken.listen()
        port = taken.getsockname()[1]
        held = ports.hold(1, port, folder=tmp_path)
        assert held[0].port != port
        held[0].lock.release()


def test_no_preference_gives_any_port_and_no_ports_give_none(tmp_path: Path) -> None:
    held = ports.hold(3, folder=tmp_path)
    assert len({one.port for one in held}) == 3
    assert ports.hold(0, folder=tmp_path / "not made") == []
    for one in held:
        one.lock.release()


def test_the_folder_is_open_to_all_users_and_its_files_stay(tmp_path: Path) -> None:
    folder = tmp_path / "ports"
    held = ports.hold(1, folder=folder)
    assert folder.stat().st_mode & 0o7777 == 0o1777
    held[0].lock.release()
    assert [path.name for path in folder.iterdir()] == [str(held[0].port)]


def test_a_lock_file_that_may_not_be_opened_means_that_the_port_is_taken(tmp_path: Path) -> None:
    port = _free()
    (tmp_path / str(port)).symlink_to("/nowhere/at/all")
    held = ports.hold(1, port, folder=tmp_path)
    assert held[0].port != port
    held[0].lock.release()


def test_a_file_in_place_of_the_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(Refusal, match="not a folder"):
        ports.hold(1, folder=tmp_path / "x")
