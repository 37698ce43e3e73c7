"""Horovod's callbacks for the package `keras`."""

import keras

from ..tensorflow.callbacks import made

(
    BroadcastGlobalVariablesCallback,
    MetricAverageCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
) = made(keras)
