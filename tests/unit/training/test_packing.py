"""How a batch of JPEGs travels from a worker to the GPU's decoder, and what becomes of it there."""

import contextlib
import io
from types import SimpleNamespace

import data
import numpy
import pixels
import torch
from PIL import Image


class Photographs:
    """Twelve images of different sizes, smooth enough that a JPEG keeps what they show."""

    def __init__(self) -> None:
        self._jpegs = []
        for number in range(12):
            width, height = 60 + 97 * number % 700, 50 + 61 * number % 500
            coarse = numpy.random.default_rng(number).integers(0, 255, (6, 8, 3), dtype=numpy.uint8)
            target = io.BytesIO()
            Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(target, "JPEG", quality=95)
            self._jpegs.append(target.getvalue())

    def __len__(self) -> int:
        return len(self._jpegs)

    def read(self, index: int) -> tuple[bytes, int]:
        return self._jpegs[index], index

    def name(self, index: int) -> str:
        return f"photograph {index}"


def decoded(jpeg: torch.Tensor) -> torch.Tensor:
    """What the GPU's decoder would return."""
    with Image.open(io.BytesIO(bytes(jpeg.tolist()))) as image:
        return torch.from_numpy(numpy.array(image.convert("RGB"))).permute(2, 0, 1).contiguous()


def test_jpegs_are_packed_into_one_tensor_and_come_apart_again():
    jpegs = [torch.arange(size, dtype=torch.uint8) for size in (3, 5, 1)]
    views = [(0, 0, 4, 4, False), (1, 1, 2, 2, True), (0, 0, 1, 1, False)]
    packed, sizes, kept, labels = data._packed(list(zip(jpegs, views, (7, 8, -1), strict=True)))
    assert [part.tolist() for part in packed.split(sizes)] == [jpeg.tolist() for jpeg in jpegs]
    assert kept.tolist() == [list(map(int, view)) for view in views] and labels.tolist() == [7, 8, -1]


def test_the_gpus_way_to_an_image_shows_the_same_as_the_cpus():
    source, keys = Photographs(), [(epoch, index) for epoch in range(3) for index in range(12)]
    for training in (True, False):
        ways = {way: data.Jpegs(source, 96, 0, training, on_gpu=way) for way in (True, False)}
        packed, sizes, views, labels = data._packed([ways[True][key] for key in keys])
        taken = pixels.take_views([decoded(jpeg) for jpeg in packed.split(sizes)], views, 96)
        expected = torch.stack([ways[False][key][0] for key in keys])
        assert labels.tolist() == [index for _, index in keys]
        # At its border Pillow also looks at what lies outside of the view.
        inside = (taken.float() - expected.float())[:, :, 4:-4, 4:-4]
        assert inside.abs().max() <= 2


class Stream:
    """A GPU's, where there is none."""

    def synchronize(self) -> None:
        return


def test_batches_go_from_workers_through_decoder_and_views_in_their_order(monkeypatch):
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(pixels, "decode_on_gpu", lambda jpegs, device: [decoded(jpeg) for jpeg in jpegs])
    args = SimpleNamespace(image_size=32, decode="gpu", seed=0, workers=2, augment=True)
    world = SimpleNamespace(device=torch.device("cpu"), rest=lambda: None)
    loader = data.Loader(Photographs(), args, world, training=True)
    loader._streams = [Stream(), Stream()]
    keys = [[(0, index) for index in batch] for batch in ([3, 1], [0, 2], [11, 7], [5, 5], [4, 6])]
    for _ in range(2):
        found = list(loader._on_device(loader._start(keys)))
        assert [labels.tolist() for _, labels in found] == [[index for _, index in batch] for batch in keys]
        assert torch.equal(found[3][0][0], found[3][0][1]) and not torch.equal(found[0][0][0], found[0][0][1])
        assert all(images.shape == (2, 3, 32, 32) and images.dtype == torch.uint8 for images, _ in found)
