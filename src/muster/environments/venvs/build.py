"""The process that builds one environment for an agent: `python -m muster.environments.venvs.build`.

Its first line of standard input is the request; when standard input closes, whoever asked is gone, and everything ends.
Standard output and error are the log. What is being done, and how it ended, goes as JSON lines to the descriptor that
the request names.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from muster.environments.failures import Failure
from muster.environments.venvs.builder import ensure
from muster.environments.venvs.cache import Cache
from muster.environments.venvs.interpreters import Interpreter
from muster.environments.venvs.recipe import recipe_from_json
from muster.environments.venvs.request import Request


def main() -> None:
    request = Request(**json.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=_end_with_asker, daemon=True).start()
    answers = os.fdopen(request.answers, "w", buffering=1)

    def tell(**data: Any) -> None:
        answers.write(json.dumps(data) + "\n")

    try:
        built = ensure(
            recipe_from_json(request.recipe),
            request.key,
            Interpreter(request.base, tuple(request.base_version)),
            Cache(Path(request.root)),
            say=lambda text: tell(doing=text),
            write=lambda text: print(text, flush=True),
            limit_bytes=request.limit_bytes,
        )
    except Failure as failure:
        print(f"error: {failure}", flush=True)
        tell(failed=failure.to_json())
        return
    tell(ready=built.key)


def _end_with_asker() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
