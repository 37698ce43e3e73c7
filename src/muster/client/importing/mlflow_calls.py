"""A client of MLflow's REST protocol: for a server to read from, and for Muster's own to write to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPResponse
from urllib.parse import quote, urlencode

from muster.errors import MusterError, NotFound, UserError
from muster.host.http import Address, Body, Connection
from muster.wire.codec import Json

_CALLS = "/api/2.0/mlflow/"
_ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"
SCHEME = "mlflow-artifacts:/"

Record = Mapping[str, Json]
"""A JSON object of MLflow's protocol."""


class MlflowCalls:
    """Calls to one server; not shared between threads."""

    def __init__(self, address: Address, prefix: str = "", external: bool = False) -> None:
        self._connection = Connection(address, 120.0, external=external)
        self._prefix = prefix

    def get(self, call: str, **query: str | int) -> Record:
        return self._json("GET", f"{_CALLS}{call}?{urlencode(query)}", None)

    def post(self, call: str, body: Record) -> Record:
        return self._json("POST", _CALLS + call, json.dumps(body).encode())

    def each(self, call: str, part: str, body: Record) -> Iterator[Record]:
        """The items of a search, page by page."""
        token: Json = None
        while True:
            found = self.post(call, {**body, **({"page_token": token} if token else {})})
            yield from records(found, part)
            token = found.get("next_page_token")
            if not token:
                return

    def each_got(self, call: str, part: str, **query: str | int) -> Iterator[Record]:
        """The same for searches by GET."""
        token: Json = None
        while True:
            found = self.get(call, **query, **({"page_token": str(token)} if token else {}))
            yield from records(found, part)
            token = found.get("next_page_token")
            if not token:
                return

    def artifacts(self, root: str, path: str = "") -> Iterator[str]:
        """Every file below an address of the form `EXPERIMENT/RUN/artifacts`, relative to it."""
        folder = f"{root}/{path}" if path else root
        found = self._json("GET", f"{_ARTIFACTS}?{urlencode({'path': folder})}", None)
        for item in records(found, "files"):
            inner = f"{path}/{item['path']}" if path else str(item["path"])
            if item.get("is_dir"):
                yield from self.artifacts(root, inner)
            else:
                yield inner

    @contextmanager
    def download(self, root: str, path: str) -> Iterator[HTTPResponse]:
        with self._exchange("GET", f"{_ARTIFACTS}/{quote(f'{root}/{path}')}", None) as response:
            yield response

    def upload(self, root: str, path: str, body: Body) -> None:
        with self._exchange("PUT", f"{_ARTIFACTS}/{quote(f'{root}/{path}')}", body) as response:
            response.read()

    def close(self) -> None:
        self._connection.close()

    def _json(self, method: str, target: str, body: bytes | None) -> Record:
        with self._exchange(method, target, body) as response:
            data = response.read()
        try:
            found = json.loads(data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise UserError(
                f"{self._connection.address.shown} does not answer as an MLflow server does",
                "Give the address of an MLflow tracking server, or the path of an mlruns folder.",
            )
        return found

    @contextmanager
    def _exchange(self, method: str, target: str, body: Body) -> Iterator[HTTPResponse]:
        headers = {"Content-Type": "application/json"} if isinstance(body, bytes) else None
        with self._connection.exchange(method, self._prefix + target, body=body, headers=headers) as response:
            if response.status >= 400:
                text = response.read()[:500].decode(errors="replace")
                kind = NotFound if response.status == 404 else MusterError
                raise kind(f"{self._connection.address.shown} answered {response.status} to {target[:120]}: {text}")
            yield response


def records(found: Record, part: str) -> list[Record]:
    items = found.get(part) or []
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
