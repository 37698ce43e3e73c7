"""The formats of a model's files, recognized by names and first bytes, without importing any framework."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import BinaryIO

from muster.models import onnx
from muster.wire.models import ModelFormat, ModelType

MOST_FILES = 64
"""At most so many files of a model are opened."""
_MOST_HEADER = 100 << 20
_MOST_NAMES = 1000
_HDF5 = b"\x89HDF\r\n\x1a\n"
_PICKLE_HINT = "runs code when it is loaded"
_LOOKED_INTO = (
    ".safetensors", ".pt", ".pth", ".pt2", ".ptl", ".bin", ".ckpt", ".onnx", ".keras", ".h5", ".hdf5", ".gguf", ".pkl",
    ".pickle", ".joblib", ".zip", "",
)  # fmt: skip

Open = Callable[[str], BinaryIO]


def describe(names: Mapping[str, int], open_file: Open) -> tuple[ModelFormat, ...]:
    """A description of a model's files, given as names with sizes; `open_file` opens one of them."""
    found = [*_folders(names, open_file)]
    chosen = [name for name in sorted(names) if _suffix(name) in _LOOKED_INTO and "MLmodel" not in name]
    for name in chosen[:MOST_FILES]:
        with closing(open_file(name)) as file:
            if (told := _file(name, names[name], file)) is not None:
                found.append(told)
    return tuple(found)


def type_of(names: Sequence[str]) -> ModelType:
    """The type of a model, by its files."""
    if any(name == "MLmodel" or (name.endswith("/MLmodel") and name.count("/") == 1) for name in names):
        return "mlflow_model"
    if any(name.rpartition("/")[2] == "config.pbtxt" for name in names):
        return "triton_model"
    return "custom_model"


def _folders(names: Mapping[str, int], open_file: Open) -> list[ModelFormat]:
    """Formats that are a folder rather than a file."""
    found = []
    for name in sorted(names)[:_MOST_NAMES]:
        folder, _, last = name.rpartition("/")
        if last == "saved_model.pb":
            variables = f"{folder}/variables/variables.index".lstrip("/") in names
            found.append(ModelFormat(folder or ".", "SavedModel", {"variables": "yes" if variables else "none"}))
        elif last == "MLmodel":
            with closing(open_file(name)) as file:
                found.append(ModelFormat(name, "MLflow", _mlflow(file.read(1 << 20))))
        elif last == "config.pbtxt":
            found.append(ModelFormat(folder or ".", "Triton", {}))
    return found


def _mlflow(content: bytes) -> Mapping[str, str]:
    """The flavours of an `MLmodel` file: the keys right below `flavors`."""
    flavors: list[str] = []
    inside = False
    for line in content.decode("utf-8", "replace").splitlines():
        if not line.startswith(" "):
            inside = line.startswith("flavors:")
        elif inside and line.startswith("  ") and not line.startswith("   ") and line.rstrip().endswith(":"):
            flavors.append(line.strip().rstrip(":"))
    return {"flavors": ", ".join(flavors)} if flavors else {}


def _file(name: str, size: int, file: BinaryIO) -> ModelFormat | None:
    """The format of one file; None where it is not known."""
    head = file.read(16)
    file.seek(0)
    if _suffix(name) == ".safetensors":
        return _safetensors(name, size, file)
    if head.startswith(b"PK\x03\x04"):
        return _zip(name, file)
    if head.startswith(_HDF5):
        return ModelFormat(name, "Keras (HDF5)" if _suffix(name) in (".h5", ".keras", ".hdf5") else "HDF5", {})
    if head.startswith(b"GGUF"):
        return ModelFormat(name, "GGUF", {"version": str(int.from_bytes(head[4:8], "little"))})
    if _suffix(name) == ".onnx":
        try:
            return ModelFormat(name, "ONNX", onnx.describe(file, size))
        except onnx.NotOnnx as error:
            return ModelFormat(name, "unreadable", {"why": f"named .onnx, and {error}"})
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return ModelFormat(name, "pickle", {"note": _PICKLE_HINT})
    return None


def _safetensors(name: str, size: int, file: BinaryIO) -> ModelFormat:
    """The table of tensors at the beginning of the file."""
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(_MOST_HEADER, max(0, size - 8)):
        return ModelFormat(name, "unreadable", {"why": f"named .safetensors, and its header has {length} bytes"})
    try:
        header = json.loads(file.read(length))
        tensors = {key: item for key, item in header.items() if key != "__metadata__"}
        parameters, types = 0, set()
        for item in tensors.values():
            count = 1
            for part in item["shape"]:
                count *= int(part)
            parameters += count
            types.add(str(item["dtype"]))
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return ModelFormat(name, "unreadable", {"why": "named .safetensors, and its header is no table of tensors"})
    details = {"tensors": f"{len(tensors):,}", "parameters": f"{parameters:,}", "types": ", ".join(sorted(types))}
    return ModelFormat(name, "safetensors", details)


def _zip(name: str, file: BinaryIO) -> ModelFormat | None:
    """PyTorch's and Keras' archives, by their members."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return ModelFormat(name, "unreadable", {"why": "it begins like an archive, and is cut off or damaged"})
    lasts = {member.rpartition("/")[2] for member in members}
    below = {member.partition("/")[2] for member in members}
    if "archive_format" in lasts or "serialized_exported_program.json" in lasts:
        return ModelFormat(name, "torch.export", {})
    if "constants.pkl" in lasts and any(member.startswith("code/") for member in below):
        return ModelFormat(name, "TorchScript", {"tensors": f"{_tensors(below):,}"})
    if "data.pkl" in lasts:
        return ModelFormat(name, "PyTorch (torch.save)", {"tensors": f"{_tensors(below):,}", "note": _PICKLE_HINT})
    if "config.json" in members and "model.weights.h5" in members:
        return ModelFormat(name, "Keras", {})
    return None


def _tensors(members: set[str]) -> int:
    return sum(1 for member in members if member.startswith("data/"))


def _suffix(name: str) -> str:
    last = name.rpartition("/")[2]
    return f".{last.rpartition('.')[2].lower()}" if "." in last else ""
