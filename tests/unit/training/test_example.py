"""The parts of the ResNet-50 example: batches, views, counting, shards."""

import io
import json
import tarfile
import threading

import data
import options
import pixels
import pytest
import sources
import step
import torch
import validate
from model import Normalization, ResNet50
from tests.unit.training.images import jpeg, write_shards
from torch._inductor import list_options
from torch.nn.functional import interpolate

from muster.training import join


def test_it_is_resnet_50():
    model = ResNet50(1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032
    assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 1000)


def test_the_normalization_from_sums_is_the_same_function_with_the_same_gradient():
    torch.manual_seed(0)
    images = (3 * torch.randn(6, 5, 7, 9) + 2).requires_grad_()
    ours, theirs = Normalization(5), torch.nn.BatchNorm2d(5)
    torch.nn.init.uniform_(ours.weight)
    theirs.load_state_dict(ours.state_dict())
    found, expected = ours.from_sums(images), theirs(images)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    towards = torch.randn_like(found)
    gradients = [
        torch.autograd.grad(out, (images, norm.weight, norm.bias), towards)
        for out, norm in ((found, ours), (expected, theirs))
    ]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


@pytest.mark.parametrize("size", [32, 96, 224])
def test_the_first_convolution_folded_for_a_gpu_is_the_same_function(size):
    convolution, images = ResNet50(10, 8).stem[0], torch.randn(2, 3, size, size)
    torch.testing.assert_close(convolution.folded(images), convolution(images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [(32, 32), (112, 56)])
def test_the_pooling_written_out_for_a_gpu_is_the_same_function_with_the_same_gradient(size):
    pooling, images = ResNet50(10, 8).stem[3], torch.randn(2, 8, *size)
    # Many equal values, too: the first of them has the gradient.
    images = torch.relu(images.round(decimals=1)).requires_grad_()
    weight = torch.randn(2, 8, size[0] // 2, size[1] // 2)
    found, expected = pooling.written_out(images), pooling(images)
    assert torch.equal(found, expected)
    gradients = [torch.autograd.grad((pooled * weight).sum(), images)[0] for pooled in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    ("per_rank", "whole", "ranks", "expected"),
    [(32, None, 4, (32, 128)), (None, 128, 4, (32, 128)), (32, 128, 4, (32, 128))],
)
def test_a_batch_is_given_per_rank_or_as_a_whole(per_rank, whole, ranks, expected):
    assert options.batch_sizes(per_rank, whole, ranks, 1) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((None, 10, 4, 1), "--global-batch 10 cannot be divided among 4 ranks"),
        ((8, 16, 4, 1), "--global-batch 16 is not --batch-size 8 on 4 ranks"),
        ((8, None, 4, 3), "8 images per rank cannot be divided into --accumulate 3 equal parts"),
    ],
)
def test_a_batch_that_cannot_be_divided_is_refused(given, message):
    with pytest.raises(SystemExit, match=message):
        options.batch_sizes(*given)


