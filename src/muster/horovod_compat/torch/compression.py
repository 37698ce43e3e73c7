"""Gradients in fewer bits while they are exchanged."""

from __future__ import annotations

from typing import Any, Tuple

from torch import Tensor


class NoneCompressor:
    """Leaves values as they are."""

    @staticmethod
    def compress(tensor: Tensor) -> Tuple[Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        return tensor


class FP16Compressor:
    """Sends floating-point values in 16 bits."""

    @staticmethod
    def compress(tensor: Tensor) -> Tuple[Tensor, Any]:
        return (tensor.half() if tensor.is_floating_point() else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        return tensor.to(ctx)


class Compression:
    """The available compressors."""

    none = NoneCompressor
    fp16 = FP16Compressor
