"""The connection from a rank to its workspace's server, through the address that its agent keeps for it."""

from __future__ import annotations

import http.client
import json
import os
from typing import Any, Mapping, Optional
from urllib.parse import urlsplit

_ANSWER_S = 10.0
_REFUSED = (400, 413, 422)


class Unreachable(Exception):
    """The server does not answer, or does not accept what was sent: the last known state stays in use."""


class Refused(Unreachable):
    """The server will never accept it, however often it is sent."""


class Link:
    """Calls about the process's own run. A new connection for each: calls are rare, and the server may have changed."""

    def __init__(self, environ: Optional[Mapping[str, str]] = None) -> None:
        given = os.environ if environ is None else environ
        found = urlsplit(given.get("MLFLOW_TRACKING_URI", ""))
        self._host, self._port, self._prefix = found.hostname or "", found.port or 0, found.path
        self._token = given.get("MLFLOW_TRACKING_TOKEN", "")
        self._run = given.get("MUSTER_RUN_ID", "")

    def call(self, method: str, what: str, message: Any = None, wait_s: float = 0.0) -> Any:
        """The answer to `METHOD runs/RUN/WHAT`."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_ANSWER_S + wait_s)
        path = "{}/api/v1/runs/{}/{}".format(self._prefix, self._run, what)
        headers = {"Authorization": "Bearer {}".format(self._token), "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if message is None else json.dumps(message), headers)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(str(error)) from None
        finally:
            connection.close()
        if response.status >= 300:
            said = "{}: {}".format(response.status, body[:300].decode("utf-8", "replace"))
            raise (Refused if response.status in _REFUSED else Unreachable)(said)
        try:
            return json.loads(body) if body else None
        except ValueError:
            raise Unreachable("the answer is no JSON") from None
