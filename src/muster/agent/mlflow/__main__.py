"""`python -m muster.agent.mlflow`: the proxy of one attempt, started when a rank first connects."""

from __future__ import annotations

import socket
import sys
from http.server import ThreadingHTTPServer

from muster.agent.mlflow.messages import ProxyRequest
from muster.agent.mlflow.proxy import Handler, Proxied
from muster.host.children import Parent, end_own_group
from muster.wire.codec import from_json


class Server(ThreadingHTTPServer):
    """Ignores ranks that disconnect in the middle of a call."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def main() -> None:
    """Serve until the agent ends or closes this process's standard input."""
    parent = Parent(ended=end_own_group)
    request = from_json(ProxyRequest, parent.receive())
    handler = type("OneAttempt", (Handler,), {"proxied": Proxied(request)})
    server = Server(("127.0.0.1", 0), handler, bind_and_activate=False)
    server.socket.close()
    server.socket = socket.socket(fileno=request.listening)
    server.serve_forever(poll_interval=3600.0)


if __name__ == "__main__":
    main()
