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
    parts = [
        image[:, top : top + high, left : left + wide]
        for image, ((left, top, wide, high), _) in zip(decoded, views, strict=True)
    ]
    return resize_all(parts, [mirror for _, mirror in views], size)


def resize_all(parts: list[Tensor], mirror: list[bool], size: int) -> Tensor:
    """All parts in one go, whatever their sizes: filtering a row or a column is a product with a matrix of weights.

    One after the other they would keep the GPU, and whoever feeds it, busier than the training does.
    """
    limit = max(512, 2 * size)
    parts = [part if max(part.shape) <= limit else _resize_alone(part, size) for part in parts]
    device = parts[0].device
    dtype = torch.half if device.type == "cuda" else torch.float
    heights, widths = (
        torch.tensor(sizes, device=device) for sizes in zip(*(part.shape[1:] for part in parts), strict=True)
    )
    room = torch.zeros((len(parts), 3, limit, limit), dtype=dtype, device=device)
    torch._foreach_copy_([room[n, :, : part.shape[1], : part.shape[2]] for n, part in enumerate(parts)], parts)
    across = _filters(widths, limit, size)
    across = torch.where(torch.tensor(mirror, device=device).view(-1, 1, 1), across.flip(2), across)
    down = _filters(heights, limit, size).transpose(1, 2)
    filtered = down[:, None].to(dtype) @ (room @ across[:, None].to(dtype))
    return filtered.round_().clamp_(0, 255).to(torch.uint8, memory_format=torch.channels_last)


def _filters(lengths: Tensor, limit: int, size: int) -> Tensor:
    """For each length a matrix that turns so many pixels (the others are none) into `size`: linear, antialiased."""
    scale = (lengths / size).view(-1, 1, 1)
    place = torch.arange(limit, device=lengths.device).view(1, -1, 1) + 0.5
    centre = scale * (torch.arange(size, device=lengths.device) + 0.5)
    weights = (1 - (place - centre).abs_() / scale.clamp(min=1)).clamp_(min=0)
    weights *= place < lengths.view(-1, 1, 1)
    return weights / weights.sum(1, keepdim=True)


def _resize_alone(part: Tensor, size: int) -> Tensor:
    """A very large one, for which the whole batch would need the room."""
    return interpolate(part[None].float(), (size, size), mode="bilinear", antialias=True)[0]


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
