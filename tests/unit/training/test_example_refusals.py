"""What the ResNet-50 example refuses, and says of data that is damaged; how many steps are left after a resume."""

import dataclasses
import os

import data
import options
import pixels
import pytest
import sources
import torch
import train
from PIL import Image
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
        (["--backend", "horovod"], "--backend horovod needs ranks that mpirun started"),
        (["--checkpoint-every", "5"], "--checkpoint-every needs --checkpoints, where they go"),
        (["--decode", "gpu"], "--decode gpu: torchvision cannot decode JPEGs on this cpu"),
        (["--epochs", "0"], "--epochs 0: it must be above zero"),
    ],
)
def test_what_cannot_be_done_here_is_refused(given, message):
    alone = dataclasses.replace(join({}), device=torch.device("cpu"))
    with pytest.raises(SystemExit, match=message):
        options.arguments(alone, given)


@pytest.mark.parametrize("option", ["--lr", "--momentum", "--weight-decay", "--label-smoothing", "--epochs"])
@pytest.mark.parametrize("value", ["-1", "nan", "inf"])
def test_a_rate_that_cannot_be_is_refused(option, value, capsys):
    with pytest.raises(SystemExit):
        options.arguments(join({}), [option, value])
    assert f"argument {option}: {value} is not" in capsys.readouterr().err


def test_horovod_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(options.importlib.util, "find_spec", lambda name: None)
    under_mpi = dataclasses.replace(join({}), device=torch.device("cpu"), launcher="mpi")
    with pytest.raises(SystemExit, match="Horovod is not installed here"):
        options.arguments(under_mpi, ["--backend", "horovod"])


def test_shards_beside_folders_are_refused(tmp_path):
    write_shards(tmp_path / "train", shards=1)
    (tmp_path / "val" / "ant").mkdir(parents=True)
    (tmp_path / "val" / "ant" / "one.jpg").write_bytes(jpeg(10))
    with pytest.raises(SystemExit, match=r"one of train and val in .* is packed into shards"):
        sources.open_both(tmp_path)


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
    with pytest.raises(SystemExit, match=r"the classes of train and val in .* differ: only train has ant"):
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
        with pytest.raises(ValueError, match=f"folder/ant/{name}.jpg cannot be decoded: (it is no image|Truncated)"):
            folder[0, index]
    shards = sources.open_source(tmp_path / "shards")
    with (tmp_path / "shards" / "s-1.tar").open("r+b") as shard:
        shard.truncate(512)
    with pytest.raises(ValueError, match=r"image 1 of .*s-1.tar cannot be decoded"):
        data.Jpegs(shards, 8, 0, training=True, on_gpu=False)[0, 4]


def test_what_no_gpu_decodes_is_handed_to_it_as_a_plain_jpeg(tmp_path):
    folder = tmp_path / "ant"
    folder.mkdir()
    for name, mode, kind in (("a", "RGB", "JPEG"), ("b", "L", "JPEG"), ("c", "CMYK", "JPEG"), ("d", "RGBA", "PNG")):
        Image.new(mode, (40, 30)).save(folder / f"{name}.jpg", kind)
    source = sources.open_source(tmp_path)
    handed = [data.Jpegs(source, 8, 0, training=True, on_gpu=True)[0, index][0].numpy().tobytes() for index in range(4)]
    assert [jpeg == source.read(index)[0] for index, jpeg in enumerate(handed)] == [True, True, False, False]
    assert all(pixels.header(jpeg) == (40, 30, True) for jpeg in handed)


def test_the_index_of_another_shard_is_not_taken(tmp_path):
    write_shards(tmp_path, shards=1)
    assert sources.open_source(tmp_path).read(3)[1] == 3
    kept = (tmp_path / "s-0.tar.index").read_text()
    write_shards(tmp_path, shards=1, per_shard=9, size=(400, 300))
    os.utime(tmp_path / "s-0.tar", (1e9, 1e9))
    assert len(sources.open_source(tmp_path)) == 9
    # One that says nothing, or points beyond the end.
    for wrong in ("[]", "{", "[[1]]", kept.replace("]]", "], [99999999, 5, 0]]")):
        (tmp_path / "s-0.tar.index").write_text(wrong)
        assert len(sources.open_source(tmp_path)) == 9


def test_shards_without_an_image_are_refused(tmp_path):
    write_shards(tmp_path, shards=2, per_shard=0)
    with pytest.raises(SystemExit, match=r"the shards in .* hold no image"):
        sources.open_source(tmp_path)


def test_too_few_images_for_a_step_are_refused():
    alone = join({})
    args = options.arguments(alone, ["--synthetic", "10", "--batch-size", "16", "--image-size", "32"])
    with pytest.raises(SystemExit, match=r"10 images do not fill one step of 1 x 16: .* smaller --batch-size"):
        train.datasets(args, alone)


def test_a_shard_that_is_damaged_is_named(tmp_path):
    write_shards(tmp_path, shards=2)
    with (tmp_path / "s-1.tar").open("r+b") as shard:
        shard.truncate(700)
    with pytest.raises(SystemExit, match=r"s-1.tar is damaged, or not a shard: unexpected end of data"):
        sources.open_source(tmp_path)


@pytest.mark.parametrize(
    ("given", "rate"), [([], 0.4), (["--optimizer", "lars"], 5.0), (["--optimizer", "lars", "--lr", "1"], 2.0)]
)
def test_each_optimizer_has_a_rate_of_its_own_and_its_own_way_to_scale_it(given, rate):
    args = options.arguments(join({}), ["--global-batch", "1024", "--warmup-epochs", "0", "--decay", "none", *given])
    assert train.rate(args, 1.0, 90.0) == rate
