"""ResNet-50 (v1.5: the stride is in the 3x3 convolution)."""

import torch
from torch import nn
from torch.nn.functional import pad


class Normalization(nn.BatchNorm2d):
    """Batch normalisation; where it is compiled for a GPU, mean and variance come from one pass of plain sums.

    PyTorch's own updates mean and variance every few values, which costs more than reading the values.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and torch.compiler.is_compiling() and x.is_cuda:
            return self.from_sums(x)
        return super().forward(x)

    def from_sums(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        mean, square = wide.mean((0, 2, 3)), (wide * wide).mean((0, 2, 3))
        variance = (square - mean * mean).clamp_min(0.0)
        with torch.no_grad():
            count = x.numel() / x.shape[1]
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / max(count - 1, 1)), self.momentum)
            self.num_batches_tracked.add_(1)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shift = self.bias - mean * scale
        return (wide * scale[:, None, None] + shift[:, None, None]).to(x.dtype)


class Bottleneck(nn.Module):
    """1x1 reduces, 3x3 works, 1x1 expands by four; the input is added."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        channels_out = 4 * width
        self.residual = nn.Sequential(
            nn.Conv2d(channels_in, width, 1, bias=False),
            Normalization(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False),
            Normalization(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, channels_out, 1, bias=False),
            Normalization(channels_out),
        )
        # A block starts as the identity, which makes the first steps with a large batch stable.
        nn.init.zeros_(self.residual[-1].weight)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False), Normalization(channels_out)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.residual(x) + self.shortcut(x))


class FirstConvolution(nn.Conv2d):
    """7x7 with a stride of 2 over three colours; on a GPU computed as 4x4 over sixteen channels, which is faster there.

    Each 2x2 pixels become one with four times the channels, and the kernel, padded to 8x8, likewise; a fourth colour,
    always zero, makes their number one that the GPU likes. It is the same function of the same weights.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.folded(x) if x.is_cuda and has_even_sides(x) else super().forward(x)

    def folded(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(fold(pad(x, (4, 2, 4, 2, 0, 1))), fold(pad(self.weight, (1, 0, 1, 0, 0, 1))))


class Pooling(nn.MaxPool2d):
    """The largest of 3x3, with a stride of 2; written out where it is compiled for a GPU.

    For PyTorch's own, the compiler makes a backward that takes three times as long as this one.
    """

    def __init__(self) -> None:
        super().__init__(3, 2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling() and x.is_cuda and has_even_sides(x):
            return self.written_out(x)
        return super().forward(x)

    def written_out(self, x: torch.Tensor) -> torch.Tensor:
        """With even and odd rows and columns separated, every input of all windows is one of nine tensors."""
        n, c, height, width = x.shape
        squares = x.permute(0, 2, 3, 1).reshape(n, height // 2, 2, width // 2, 2, c)
        (middle, right), (below, corner) = (rows.unbind(3) for rows in squares.unbind(2))
        inputs = [
            *(from_above(from_left(corner)), from_above(below), from_above(corner)),
            *(from_left(right), middle, right),
            *(from_left(corner), below, corner),
        ]
        largest, which = inputs[0].detach(), torch.zeros_like(middle, dtype=torch.int8)
        for number, other in enumerate(inputs[1:], 1):
            larger = other.detach() > largest
            largest = torch.where(larger, other.detach(), largest)
            which = torch.where(larger, number, which).to(torch.int8)
        chosen = sum(torch.where(which == number, some, 0.0) for number, some in enumerate(inputs))
        return chosen.permute(0, 3, 1, 2)


def from_above(x: torch.Tensor) -> torch.Tensor:
    """The images shifted by one row; channels are last."""
    return pad(x, (0, 0, 0, 0, 1, -1), value=-torch.inf)


def from_left(x: torch.Tensor) -> torch.Tensor:
    return pad(x, (0, 0, 1, -1), value=-torch.inf)


def has_even_sides(x: torch.Tensor) -> bool:
    return x.shape[-1] % 2 == x.shape[-2] % 2 == 0


def fold(x: torch.Tensor) -> torch.Tensor:
    """Pixels of 2x2 squares to channels."""
    n, c, height, width = x.shape
    squares = x.view(n, c, height // 2, 2, width // 2, 2).permute(0, 1, 3, 5, 2, 4)
    return squares.reshape(n, 4 * c, height // 2, width // 2).contiguous(memory_format=torch.channels_last)


class ResNet50(nn.Module):
    """The published network is 64 channels wide at its beginning; a narrower one is for experiments."""

    def __init__(self, num_classes: int = 1000, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            FirstConvolution(3, width, 7, 2, padding=3, bias=False),
            Normalization(width),
            nn.ReLU(inplace=True),
            Pooling(),
        )
        blocks = []
        channels = width
        for factor, depth, stride in ((1, 3, 1), (2, 4, 2), (4, 6, 2), (8, 3, 2)):
            for index in range(depth):
                blocks.append(Bottleneck(channels, factor * width, stride if index == 0 else 1))
                channels = 4 * factor * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))
