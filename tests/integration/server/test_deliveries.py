"""What cannot be recorded of a delivery is left out, with a note; the rest is taken in."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.server.conftest import Site, on_both_databases

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


HOSTILE = """
import json, os
from muster import Run
run = Run.get_context()
with open(os.environ["MUSTER_EVENTS_FILE"], "ab", buffering=0) as events:
    events.write(b'{"kind": "metric", "name": "step", "value": 1, "step": 1' + b"0" * 400 + b"}\\n")
    events.write(b"[" * 200_000 + b"\\n")
    events.write(b'{"kind": "model", "name": "m", "description": ["a", "list"]}\\n')
    events.write(json.dumps({"kind": "tag", "name": "half \\ud800", "value": "\\udfff"}).encode() + b"\\n")
folder = os.path.dirname(os.environ["MUSTER_EVENTS_FILE"])
with open(os.path.join(os.fsencode(folder), b"\\xff\\xfe.jsonl"), "wb") as strange:
    strange.write(b"{}\\n")
run.log("after", 1.0)
"""


@on_both_databases
def test_nothing_that_a_rank_writes_holds_up_its_node(site: Site) -> None:
    (site.folder / "src").mkdir()
    (site.folder / "src" / "hostile.py").write_text(HOSTILE)
    hostile, other = site.run(command="python hostile.py", code="src"), site.run(command="echo well")
    assert site.wait(hostile)["status"] == "Completed"
    assert site.wait(other)["status"] == "Completed", "other runs of the node are delivered too"
    said = notes(site, hostile)
    assert sum("cannot be recorded" in text for text in said) >= 3
    assert [point.name for point in site.client.metrics(hostile)] == ["after"]
    assert {view.id for view in site.client.runs()} == {hostile, other}
    assert "half \ufffd" in site.view(hostile)["tags"]
    site.client.remove(hostile)
