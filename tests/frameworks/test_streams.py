"""Streams of training data as `tf.data`, with the real TensorFlow."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.frameworks.environments import ENVIRONMENTS
from tests.frameworks.training import TIMEOUT_S

SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
from muster.training.data import Stream, tf_dataset

def decode(sample):
    return np.frombuffer(sample["bin"], np.uint8).astype(np.int32)

stream = Stream(sys.argv[1], batch_size=4)
dataset = tf_dataset(stream, decode, tf.TensorSpec((None, 2), tf.int32))
first = []
for batch in stream.counted(dataset):
    first += [tuple(row) for row in batch.numpy().tolist()]
    if len(first) == 12:
        break
rest = Stream(sys.argv[1], batch_size=5)
rest.restore(stream.state())
more = tf_dataset(rest, decode, tf.TensorSpec((None, 2), tf.int32))
second = [tuple(row) for batch in rest.counted(more) for row in batch.numpy().tolist()]
assert sorted(first + second) == [(c, i) for c in range(3) for i in range(10)], (first, second)
print("every sample once")
"""


@pytest.mark.timeout(TIMEOUT_S)
def test_tensorflow_reads_a_stream_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    environment = ENVIRONMENTS["tensorflow"]
    if not environment.is_made:
        pytest.skip("the environment tensorflow is not made (make frameworks)")
    for label in range(3):
        folder = tmp_path / "data" / str(label)
        folder.mkdir(parents=True)
        for number in range(10):
            (folder / f"{number}.bin").write_bytes(bytes([label, number]))
    (tmp_path / "read.py").write_text(SCRIPT)
    command = [str(environment.python), str(tmp_path / "read.py"), str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "every sample once" in done.stdout
