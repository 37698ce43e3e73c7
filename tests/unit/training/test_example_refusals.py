"""What the ResNet-50 example refuses, and says of data that is damaged; how many steps are left after a resume."""

import dataclasses

import data
import options
import pytest
import sources
import torch
import train
from tests.unit.training.images import jpeg, write_shards

from muster.training import ResumableSampler, join


@pytest.mark.parametrize("option", ["--batch-size", "--global-batch", "--accumulate", "--steps", "--log-every"])
@pytest.mark.parametrize("value", ["0", "-2"])
def test_a_number_that_cannot_be_is_refused(option, value, capsys):
    with pytest.raises(SystemExit):
        options.arguments(join({}), [option, value])
    assert f"argument {option}: {value} is not at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--backend", "horovod"], "--backend horovod needs an installed Horovod, and ranks that mpirun started"),
        (["--decode", "gpu"], "--decode gpu: torchvision cannot decode JPEGs on this cpu"),
        (["--epochs", "0"], "--epochs 0: it must be above zero"),
    ],
)
def test_what_cannot_be_done_here_is_refused(given, message):
    alone = dataclasses.replace(join({}), device=torch.device("cpu"))
    with pytest.raises(SystemExit, match=message):
        options.arguments(alone, given)


def test_the_noise_scale_of_one_rank_is_refused():
    with pytest.raises(SystemExit, match=r"--noise-scale .* needs several"):
        options.arguments(join({}), ["--noise-scale"])


@pytest.mark.parametrize(("ranks", "left"), [(1, 115 - 45), (2, 80 - 45), (4, 62 - 45)])
def test_the_steps_that_are_left_are_those_of_the_ranks_that_take_them(ranks, left):
    # Four epochs of 160 images; two ranks with batches of 4 have done 45 steps, so 280 images are left.
    two = ResumableSampler(160, 4, world_size=2)
    two.set_epoch(2)
    state = two.state(5)
    sampler = ResumableSampler(160, 4, world_size=ranks)
    sampler.restore(state)
    assert train.steps_left(sampler, 4.0) == left


@pytest.mark.parametrize("epochs", [0.3, 1, 2.15, 3])
def test_a_resume_with_the_same_ranks_has_the_same_number_of_steps(epochs):
    total = train.steps_left(ResumableSampler(163, 4, world_size=2), epochs)
    for done in range(total):
        sampler = ResumableSampler(163, 4, world_size=2)
        sampler.set_epoch(done // 20)
        sampler.restore(sampler.state(done % 20))
        assert done + train.steps_left(sampler, epochs) == total


def test_train_and_val_must_have_the_same_classes(tmp_path):
    for place in ("train/ant", "train/bee", "val/bee"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "one.jpg").write_bytes(jpeg(10))
    with pytest.raises(SystemExit, match=r"the classes of train and val in .* differ: only one of them has ant"):
        sources.open_both(tmp_path)
    (tmp_path / "val" / "ant").mkdir()
    with pytest.raises(SystemExit, match=r"val/ant holds no .jpg or .jpeg file"):
        sources.open_both(tmp_path)
    (tmp_path / "val" / "ant" / "one.jpg").write_bytes(jpeg(10))
    assert [source.classes for source in sources.open_both(tmp_path)] == [2, 2]


def test_an_image_that_cannot_be_decoded_is_named(tmp_path):
    write_shards(tmp_path / "shards", shards=2, per_shard=3)
    (tmp_path / "folder" / "ant").mkdir(parents=True)
    (tmp_path / "folder" / "ant" / "one.jpg").write_bytes(b"no image")
    (tmp_path / "folder" / "ant" / "two.jpg").write_bytes(jpeg(10)[:300])
    folder = data.Jpegs(sources.open_source(tmp_path / "folder"), 8, 0, training=True, on_gpu=False)
    for index, name in enumerate(("one", "two")):
        with pytest.raises(ValueError, match=f"folder/ant/{name}.jpg cannot be decoded"):
            folder[0, index]
    shards = sources.open_source(tmp_path / "shards")
    with (tmp_path / "shards" / "s-1.tar").open("r+b") as shard:
        shard.truncate(512)
    with pytest.raises(ValueError, match=r"image 1 of .*s-1.tar cannot be decoded"):
        data.Jpegs(shards, 8, 0, training=True, on_gpu=False)[0, 4]


def test_a_shard_that_is_damaged_is_named(tmp_path):
    write_shards(tmp_path, shards=2)
    with (tmp_path / "s-1.tar").open("r+b") as shard:
        shard.truncate(700)
    with pytest.raises(SystemExit, match=r"s-1.tar is damaged, or not a shard: unexpected end of data"):
        sources.open_source(tmp_path)
