"""Finds circles, squares and triangles with a small single-stage detector: for each its box and its class.

Every cell of a coarse grid says whether the middle of an object lies in it, of which class it is, and how far the four
sides of its box are away; there are no anchors and no second stage.
"""

import torch
from loop import parser, shares, start, train
from segmentation import pictures
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, smooth_l1_loss
from torch.utils.data import TensorDataset

from muster.training import World

CLASSES = 3
MOST = 6
"""The most objects in a picture."""
STRIDE = 8


def boxes_of(masks: Tensor) -> Tensor:
    """The objects of each picture as (class, left, top, right, bottom), filled up with class -1.

    Objects are connected regions of a mask, so shapes of one class that touch are one object.
    """
    found = torch.full((len(masks), MOST, 5), -1.0)
    for index, mask in enumerate(masks):
        number = 0
        for kind in range(1, CLASSES + 1):
            labels = connected(mask == kind)
            for label in labels.unique()[1:].tolist():
                rows, columns = torch.where(labels == label)
                if len(rows) < 20 or number == MOST:
                    continue
                sides = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
                found[index, number] = torch.tensor([kind - 1, *map(int, sides)], dtype=torch.float)
                number += 1
    return found


def connected(inside: Tensor) -> Tensor:
    """A number for every connected region, zero outside: the largest index spreads through each region."""
    labels = torch.arange(1, inside.numel() + 1, dtype=torch.float).view(inside.shape) * inside
    while True:
        spread = nn.functional.max_pool2d(labels[None, None], 3, 1, 1)[0, 0] * inside
        if torch.equal(spread, labels):
            return labels.long()
        labels = spread


class Detector(nn.Module):
    """Turns a picture into a grid of cells: one value for "an object", the classes, and four distances."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for level, stride in enumerate((2, 1, 2, 1, 2, 1, 1)):
            wide = width * (1 + level // 2)
            layers += [nn.Conv2d(channels, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()]
            channels = wide
        self.body = nn.Sequential(*layers)
        self.head = nn.Conv2d(channels, 1 + CLASSES + 4, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images)).permute(0, 2, 3, 1)


def targets(objects: Tensor, cells: int) -> tuple[Tensor, Tensor, Tensor]:
    """For every cell: whether an object's middle is in it, its class, and the distances of its sides."""
    count = len(objects)
    here = torch.zeros(count, cells, cells, device=objects.device)
    kinds = torch.zeros(count, cells, cells, dtype=torch.long, device=objects.device)
    sides = torch.zeros(count, cells, cells, 4, device=objects.device)
    picture, number = torch.where(objects[..., 0] >= 0)
    kind, left, top, right, bottom = objects[picture, number].unbind(-1)
    column = ((left + right) / 2 / STRIDE).long().clamp_max(cells - 1)
    row = ((top + bottom) / 2 / STRIDE).long().clamp_max(cells - 1)
    x, y = (column + 0.5) * STRIDE, (row + 0.5) * STRIDE
    here[picture, row, column] = 1
    kinds[picture, row, column] = kind.long()
    sides[picture, row, column] = torch.stack([x - left, y - top, right - x, bottom - y], -1) / STRIDE
    return here, kinds, sides


def loss_of(model: nn.Module, batch: list[Tensor]) -> Tensor:
    images, objects = batch
    said = model(images).float()
    here, kinds, sides = targets(objects, said.shape[1])
    present = binary_cross_entropy_with_logits(said[..., 0], here, pos_weight=torch.tensor(8.0, device=said.device))
    at = here > 0
    which = cross_entropy(said[..., 1 : 1 + CLASSES][at], kinds[at])
    return present + 0.5 * which + smooth_l1_loss(said[..., 1 + CLASSES :][at], sides[at])


