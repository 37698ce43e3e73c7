"""ResNet-50 (v1.5: the stride is in the 3x3 convolution), for Keras 3 and for tf_keras."""

from typing import Any

MEAN, VARIANCE = (123.675, 116.28, 103.53), (3409.98, 3262.69, 3291.89)


def resnet50(keras: Any, classes: int, width: int, size: int, weight_decay: float) -> Any:
    """The published network is 64 channels wide at its beginning; a narrower one is for experiments."""
    layers, penalty = keras.layers, keras.regularizers.L2(weight_decay / 2)

    def convolution(x: Any, name: str, channels: int, kernel: int, stride: int = 1, scale: str = "ones") -> Any:
        """A convolution with the normalisation after it."""
        if kernel > 1:
            # Pad all sides equally, as PyTorch does; "same" would not with a stride of 2.
            x = layers.ZeroPadding2D(kernel // 2)(x)
        x = layers.Conv2D(
            channels,
            kernel,
            stride,
            use_bias=False,
            kernel_initializer=keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal"),
            kernel_regularizer=penalty,
            name=name,
        )(x)
        named = f"{name}_normalization"
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, gamma_initializer=scale, name=named)(x)

    def block(x: Any, name: str, inner: int, stride: int, widens: bool) -> Any:
        """1x1 reduces, 3x3 works, 1x1 expands by four; the input is added."""
        y = layers.ReLU()(convolution(x, f"{name}_reduce", inner, 1))
        y = layers.ReLU()(convolution(y, f"{name}_work", inner, 3, stride))
        # A block starts as the identity, which makes the first steps with a large batch stable.
        y = convolution(y, f"{name}_expand", 4 * inner, 1, scale="zeros")
        shortcut = convolution(x, f"{name}_shortcut", 4 * inner, 1, stride) if widens else x
        return layers.ReLU()(layers.Add()([shortcut, y]))

    images = keras.Input((size, size, 3), dtype="uint8")
    x = layers.Normalization(mean=MEAN, variance=VARIANCE)(layers.Rescaling(1.0)(images))
    x = layers.ReLU()(convolution(x, "stem", width, 7, 2))
    # Padding with zeros has no effect here: no value is below zero.
    x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(x))
    for stage, (factor, depth, stride) in enumerate(((1, 3, 1), (2, 4, 2), (4, 6, 2), (8, 3, 2))):
        for index in range(depth):
            x = block(x, f"stage{stage}_block{index}", factor * width, stride if index == 0 else 1, index == 0)
    x = layers.GlobalAveragePooling2D()(x)
    bound = (32 * width) ** -0.5
    scores = layers.Dense(
        classes,
        dtype="float32",
        kernel_initializer=keras.initializers.RandomUniform(-bound, bound),
        bias_initializer=keras.initializers.RandomUniform(-bound, bound),
        kernel_regularizer=penalty,
        name="head",
    )(x)
    return keras.Model(images, scores)
