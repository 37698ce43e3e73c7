"""What cannot be recorded of a delivery is left out, with a note; the rest is taken in."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.server.conftest import Site

from muster.wire.node.agents import Chunk, Event, Noted, encode


def deliver(site: Site, frames: list[Any], *before: bytes) -> dict[str, Any]:
    body = b"".join([*before, *encode(frames)])
    path = "/agents/local-0/deliveries"
    answer: dict[str, Any] = site.client.calls.send("POST", path, body=body, query={"agent": "test"})
    return answer


def notes(site: Site, run: str) -> list[str]:
    return [event.text for event, _ in site.client.stream(run, follow=False) if event.kind == "note"]


def test_one_bad_frame_does_not_spoil_its_delivery(site: Site) -> None:
    run = site.run(command="sleep 60")
    site.wait(run, "Running")
    lines = [json.dumps({"kind": "metric", "name": name, "value": 1.0, "at": 1.0}) for name in ("before", "after")]
    log = "\n".join([lines[0], '["no", "mapping"]', lines[1], ""]).encode()
    bad = {"frame": "event", "run": run, "attempt": 1, "kind": "exited", "at": 0.0, "data": {"no": "rank"}}
    deliver(
        site,
        [
            Event(run, 1, 0.0, Noted("this one is well", "info")),
            Chunk(run, 1, "events/rank_7.jsonl", 0, log),
        ],
        json.dumps(bad).encode() + b"\n",
    )
    said = notes(site, run)
    assert any("sent an event (exited) that cannot be recorded" in text for text in said)
    assert any("this one is well" in text for text in said)
    assert {point.name for point in site.client.metrics(run)} >= {"before", "after"}
    assert site.view(run)["status"] == "Running"
    site.client.cancel(run, force=True)
    assert site.wait(run)["status"] == "Canceled"
