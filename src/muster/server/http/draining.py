"""Graceful shutdown: requests that came before it are answered; later ones are for the next server."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_AGENTS = "/api/v1/agents/"
"""Agents are turned away during shutdown, and repeat what was not answered."""


class Draining:
    """Counts the requests of clients whose answers have not begun."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._unanswered = 0
        self._is_ending = False
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_AGENTS):
            await self._app(scope, receive, send)
        elif self._is_ending:
            await _turn_away(send)
        else:
            await self._counted(scope, receive, send)

    async def finish(self, timeout_s: float) -> None:
        """Accept no more requests of clients, and wait until the pending ones are answered."""
        self._is_ending = True
        try:
            await asyncio.wait_for(self._quiet.wait(), timeout_s)
        except TimeoutError:
            pass

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        answered = False

        def done() -> None:
            nonlocal answered
            if not answered:
                answered = True
                self._unanswered -= 1
                if self._unanswered == 0:
                    self._quiet.set()

        async def watched(message: Message) -> None:
            await send(message)
            # The first piece counts as the answer: a stream may never end by itself.
            if message["type"] == "http.response.body":
                done()

        self._unanswered += 1
        self._quiet.clear()
        try:
            await self._app(scope, receive, watched)
        finally:
            done()


async def _turn_away(send: Send) -> None:
    """A response that clients take for a server that is gone: they look for the next one."""
    headers = [(b"content-length", b"0"), (b"connection", b"close"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
