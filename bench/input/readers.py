"""Epochs through one library, in the environment that has it: `python readers.py WAY FOLDER WORKERS`.

For each line `raw` or `decoded` on standard input it reads one epoch and prints images per second, from the first
batch to the last. Every library reads data from its own writer, shuffled, through PyTorch's DataLoader (or its own
subclass) with the same batch size and the same decoding.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, default_collate

BATCH = 64
SIZE = 224


def decoded(jpeg: bytes) -> torch.Tensor:
    with Image.open(io.BytesIO(jpeg)) as image:
        small = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(small))


def raw_pair(jpeg: bytes, label: int) -> tuple[Any, int]:
    return jpeg, label


def decoded_pair(jpeg: bytes, label: int) -> tuple[Any, int]:
    return decoded(jpeg), label


class Way:
    """How samples become batches."""

    def __init__(self, decode: bool, workers: int) -> None:
        self.pair = decoded_pair if decode else raw_pair
        self.collate = default_collate if decode else list
        self.decode, self.workers = decode, workers

    @property
    def loader(self) -> dict[str, Any]:
        return {"batch_size": BATCH, "num_workers": self.workers, "collate_fn": self.collate}


def muster(folder: Path, way: Way) -> Iterable[Any]:
    from muster.training.data import Stream, TorchLoader

    def decode(sample: Any) -> tuple[Any, int]:
        return decoded(sample["jpg"]), int(sample["cls"])

    stream = Stream(folder / "muster", BATCH)
    return TorchLoader(stream, decode if way.decode else None, workers=way.workers)


def image_folder(folder: Path, way: Way) -> Iterable[Any]:
    torchvision()
    from torchvision.datasets import DatasetFolder

    def load(path: str) -> Any:
        content = Path(path).read_bytes()
        return decoded(content) if way.decode else content

    return DataLoader(DatasetFolder(str(folder / "files"), load, (".jpg",)), shuffle=True, **way.loader)


def webdataset(folder: Path, way: Way) -> Iterable[Any]:
    import webdataset as wds

    shards = sorted(map(str, (folder / "muster").glob("*.tar")))
    pipeline = wds.WebDataset(shards, shardshuffle=len(shards), nodesplitter=wds.split_by_node).shuffle(1000)
    dataset = pipeline.to_tuple("jpg", "cls").map(lambda pair: way.pair(pair[0], int(pair[1])))
    return wds.WebLoader(dataset.batched(BATCH, collation_fn=way.collate), batch_size=None, num_workers=way.workers)


def mosaicml(folder: Path, way: Way) -> Iterable[Any]:
    torchvision()
    from streaming import StreamingDataset

    class Images(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, at: int) -> Any:
            sample = super().__getitem__(at)
            return way.pair(sample["jpg"], sample["cls"])

    return DataLoader(Images(local=str(folder / "mds"), shuffle=True, batch_size=BATCH), **way.loader)


def litdata(folder: Path, way: Way) -> Iterable[Any]:
    import litdata as lit

    class Images(lit.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Any:
            sample = super().__getitem__(index)
            return way.pair(bytes(sample["jpg"]), sample["cls"])

    return lit.StreamingDataLoader(Images(str(folder / "litdata"), shuffle=True), **way.loader)  # type: ignore[no-any-return]


WAYS = {
    "muster": muster,
    "ImageFolder": image_folder,
    "webdataset": webdataset,
    "mosaicml-streaming": mosaicml,
    "litdata": litdata,
}


def torchvision() -> None:
    """Its compiled operators, which nothing here uses, may be missing for a PyTorch without CUDA."""
    if "_kept" in globals():
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    globals()["_kept"] = library


def write_mosaicml(folder: Path) -> None:
    torchvision()
    from streaming import MDSWriter

    with MDSWriter(out=str(folder / "mds"), columns={"jpg": "bytes", "cls": "int"}) as writer:
        for jpeg, label in images(folder):
            writer.write({"jpg": jpeg, "cls": label})


def write_litdata(folder: Path) -> None:
    import litdata as lit

    paths = [(str(path), int(path.parent.name)) for path in sorted((folder / "files").rglob("*.jpg"))]
    lit.optimize(lit_sample, paths, str(folder / "litdata"), chunk_bytes="64MB", num_workers=1)


def lit_sample(given: tuple[str, int]) -> dict[str, Any]:
    return {"jpg": Path(given[0]).read_bytes(), "cls": given[1]}


def images(folder: Path) -> Iterator[tuple[bytes, int]]:
    for path in sorted((folder / "files").rglob("*.jpg")):
        yield path.read_bytes(), int(path.parent.name)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=[*WAYS, "write-mosaicml", "write-litdata"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("workers", type=int)
    args = parser.parse_args()
    if args.way.startswith("write-"):
        {"write-mosaicml": write_mosaicml, "write-litdata": write_litdata}[args.way](args.folder)
        return
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(epoch(args.way, args.folder, Way(line.strip() == "decoded", args.workers))), flush=True)


def epoch(name: str, folder: Path, way: Way) -> dict[str, float]:
    def size(batch: Any) -> int:
        return len(batch[0]) if way.decode else len(batch)

    loader = iter(WAYS[name](folder, way))
    first = size(next(loader))
    began, counted = time.perf_counter(), sum(map(size, loader))
    return {"rate": counted / (time.perf_counter() - began), "images": first + counted}


if __name__ == "__main__":
    main()
