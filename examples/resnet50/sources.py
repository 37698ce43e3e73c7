"""Sources of images: a folder for each class, packed shards, or synthetic."""

import json
import os
import tarfile
from bisect import bisect_right
from collections import OrderedDict
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import interpolate

Batch = tuple[Tensor, Tensor]
PADDING = -1
"""The label of an image that only fills up a batch."""
SHARDS_MIXED = 16


class Source(Protocol):
    """A source of JPEGs with labels."""

    classes: int

    def __len__(self) -> int: ...
    def read(self, index: int) -> tuple[bytes, int]: ...
    def name(self, index: int) -> str: ...


def open_both(folder: Path) -> tuple[Source, Source]:
    """The sources for training and validation, with the same labels for the same classes."""
    if find_spec("PIL") is None:
        raise SystemExit("--data needs Pillow: pip install 'muster-ml[images]'")
    training, validation = open_source(folder / "train"), open_source(folder / "val")
    if isinstance(training, ImageFolder) and isinstance(validation, ImageFolder) and training.names != validation.names:
        differing = min(set(training.names) ^ set(validation.names))
        part = "train" if differing in training.names else "val"
        raise SystemExit(f"--data: the classes of train and val in {folder} differ: only {part} has {differing}")
    if type(training) is not type(validation):
        raise SystemExit(f"--data: one of train and val in {folder} is packed into shards, so their labels may differ")
    if validation.classes > training.classes:
        raise SystemExit(f"--data: val in {folder} has {validation.classes} classes, train only {training.classes}")
    return training, validation


def open_source(folder: Path) -> Source:
    """Packed shards if there are any, otherwise a folder for each class."""
    if not folder.is_dir():
        raise SystemExit(f"--data: there is no folder {folder}; it needs `train` and `val` inside")
    return Shards(folder) if any(folder.glob("*.tar")) else ImageFolder(folder)


class ImageFolder:
    """One folder for each class, the images inside; classes are numbered in the order of their names."""

    def __init__(self, folder: Path) -> None:
        self.names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        self.classes = len(self.names)
        self._files = [
            (path, label)
            for label, name in enumerate(self.names)
            for path in sorted((folder / name).iterdir())
            if path.suffix.lower() in (".jpg", ".jpeg")
        ]
        if not self._files:
            raise SystemExit(f"--data: {folder} holds neither .tar shards nor folders of .jpg or .jpeg files")
        if empty := set(range(self.classes)) - {label for _, label in self._files}:
            raise SystemExit(f"--data: {folder / self.names[min(empty)]} holds no .jpg or .jpeg file")

    def __len__(self) -> int:
        return len(self._files)

    def read(self, index: int) -> tuple[bytes, int]:
        path, label = self._files[index]
        return path.read_bytes(), label

    def name(self, index: int) -> str:
        return str(self._files[index][0])


class Shards:
    """Tar files of NAME.jpg and NAME.cls (the label as a number) side by side, read one after the other.

    The position of each image is in an index next to its shard, SHARD.tar.index.
    """

    def __init__(self, folder: Path) -> None:
        self._paths = sorted(folder.glob("*.tar"))
        self._entries = [shard_index(path) for path in self._paths]
        self._ends = list(accumulate(len(entries) for entries in self._entries))
        if not len(self):
            raise SystemExit(f"--data: the shards in {folder} hold no image (NAME.jpg beside NAME.cls)")
        self.classes = 1 + max(label for entries in self._entries for _, _, label in entries)
        self._open: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, index: int) -> tuple[bytes, int]:
        shard = bisect_right(self._ends, index)
        offset, size, label = self._entries[shard][index - (self._ends[shard - 1] if shard else 0)]
        return os.pread(self._descriptor(shard), size, offset), label

    def name(self, index: int) -> str:
        shard = bisect_right(self._ends, index)
        return f"image {index - (self._ends[shard - 1] if shard else 0)} of {self._paths[shard]}"

    def order(self, epoch: int, seed: int) -> Tensor:
        """Shards in a random order, with the images of a few neighbours mixed: nearly as good as mixing all."""
        source = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        begins = [0, *self._ends]
        shards = [
            torch.arange(begins[number], self._ends[number])
            for number in torch.randperm(len(self._paths), generator=source).tolist()
        ]
        mixed = []
        for first in range(0, len(shards), SHARDS_MIXED):
            group = torch.cat(shards[first : first + SHARDS_MIXED])
            mixed.append(group[torch.randperm(len(group), generator=source)])
        return torch.cat(mixed)

    def _descriptor(self, shard: int) -> int:
        if shard not in self._open:
            self._open[shard] = os.open(self._paths[shard], os.O_RDONLY)
            if len(self._open) > 2 * SHARDS_MIXED:
                os.close(self._open.popitem(last=False)[1])
        self._open.move_to_end(shard)
        return self._open[shard]

    def __getstate__(self) -> dict[str, Any]:
        # A worker that is not forked opens its own files.
        return {**self.__dict__, "_open": OrderedDict()}


