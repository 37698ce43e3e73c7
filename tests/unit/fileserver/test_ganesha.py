"""The NFS server's configuration, and where it may listen."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path

import pytest

from muster.fileserver import ganesha, process
from muster.fileserver.folder import Impossible
from muster.paths import FileServerPaths


def test_nobody_outside_of_the_clients_network_may_read_and_nobody_may_write() -> None:
    text = ganesha.configuration(FileServerPaths(Path("/data/a b")), "imagenet", "10.1.0.7", 2049, "10.1.0.0/16")
    assert "Bind_Addr = 10.1.0.7;" in text and "Protocols = 4;" in text
    assert 'Path = "/data/a b/data";' in text and 'Pseudo = "/imagenet";' in text
    assert re.search(r"Access_Type = NONE;\s+FSAL", text)
    assert "CLIENT { Clients = 10.1.0.0/16, 127.0.0.1; Access_Type = RO; }" in text
    assert "RW" not in text


def test_ganesha_serves_where_it_can_and_musters_own_server_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "ganesha.nfsd"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert process.chosen(FileServerPaths(tmp_path)).ganesha == str(program)
    would_change_its_configuration = FileServerPaths(Path('/data/x"; Access_Type = RW; #'))
    assert "such letters" in process.chosen(would_change_its_configuration).shown
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    own = process.chosen(FileServerPaths(tmp_path))
    assert own.ganesha is None and "only root may" in own.shown


@pytest.mark.parametrize(
    ("host", "clients", "why"),
    [
        ("8.8.8.8", "10.1.0.0/16", "is public"),
        ("127.0.0.1", "10.1.0.0/16", "no other machine reaches"),
        ("10.1.0.7", "10.1.0.0/16", None),
        ("127.0.0.1", "127.0.0.1/32", None),
    ],
)
def test_it_listens_inside_a_private_network_alone(host: str, clients: str, why: str | None) -> None:
    if why is None:
        process.check_host(host, clients)
        return
    with pytest.raises(Impossible, match=why):
        process.check_host(host, clients)


def test_a_port_is_kept_where_it_is_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert process.free_port("127.0.0.1", port) != port
    assert process.free_port("127.0.0.1", port) == port


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 32])
def test_what_is_no_nfs_server_does_not_answer_like_one(answer: bytes) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert not process.answers("127.0.0.1", listener.getsockname()[1])
        thread.join(10)
