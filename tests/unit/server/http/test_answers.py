"""What the server answers where something failed inside."""

from __future__ import annotations

import asyncio
import errno
import json
import os

import pytest
from fastapi import Request

from muster.server.http.app import _error_response


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.EMFILE, "It has used up its file descriptors"),
        (errno.ENFILE, "It has used up its file descriptors"),
        (errno.ENOSPC, "Its disk is full"),
        (errno.EDQUOT, "Its disk is full"),
        (errno.EIO, "Look at the workspace's disk"),
    ],
)
def test_a_failure_of_the_system_is_named(number: int, hint: str) -> None:
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": []})
    answer = asyncio.run(_error_response(request, OSError(number, os.strerror(number))))
    error = json.loads(bytes(answer.body))["error"]
    assert (answer.status_code, error["code"]) == (507, "storage")
    assert os.strerror(number) in error["message"] and error["hint"].startswith(hint)
