"""Tensors as bytes behind a request's JSON, whole and broken."""

from __future__ import annotations

import json
import struct

import pytest

from muster.scoring.serve import oip
from muster.scoring.serve.body import BadInput


def _body(*tensors: tuple[str, str, list[int], bytes]) -> tuple[bytes, str]:
    inputs = [
        {"name": name, "datatype": kind, "shape": shape, "parameters": {"binary_data_size": len(data)}}
        for name, kind, shape, data in tensors
    ]
    head = json.dumps({"inputs": inputs}).encode()
    return head + b"".join(data for *_, data in tensors), str(len(head))


def test_several_tensors_behind_each_other() -> None:
    words = b"".join(struct.pack("<I", len(word)) + word for word in (b"ein", b""))
    body, length = _body(
        ("x", "FP32", [2, 1], struct.pack("<2f", 1.5, -2)), ("half", "FP16", [1], struct.pack("<e", 0.5)),
        ("flags", "BOOL", [2], b"\x01\x00"), ("words", "BYTES", [2], words),
    )  # fmt: skip
    found = json.loads(oip.parse(body, "infer", length).text)["inputs"]
    assert found == {"x": [[1.5], [-2.0]], "half": [0.5], "flags": [True, False], "words": ["ein", ""]}


@pytest.mark.parametrize(
    ("body", "length", "said"),
    [
        (*_body(("x", "FP32", [1], b"\0\0\0")), "no whole number"),
        (*_body(("x", "FP32", [2], b"\0\0\0\0")), "holds 2 values"),
        (*_body(("x", "BF16", [1], b"\0\0")), "cannot come as bytes"),
        (*_body(("x", "BYTES", [1], b"\x09\0\0\0ab")), "ends within"),
        (_body(("x", "FP32", [1], b"\0\0\0\0"))[0][:-2], _body(("x", "FP32", [1], b"\0\0\0\0"))[1], "bytes are left"),
        (b"{}", "7", "of 2 bytes"),
        (b"{}", "-1", "of 2 bytes"),
        (b"{}", "9" * 5000, "of 2 bytes"),
        (b'{"inputs": [{"name": "x", "parameters": {"binary_data_size": -1}}]}', "", "no number of bytes"),
    ],
)
def test_what_does_not_fit_is_refused(body: bytes, length: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        oip.parse(body, "infer", length)
