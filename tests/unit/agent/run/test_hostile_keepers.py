"""What comes out of a container or a sandbox may come from a rank that took hold of its keeper."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.agent.mlflow import events
from muster.agent.run import journal
from muster.agent.run.journal import Story
from muster.agent.run.records import Channel, entry_of
from muster.wire.codec import to_json

KINDS = ("keeper", "started", "running", "refused", "exited", "stopping", "killing", "ended", "other")
FIELDS = ("rank", "pid", "exit_code", "signal", "expected", "message", "reason", "ranks", "max_rss_kb", "said_at")
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=8)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))
entries = st.builds(
    lambda kind, at, rest: {"kind": kind, "at": at, **rest},
    st.sampled_from(KINDS) | values,
    st.floats(0, 2e9) | values,
    st.dictionaries(st.sampled_from(FIELDS), st.integers(0, 5) | values),
)
WHOLE: dict[str, dict[str, Any]] = {
    "started": {"rank": 0, "pid": 7},
    "refused": {"rank": 0, "message": "no", "exit_code": 126},
    "exited": {"rank": 1, "exit_code": None, "signal": 9, "expected": False, "max_rss_kb": 5, "oom_killed": True},
    "stopping": {"reason": "cancelled", "ranks": [0, 1], "other_pids": []},
    "ended": {"reason": "done"},
}


def test_what_keepers_say_is_taken_as_it_is() -> None:
    for kind, fields in WHOLE.items():
        entry = {"kind": kind, "at": 5.0, **fields}
        assert entry_of(entry) == entry


@settings(max_examples=300, deadline=None)
@given(said=st.lists(entries | values, max_size=5))
def test_no_story_fails_whatever_is_said(said: list[Any]) -> None:
    story = Story()
    for entry in map(entry_of, said):
        if entry is not None:
            for moment in story.add(entry):
                json.dumps(to_json(moment.data)).encode()
    story.lose(1.0, "keeper")


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=200), said=st.lists(entries, max_size=3))
def test_no_journal_fails_whatever_is_in_it(data: bytes, said: list[Any], tmp_path_factory: Any) -> None:
    file: Path = tmp_path_factory.getbasetemp() / "journal.jsonl"
    file.write_bytes(data + b"\n" + b"\n".join(json.dumps(entry).encode() for entry in said))
    story = Story()
    for entry in journal.read(file):
        story.add(entry)


@settings(max_examples=100, deadline=None)
@given(pieces=st.lists(st.binary(max_size=100), max_size=5))
def test_no_channel_fails_whatever_comes(pieces: list[bytes]) -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    for piece in (*pieces, b"[" * 60_000 + b"\n", b'{"kind": "running"}\n'):
        theirs.sendall(piece)
    theirs.close()
    heard: list[Any] = []
    while (said := channel.receive()) is not None:
        heard += said
    channel.close()
    assert heard[-1] == {"kind": "running"}


def test_a_line_without_end_is_not_gathered_for_ever() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    theirs.setblocking(False)
    for _ in range(1000):
        try:
            while True:
                theirs.send(b"x" * 65536)
        except BlockingIOError:
            if channel.receive() is None:
                break
    else:
        raise AssertionError("it was read for ever")
    channel.close()
    theirs.close()


@settings(max_examples=300, deadline=None)
@given(
    call=st.sampled_from(["runs/log-metric", "runs/log-parameter", "runs/log-batch", "runs/set-tag", "runs/x"]),
    body=st.dictionaries(st.sampled_from(["key", "value", "timestamp", "step", "metrics", "params", "tags"]), values),
)
def test_calls_to_mlflow_are_taken_or_refused(call: str, body: Any) -> None:
    try:
        found = events.of_call(call, body, 1.0)
    except ValueError:
        return
    json.dumps(found, allow_nan=False)
