"""Gradients in fewer bits while they are exchanged."""

from __future__ import annotations

from typing import Any, Tuple

import tensorflow as tf


class NoneCompressor:
    """Leaves values as they are."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class FP16Compressor:
    """Sends floating-point values in 16 bits."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        return (tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tf.cast(tensor, ctx)


class Compression:
    """The available compressors."""

    none = NoneCompressor
    fp16 = FP16Compressor
