"""Batches of images for one rank, on its device, from any step of an epoch on."""

import argparse
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from queue import Full, Queue
from threading import Event, Thread
from typing import Any

import pixels
import torch
from sources import PADDING, Batch, Shards, Source, Synthetic
from torch.utils.data import DataLoader, Dataset

from muster.training import ResumableSampler, World

Key = tuple[int, int]
"""Epoch and index of an image: they alone decide how it is cropped, whatever the worker and rank."""


class Jpegs(Dataset[Any]):
    """JPEGs, decoded in a worker, or only read in it, to be decoded and cropped on the GPU."""

    def __init__(self, source: Source, size: int, seed: int, training: bool, on_gpu: bool) -> None:
        self._source, self._size, self._seed = source, size, seed
        self._training, self._on_gpu = training, on_gpu

    def __getitem__(self, key: Key) -> Any:
        _, index = key
        jpeg, label = self._source.read(max(index, 0))
        label = label if index >= 0 else PADDING
        try:
            return *self._viewed(jpeg, key), label
        except Exception as error:  # of many kinds, none of which says which image it is
            said = "it is no image" if type(error).__name__ == "UnidentifiedImageError" else error
            raise ValueError(f"{self._source.name(max(index, 0))} cannot be decoded: {said}") from error

    def _viewed(self, jpeg: bytes, key: Key) -> tuple[Any, ...]:
        epoch, index = key
        width, height, is_plain = pixels.header(jpeg)
        if self._training:
            box, mirror = pixels.random_view(width, height, f"{self._seed}/{epoch}/{index}")
        else:
            box, mirror = pixels.central_view(width, height), False
        if self._on_gpu:
            jpeg = jpeg if is_plain else pixels.made_plain(jpeg)
            return torch.frombuffer(bytearray(jpeg), dtype=torch.uint8), (*box, mirror)
        return (pixels.decode_on_cpu(jpeg, box, mirror, self._size),)


class Loader:
    """Batches of this rank, on its device."""

    def __init__(self, dataset: Source | Synthetic, args: argparse.Namespace, world: World, training: bool) -> None:
        self._dataset, self._world, self._device, self._size = dataset, world, world.device, args.image_size
        self._on_gpu = args.decode == "gpu"
        if self._device.type == "cuda":
            # High-priority streams, since PyTorch shares the others and their memory: the decoder ignores streams and
            # must not get memory that other work in the same stream still uses.
            self._streams = [torch.cuda.Stream(self._device, priority=-1) for _ in range(2)]
        self._loader: DataLoader[Any] | None = None
        if not isinstance(dataset, Synthetic):
            self._jpegs = Jpegs(dataset, args.image_size, args.seed, training and args.augment, self._on_gpu)
            self._workers = args.workers

    def over(self, keys: Iterable[list[Key]]) -> Iterator[Batch]:
        """The images of each list of keys; the next batches are prepared meanwhile."""
        if isinstance(self._dataset, Synthetic):
            for batch in keys:
                yield self._dataset.batch(torch.tensor([index for _, index in batch]))
            return
        if self._loader is None or self._loader.batch_sampler is not keys:
            self._loader = self._start(keys)
        if self._device.type != "cuda":
            yield from self._loader
            return
        for batch in _ahead(self._on_device(self._loader), 3):
            for tensor in batch:
                # Made in another stream, which must not reuse the memory before this one is done.
                tensor.record_stream(torch.cuda.current_stream(self._device))
            yield batch

    def _start(self, keys: Iterable[list[Key]]) -> DataLoader[Any]:
        """Start workers, which are kept for the next epoch."""
        self._world.rest()
        return DataLoader(
            self._jpegs,
            batch_sampler=keys,  # type: ignore[arg-type]
            num_workers=self._workers,
            collate_fn=_packed if self._on_gpu else None,
            pin_memory=self._device.type == "cuda" and not self._on_gpu,
            prefetch_factor=4 if self._workers else None,
            persistent_workers=self._workers > 0,
            # A separate generator: the training's random numbers must not depend on how often a loader was started.
            generator=torch.Generator(),
        )

    def _on_device(self, loader: Iterable[Any]) -> Generator[Batch, None, None]:
        """Finish batches in a separate stream, in parallel with the training."""
        torch.cuda.set_device(self._device)  # of this thread
        if self._on_gpu:
            # The next batch is decoded meanwhile.
            loader, finish = _ahead(self._decoded(loader), 2), partial(pixels.take_views, size=self._size)
        else:
            finish = partial(torch.Tensor.to, device=self._device, non_blocking=True, memory_format=torch.channels_last)
        for *images, labels in loader:
            with torch.cuda.stream(self._streams[0]):
                batch = finish(*images), labels.to(self._device, non_blocking=True)
            # Only then may the decoder reuse the memory of its inputs.
            self._streams[0].synchronize()
            yield batch

    def _decoded(self, loader: Iterable[Any]) -> Generator[Any, None, None]:
        """Decode in another stream; images are complete when they are yielded."""
        torch.cuda.set_device(self._device)
        for packed, sizes, views, labels in loader:
            with torch.cuda.stream(self._streams[1]):
                try:
                    images = pixels.decode_on_gpu(packed.split(sizes), self._device)
                except RuntimeError as error:
                    raise ValueError(f"the GPU cannot decode a JPEG ({error}); --decode cpu names it") from error
            self._streams[1].synchronize()
            yield images, views, labels


def train_sampler(dataset: Source | Synthetic, args: argparse.Namespace, world: World) -> ResumableSampler:
    return ResumableSampler(
        len(dataset),
        args.batch_size,
        rank=world.rank,
        world_size=world.size,
        seed=args.seed,
        contiguous=isinstance(dataset, Shards),
        order=partial(dataset.order, seed=args.seed) if isinstance(dataset, Shards) else None,
        with_epoch=True,
    )


def validation_keys(length: int, batch_size: int, rank: int, world_size: int) -> list[list[Key]]:
    """Every image once over all ranks, and the same number of full batches on each, filled up with padding."""
    own = list(range(rank, length, world_size))
    batches = -(-length // (world_size * batch_size))
    own += [PADDING] * (batches * batch_size - len(own))
    return [[(0, index) for index in own[n * batch_size : (n + 1) * batch_size]] for n in range(batches)]


def _ahead(batches: Generator[Any, None, None], depth: int) -> Iterator[Any]:
    """The same batches, a few of them prepared in advance by a thread."""
    queue: Queue[Any] = Queue(depth)
    unwanted, end = Event(), object()

    def put(item: Any) -> bool:
        while not unwanted.is_set():
            try:
                queue.put(item, timeout=0.1)
                return True
            except Full:
                continue
        return False

    def fill() -> None:
        try:
            for batch in batches:
                if not put(batch):
                    return
            put(end)
        except BaseException as error:  # raised again in the thread that asks for the batch
            put(error)

    thread = Thread(target=fill, name="batches", daemon=True)
    thread.start()
    try:
        while (item := queue.get()) is not end:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        unwanted.set()
        thread.join()
        batches.close()


def _packed(items: list[Any]) -> tuple[Any, ...]:
    """All JPEGs of a batch in one tensor: sent one by one, each would take a file descriptor."""
    jpegs, views, labels = zip(*items, strict=True)
    return torch.cat(jpegs), [len(jpeg) for jpeg in jpegs], torch.tensor(views), torch.tensor(labels)