def shard_index(path: Path) -> list[tuple[int, int, int]]:
    """Offset, size and label of each image of a shard; from its index, which is written if it is missing."""
    beside = path.with_name(path.name + ".index")
    if beside.exists() and beside.stat().st_mtime >= path.stat().st_mtime:
        try:
            kept = [(offset, size, label) for offset, size, label in json.loads(beside.read_text())]
        except (ValueError, TypeError):
            kept = []
        if kept and _has_image(path, *kept[-1][:2]):
            return kept
    jpegs, labels = {}, {}
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                name, _, kind = member.name.rpartition(".")
                if kind in ("jpg", "jpeg"):
                    jpegs[name] = (member.offset_data, member.size)
                elif kind == "cls":
                    content = tar.extractfile(member)
                    labels[name] = int(content.read()) if content else PADDING
    except (tarfile.TarError, ValueError) as error:
        raise SystemExit(f"--data: {path} is damaged, or not a shard: {error}") from None
    if without := sorted(jpegs.keys() - labels.keys()):
        raise SystemExit(f"--data: {path} has {without[0]}.jpg without {without[0]}.cls, which would be its label")
    if negative := sorted(name for name, label in labels.items() if label < 0):
        raise SystemExit(f"--data: {path} has a label below zero in {negative[0]}.cls")
    found = [(*place, labels[name]) for name, place in jpegs.items()]
    try:
        unfinished = beside.with_name(f".{beside.name}.{os.getpid()}.tmp")
        unfinished.write_text(json.dumps(found))
        unfinished.replace(beside)
    except OSError as error:
        print(f"the index of {path.name} is not kept, so each start makes it anew: {error}", flush=True)
    return found


def _has_image(path: Path, offset: int, size: int) -> bool:
    """Whether an image of this size begins there, by its header; it would not if the shard had changed."""
    with path.open("rb") as shard:
        shard.seek(offset - tarfile.BLOCKSIZE)
        try:
            return tarfile.TarInfo.frombuf(shard.read(tarfile.BLOCKSIZE), "utf-8", "replace").size == size
        except tarfile.TarError:
            return False


class Synthetic:
    """Images that can be learned: each class has a pattern, and each of a few hundred images its own noise.

    Images for the validation have other noise.
    """

    def __init__(self, length: int, classes: int, size: int, device: torch.device, *, held_back: bool = False) -> None:
        self.length, self.classes, self._size = length, classes, size
        source = torch.Generator().manual_seed(1)
        patterns = interpolate(torch.randn(classes, 3, 8, 8, generator=source), size, mode="bilinear")
        if held_back:
            source.manual_seed(2)
        self._labels = torch.arange(min(length, 512 if device.type == "cpu" else 1024)) % classes
        images = torch.empty(len(self._labels), size, size, 3, dtype=torch.uint8)
        for image, label in zip(images, self._labels, strict=True):
            noisy = patterns[label] + torch.randn(3, size, size, generator=source)
            image.copy_((128 + 40 * noisy).clamp(0, 255).permute(1, 2, 0))
        rows = images.view(len(images), -1)
        # Eight bytes at a time if the size allows it: picking images then costs the device almost nothing.
        self._rows = (rows.view(torch.int64) if rows.shape[1] % 8 == 0 else rows).to(device)
        self._labels = self._labels.to(device)

    def __len__(self) -> int:
        return self.length

    def batch(self, indices: Tensor) -> Batch:
        """Images by index, picked on the training's device without waiting."""
        indices = indices.to(self._rows.device, non_blocking=True)
        picked = indices % len(self._rows)
        images = self._rows.index_select(0, picked).view(torch.uint8)
        shape = (len(indices), self._size, self._size, 3)
        labels = self._labels.index_select(0, picked).masked_fill(indices < 0, PADDING)
        return images.view(shape).permute(0, 3, 1, 2), labels
