"""A request to an endpoint that the server passes on."""

from __future__ import annotations

import http.client
import time
from urllib.parse import urlsplit

from muster.errors import Conflict, UserError
from muster.host.http import Address, Connection
from muster.wire.serving.endpoints import EndpointAnswer, EndpointKeys, EndpointRequest, EndpointView

_PIN = "azureml-model-deployment"
_ANSWER_S = 60.0
_ANSWER_BYTES = 1 << 20


def ask(view: EndpointView, keys: EndpointKeys, request: EndpointRequest) -> EndpointAnswer:
    """Post it to the endpoint's own address, with its key."""
    if view.scoring_uri is None:
        raise Conflict(
            f"the endpoint {view.name} has no address yet ({view.state})",
            f"`muster endpoint deploy -f FILE` deploys to it; `muster endpoint show {view.name}` shows how far it is.",
        )
    parts = urlsplit(view.scoring_uri)
    headers = {"Content-Type": "application/json", **({_PIN: request.deployment} if request.deployment else {})}
    shown = keys.primary or keys.token or ""
    connection = Connection(Address(f"{parts.scheme}://{parts.netloc}", shown, view.certificate), _ANSWER_S)
    began = time.monotonic()
    try:
        with connection.exchange("POST", parts.path, body=request.body.encode(), headers=headers) as answer:
            body = answer.read(_ANSWER_BYTES)
            # The rest is not needed, and the connection is not used again.
            connection.close()
            return EndpointAnswer(answer.status, body.decode(errors="replace"), time.monotonic() - began)
    except (OSError, http.client.HTTPException) as error:
        raise UserError(f"{view.scoring_uri} does not answer: {error}", "Look at the logs of its runs.") from error
    finally:
        connection.close()
