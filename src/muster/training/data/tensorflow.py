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
    """The rest of the stream's epoch as a data set of batches, each as `signature` describes it.

    TensorFlow reads ahead, so to save a position take the batches through `stream.counted(dataset)`. Each new iteration
    reads the stream's epoch at that time.
    """
    try:
        import tensorflow as tf
    except ModuleNotFoundError as error:
        raise MissingExtra("tf_dataset needs TensorFlow", "Install it: pip install tensorflow") from error

    def batches() -> Iterator[Any]:
        for batch in stream.plan().batches(0, decode):
            yield collate(batch)

    return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(ahead)
