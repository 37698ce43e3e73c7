"""How a batch of JPEGs travels from a worker to the GPU's decoder."""

import data
import torch


def test_jpegs_are_packed_into_one_tensor_and_come_apart_again():
    jpegs = [torch.arange(size, dtype=torch.uint8) for size in (3, 5, 1)]
    views = [((0, 0, 4, 4), False), ((1, 1, 2, 2), True), ((0, 0, 1, 1), False)]
    packed, sizes, kept, labels = data._packed(list(zip(jpegs, views, (7, 8, -1), strict=True)))
    assert [part.tolist() for part in packed.split(sizes)] == [jpeg.tolist() for jpeg in jpegs]
    assert kept == views and labels.tolist() == [7, 8, -1]
