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
        image.narrow(1, top, high).narrow(2, left, wide)
        for image, ((left, top, wide, high), _) in zip(decoded, views, strict=True)
    ]
    return resize_all(parts, [mirror for _, mirror in views], size)


def resize_all(parts: list[Tensor], mirror: list[bool], size: int) -> Tensor:
    """All parts in one go, whatever their sizes: filtering rows or columns is a product with a matrix of weights.

    One after the other they would keep the GPU, and whoever feeds it, busier than the training does. That is also why
    parts are taken by `narrow`: slices need twice the time of the Python that the training shares.
    """
    limit = max(512, 2 * size)
    parts = [part if max(part.shape) <= limit else _resize_alone(part, size) for part in parts]
    count, device = len(parts), parts[0].device
    shapes = [tuple(part.shape[1:]) for part in parts]
    heights, widths = torch.tensor(shapes, device=device).T
    mirrored = torch.tensor(mirror, device=device)
    # Rows, colours, columns: so neither product needs the other's result in another order.
    room = torch.zeros((count, limit, 3, limit), dtype=_precision(device), device=device)
    places = [
        place.narrow(0, 0, high).narrow(2, 0, wide) for place, (high, wide) in zip(room.unbind(), shapes, strict=True)
    ]
    torch._foreach_copy_(places, [part.permute(1, 0, 2) for part in parts])
    down = _filters(heights, torch.zeros_like(mirrored), limit, size)
    across = _filters(widths, mirrored, limit, size)
    rows = (down.mT @ room.view(count, limit, 3 * limit)).view(count, size * 3, limit)
    images = (rows @ across).view(count, size, 3, size).permute(0, 2, 1, 3)
    return images.round().clamp_(0, 255).to(torch.uint8, memory_format=torch.channels_last)


def _filters(lengths: Tensor, mirrored: Tensor, limit: int, size: int) -> Tensor:
    """For each length a matrix that makes `size` pixels of so many (what lies beyond counts for nothing): linear, and
    wide enough that nothing is passed over."""
    lengths = lengths.view(-1, 1, 1)
    scale = lengths / size
    place = torch.arange(limit, device=lengths.device).view(1, -1, 1) + 0.5
    place = place.where(place < lengths, torch.inf)
    pixel = torch.arange(size, device=lengths.device) + 0.5
    centre = scale * torch.where(mirrored.view(-1, 1, 1), size - pixel, pixel)
    width = scale.clamp(min=1)
    weights = torch.empty((len(lengths), limit, size), dtype=_precision(lengths.device), device=lengths.device)
    torch.sub(place / width, centre / width, out=weights)
    weights.abs_().neg_().add_(1).clamp_(min=0)
    return weights.div_(weights.sum(1, keepdim=True))


def _precision(device: torch.device) -> torch.dtype:
    return torch.half if device.type == "cuda" else torch.float


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
