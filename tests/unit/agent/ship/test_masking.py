"""Secrets do not leave a node, in any spelling, wherever a piece ends; and nothing else is changed."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent.ship.masking import Masker, make_masker
from muster.agent.ship.shipper import Tracked, _masked
from muster.agent.ship.streams import Piece, Stream
from muster.paths import AttemptPaths

SECRET = 'k3y/with "quotes" & ümlaut+'


@pytest.mark.parametrize(
    "written",
    [
        SECRET.encode(),
        quote(SECRET, safe="").encode(),
        quote(SECRET).encode(),
        json.dumps(SECRET)[1:-1].encode(),
        json.dumps(SECRET, ensure_ascii=False)[1:-1].encode(),
        repr(SECRET)[1:-1].encode(),
    ],
)
def test_every_spelling_is_masked_at_equal_length(written: bytes) -> None:
    line = b"before " + written + b" after\n"
    assert Masker([SECRET]).mask(line) == b"before " + b"*" * len(written) + b" after\n"


@pytest.mark.parametrize("before", [b"", b"a", b"ab", b"abc", b"abcd"])
@pytest.mark.parametrize("after", [b"", b"\n", b"xy"])
def test_base64_is_masked_in_all_three_alignments(before: bytes, after: bytes) -> None:
    raw = SECRET.encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        masked = Masker([SECRET]).mask(encode(before + raw + after))
        assert len(masked) == len(encode(before + raw + after))
        # What is left is too little to get one character of it back.
        assert masked.count(b"*") >= len(raw) * 8 // 6 - 2


def test_a_long_secret_is_masked_where_base64_breaks_it_into_lines() -> None:
    long = "x" * 50 + "-secret-" + "y" * 50
    wrapped = base64.encodebytes(long.encode())
    masked = Masker([long]).mask(wrapped)
    assert len(masked) == len(wrapped)
    assert masked.strip(b"*=\n") == b""


def test_each_line_of_a_key_in_several_lines_is_masked() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\n-----END KEY-----"
    assert b"MIIE" not in Masker([key]).mask(b"  | MIIEvQIBADANBgkqhkiG\r\n")


def test_secrets_that_overlap_are_both_masked() -> None:
    assert Masker(["abcdef", "defghi"]).mask(b"abcdefghi") == b"*" * 9


def test_without_secrets_there_is_no_masker() -> None:
    assert make_masker([]) is None
    assert make_masker([""]) is None


@given(
    text=st.binary(max_size=60),
    cuts=st.lists(st.integers(min_value=1, max_value=12), max_size=40),
    insert=st.integers(min_value=0, max_value=60),
)
def test_wherever_pieces_end_the_whole_is_masked_as_one(text: bytes, cuts: list[int], insert: int) -> None:
    secret = "hunter2hunter2"
    whole = text[:insert] + secret.encode() + text[insert:]
    shipped = ship(whole, cuts, secret)
    assert len(shipped) == len(whole)
    assert secret.encode() not in shipped
    assert shipped == Masker([secret]).mask(whole) or shipped.endswith(b"*")


@given(text=st.binary(max_size=80), cuts=st.lists(st.integers(min_value=1, max_value=12), max_size=40))
def test_what_holds_no_secret_arrives_as_it_is(text: bytes, cuts: list[int]) -> None:
    assert ship(text, cuts, "\u0000never-in-there\u0000") == text or b"\0nev" in text


def ship(whole: bytes, cuts: list[int], secret: str) -> bytes:
    """Send a growing file piece by piece as the shipper does: each read ends somewhere, and the last one at the end."""
    tracked = Tracked(AttemptPaths(None), 0, Masker([secret]))  # type: ignore[arg-type]
    stream = Stream("user_logs/std_log.txt")
    sent = b""
    end = 0
    for cut in [*cuts, len(whole) + 1]:
        end = min(len(whole), end + cut)
        stream.size = end
        tracked.finished = cut > len(whole)
        if end <= len(sent):
            continue
        assert tracked.masker is not None
        begin = max(0, len(sent) - tracked.masker.overlap)
        piece = Piece(len(sent), len(sent), end - len(sent))
        sent += _masked(tracked, stream, piece, whole[begin : len(sent)], whole[len(sent) : end])
    return sent
