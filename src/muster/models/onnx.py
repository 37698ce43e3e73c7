"""Reads the head of an ONNX file: opsets, producer, the names of inputs and outputs. Skips the weights."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

_IR_VERSION, _PRODUCER, _PRODUCER_VERSION, _GRAPH, _OPSET = 1, 2, 3, 7, 8
_GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 5, 11, 12
_VALUE_NAME, _OPSET_DOMAIN, _OPSET_VERSION, _TENSOR_NAME = 1, 1, 2, 8
_MOST_TEXT = 4096
_MOST_FIELDS = 1_000_000


class NotOnnx(ValueError):
    """The bytes are not an ONNX protobuf message."""


@dataclass
class _Found:
    ir_version: int = 0
    producer: str = ""
    opsets: dict[str, int] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    weights: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Field:
    number: int
    value: int
    """The value of a number; the length of anything else, which begins at `offset`."""
    offset: int
    is_number: bool

    @property
    def end(self) -> int:
        return self.offset if self.is_number else self.offset + self.value


def describe(file: BinaryIO, size: int) -> Mapping[str, str]:
    """A description of an ONNX file; raises NotOnnx."""
    found = _Found()
    for item in _fields(file, 0, size):
        if item.number == _IR_VERSION and item.is_number:
            found.ir_version = item.value
        elif item.number in (_PRODUCER, _PRODUCER_VERSION) and not item.is_number:
            found.producer = f"{found.producer} {_text(file, item)}".strip()
        elif item.number == _OPSET and not item.is_number:
            _read_opset(file, item, found)
        elif item.number == _GRAPH and not item.is_number:
            _read_graph(file, item, found)
    if not found.ir_version or not found.opsets:
        raise NotOnnx("there is neither a version nor an opset")
    inputs = [name for name in found.inputs if name not in found.weights]
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in found.opsets.items())
    said = {
        "opset": opsets, "producer": found.producer, "inputs": ", ".join(inputs), "outputs": ", ".join(found.outputs),
    }  # fmt: skip
    return {name: text for name, text in said.items() if text}


def _read_opset(file: BinaryIO, opset: _Field, found: _Found) -> None:
    domain, version = "", 0
    for item in _fields(file, opset.offset, opset.end):
        if item.number == _OPSET_DOMAIN and not item.is_number:
            domain = _text(file, item)
        elif item.number == _OPSET_VERSION and item.is_number:
            version = item.value
    found.opsets[domain] = version


def _read_graph(file: BinaryIO, graph: _Field, found: _Found) -> None:
    for item in _fields(file, graph.offset, graph.end):
        if item.is_number:
            continue
        if item.number == _GRAPH_INPUT:
            found.inputs += _names(file, item, _VALUE_NAME)
        elif item.number == _GRAPH_OUTPUT:
            found.outputs += _names(file, item, _VALUE_NAME)
        elif item.number == _GRAPH_INITIALIZER:
            # Older files list their weights among the inputs.
            found.weights.update(_names(file, item, _TENSOR_NAME))


def _names(file: BinaryIO, message: _Field, number: int) -> list[str]:
    fields = _fields(file, message.offset, message.end)
    return [_text(file, item) for item in fields if item.number == number and not item.is_number]


def _text(file: BinaryIO, item: _Field) -> str:
    file.seek(item.offset)
    return file.read(min(item.value, _MOST_TEXT)).decode("utf-8", "replace")


def _fields(file: BinaryIO, start: int, end: int) -> Iterator[_Field]:
    """The fields of one message, without reading their contents."""
    place = start
    for _ in range(_MOST_FIELDS):
        if place >= end:
            return
        file.seek(place, os.SEEK_SET)
        head = file.read(20)
        key, used = _varint(head, 0)
        kind = key & 7
        if kind == 0:
            value, used = _varint(head, used)
            item = _Field(key >> 3, value, place + used, True)
        elif kind == 2:
            value, used = _varint(head, used)
            item = _Field(key >> 3, value, place + used, False)
        elif kind in (1, 5):
            item = _Field(key >> 3, 0, place + used + (8 if kind == 1 else 4), True)
        else:
            raise NotOnnx(f"a field of kind {kind}")
        if item.number == 0 or item.end > end:
            raise NotOnnx("a field goes beyond its end")
        yield item
        place = item.end
    raise NotOnnx("too many fields")


def _varint(head: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(head) and shift < 70:
        byte = head[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return value, place
        shift += 7
    raise NotOnnx("a number does not end")
