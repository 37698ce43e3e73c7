"""What a real server and its agents sent is read by the messages without loss."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from muster.wire import (
    checkpoints,
    clusters,
    code,
    encryption,
    environments,
    models,
    retention,
    runs,
    secrets,
    stream,
    verdicts,
    workspace,
)
from muster.wire.codec import from_json, to_json
from muster.wire.data import access, assets, datastores
from muster.wire.node import agents, plan, requests

EXAMPLES = json.loads((Path(__file__).parent / "examples.json").read_text())
CORPUS = sorted((Path(__file__).parents[2] / "verdicts" / "corpus").glob("*.json"))

ANSWERS: dict[str, Any] = {
    "runs": tuple[runs.RunView, ...],
    "change": runs.RunView,
    "metrics_ok": tuple[runs.MetricPoint, ...],
    "files_ok": tuple[runs.FileView, ...],
    "put_file": access.HashedFile,
    "health": workspace.Health,
    "plan": plan.PlanView,
    "clusters": tuple[clusters.ClusterView, ...],
    "cluster": clusters.ClusterView,
    "create_cluster": clusters.ChangedCluster,
    "change_cluster": clusters.ChangedCluster,
    "history": tuple[clusters.NodeStateView, ...],
    "cost": clusters.CostReport,
    "models": tuple[models.ModelView, ...],
    "new_model": models.ModelView,
    "new_env": environments.EnvironmentView,
    "envs": tuple[environments.EnvironmentView, ...],
    "new_datastore": datastores.DatastoreView,
    "datastores": tuple[datastores.DatastoreView, ...],
    "ds_test": datastores.DatastoreTestResult,
    "grant": access.IssuedGrant,
    "grants": tuple[access.GrantView, ...],
    "new_asset": assets.AssetView,
    "assets": tuple[assets.AssetView, ...],
    "asset_manifest": access.FileList,
    "data_list": access.FileList,
    "data_put": access.FileBrief,
    "secret": secrets.SecretView,
    "secrets": tuple[secrets.SecretView, ...],
    "gc": retention.RetentionReport,
    "encryption": encryption.EncryptionView,
    "missing": code.MissingBlobs,
    "orders": tuple[agents.Order, ...],
}
CALLS: dict[str, tuple[Any, Any]] = {
    "hello": (agents.Hello, agents.Welcome),
    "orders": (None, agents.Orders),
    "deliveries": (None, agents.DeliveryAnswer),
    "files": (None, requests.FileReceived),
    "checkpoints": (checkpoints.Publication, checkpoints.Published),
}


def test_every_example_has_a_test() -> None:
    assert set(EXAMPLES) == {*ANSWERS, "stream_ok", "stream_bad", "frames", "calls"}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers(name: str) -> None:
    sent = EXAMPLES[name]
    if name == "runs":
        # The one verdict that was written by hand had no evidence at all; now it has none of any rank.
        for run in sent:
            if run["verdict"]["evidence"] == {}:
                run["verdict"]["evidence"] = {"ranks": []}
    assert to_json(from_json(ANSWERS[name], sent)) == sent


@pytest.mark.parametrize("name", ["stream_ok", "stream_bad"])
def test_streams(name: str) -> None:
    for kind, data in EXAMPLES[name]:
        event = stream.decode_event(kind, data)
        assert (event.kind, to_json(event)) == (kind, data)


def test_what_ranks_printed_comes_out_of_the_stream() -> None:
    events = [stream.decode_event(kind, data) for kind, data in EXAMPLES["stream_ok"]]
    assert b"hello\n" in b"".join(event.data for event in events if isinstance(event, stream.LogPiece))


def test_progress_may_name_its_rank() -> None:
    made = stream.decode_event("progress", {"done": 1, "total": 2, "unit": "steps", "rank": 3})
    assert isinstance(made, stream.ProgressMade) and made.rank == 3


def test_frames() -> None:
    for line in EXAMPLES["frames"]:
        (frame,) = agents.decode(BytesIO(json.dumps(line).encode() + b"\n"))
        assert json.loads(b"".join(agents.encode([frame]))) == line


def test_frames_in_a_row_with_bytes_between_them() -> None:
    frames: list[agents.Frame] = [
        agents.Heartbeat((("r", 1),), {"node/cpu": 1.0}, (("r", 1, "fetches", 2.0),)),
        agents.Chunk("r", 1, "user_logs/std_log.txt", 5, b"line\n\n{}"),
        agents.Event("r", 1, 2.0, agents.Noted("hm", "error")),
        agents.Event("r", 1, 2.0, agents.Leaving()),
    ]
    assert list(agents.decode(BytesIO(b"".join(agents.encode(frames))))) == frames


@pytest.mark.parametrize(
    ("kind", "said"), [("x", "there is no event 'x'"), ("ended", "ended.data.at: Ended needs this field")]
)
def test_an_unreadable_event_does_not_spoil_the_frames_around_it(kind: str, said: str) -> None:
    bad = json.dumps({"frame": "event", "run": "r", "attempt": 1, "kind": kind, "at": 1, "data": {}}).encode() + b"\n"
    well = b"".join(agents.encode([agents.Event("r", 1, 1.0, agents.TimedOut())]))
    unreadable, readable = agents.decode(BytesIO(bad + well))
    assert unreadable == agents.UnreadableEvent("r", 1, kind, said)
    assert readable == agents.Event("r", 1, 1.0, agents.TimedOut())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"frame": "chunk", "run": "r", "attempt": 1, "stream": "s", "offset": 0, "size": 3}\nab', "cut at 2"),
        (b'{"frame": "what"}\n', "unknown frame 'what'"),
        (b"[]\n", "unknown frame None"),
    ],
)
def test_malformed_frames(line: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        list(agents.decode(BytesIO(line)))


def test_calls_of_agents() -> None:
    for call in EXAMPLES["calls"]:
        for kind, sent in zip(CALLS[call["path"]], (call["body"], call["answer"]), strict=True):
            if kind is not None:
                assert to_json(from_json(kind, sent)) == sent


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_kept_evidence(path: Path) -> None:
    sent = json.loads(path.read_text())["evidence"]
    read = to_json(from_json(verdicts.Evidence, sent))
    assert all(read[key] == value for key, value in sent.items() if key != "ranks")
    for ours, theirs in zip(read["ranks"], sent["ranks"], strict=True):
        assert theirs.items() <= ours.items()
