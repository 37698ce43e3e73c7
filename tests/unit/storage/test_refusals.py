"""What a storage refuses: which refusals are final, and how often a fresh token is asked for."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from muster.host.http import Answer
from muster.storage.connectors.azure import Blob
from muster.storage.connectors.base import AccessRefused, TransferError
from muster.storage.connectors.credentials import FreshTokens, Keys
from muster.storage.connectors.files import Folder
from muster.storage.connectors.http import is_final, refusal
from muster.storage.staging.messages import Sending
from muster.storage.staging.model import Progress
from muster.storage.staging.upload import send


@pytest.mark.parametrize(
    ("status", "code", "final"),
    [
        (400, "InvalidHeaderValue", True),
        (400, "Md5Mismatch", False),
        (400, "InvalidBlockList", False),
        (401, "NoAuthenticationInformation", True),
        (403, "AuthorizationPermissionMismatch", True),
        (404, "ContainerNotFound", True),
        (408, "", False),
        (409, "ContainerBeingDeleted", True),
        (409, "LeaseAlreadyPresent", False),
        (412, "LeaseIdMissing", False),
        (413, "RequestBodyTooLarge", True),
        (423, "", False),
        (429, "TooManyRequests", False),
        (422, "bad_input", True),
        (422, "storage", False),
        (426, "protocol_mismatch", False),
        (500, "InternalError", False),
        (503, "ServerBusy", False),
    ],
)
def test_what_will_not_pass_by_trying_again_is_final(status: int, code: str, final: bool) -> None:
    assert is_final(status, code, "") is final


def test_what_was_damaged_on_its_way_is_sent_again() -> None:
    error = {"code": "bad_input", "message": "m/a arrived damaged: sha256 1, expected 2", "hint": "Send it again."}
    code, said = refusal(Answer(422, {}, json.dumps({"error": error}).encode()))
    assert (code, said) == ("bad_input", "m/a arrived damaged: sha256 1, expected 2. Send it again.")
    assert not is_final(422, code, said)


@pytest.mark.parametrize("body", [b"", b"Bad Gateway", b"[]", b'{"error": "no"}', b"\xff"])
def test_a_refusal_without_a_code_is_told_as_it_is(body: bytes) -> None:
    assert refusal(Answer(502, {}, body)) == ("", body.decode(errors="replace"))


class Refusing(ThreadingHTTPServer):
    """A storage that has nothing and takes nothing."""

    status = 403
    said = "AuthenticationFailed"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: Refusing

    def do_HEAD(self) -> None:
        self._answer(404, "BlobNotFound")

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(self.path)
        self._answer(self.server.status, self.server.said)

    def _answer(self, status: int, said: str) -> None:
        self.send_response(status)
        self.send_header("x-ms-error-code", said)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def storage() -> Iterator[Refusing]:
    server = Refusing()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def put(storage: Refusing, path: Path, keys: Keys) -> None:
    path.write_bytes(b"data")
    blob = Blob(f"http://127.0.0.1:{storage.server_port}/account/container/out", keys)
    send(blob, [Sending(str(path), "a", 4, _SHA)], Progress())


_SHA = "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7"


def test_fresh_tokens_that_are_refused_too_are_not_asked_for_without_end(storage: Refusing, tmp_path: Path) -> None:
    given: list[str] = []

    def refresh(paths: list[str]) -> FreshTokens:
        given.append(f"sig={len(given) + 1}")
        return FreshTokens(given[-1])

    with pytest.raises(AccessRefused, match="access was refused") as caught:
        put(storage, tmp_path / "a", Keys("sig=0", refresh=refresh))
    assert caught.value.final
    assert [path.partition("?")[2] for path in storage.asked] == ["sig=0", "sig=1", "sig=2"]


@pytest.mark.parametrize(
    ("status", "said", "final"), [(409, "ContainerBeingDeleted", True), (412, "LeaseIdMissing", False)]
)
def test_a_refused_write_says_what_the_storage_said(
    storage: Refusing, tmp_path: Path, status: int, said: str, final: bool
) -> None:
    storage.status, storage.said = status, said
    with pytest.raises(TransferError, match=f"the storage answered {status} {said}") as caught:
        put(storage, tmp_path / "a", Keys("sig=0"))
    assert caught.value.final is final


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), True),
        (OSError(errno.EROFS, "Read-only file system"), True),
        (OSError(errno.EIO, "Input/output error"), False),
        (OSError(errno.ESTALE, "Stale file handle"), False),
    ],
)
def test_a_folder_that_may_not_be_written_is_final(tmp_path: Path, error: OSError, final: bool) -> None:
    class Broken(Folder):
        def put(self, *_: object) -> None:
            raise error

    (tmp_path / "a").write_bytes(b"data")
    with pytest.raises(TransferError) as caught:
        send(Broken(str(tmp_path / "out")), [Sending(str(tmp_path / "a"), "a", 4, _SHA)], Progress())
    assert caught.value.final is final
