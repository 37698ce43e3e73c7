"""Tensors as bytes after the JSON of a request: the extension of the Open Inference Protocol that clients use."""

from __future__ import annotations

import struct
from typing import Any, List, Optional

from muster.scoring.serve.body import BadInput

_CODES = {
    "BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b", "INT16": "h", "INT32": "i",
    "INT64": "q", "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip


def size_of(item: Any) -> Optional[int]:
    """How many bytes of an input follow the JSON; None if its data is in the JSON."""
    given = item.get("parameters") if isinstance(item, dict) else None
    size = given.get("binary_data_size") if isinstance(given, dict) else None
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
        raise BadInput("binary_data_size is no number of bytes")
    return size


def decoded(item: Any, data: bytes) -> List[Any]:
    """An input's values, little-endian; those of BYTES are each preceded by their length."""
    kind = item.get("datatype")
    if kind == "BYTES":
        return _texts(data)
    code = _CODES.get(kind)
    if code is None:
        raise BadInput("datatype {!r} cannot come as bytes".format(kind))
    count, left = divmod(len(data), struct.calcsize("<" + code))
    if left:
        raise BadInput("{} bytes are no whole number of {}".format(len(data), kind))
    return list(struct.unpack("<{}{}".format(count, code), data))


def _texts(data: bytes) -> List[str]:
    found, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        at += 4
        if at + length > len(data):
            raise BadInput("the data of BYTES ends within a value")
        found.append(data[at : at + length].decode("utf-8", "replace"))
        at += length
    return found
