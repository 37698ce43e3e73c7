"""Files of models are recognised by their bytes, and garbage is no surprise."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping

import pytest

from muster.models.formats import describe, type_of
from muster.wire.models import ModelFormat


def told(name: str, content: bytes) -> list[ModelFormat]:
    return list(describe({name: len(content)}, lambda _: io.BytesIO(content)))


def safetensors(header: Mapping[str, object] | bytes, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def archive(*members: str) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as made:
        for member in members:
            made.writestr(member, b"x")
    return target.getvalue()


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def sized(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def onnx() -> bytes:
    value = lambda name: sized(1, name.encode())  # noqa: E731
    weight = sized(8, b"w") + sized(9, b"\0" * 5000)
    graph = sized(5, weight) + sized(11, value("x")) + sized(11, value("w")) + sized(12, value("y"))
    opset = sized(1, b"") + varint(2 << 3) + varint(17)
    return varint(1 << 3) + varint(9) + sized(2, b"pytorch") + sized(7, graph) + sized(8, opset)


def test_a_table_of_tensors_is_counted() -> None:
    tensors = {"a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, "__metadata__": {"format": "pt"}}
    (found,) = told("model.safetensors", safetensors(tensors))
    assert found.format == "safetensors"
    assert found.details == {"tensors": "1", "parameters": "6", "types": "BF16"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        (1 << 62).to_bytes(8, "little") + b"{}",
        safetensors(b"[]"),
        safetensors(b'{"a": 1}'),
        safetensors(b'{"a": {"dtype": "F32", "shape": ["x"]}}'),
        safetensors(b"[" * 100_000),
    ],
)
def test_what_is_named_like_a_table_and_is_none_is_unreadable(content: bytes) -> None:
    (found,) = told("model.safetensors", content)
    assert found.format == "unreadable"


@pytest.mark.parametrize(
    ("members", "format"),
    [
        (("m/data.pkl", "m/constants.pkl", "m/code/__torch__.py", "m/data/0"), "TorchScript"),
        (("m/data.pkl", "m/data/0", "m/version"), "PyTorch (torch.save)"),
        (("m/archive_format", "m/models/model.json"), "torch.export"),
        (("serialized_exported_program.json", "version"), "torch.export"),
        (("metadata.json", "config.json", "model.weights.h5"), "Keras"),
    ],
)
def test_archives_are_told_apart_by_their_members(members: tuple[str, ...], format: str) -> None:
    (found,) = told("model.pt", archive(*members))
    assert found.format == format


def test_a_damaged_archive_is_unreadable() -> None:
    (found,) = told("model.pt", archive("m/data.pkl")[:-30])
    assert found.format == "unreadable"


def test_an_onnx_file_names_its_inputs_without_its_weights() -> None:
    (found,) = told("net.onnx", onnx())
    assert found.format == "ONNX"
    assert found.details == {"opset": "ai.onnx 17", "producer": "pytorch", "inputs": "x", "outputs": "y"}


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"\xff" * 100, onnx()[:-3], b"\x0a\x80\x80\x80\x80\x80"])
def test_what_is_named_onnx_and_is_none_is_unreadable(content: bytes) -> None:
    (found,) = told("net.onnx", content)
    assert found.format == "unreadable"


def test_folders_and_other_files() -> None:
    files = {
        "1/saved_model.pb": b"", "1/variables/variables.index": b"", "MLmodel": b"flavors:\n  sklearn:\n    a: 1\n",
        "old.h5": b"\x89HDF\r\n\x1a\n", "notes.txt": b"x", "model.pkl": b"\x80\x04\x95", "tiny.gguf": b"GGUF\x03\0\0\0",
    }  # fmt: skip
    found = describe({name: len(data) for name, data in files.items()}, lambda name: io.BytesIO(files[name]))
    assert {(item.path, item.format) for item in found} == {
        ("1", "SavedModel"), ("MLmodel", "MLflow"), ("old.h5", "Keras (HDF5)"), ("model.pkl", "pickle"),
        ("tiny.gguf", "GGUF"),
    }  # fmt: skip
    assert next(item.details for item in found if item.format == "MLflow") == {"flavors": "sklearn"}


def test_the_type_follows_from_the_files() -> None:
    assert type_of(["MLmodel", "model.pkl"]) == "mlflow_model"
    assert type_of(["net/config.pbtxt", "net/1/model.onnx"]) == "triton_model"
    assert type_of(["model.pt"]) == "custom_model"
