"""Requests to an endpoint, as any HTTP client sends them."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from muster.client.endpoints.calls import Endpoints
from muster.errors import Conflict, UserError
from muster.host.http import Address, open_connection
from muster.wire.serving.endpoints import EndpointKeys, EndpointView

PIN = "azureml-model-deployment"
_ANSWER_S = 3600.0


@dataclass(frozen=True)
class Answer:
    """The response of an endpoint."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


def credential(keys: EndpointKeys) -> str:
    """The key or token for a request."""
    return keys.primary or keys.token or ""


def invoke(endpoints: Endpoints, name: str, body: bytes, deployment: str | None = None) -> Answer:
    """Send a request to an endpoint with its own key."""
    view = endpoints.show(name)
    if view.scoring_uri is None:
        raise Conflict(
            f"the endpoint {name} has no address yet ({view.state})",
            f"`muster endpoint deploy -f FILE` deploys to it; `muster endpoint show {name}` shows how far it is.",
        )
    return post(view, body, credential(endpoints.keys(name)), deployment)


def post(view: EndpointView, body: bytes, shown: str, deployment: str | None = None) -> Answer:
    """Send a body to an endpoint's scoring address."""
    address = urlsplit(view.scoring_uri or "")
    base = Address(f"{address.scheme}://{address.netloc}", pinned_certificate=view.certificate)
    headers = {"Authorization": f"Bearer {shown}", "Content-Type": "application/json"}
    if deployment:
        headers[PIN] = deployment
    connection = open_connection(base, _ANSWER_S, external=False, tls=None)
    try:
        connection.request("POST", address.path, body, headers)
        response = connection.getresponse()
        return Answer(response.status, dict(response.headers), response.read())
    except (OSError, http.client.HTTPException) as error:
        raise UserError(
            f"{view.scoring_uri} does not answer: {error}",
            f"From another machine: `muster forward {view.run} {address.port}`, then ask 127.0.0.1:{address.port}.",
        ) from error
    finally:
        connection.close()
