"""One replica: loads the model, then answers requests on the given listener."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any, Optional

from muster.scoring.door.accepting import options
from muster.scoring.script import INIT_FAILED, BadScript
from muster.scoring.serve import collecting
from muster.scoring.serve.app import App
from muster.scoring.serve.batching import Runner
from muster.scoring.serve.collecting import Book
from muster.scoring.serve.front import Front
from muster.scoring.serve.http import install_stand_ins
from muster.scoring.serve.models import load
from muster.scoring.serve.settings import Settings

NO_SERVER = 4
"""The exit code if the environment lacks the libraries of an HTTP server."""
_REPORT_S = 1.0


def main() -> int:
    # The listener's thread gets its turn after half a millisecond of the model's thread, instead of five.
    sys.setswitchinterval(0.0005)
    listener, ready = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    settings = Settings.parse(sys.argv[3])
    try:
        uvicorn = importlib.import_module("uvicorn")
    except ImportError:
        print("muster: serving needs `pip install uvicorn httptools uvloop` in this environment", file=sys.stderr)
        return NO_SERVER
    install_stand_ins()
    book = Book(settings) if settings.collections else None
    collecting.install(book)
    try:
        model = load(settings)
        model.init()
    except BadScript as error:
        print("muster: {}".format(error), file=sys.stderr)
        return INIT_FAILED
    except Exception:
        traceback.print_exc()
        return INIT_FAILED
    # uvicorn handles the signal while it serves, and raises it again afterwards: the rest is up to us.
    signal.signal(signal.SIGTERM, lambda *_: None)
    _serve(uvicorn, settings, model, book, listener, ready)
    if book is not None:
        book.close()
    return 0


def _serve(
    uvicorn: Any, settings: Settings, model: Any, book: Optional[Book], listener: socket.socket, ready: int
) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        runner = Runner(
            model, loop, settings.max_batch, settings.max_wait_ms / 1000, settings.max_queue, settings.timeout_ms / 1000
        )
        app = App(settings, model, runner, book)
        server = uvicorn.Server(uvicorn.Config(app, **options()))
        work = [asyncio.ensure_future(_report(runner, ready))]
        if settings.endpoint:
            front = Front(uvicorn, server, app, int(listener.getsockname()[1]))
            work.insert(0, asyncio.ensure_future(front.work()))
        await server.serve(sockets=[listener])
        for task in work:
            task.cancel()

    try:
        importlib.import_module("uvloop").install()
    except ImportError:
        pass  # slower, but otherwise the same
    asyncio.run(serve())


async def _report(runner: Runner, pipe: int) -> None:
    """Report to the supervisor that it answers, and then its work; a line each time."""
    os.set_blocking(pipe, False)
    while True:
        line = json.dumps({**runner.work.take(), "waiting": runner.waiting}).encode() + b"\n"
        try:
            os.write(pipe, line)
        except BlockingIOError:
            pass  # nobody reads at the moment: a second without figures
        except OSError:
            return
        await asyncio.sleep(_REPORT_S)


if __name__ == "__main__":
    sys.exit(main())
