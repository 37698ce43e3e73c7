"""From the bytes of a JPEG to the pixels that the network sees, on the CPU or on the GPU."""

import io
import math
import random
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import interpolate

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Box = tuple[int, int, int, int]
"""Left, top, width, height."""


def normalize(images: Tensor) -> Tensor:
    """Bytes to numbers around zero; what is numbers already stays."""
    if images.dtype != torch.uint8:
        return images
    mean = torch.tensor(MEAN, device=images.device).view(1, 3, 1, 1) * 255
    deviation = torch.tensor(DEVIATION, device=images.device).view(1, 3, 1, 1) * 255
    return (images.float() - mean) / deviation


def random_view(width: int, height: int, seed: str) -> tuple[Box, bool]:
    """A random part of the image, and whether to mirror it; the seed alone decides."""
    source = random.Random(seed)
    for _ in range(10):
        area = width * height * source.uniform(0.08, 1.0)
        ratio = math.exp(source.uniform(math.log(3 / 4), math.log(4 / 3)))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            box = (source.randint(0, width - wide), source.randint(0, height - high), wide, high)
            return box, source.random() < 0.5
    return central_view(width, height, 1.0), source.random() < 0.5


def central_view(width: int, height: int, part: float = 224 / 256) -> Box:
    """The middle square."""
    side = round(min(width, height) * part)
    return (width - side) // 2, (height - side) // 2, side, side


def size_of(jpeg: bytes) -> tuple[int, int]:
    """Width and height, from the header alone."""
    from PIL import Image

    with Image.open(io.BytesIO(jpeg)) as image:
        return image.size


def decode_on_cpu(jpeg: bytes, box: Box, mirror: bool, size: int) -> Tensor:
    """3 x size x size bytes."""
    import numpy
    from PIL import Image

    left, top, wide, high = box
    with Image.open(io.BytesIO(jpeg)) as image:
        view = image.convert("RGB").resize(
            (size, size), Image.Resampling.BILINEAR, (left, top, left + wide, top + high)
        )
    if mirror:
        view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(numpy.array(view)).permute(2, 0, 1)


def decode_on_gpu(
    jpegs: Sequence[Tensor], views: Sequence[tuple[Box, bool]], size: int, device: torch.device
) -> Tensor:
    """A batch of size x size images, in the layout that convolutions like."""
    from torchvision.io import ImageReadMode, decode_jpeg

    decoded = decode_jpeg(list(jpegs), mode=ImageReadMode.RGB, device=device)
    batch = torch.empty((len(decoded), 3, size, size), device=device, memory_format=torch.channels_last)
    for index, (image, ((left, top, wide, high), mirror)) in enumerate(zip(decoded, views, strict=True)):
        part = image[None, :, top : top + high, left : left + wide].float()
        part = interpolate(part, (size, size), mode="bilinear", antialias=True)
        batch[index] = part[0].flip(2) if mirror else part[0]
    return batch.round_().clamp_(0, 255).to(torch.uint8)


def gpu_can_decode(device: torch.device) -> bool:
    """Whether this torchvision decodes JPEGs on this device, by trying."""
    if device.type != "cuda":
        return False
    try:
        from torchvision.io import decode_jpeg, encode_jpeg

        decode_jpeg([encode_jpeg(torch.zeros((3, 16, 16), dtype=torch.uint8))], device=device)
    except (ImportError, RuntimeError, AttributeError):
        return False
    return True
