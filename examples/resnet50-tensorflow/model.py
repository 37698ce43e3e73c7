"""ResNet-50 (v1.5: the stride is in the 3x3 convolution), with TensorFlow's operations only, channels last."""

import math
from collections.abc import Iterator

import tensorflow as tf

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Seen = list[tuple[tf.Variable, tf.Tensor]]
"""Running statistics, each with the value of this batch."""


class ResNet50:
    """The published network is 64 channels wide at its beginning; a narrower one is for experiments."""

    def __init__(self, classes: int = 1000, width: int = 64, seed: int = 0, dtype: tf.DType = tf.float32) -> None:
        self.weights: dict[str, tf.Variable] = {}
        self.statistics: dict[str, tf.Variable] = {}
        self._seed, self._dtype = seed, dtype
        self._convolution("stem", 7, 3, width)
        self._blocks = list(self._make_blocks(width))
        channels = 32 * width
        bound = 1 / math.sqrt(channels)
        self._head = self._weight("head/kernel", self._uniform((channels, classes), bound))
        self._bias = self._weight("head/bias", self._uniform((classes,), bound))

    def __call__(self, images: tf.Tensor, seen: Seen | None = None) -> tf.Tensor:
        """Scores for images given as bytes. In training, `seen` collects the statistics of this batch."""
        x = (tf.cast(images, tf.float32) / 255 - MEAN) / DEVIATION
        x = tf.nn.relu(self._normalized_convolution("stem", tf.cast(x, self._dtype), 2, seen))
        # Padding with zeros has no effect here: no value is below zero.
        x = tf.nn.max_pool2d(tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), 3, 2, "VALID")
        for name, stride in self._blocks:
            x = self._block(name, x, stride, seen)
        return tf.cast(tf.reduce_mean(x, (1, 2)), tf.float32) @ self._head + self._bias

    def _make_blocks(self, width: int) -> Iterator[tuple[str, int]]:
        channels = width
        for stage, (factor, depth, stride) in enumerate(((1, 3, 1), (2, 4, 2), (4, 6, 2), (8, 3, 2))):
            for index in range(depth):
                name, inner = f"stage{stage}/block{index}", factor * width
                self._convolution(f"{name}/reduce", 1, channels, inner)
                self._convolution(f"{name}/work", 3, inner, inner)
                # A block starts as the identity, which makes the first steps with a large batch stable.
                self._convolution(f"{name}/expand", 1, inner, 4 * inner, scale=0.0)
                if index == 0:
                    self._convolution(f"{name}/shortcut", 1, channels, 4 * inner)
                channels = 4 * inner
                yield name, stride if index == 0 else 1

    def _block(self, name: str, x: tf.Tensor, stride: int, seen: Seen | None) -> tf.Tensor:
        """1x1 reduces, 3x3 works, 1x1 expands by four; the input is added."""
        y = tf.nn.relu(self._normalized_convolution(f"{name}/reduce", x, 1, seen))
        y = tf.nn.relu(self._normalized_convolution(f"{name}/work", y, stride, seen))
        y = self._normalized_convolution(f"{name}/expand", y, 1, seen)
        if f"{name}/shortcut/kernel" in self.weights:
            x = self._normalized_convolution(f"{name}/shortcut", x, stride, seen)
        return tf.nn.relu(x + y)

    def _normalized_convolution(self, name: str, x: tf.Tensor, stride: int, seen: Seen | None) -> tf.Tensor:
        kernel = tf.cast(self.weights[f"{name}/kernel"], self._dtype)
        if margin := kernel.shape[0] // 2:
            # Pad all sides equally, as PyTorch does; "SAME" would not with a stride of 2.
            x = tf.pad(x, [[0, 0], [margin, margin], [margin, margin], [0, 0]])
        x = tf.nn.conv2d(x, kernel, stride, "VALID")
        scale, shift = self.weights[f"{name}/scale"], self.weights[f"{name}/shift"]
        mean, variance = self.statistics[f"{name}/mean"], self.statistics[f"{name}/variance"]
        if seen is None:
            return tf.compat.v1.nn.fused_batch_norm(x, scale, shift, mean, variance, 1e-5, is_training=False)[0]
        y, batch_mean, batch_variance = tf.compat.v1.nn.fused_batch_norm(x, scale, shift, epsilon=1e-5)
        seen += [(mean, batch_mean), (variance, batch_variance)]
        return y

    def _convolution(self, name: str, size: int, channels_in: int, channels_out: int, scale: float = 1.0) -> None:
        """A kernel without bias, and the normalisation after it."""
        deviation = math.sqrt(2 / (size * size * channels_out))
        shape = (size, size, channels_in, channels_out)
        self._weight(f"{name}/kernel", tf.random.stateless_normal(shape, self._next_seed(), stddev=deviation))
        self._weight(f"{name}/scale", tf.fill((channels_out,), scale))
        self._weight(f"{name}/shift", tf.zeros((channels_out,)))
        for kind, value in (("mean", tf.zeros((channels_out,))), ("variance", tf.ones((channels_out,)))):
            self.statistics[f"{name}/{kind}"] = tf.Variable(value, trainable=False)

    def _weight(self, name: str, value: tf.Tensor) -> tf.Variable:
        self.weights[name] = tf.Variable(value)
        return self.weights[name]

    def _uniform(self, shape: tuple[int, ...], bound: float) -> tf.Tensor:
        return tf.random.stateless_uniform(shape, self._next_seed(), -bound, bound)

    def _next_seed(self) -> tuple[int, int]:
        """The next seed, the same on every rank, so that all begin with the same weights."""
        return self._seed, len(self.weights)
