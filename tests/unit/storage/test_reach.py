"""What is opened for somebody who is no administrator reaches nothing of the server's machine that is not listed."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator

import pytest

from muster.errors import AccessDenied, UserError
from muster.host.egress import Fence, fenced, networks
from muster.storage.addresses import parse_address
from muster.storage.kinds import make_store
from muster.storage.reach import Reach, read_reach, require_location, require_store

LISTED = Reach(("/data",), ("127.0.0.1",))


@pytest.mark.parametrize(
    "address",
    [
        "/etc/passwd", "file:///etc/passwd", "/data/../etc/passwd", "/database", "local:///etc/passwd",
        "simplecache::file:///etc/passwd", "zip://x::file:///x.zip", "filecache::https://h/x", "LOCAL:///etc",
        "reference://x", "dir::file:///", "memory://x", "jupyter://x", "git:///", "github://o:r@/x", "tar://x",
        "arrow_hdfs://x", "smb://h/x", "dask://x", "cached://x", "unix:///run/x", "/", "",
    ],
)  # fmt: skip
def test_addresses_that_reach_into_the_machine_are_refused(address: str) -> None:
    with pytest.raises(UserError):
        require_location(parse_address(address), LISTED, "inputs.data")


@pytest.mark.parametrize("address", ["/data", "/data/a/b", "file:///data/x", "s3://bucket/x", "https://host/x"])
def test_addresses_of_other_machines_and_listed_folders_are_taken(address: str) -> None:
    require_location(parse_address(address), LISTED, "inputs.data")


@pytest.mark.parametrize(
    ("kind", "options", "credential"),
    [
        ("local", {"path": "/etc"}, {}),
        ("nfs", {"path": "/var"}, {}),
        ("azure-blob", {"account": "a", "container": "c", "identity": True}, {}),
        ("fsspec", {"url": "file:///etc"}, {}),
        ("fsspec", {"url": "s3://bucket"}, {}),
        ("fsspec", {"url": "gs://bucket", "options": {"project": "~/.config/x"}}, {"secret_options": {"a": "b"}}),
        ("fsspec", {"url": "https://h", "options": {"target_protocol": "file"}}, {}),
        ("fsspec", {"url": "https://h", "options": {"fo": "x"}}, {}),
        ("fsspec", {"url": "s3://b", "options": {"client_kwargs": {"verify": "/etc/passwd"}}},
         {"secret_options": {"key": "k"}}),
        ("fsspec", {"url": "gs://b"}, {"secret_options": {"token": "/root/key.json"}}),
        ("fsspec", {"url": "s3://b", "options": {"profile": "admin"}}, {"secret_options": {"key": "k"}}),
    ],
    ids=str,
)  # fmt: skip
def test_datastores_that_reach_into_the_machine_are_refused(kind, options, credential) -> None:
    spec = make_store("s", kind, options, credential)
    with pytest.raises(AccessDenied):
        require_store(spec.options, spec.credential.secret_options, LISTED, "the datastore s")


@pytest.mark.parametrize(
    ("kind", "options", "credential"),
    [
        ("local", {"path": "/data/x"}, {}),
        ("fsspec", {"url": "s3://bucket", "options": {"anon": True}}, {}),
        ("fsspec", {"url": "s3://bucket"}, {"secret_options": {"key": "k", "secret": "s"}}),
        ("azure-blob", {"account": "a", "container": "c"}, {"account_key": "U0VDUkVU"}),
    ],
    ids=str,
)
def test_datastores_elsewhere_are_taken(kind, options, credential) -> None:
    spec = make_store("s", kind, options, credential)
    require_store(spec.options, spec.credential.secret_options, LISTED, "the datastore s")


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::", "169.254.169.254", "fe80::1", "fe80::1%eth0", "::ffff:127.0.0.1",
     "::ffff:169.254.169.254", "2002:7f00:1::", "224.0.0.1", "localhost"],
)  # fmt: skip
def test_the_fence_stands_before_this_machine_and_its_link(address: str) -> None:
    assert Fence().refusal(address)


def test_the_fence_lets_others_pass_and_what_is_listed() -> None:
    assert not Fence().refusal("93.184.216.34") and not Fence().refusal("2606:2800:220:1::1")
    assert not Fence(networks(["127.0.0.0/8"])).refusal("127.0.0.1")


@pytest.fixture
def local() -> Iterator[int]:
    """A service of this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_name_that_leads_here_is_refused_when_it_is_connected_to(local: int, monkeypatch) -> None:
    """The name passes every check of its text: what counts is the address at the moment of the connection."""
    real = socket.getaddrinfo

    def rebound(host, *arguments, **more):
        return real("127.0.0.1" if host == "public.example.org" else host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    with fenced(Fence()), pytest.raises(PermissionError, match="own machine"):
        socket.create_connection(("public.example.org", local), 5)
    with fenced(Fence(networks(["127.0.0.1"]))):
        socket.create_connection(("public.example.org", local), 5).close()
    socket.create_connection(("public.example.org", local), 5).close()


def test_no_socket_of_this_machine_is_connected_to() -> None:
    with fenced(Fence()), socket.socket(socket.AF_UNIX) as connecting, pytest.raises(PermissionError, match="AF_UNIX"):
        connecting.connect("/run/nothing")


@pytest.mark.parametrize("config", [[], {"x": []}, {"folders": "/data"}, {"folders": ["data"]}, {"folders": ["/"]}])
def test_a_list_that_is_none_is_refused(config) -> None:
    with pytest.raises(UserError, match="reach"):
        read_reach(config)
    assert read_reach(None) == Reach()
