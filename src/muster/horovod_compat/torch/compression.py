"""Gradients in fewer bits on their way."""

from __future__ import annotations

from typing import Any, Tuple

from torch import Tensor


class NoneCompressor:
    """As they are."""

    @staticmethod
    def compress(tensor: Tensor) -> Tuple[Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        return tensor


class FP16Compressor:
    """Floating-point values in 16 bits."""

    @staticmethod
    def compress(tensor: Tensor) -> Tuple[Tensor, Any]:
        return (tensor.half() if tensor.is_floating_point() else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        return tensor.to(ctx)


class Compression:
    """What there is to choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