@pytest.mark.parametrize("length", [1, 7, 16, 37])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_counts_with_padding_equal_those_of_one_process(length, world):
    source = torch.Generator().manual_seed(length)
    scores = torch.randn(length, 12, generator=source)
    labels = torch.randint(12, (length,), generator=source)
    total = torch.zeros(4, dtype=torch.float64)
    for rank in range(world):
        batches = data.validation_keys(length, 4, rank, world)
        assert len(batches) == -(-length // (4 * world)) and all(len(batch) == 4 for batch in batches)
        for batch in batches:
            indices = torch.tensor([index for _, index in batch])
            own = torch.where(indices < 0, -1, labels[indices.clamp(min=0)])
            total += validate.count(scores[indices.clamp(min=0)], own)
    expected = validate.count(scores, labels)
    assert total[:3].tolist() == expected[:3].tolist() and expected[0] == length
    assert total[3] == pytest.approx(expected[3].item(), rel=1e-5)


def test_top_5_contains_top_1():
    scores = torch.eye(10)
    assert validate.count(scores, torch.arange(10))[:3].tolist() == [10, 10, 10]
    assert validate.count(scores, (torch.arange(10) + 1) % 10)[1].item() == 0


def test_a_made_up_image_depends_on_its_index_alone():
    made = sources.Synthetic(1000, 10, 16, torch.device("cpu"))
    images, labels = made.batch(torch.tensor([3, 505, 3]))
    assert torch.equal(images[0], images[2]) and not torch.equal(images[0], images[1])
    assert labels.tolist() == [3, 5, 3]


def test_a_view_depends_on_its_seed_alone_and_lies_inside():
    views = [pixels.random_view(500, 375, f"0/{epoch}/7") for epoch in range(50)]
    assert views == [pixels.random_view(500, 375, f"0/{epoch}/7") for epoch in range(50)]
    assert len(set(views)) > 40 and {mirror for _, mirror in views} == {True, False}
    assert all(
        left >= 0 and top >= 0 and left + wide <= 500 and top + high <= 375 for (left, top, wide, high), _ in views
    )


def test_a_view_of_a_very_long_image_is_its_middle():
    (_, _, wide, high), _ = pixels.random_view(5000, 10, "x")
    assert (wide, high) == (10, 10)


def made_image(high, wide):
    coarse = 255 * torch.rand(1, 3, -(-high // 8), -(-wide // 8))
    return interpolate(coarse, (high, wide), mode="bilinear")[0].to(torch.uint8)


def test_views_of_all_sizes_are_taken_together_as_they_would_be_alone(monkeypatch):
    # Whole images, and parts of them, up to edges and above what is taken together.
    sizes = [(375, 500), (120, 90), (64, 64), (1, 7), (900, 700), (2000, 31), (375, 500), (375, 500), (900, 700)]
    boxes = [(0, 0, wide, high) for high, wide in sizes[:6]] + [(17, 30, 81, 45), (300, 175, 200, 200), (90, 5, 60, 99)]
    images = [made_image(*size) for size in sizes]
    mirror = [number % 2 == 1 for number in range(len(images))]
    monkeypatch.setattr(pixels, "AT_ONCE", 4)
    views = torch.tensor([(*box, mirrored) for box, mirrored in zip(boxes, mirror, strict=True)])
    found = pixels.take_views(images, views, 64)
    assert found.dtype == torch.uint8 and found.is_contiguous(memory_format=torch.channels_last)
    for image, (left, top, wide, high), mirrored, view in zip(images, boxes, mirror, found, strict=True):
        part = image[None, :, top : top + high, left : left + wide].float()
        alone = interpolate(part, (64, 64), mode="bilinear", antialias=True)[0]
        expected = alone.flip(2) if mirrored else alone
        assert (view.float() - expected).abs().max() <= 1


def test_batches_made_ahead_in_two_threads_come_in_order_and_end_when_unwanted():
    closed = []

    def numbers(end):
        try:
            yield from range(end)
        finally:
            closed.append(True)

    def both(end):
        yield from (10 * number for number in data._ahead(numbers(end), 1))

    before = threading.active_count()
    assert list(data._ahead(both(20), 2)) == list(range(0, 200, 10))
    unfinished = data._ahead(both(10**9), 2)
    assert next(unfinished) == 0
    unfinished.close()
    assert len(closed) == 2 and threading.active_count() == before


def test_an_error_in_the_first_of_two_threads_is_raised_where_batches_are_asked_for():
    def broken():
        yield 1
        raise ValueError("no image")

    def both():
        yield from data._ahead(broken(), 1)

    batches = data._ahead(both(), 1)
    assert next(batches) == 1
    with pytest.raises(ValueError, match="no image"):
        next(batches)


def test_the_tuning_of_the_compiler_is_known_to_it():
    assert step.tuned(1).keys() <= set(list_options())


def test_gradients_that_are_added_up_are_not_kept_where_the_next_part_overwrites_them():
    assert step.tuned(1)["triton.cudagraphs"]
    assert not step.tuned(2)["triton.cudagraphs"]
    with pytest.raises(SystemExit, match=r"--compile reduce-overhead does not go with --accumulate 2.* off, tuned"):
        options.arguments(join({}), ["--accumulate", "2", "--compile", "reduce-overhead"])


def test_images_that_are_held_back_are_others_of_the_same_classes():
    trained, held_back = (
        sources.Synthetic(100, 10, 16, torch.device("cpu"), held_back=some).batch(torch.arange(100))[0].float()
        for some in (False, True)
    )
    assert not any(torch.equal(one, other) for one, other in zip(trained, held_back, strict=True))
    means = [images.reshape(10, 10, -1).mean(0) for images in (trained, held_back)]
    assert torch.cdist(*means).argmin(1).tolist() == list(range(10))


def test_padding_is_no_image():
    made = sources.Synthetic(1000, 10, 16, torch.device("cpu"))
    assert made.batch(torch.tensor([3, sources.PADDING]))[1].tolist() == [3, sources.PADDING]


def test_the_central_view_is_a_square_in_the_middle():
    assert pixels.central_view(500, 400) == (75, 25, 350, 350)


def test_shards_are_read_by_index_and_keep_their_own(tmp_path):
    write_shards(tmp_path)
    shards = sources.open_source(tmp_path)
    assert (len(shards), shards.classes) == (30, 30)
    assert [shards.read(index)[1] for index in range(30)] == list(range(30))
    assert shards.read(7)[0] == jpeg(7 * 8)
    assert len(json.loads((tmp_path / "s-0.tar.index").read_text())) == 6
    assert sources.open_source(tmp_path).read(29)[1] == 29


def test_an_epoch_of_shards_has_every_image_once_and_few_shards_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "SHARDS_MIXED", 2)
    write_shards(tmp_path)
    shards = sources.open_source(tmp_path)
    order = shards.order(0, seed=1).tolist()
    assert sorted(order) == list(range(30)) and order != shards.order(1, seed=1).tolist()
    assert all(len({index // 6 for index in order[first : first + 12]}) <= 2 for first in range(0, 30, 12))


def test_an_image_without_a_label_is_named(tmp_path):
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        about = tarfile.TarInfo("0007.jpg")
        tar.addfile(about, io.BytesIO())
    with pytest.raises(SystemExit, match=r"s.tar has 0007.jpg without 0007.cls"):
        sources.open_source(tmp_path)


def test_a_folder_of_images_numbers_its_classes_by_name(tmp_path):
    for name in ("zebra", "ant"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.JPEG").write_bytes(jpeg(10))
        (tmp_path / name / "notes.txt").write_text("no image")
    found = sources.open_source(tmp_path)
    assert (len(found), found.classes) == (2, 2)
    assert [found.read(index)[1] for index in range(2)] == [0, 1]


def test_a_folder_with_nothing_in_it_is_refused(tmp_path):
    with pytest.raises(SystemExit, match=r"holds neither .tar shards nor folders of .jpg"):
        sources.open_source(tmp_path)
    with pytest.raises(SystemExit, match="there is no folder"):
        sources.open_source(tmp_path / "missing")


def test_the_cpu_decodes_the_view_that_was_chosen():
    image = pixels.decode_on_cpu(jpeg(200), (0, 0, 40, 30), False, 8)
    assert image.shape == (3, 8, 8) and abs(int(image[0, 4, 4]) - 200) < 4


def test_a_padding_key_is_an_image_that_does_not_count(tmp_path):
    write_shards(tmp_path, shards=1)
    _, label = data.Jpegs(sources.open_source(tmp_path), 8, 0, training=False, on_gpu=False)[0, sources.PADDING]
    assert label == -1


def test_bytes_are_normalized_and_numbers_left_alone():
    grey = torch.full((1, 3, 2, 2), 128, dtype=torch.uint8)
    assert pixels.normalize(grey)[0, 0, 0, 0].item() == pytest.approx((128 / 255 - 0.485) / 0.229)
    numbers = torch.ones(1)
    assert pixels.normalize(numbers) is numbers
