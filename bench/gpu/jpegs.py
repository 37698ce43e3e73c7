"""JPEGs like those of ImageNet in dimensions and bytes, packed into a shard; each is listed many times."""

from __future__ import annotations

import io
import json
import tarfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from torch.nn.functional import interpolate


def make_shards(folder: Path, distinct: int, listed: int, classes: int = 10) -> float:
    """Write `train` and `val`; returns the mean size of an image in bytes."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        images = list(pool.map(jpeg, range(distinct), chunksize=16))
    for part in ("train", "val"):
        (folder / part).mkdir(parents=True)
        shard = folder / part / "shard-0000.tar"
        with tarfile.open(shard, "w") as tar:
            for number, image in enumerate(images):
                _add(tar, f"{number:06d}.jpg", image)
                _add(tar, f"{number:06d}.cls", str(number % classes).encode())
        with tarfile.open(shard) as tar:
            places = [(member.offset_data, member.size) for member in tar if member.name.endswith(".jpg")]
        entries = [(*places[number % distinct], number % distinct % classes) for number in range(listed)]
        shard.with_name(shard.name + ".index").write_text(json.dumps(entries))
    return sum(map(len, images)) / distinct


def jpeg(number: int, quality: int = 87) -> bytes:
    """About 500 x 375 pixels and, at this quality, 87 kB (at 91: 110 kB): coarse shapes with fine grain on top."""
    torch.set_num_threads(1)
    source = torch.Generator().manual_seed(number)
    width, height = (500, 375) if torch.rand((), generator=source) < 0.75 else (375, 500)
    coarse = torch.rand(1, 3, height // 16, width // 16, generator=source)
    pixels = interpolate(coarse, (height, width), mode="bicubic") * 255
    pixels = pixels + 18 * torch.randn(pixels.shape, generator=source)
    return _encoded(pixels[0].clamp(0, 255).to(torch.uint8), quality)


def _encoded(pixels: torch.Tensor, quality: int) -> bytes:
    try:
        from torchvision.io import encode_jpeg

        return bytes(encode_jpeg(pixels, quality=quality).numpy().tobytes())
    except (ImportError, RuntimeError):
        from PIL import Image

        target = io.BytesIO()
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(target, "JPEG", quality=quality)
        return target.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    about = tarfile.TarInfo(name)
    about.size = len(content)
    tar.addfile(about, io.BytesIO(content))
