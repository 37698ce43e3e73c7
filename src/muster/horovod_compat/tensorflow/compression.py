"""Gradients in fewer bits on their way."""

from __future__ import annotations

from typing import Any, Tuple

import tensorflow as tf


class NoneCompressor:
    """As they are."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class FP16Compressor:
    """Floating-point values in 16 bits."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        return (tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tf.cast(tensor, ctx)


class Compression:
    """What there is to choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
