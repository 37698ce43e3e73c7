"""From the bytes of a JPEG to the pixels for the network, on the CPU or on the GPU."""

import io
import math
import random
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import interpolate

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

AT_ONCE = 64
"""How many images are cropped and resized together."""

Box = tuple[int, int, int, int]
"""Left, top, width, height."""


def normalize(images: Tensor) -> Tensor:
    """Bytes to numbers around zero; floating-point values stay as they are."""
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


def header(image: bytes) -> tuple[int, int, bool]:
    """Width, height, and whether it is a JPEG in RGB or grey: ImageNet has a PNG, and some in CMYK."""
    from PIL import Image

    with Image.open(io.BytesIO(image)) as picture:
        return *picture.size, picture.format == "JPEG" and picture.mode in ("RGB", "L")


def made_plain(image: bytes) -> bytes:
    """The image as an RGB JPEG, which a GPU can decode."""
    from PIL import Image

    made = io.BytesIO()
    with Image.open(io.BytesIO(image)) as picture:
        picture.convert("RGB").save(made, "JPEG", quality=95)
    return made.getvalue()


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


def take_views(images: Sequence[Tensor], views: Tensor, size: int) -> Tensor:
    """A batch of size x size bytes; a row of `views` is a box and whether to mirror it.

    Many at a time, whatever their sizes: one by one they would take more of the GPU and the CPU than the training
    itself.
    """
    images, views, limit = list(images), views.clone(), _rounded_up(max(512, 2 * size))
    for number in [number for number, image in enumerate(images) if max(image.shape) > limit]:
        images[number], views[number, :4] = _take_alone(images[number], views[number, :4], size, limit)
    shapes = torch.tensor([image.shape for image in images])
    left, top, wide, high, mirror = views.T
    lines, planes, sizes = shapes[:, 2], shapes[:, 1] * shapes[:, 2], shapes.prod(1)
    begins = sizes.cumsum(0) - sizes + top * lines + left
    numbers = torch.stack([torch.arange(len(images)), begins, lines, planes, wide, high, mirror])
    pixels = torch.cat([*(image.reshape(-1) for image in images), images[0].new_zeros((limit + 1) * limit)])
    taken = torch.empty(
        (len(images), 3, size, size), dtype=torch.uint8, device=pixels.device, memory_format=torch.channels_last
    )
    # Group images of similar size, since each takes the memory of the largest.
    for group in torch.maximum(wide, high).argsort().split(AT_ONCE):
        _take_group(taken, pixels, numbers[:, group], _filters(limit, size, pixels.device))
    return taken


def _take_group(taken: Tensor, pixels: Tensor, numbers: Tensor, filters: Tensor) -> None:
    """Crop and resize a group: filtering rows or columns is a product with a matrix of weights."""
    columns, rows = (_rounded_up(int(longest)) for longest in numbers[4:6].amax(1))
    places, begins, lines, planes, wide, high, mirror = numbers.to(pixels.device)
    # Ordered as rows, colours, columns, so neither product needs its input in another order. Values read beyond the end
    # of a row or a view have no weight.
    row, colour = torch.arange(rows, device=pixels.device), torch.arange(3, device=pixels.device)
    starts = (begins[:, None] + lines[:, None] * row)[:, :, None] + planes[:, None, None] * colour
    room = pixels.unfold(0, columns, 1)[starts].to(filters.dtype).view(len(places), rows, 3 * columns)
    narrow = filters[0, :, :rows][high].mT @ room
    views = narrow.view(len(places), -1, columns) @ filters[:, :, :columns][mirror, wide]
    size = views.shape[-1]
    views = views.round_().clamp_(0, 255).to(torch.uint8).view(len(places), size, 3, size)
    taken[places] = views.permute(0, 2, 1, 3)


@cache
def _filters(limit: int, size: int, device: torch.device) -> Tensor:
    """For each length a matrix that resizes that many pixels to `size`, linear and with antialiasing; and the same
    mirrored."""
    lengths = torch.arange(limit + 1, device=device).view(-1, 1, 1)
    scale = lengths / size
    place = torch.arange(limit, device=device).view(1, -1, 1) + 0.5
    place = place.where(place < lengths, torch.inf)
    centre = scale * (torch.arange(size, device=device) + 0.5)
    width = scale.clamp(min=1)
    weights = torch.empty((limit + 1, limit, size), dtype=_precision(device), device=device)
    torch.sub(place / width, centre / width, out=weights)
    weights = torch.rsub(weights.abs_(), 1).clamp_(min=0)
    weights.div_(weights.sum(1, keepdim=True))
    return torch.stack([weights, weights.flip(2)])


def _rounded_up(length: int) -> int:
    """The next multiple of 32: products with such sides are fast."""
    return -(-length // 32) * 32


def _precision(device: torch.device) -> torch.dtype:
    return torch.half if device.type == "cuda" else torch.float


def _take_alone(image: Tensor, box: Tensor, size: int, limit: int) -> tuple[Tensor, Tensor]:
    """Crop a very large image, so that the others need not take its memory; returns it with its view's new box."""
    left, top, wide, high = box.tolist()
    view = image[:, top : top + high, left : left + wide]
    if max(view.shape) > limit:
        view = interpolate(view[None].float(), (size, size), mode="bilinear", antialias=True)[0].round().to(torch.uint8)
    return view, torch.tensor([0, 0, view.shape[2], view.shape[1]])


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
