"""Segments circles, squares and triangles with a small U-Net: for every pixel, which shape it belongs to."""

import torch
from loop import parser, shares, start, train
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from muster.training import World

CLASSES = ("background", "circle", "square", "triangle")


def pictures(count: int, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Synthetic pictures with two to four shapes on a noisy background, and the class of every pixel."""
    random = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    images = torch.rand(count, 3, 1, 1, generator=random) * 0.4 + 0.15 * torch.randn(
        count, 3, size, size, generator=random
    )
    masks = torch.zeros(count, size, size, dtype=torch.long)
    for index in range(count):
        for _ in range(int(torch.randint(2, 5, (), generator=random))):
            kind = int(torch.randint(1, 4, (), generator=random))
            radius = int(torch.randint(size // 10, size // 5, (), generator=random))
            y, x = torch.randint(radius, size - radius, (2,), generator=random).tolist()
            dy, dx = rows - y, columns - x
            if kind == 1:
                inside = dy**2 + dx**2 <= radius**2
            elif kind == 2:
                inside = (dy.abs() <= radius * 0.85) & (dx.abs() <= radius * 0.85)
            else:
                inside = (dy <= radius) & (dy >= 2 * dx.abs() - radius)
            color = torch.rand(3, generator=random) * 0.6 + 0.4
            images[index, :, inside] = color[:, None] + 0.1 * torch.randn(3, int(inside.sum()), generator=random)
            masks[index][inside] = kind
    return images, masks


def two_convolutions(channels_in: int, channels_out: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for first in (channels_in, channels_out):
        layers += [nn.Conv2d(first, channels_out, 3, padding=1, bias=False), nn.BatchNorm2d(channels_out), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Down to an eighth of the size and up again; each level up also gets the features of its level down."""

    def __init__(self, width: int = 16, num_classes: int = len(CLASSES)) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(map(two_convolutions, [3, *widths[:-1]], widths))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(wide, narrow, 2, 2) for narrow, wide in zip(widths[-2::-1], widths[:0:-1], strict=True)
        )
        self.join = nn.ModuleList(two_convolutions(2 * narrow, narrow) for narrow in widths[-2::-1])
        self.head = nn.Conv2d(width, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        seen = []
        for level, convolutions in enumerate(self.down):
            x = convolutions(x if level == 0 else nn.functional.max_pool2d(x, 2))
            seen.append(x)
        for enlarge, convolutions, before in zip(self.up, self.join, seen[-2::-1], strict=True):
            x = convolutions(torch.cat([enlarge(x), before], 1))
        return self.head(x)


def mean_iou(model: nn.Module, world: World, held_back: list[Tensor]) -> dict[str, float]:
    """The mean over classes of intersection over union."""
    confusion = torch.zeros(len(CLASSES), len(CLASSES), dtype=torch.long)
    with torch.no_grad():
        for images, masks in shares(held_back, world, 64):
            found = model(images).argmax(1)
            pairs = torch.bincount((masks * len(CLASSES) + found).flatten(), minlength=len(CLASSES) ** 2)
            confusion += pairs.view(len(CLASSES), -1).cpu()
    confusion = world.sum(confusion)
    right = confusion.diag()
    overlap = right / (confusion.sum(0) + confusion.sum(1) - right).clamp_min(1)
    return {"miou": float(overlap.mean()), "pixel_accuracy": float(right.sum() / confusion.sum())}


def main() -> None:
    arguments = parser(__doc__ or "", epochs=4, lr=2e-3, batch_size=16)
    arguments.add_argument("--images", type=int, default=1024, help="to train on")
    arguments.add_argument("--image-size", type=int, default=64)
    arguments.add_argument("--width", type=int, default=16, help="channels of the first level")
    args = arguments.parse_args()
    world = start(args)
    held_back = list(pictures(256, args.image_size, args.seed + 1))
    train(
        args,
        world,
        UNet(args.width),
        TensorDataset(*pictures(args.images, args.image_size, args.seed)),
        lambda model, batch: cross_entropy(model(batch[0]).float(), batch[1]),
        lambda model, world: mean_iou(model, world, held_back),
    )


if __name__ == "__main__":
    main()
