"""A stream as a `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from muster.errors import MissingExtra
from muster.training.data.batches import stacked
from muster.training.data.layouts.base import Sample
from muster.training.data.stream import Stream


def tf_dataset(
    stream: Stream,
    decode: Callable[[Sample], Any],
    signature: Any,
    *,
    collate: Callable[[Sequence[Any]], Any] = stacked,
    ahead: int = 2,
) -> Any:
    """What is left of the stream's epoch as a data set of batches, each as `signature` describes it.

    TensorFlow reads ahead, so for a position that can be kept take the batches through `stream.counted(dataset)`. Each
    time that it is iterated over anew it is the stream's epoch then.
    """
    try:
        import tensorflow as tf
    except ModuleNotFoundError as error:
        raise MissingExtra("tf_dataset needs TensorFlow", "Install it: pip install tensorflow") from error

    def batches() -> Iterator[Any]:
        for batch in stream.plan().batches(0, decode):
            yield collate(batch)

    return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(ahead)
