"""From the bytes of a JPEG to the pixels that the network sees, on the CPU or on the GPU."""

import io
import math
import random
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import interpolate

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

AT_ONCE = 256
"""Images whose views are taken together."""

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


def decode_on_gpu(jpegs: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Each 3 x height x width bytes."""
    from torchvision.io import ImageReadMode, decode_jpeg

    decoded: list[Tensor] = decode_jpeg(list(jpegs), mode=ImageReadMode.RGB, device=device)
    return decoded


def take_views(images: Sequence[Tensor], views: Sequence[tuple[Box, bool]], size: int) -> Tensor:
    """A batch of size x size bytes, in the layout that convolutions like."""
    taken = [
        _take_views(images[first : first + AT_ONCE], views[first : first + AT_ONCE], size)
        for first in range(0, len(images), AT_ONCE)
    ]
    return taken[0] if len(taken) == 1 else torch.cat(taken)


def _take_views(images: Sequence[Tensor], views: Sequence[tuple[Box, bool]], size: int) -> Tensor:
    """All in one go, whatever their sizes: filtering rows or columns is a product with a matrix of weights.

    One after the other they would keep the GPU, and whoever feeds it, busier than the training does.
    """
    limit = max(512, 2 * size)
    numbers, pieces, begin = [], [], 0
    for image, (box, mirror) in zip(images, views, strict=True):
        if max(image.shape) > limit:
            image, box = _take_alone(image, box, size, limit)
        _, height, width = image.shape
        numbers.append((begin, height * width, width, *box, mirror))
        pieces.append(image.reshape(-1))
        begin += image.numel()
    device = pieces[0].device
    begins, planes, lines, left, top, wide, high, mirror = torch.tensor(numbers, device=device).T
    # Rows, colours, columns: so neither product needs the other's result in another order. Each row is read as long as
    # the longest could be; what lies beyond its own end has no weight.
    row = torch.minimum(torch.arange(limit, device=device), high[:, None] - 1)
    rows = (begins + left)[:, None] + (top[:, None] + row) * lines[:, None]
    starts = rows[:, :, None] + planes[:, None, None] * torch.arange(3, device=device)
    every_start = torch.cat([*pieces, pieces[0].new_zeros(limit)]).unfold(0, limit, 1)
    room = every_start[starts].to(_precision(device)).view(len(images), limit, 3 * limit)
    down = _filters(high, torch.zeros_like(mirror), limit, size)
    across = _filters(wide, mirror, limit, size)
    narrow = (down.mT @ room).view(len(images), size * 3, limit)
    taken = (narrow @ across).view(len(images), size, 3, size).permute(0, 2, 1, 3)
    return taken.round().clamp_(0, 255).to(torch.uint8, memory_format=torch.channels_last)


def _filters(lengths: Tensor, mirrored: Tensor, limit: int, size: int) -> Tensor:
    """For each length a matrix that makes `size` pixels of so many (what lies beyond counts for nothing): linear, and
    wide enough that nothing is passed over."""
    lengths = lengths.view(-1, 1, 1)
    scale = lengths / size
    place = torch.arange(limit, device=lengths.device).view(1, -1, 1) + 0.5
    place = place.where(place < lengths, torch.inf)
    pixel = torch.arange(size, device=lengths.device) + 0.5
    centre = scale * torch.where(mirrored.bool().view(-1, 1, 1), size - pixel, pixel)
    width = scale.clamp(min=1)
    weights = torch.empty((len(lengths), limit, size), dtype=_precision(lengths.device), device=lengths.device)
    torch.sub(place / width, centre / width, out=weights)
    weights = torch.rsub(weights.abs_(), 1).clamp_(min=0)
    return weights.div_(weights.sum(1, keepdim=True))


def _precision(device: torch.device) -> torch.dtype:
    return torch.half if device.type == "cuda" else torch.float


def _take_alone(image: Tensor, box: Box, size: int, limit: int) -> tuple[Tensor, Box]:
    """Less of a very large image, for which the whole batch would need the room; and where its view is there."""
    left, top, wide, high = box
    view = image[:, top : top + high, left : left + wide]
    if max(view.shape) > limit:
        view = interpolate(view[None].float(), (size, size), mode="bilinear", antialias=True)[0].round().to(torch.uint8)
    return view, (0, 0, view.shape[2], view.shape[1])


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