def detections(said: Tensor, keep: int = 20) -> Tensor:
    """The likeliest boxes of each picture as (likelihood, class, left, top, right, bottom), each object once."""
    count, cells = said.shape[:2]
    likely = said[..., 0].sigmoid()
    # Among neighbouring cells only the likeliest counts.
    best = nn.functional.max_pool2d(likely[:, None], 3, 1, 1)[:, 0]
    likely = torch.where(likely == best, likely, torch.zeros_like(likely)).flatten(1)
    score, index = likely.topk(min(keep, likely.shape[1]))
    cell = said.flatten(1, 2).gather(1, index[..., None].expand(-1, -1, said.shape[-1]))
    x, y = (index % cells + 0.5) * STRIDE, (index // cells + 0.5) * STRIDE
    left, top, right, bottom = (cell[..., 1 + CLASSES :] * STRIDE).unbind(-1)
    kind = cell[..., 1 : 1 + CLASSES].argmax(-1)
    return torch.stack([score, kind, x - left, y - top, x + right, y + bottom], -1).view(count, -1, 6)


def overlap(first: Tensor, second: Tensor) -> Tensor:
    """Intersection over union, of all first boxes with all second ones."""
    low = torch.maximum(first[:, None, :2], second[None, :, :2])
    high = torch.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = (high - low).clamp_min(0).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).clamp_min(0).prod(-1) for boxes in (first, second)]
    return shared / (areas[0][:, None] + areas[1][None] - shared).clamp_min(1e-6)


def average_precision(claims: list[tuple[float, bool]], objects: int) -> float:
    """The area under the precision-recall curve; precision is the best at this recall or a larger one."""
    hits, area, precisions = 0, 0.0, []
    for rank, (_, right) in enumerate(sorted(claims, reverse=True), 1):
        hits += right
        precisions.append((hits / rank, right))
    best = 0.0
    for precision, right in reversed(precisions):
        best = max(best, precision)
        area += best * right
    return area / max(objects, 1)


def mean_average_precision(model: nn.Module, world: World, held_back: list[Tensor]) -> dict[str, float]:
    """mAP at an overlap of one half, over all ranks' parts of the validation data."""
    claims: list[list[tuple[float, bool]]] = [[] for _ in range(CLASSES)]
    counts = torch.zeros(CLASSES)
    with torch.no_grad():
        for images, objects in shares(held_back, world, 64):
            for found, true in zip(detections(model(images).float()).cpu(), objects.cpu(), strict=True):
                for kind in range(CLASSES):
                    wanted = true[true[:, 0] == kind][:, 1:]
                    counts[kind] += len(wanted)
                    claims[kind] += matched(found[found[:, 1] == kind], wanted)
    counts = world.sum(counts)
    gathered = world.gather(claims)
    scores = [
        average_precision([claim for part in gathered for claim in part[kind]], int(counts[kind]))
        for kind in range(CLASSES)
    ]
    return {"map50": sum(scores) / CLASSES}


def matched(found: Tensor, wanted: Tensor) -> list[tuple[float, bool]]:
    """Each detection and whether it is right; an object counts once, for the likeliest detection."""
    claims, taken = [], set()
    shared = overlap(found[:, 2:], wanted) if len(wanted) else torch.zeros(len(found), 1)
    for number in found[:, 0].argsort(descending=True).tolist():
        free = [(float(value), index) for index, value in enumerate(shared[number]) if index not in taken]
        value, index = max(free, default=(0.0, -1))
        right = value >= 0.5 and bool(len(wanted))
        taken |= {index} if right else set()
        claims.append((float(found[number, 0]), right))
    return claims


def scenes(count: int, size: int, seed: int) -> list[Tensor]:
    images, masks = pictures(count, size, seed)
    return [images, boxes_of(masks)]


def main() -> None:
    arguments = parser(__doc__ or "", epochs=10, lr=2e-3, batch_size=16)
    arguments.add_argument("--images", type=int, default=3072, help="to train on")
    arguments.add_argument("--image-size", type=int, default=64)
    arguments.add_argument("--width", type=int, default=24, help="channels of the first layer")
    args = arguments.parse_args()
    world = start(args)
    held_back = scenes(256, args.image_size, args.seed + 1)
    train(
        args,
        world,
        Detector(args.width),
        TensorDataset(*scenes(args.images, args.image_size, args.seed)),
        loss_of,
        lambda model, world: mean_average_precision(model, world, held_back),
    )


if __name__ == "__main__":
    main()
