"""`python -m muster.engines.ray.bridge ADDRESS`: the server's connection to the broker, in a separate process.

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
from muster.version import VERSION
from muster.wire.codec import Json, from_json, to_json

_CALLS_AT_ONCE = 8
_ANSWER_S = 60.0

Broker = Callable[[str, Mapping[str, Json]], Json]
"""Calls a method of the broker."""


def main() -> None:
    # At once: without waiting for pending calls or for Ray's own shutdown.
    parent = Parent(ended=lambda: os._exit(0))

    def say(message: BridgeMessage) -> None:
        parent.send(to_json(message))

    try:
        broker, end_broker = _attach(sys.argv[1])
        about = from_json(About, broker("about", {}))
    except Exception as error:
        say(BridgeMessage(failed=str(error), kind=type(error).__name__))
        os._exit(1)
    say(BridgeMessage(attached=about))
    if about.muster != VERSION:
        # A broker of another version is useless; once the nodes have this Muster, the next one has it too.
        end_broker()
        os._exit(1)
    pool = ThreadPoolExecutor(_CALLS_AT_ONCE)
    for asked in parent.requests():
        pool.submit(_serve, broker, from_json(Call, asked), say)


def _attach(address: str) -> tuple[Broker, Callable[[], None]]:
    """A function to call the broker, and one to kill it."""
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

    return call, lambda: ray.kill(actor)


def _serve(broker: Broker, asked: Call, say: Callable[[BridgeMessage], None]) -> None:
    try:
        say(BridgeMessage(id=asked.id, answer=broker(asked.call, asked.arguments)))
    except Exception as error:
        lines = str(error).strip().splitlines()
        say(BridgeMessage(id=asked.id, error=": ".join([type(error).__name__, *lines[-1:]])))
        if not _still_attached(error):
            # The cluster is gone, and so is this process; the server starts another.
            os._exit(1)


def _still_attached(error: Exception) -> bool:
    """Whether a call failed in the broker, or is only late; Ray reports a lost head in many ways."""
    from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayTaskError

    return isinstance(error, (ActorUnavailableError, GetTimeoutError, RayTaskError))


if __name__ == "__main__":
    main()
