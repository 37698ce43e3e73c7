"""Horovod's callbacks for `tf.keras`."""

import tensorflow as tf

from ..callbacks import made

(
    BroadcastGlobalVariablesCallback,
    MetricAverageCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
) = made(tf.keras)
