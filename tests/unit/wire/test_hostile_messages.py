"""Whatever a node or a rank sends, it is read or refused, and never anything else."""

from __future__ import annotations

import json
from io import BytesIO
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.host import frames
from muster.host.points import Points, decode, encode, pack, unpack
from muster.storage.connectors.base import TransferError
from muster.storage.staging.model import check_entries
from muster.wire.checkpoints import Publication
from muster.wire.codec import WireError, from_json
from muster.wire.data.access import FileEntry, HashedFile
from muster.wire.node import agents
from muster.wire.node.plan import NodePlan
from muster.wire.runs import MetricSeries

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=8)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner))
heads = st.fixed_dictionaries(
    {"frame": st.sampled_from(["chunk", "event", "heartbeat", "other"]) | values},
    optional={
        "run": st.text(max_size=5) | values,
        "attempt": st.integers(0, 3) | values,
        "kind": st.sampled_from(["prepared", "started", "exited", "ended", "delivered", "noted"]) | values,
        "at": st.floats(0, 2e9) | values,
        "stream": st.text(max_size=5) | values,
        "offset": st.integers(-1, 9) | values,
        "size": st.integers(-1, 9) | values,
        "data": st.dictionaries(st.sampled_from(["rank", "ranks", "at", "reason", "text", "ports", "files"]), values),
    },
)


@settings(max_examples=400, deadline=None)
@given(said=st.lists(heads, max_size=3), rubbish=st.binary(max_size=40), where=st.integers(0, 3))
def test_a_delivery_is_read_or_refused(said: list[Any], rubbish: bytes, where: int) -> None:
    lines = [json.dumps(head).encode() + b"\n" for head in said]
    body = b"".join((*lines[:where], rubbish, *lines[where:]))
    try:
        for frame in agents.decode(BytesIO(body)):
            assert not isinstance(frame, agents.Chunk) or frame.offset is not None
    except ValueError:
        pass


@pytest.mark.parametrize(
    "line", [b"[" * 200_000, b'{"a":' * 100_000, b'{"frame": "chunk", "size": ' + b"9" * 5000 + b"}"]
)
def test_a_delivery_that_is_too_much_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        list(agents.decode(BytesIO(line + b"\n")))


@settings(max_examples=200, deadline=None)
@given(
    kind=st.sampled_from(
        [agents.Prepared, agents.Started, agents.Exited, agents.Delivered, agents.Heartbeat, agents.Hello, NodePlan,
         Publication, HashedFile, FileEntry]
    ),
    data=st.dictionaries(
        st.sampled_from(["rank", "ranks", "files", "path", "size", "sha256", "ports", "facts", "gpus", "node", "at"]),
        values,
    )
    | values,
)  # fmt: skip
def test_a_message_is_read_or_refused(kind: type, data: Any) -> None:
    try:
        assert isinstance(from_json(kind, data), kind)
    except WireError:
        pass


@settings(max_examples=200, deadline=None)
@given(paths=st.lists(st.text(st.sampled_from("ab./\\\0 "), max_size=8), max_size=6))
def test_a_manifest_stays_in_its_folder(paths: list[str]) -> None:
    try:
        kept = check_entries([FileEntry(path, 1, "e") for path in paths], "it")
    except TransferError:
        return
    assert all(not entry.path.startswith("/") and ".." not in entry.path.split("/") for entry in kept)
    assert len(kept) == len({entry.path for entry in kept})


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=64), cuts=st.lists(st.integers(0, 64), max_size=6))
def test_a_tunnel_is_read_or_refused_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    whole, in_parts = outcome([data]), outcome(parts_of(data, cuts))
    assert whole == in_parts


def parts_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in pairwise(places)]


def outcome(parts: list[bytes]) -> Any:
    """What a decoder makes of bytes: the content by kind, and whether it gave up."""
    decoder, found, gave_up = frames.Decoder(), [], False
    try:
        for part in parts:
            for piece in decoder.pieces(memoryview(part)):
                if found and found[-1][0] == piece.kind and piece.kind in (frames.DATA, frames.ERRORS):
                    found[-1] = (piece.kind, found[-1][1] + bytes(piece.data))
                else:
                    found.append((piece.kind, bytes(piece.data)))
    except frames.FrameError:
        gave_up = True
    return ([item for item in found if item[1] or item[0] not in (frames.DATA, frames.ERRORS)], gave_up)


numbers = st.integers(-(1 << 62), 1 << 62) | st.floats(allow_nan=False, allow_infinity=False)
cells = st.one_of(numbers, st.sampled_from(["NaN", "Infinity", "-Infinity"]), st.lists(st.floats(0, 1), max_size=2))
rows = st.lists(
    st.tuples(st.integers(0, 1 << 40), cells, st.none() | st.floats(allow_nan=False), st.floats(0, 4e9)), max_size=20
)


@settings(max_examples=200, deadline=None)
@given(rows=rows)
def test_points_come_back_as_they_were(rows: list[Any]) -> None:
    points = Points()
    for row in rows:
        points.add(*row)
    again = decode(encode(points))
    assert again == points and [type(value) for value in again.values] == [type(value) for value in points.values]
    series = MetricSeries(
        "loss", "rank", 0, 1, "scalar", len(rows), None, None,
        tuple(points.values), tuple(points.steps), tuple(points.at), tuple(points.orders),
    )  # fmt: skip
    assert unpack(pack([series, series])) == [series, series]
