"""The trained network for inference: normalisation is folded into the weights, and on a GPU a pass is one launch."""

from pathlib import Path

import torch
from model import Bottleneck, ResNet50, fold
from pixels import DEVIATION, MEAN
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.fusion import fuse_conv_bn_eval

COUNTS = (1, 2, 4, 8, 16, 32, 64)
"""How many images a pass on a GPU takes; other numbers are padded to the next."""


def load(weights: Path, device: torch.device) -> ResNet50:
    """Load a trained network, with the width and number of classes of its weights."""
    saved = torch.load(weights, map_location=device)
    network = ResNet50(len(saved["head.bias"]), len(saved["stem.0.weight"])).to(device).eval()
    network.load_state_dict(saved)
    return network


class Likeliest:
    """The five likeliest classes of images, with their probabilities."""

    def __init__(self, network: ResNet50, size: int, device: torch.device, counts: tuple[int, ...] = COUNTS) -> None:
        self._passes: dict[int, Pass] = {}
        self._network: nn.Module = network
        self._mean, self._deviation = (
            255 * torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (MEAN, DEVIATION)
        )
        self._counts, self.most = counts, counts[-1]
        if device.type == "cuda":
            self._network = Fused(network).to(torch.bfloat16, memory_format=torch.channels_last)
            self._passes = {count: Pass(self._top, count, size, device) for count in counts}

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities and numbers of the classes of at most `most` images, on the CPU."""
        if not self._passes:
            return self._top(images)
        count = next(count for count in self._counts if count >= len(images))
        return self._passes[count](images)

    def _top(self, images: Tensor) -> tuple[Tensor, Tensor]:
        pixels = (images.float() - self._mean) / self._deviation
        if images.is_cuda:
            pixels = pixels.to(torch.bfloat16, memory_format=torch.channels_last)
        chances = self._network(pixels).float().softmax(dim=1)
        values, numbers = chances.topk(min(5, chances.shape[1]))
        return values, numbers


class Pass:
    """A recorded pass over so many images, which is replayed in one launch."""

    def __init__(self, top: object, count: int, size: int, device: torch.device) -> None:
        assert callable(top)
        self._images = torch.zeros((count, 3, size, size), dtype=torch.uint8, device=device).contiguous(
            memory_format=torch.channels_last
        )
        beside = torch.cuda.Stream(device)
        with torch.inference_mode(), torch.cuda.stream(beside):
            for _ in range(3):
                top(self._images)
        beside.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(self._graph):
            self._found = top(self._images)

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        self._images[: len(images)].copy_(images, non_blocking=True)
        self._graph.replay()
        values, numbers = (found[: len(images)].cpu() for found in self._found)
        return values, numbers


class Fused(nn.Module):
    """The network without its normalisations; a convolution, the addition and the ReLU are one kernel."""

    def __init__(self, network: ResNet50) -> None:
        super().__init__()
        first = fuse_conv_bn_eval(network.stem[0], network.stem[1])
        self.register_buffer("first_weight", fold(pad(first.weight, (1, 0, 1, 0, 0, 1))))
        self.register_buffer("first_bias", first.bias)
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        self.blocks = nn.Sequential(
            *(FusedBlock(block) for block in network.modules() if isinstance(block, Bottleneck))
        )
        self.head = network.head

    def forward(self, images: Tensor) -> Tensor:
        squares = fold(pad(images, (4, 2, 4, 2, 0, 1)))
        x = torch.cudnn_convolution_relu(squares, self.first_weight, self.first_bias, (1, 1), (0, 0), (1, 1), 1)
        return self.head(self.blocks(self.pool(x)).mean((2, 3)))


class FusedBlock(nn.Module):
    """A block of three convolutions with its residual connection."""

    def __init__(self, block: Bottleneck) -> None:
        super().__init__()
        parts = list(block.residual)
        self.convolutions = nn.ModuleList(
            fuse_conv_bn_eval(parts[place], parts[place + 1])
            for place in range(len(parts))
            if is_convolution(parts[place])
        )
        self.shortcut: nn.Module = nn.Identity()
        if isinstance(block.shortcut, nn.Sequential):
            self.shortcut = fuse_conv_bn_eval(block.shortcut[0], block.shortcut[1])

    def forward(self, x: Tensor) -> Tensor:
        first, second, third = self.convolutions
        found = x
        for part in (first, second):
            found = torch.cudnn_convolution_relu(
                found, part.weight, part.bias, part.stride, part.padding, part.dilation, part.groups
            )
        return torch.cudnn_convolution_add_relu(
            found, third.weight, self.shortcut(x), 1.0, third.bias, third.stride, third.padding, third.dilation, 1
        )


def is_convolution(part: nn.Module) -> bool:
    return isinstance(part, nn.Conv2d)
