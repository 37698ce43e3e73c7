"""`python -m muster.engines.ray.bridge ADDRESS`: the server's way to the broker, in a process of its own.

Only here and in the broker is ray imported. Each line of the standard input is a call as JSON, `{"id", "call",
"arguments"}`; each line of the output an answer. The first line says whether it is attached. The end of the input
is its own end; the broker stays.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_CALLS_AT_ONCE = 8
_ANSWER_S = 60.0


def main() -> None:
    # What ray and gRPC print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    lock = threading.Lock()

    def say(answer: dict[str, Any]) -> None:
        with lock:
            answers.write(json.dumps(answer) + "\n")

    try:
        calls, about = _attach(sys.argv[1])
    except Exception as error:
        say({"failed": str(error), "kind": type(error).__name__})
        os._exit(1)
    say({"attached": about})
    pool = ThreadPoolExecutor(_CALLS_AT_ONCE)
    for line in sys.stdin:
        asked = json.loads(line)
        pool.submit(_serve, calls, asked, say)
    # Neither waits for calls under way, nor for what ray wants to say at its end.
    os._exit(0)


def _attach(address: str) -> tuple[Callable[[str, dict[str, Any]], Any], dict[str, Any]]:
    import ray

    from muster.engines.ray import broker
    from muster.engines.ray.cluster import HEAD

    ray.init(address, namespace=broker.NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    kind = ray.remote(broker.Broker).options(
        name=broker.NAME,
        namespace=broker.NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        resources={HEAD: 0.001},
        max_restarts=-1,
        max_task_retries=3,
        max_concurrency=64,
    )
    actor = kind.remote()

    def call(name: str, arguments: dict[str, Any]) -> Any:
        return ray.get(getattr(actor, name).remote(**arguments), timeout=_ANSWER_S)

    return call, call("about", {})


def _serve(call: Callable[[str, dict[str, Any]], Any], asked: dict[str, Any], say: Callable[..., None]) -> None:
    try:
        say({"id": asked["id"], "answer": call(asked["call"], asked["arguments"])})
    except (ConnectionError, SystemError) as error:
        # The cluster is gone, and this process with it; the server starts another.
        say({"id": asked["id"], "error": _words(error)})
        os._exit(1)
    except Exception as error:
        say({"id": asked["id"], "error": _words(error)})


def _words(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


if __name__ == "__main__":
    main()
