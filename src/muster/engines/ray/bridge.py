"""`python -m muster.engines.ray.bridge ADDRESS`: the server's way to the broker, in a process of its own.

Only here and in the broker is ray imported. Calls come in and messages go out as `messages` describes them; the first
one says whether it is attached. The end of its input is its own end; the broker stays.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from muster.engines.ray.messages import About, BridgeMessage, Call
from muster.host.children import Parent
from muster.wire.codec import Json, from_json, to_json

_CALLS_AT_ONCE = 8
_ANSWER_S = 60.0

Broker = Callable[[str, Mapping[str, Json]], Json]
"""Calls a method of the broker."""


def main() -> None:
    # At once: it waits neither for calls under way, nor for what ray wants to say at its end.
    parent = Parent(ended=lambda: os._exit(0))

    def say(message: BridgeMessage) -> None:
        parent.send(to_json(message))

    try:
        broker = _attach(sys.argv[1])
        about = from_json(About, broker("about", {}))
    except Exception as error:
        say(BridgeMessage(failed=str(error), kind=type(error).__name__))
        os._exit(1)
    say(BridgeMessage(attached=about))
    pool = ThreadPoolExecutor(_CALLS_AT_ONCE)
    for asked in parent.requests():
        pool.submit(_serve, broker, from_json(Call, asked), say)


def _attach(address: str) -> Broker:
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

    def call(name: str, arguments: Mapping[str, Json]) -> Json:
        answer: Json = ray.get(getattr(actor, name).remote(**arguments), timeout=_ANSWER_S)
        return answer

    return call


def _serve(broker: Broker, asked: Call, say: Callable[[BridgeMessage], None]) -> None:
    try:
        say(BridgeMessage(id=asked.id, answer=broker(asked.call, asked.arguments)))
    except Exception as error:
        lines = str(error).strip().splitlines()
        say(BridgeMessage(id=asked.id, error=": ".join([type(error).__name__, *lines[-1:]])))
        if isinstance(error, ConnectionError | SystemError):
            # The cluster is gone, and this process with it; the server starts another.
            os._exit(1)


if __name__ == "__main__":
    main()
