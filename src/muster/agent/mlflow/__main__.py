"""`python -m muster.agent.mlflow`: the proxy of one attempt, started when a rank first connects."""

from __future__ import annotations

import socket
from http.server import ThreadingHTTPServer

from muster.agent.mlflow.messages import ProxyRequest
from muster.agent.mlflow.proxy import Handler, Proxied
from muster.host.children import Parent, end_own_group
from muster.wire.codec import from_json


def main() -> None:
    """Serve until the agent ends, or closes this process's input."""
    parent = Parent(ended=end_own_group)
    request = from_json(ProxyRequest, parent.receive())
    handler = type("OneAttempt", (Handler,), {"proxied": Proxied(request)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler, bind_and_activate=False)
    server.socket.close()
    server.socket = socket.socket(fileno=request.listening)
    server.daemon_threads = True
    server.serve_forever(poll_interval=3600.0)


if __name__ == "__main__":
    main()
