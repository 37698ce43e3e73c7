"""HTTP for storage: transient failures are retried, and refusals become errors that say whether they are final."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from typing import Unpack

from muster.errors import ServerUnavailable
from muster.host.http import Address, Answer, Repeatable, RetryingClient, UntrustedCertificate
from muster.storage.connectors.base import UNREACHABLE_NEXT, AccessRefused, SourceChanged, TransferError

_TIMEOUT_S = 60.0
_SPOOL_TIMEOUT_S = 600.0
"""Where the server is reached through a folder, a body of any size is one wait."""
_PASSING = {408, 423, 425, 426, 429}
_PASSING_CODES = {"Md5Mismatch", "Crc64Mismatch", "InvalidBlockList", "storage"}
"""Damaged in transit; blocks dropped by another writer of the blob; a datastore that the server cannot reach."""


class Http:
    """Requests to one server, from any thread."""

    def __init__(self, address: Address, timeout_s: float = _TIMEOUT_S, tries: int = 6) -> None:
        timeout_s = _SPOOL_TIMEOUT_S if address.url.startswith("file:") else timeout_s
        self._client = RetryingClient(address, timeout_s, tries=tries)
        self.shown = address.shown

    def request(self, method: str, target: str, what: str, **sent: Unpack[Repeatable]) -> Answer:
        """Send, and retry transient failures; `what` names the file in errors."""
        try:
            answer = self._client.request(method, target, **sent)
        except UntrustedCertificate as error:
            raise TransferError("data_unavailable", error.message) from error
        except ServerUnavailable as error:
            raise TransferError("data_unavailable", f"{what}: {error.message}", next=UNREACHABLE_NEXT) from error
        if answer.status < 300 or answer.status in sent.get("allowed", ()):
            return answer
        raise _trouble(method, what, answer)

    @contextmanager
    def opened(self, target: str, what: str, headers: Mapping[str, str]) -> Iterator[HTTPResponse]:
        """An answer that is read as it arrives; a broken connection is not final."""
        try:
            with self._client.opened(target, headers) as response:
                yield response
        except (ServerUnavailable, HTTPException, OSError) as error:
            raise TransferError("data_unavailable", f"{what}: {error}", next=UNREACHABLE_NEXT) from error


def refusal(answer: Answer) -> tuple[str, str]:
    """Why a storage refused: its code, if it has one, and its message."""
    if code := answer.headers.get("x-ms-error-code"):
        return code, code
    try:
        error = json.loads(answer.body)["error"]
        return str(error["code"]), ". ".join(part for part in (error["message"], error.get("hint")) if part)
    except (ValueError, KeyError, TypeError):
        return "", answer.body[:300].decode(errors="replace").strip()


def is_final(status: int, code: str, said: str) -> bool:
    """Whether retrying a refused request is useless."""
    if not 400 <= status < 500 or status in _PASSING:
        return False
    return code not in _PASSING_CODES and "Lease" not in code and "arrived damaged" not in said


def _trouble(method: str, what: str, answer: Answer) -> TransferError:
    code, said = refusal(answer)
    final, refused = is_final(answer.status, code, said), f"{answer.status} {said}".strip()
    if answer.status in (401, 403):
        return AccessRefused(f"{what}: access was refused ({refused})", answer.status, code)
    if answer.status in (409, 412) and method in ("GET", "HEAD"):
        return SourceChanged(what)
    words = f"it is not there ({refused})" if answer.status == 404 else f"the storage answered {refused}"
    return TransferError("data_unavailable", f"{what}: {words}", final, answer.status, code)
