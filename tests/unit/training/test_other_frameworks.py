"""The ResNet-50 examples in TensorFlow and Keras, as far as they need neither: arguments, and the images of Keras."""

import importlib.util
import io
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[3] / "examples"
TENSORFLOW, KERAS = EXAMPLES / "resnet50-tensorflow", EXAMPLES / "resnet50-keras"


def module(path):
    spec = importlib.util.spec_from_file_location(f"{path.parent.name.replace('-', '_')}_{path.stem}", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


options, data = module(KERAS / "options.py"), module(KERAS / "data.py")


def completed(*given, ranks=2, on_gpu=False):
    return options.completed(options.parser("").parse_args(given), ranks, on_gpu)


@pytest.mark.parametrize("name", ["options.py", "report.py"])
def test_the_two_examples_have_the_same_arguments_and_say_the_same(name):
    assert (TENSORFLOW / name).read_text() == (KERAS / name).read_text()


def test_arguments_have_the_names_and_defaults_of_the_pytorch_example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "resnet50"))
    theirs = vars(module(EXAMPLES / "resnet50" / "options.py").parser().parse_args([]))
    ours = vars(options.parser("").parse_args([]))
    assert ours.keys() < theirs.keys()
    assert {name: value for name, value in ours.items() if value != theirs[name]} == {
        "classes": None,
        "lr": 0.1,  # left open there, since it depends on the optimizer
    }


def test_what_depends_on_ranks_and_device_is_filled_in():
    args = completed()
    assert (args.batch_size, args.global_batch, args.image_size, args.log_every, args.amp) == (16, 32, 96, 1, "off")
    args = completed("--global-batch", "96", ranks=3, on_gpu=True)
    assert (args.batch_size, args.image_size, args.log_every, args.amp, args.epochs) == (32, 224, 50, "bf16", 90.0)
    assert completed("--steps", "3").epochs is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--global-batch", "33"), "--global-batch 33 cannot be divided among 2 ranks; 32 can"),
        (("--global-batch", "64", "--batch-size", "16"), "--global-batch 64 is not --batch-size 16 on 2 ranks"),
        (("--checkpoint-every", "5"), "--checkpoint-every needs --checkpoints"),
        (("--resume-from", "nowhere", "--checkpoints", "kept"), "--resume-from: there is no folder nowhere"),
        (("--epochs", "0"), "--epochs 0"),
    ],
)
def test_what_does_not_fit_is_refused(given, said, monkeypatch):
    monkeypatch.delenv("MUSTER_CHECKPOINT_DIR", raising=False)
    with pytest.raises(SystemExit, match=said):
        completed(*given)


def jpeg(width, height):
    target = io.BytesIO()
    ramp = np.linspace(0, 255, width).astype(np.uint8)[None, :, None].repeat(height, 0).repeat(3, 2)
    Image.fromarray(ramp).save(target, "JPEG", quality=95)
    return target.getvalue()


def test_an_image_is_cut_by_its_seed_alone():
    sample = {"__key__": "a", "__seed__": 7, "jpg": jpeg(80, 60), "cls": b"3"}
    first, label = data.decoded(sample, size=32, augment=True)
    assert label == 3 and first.shape == (32, 32, 3) and first.dtype == np.uint8
    assert np.array_equal(first, data.decoded(sample, size=32, augment=True)[0])
    assert not np.array_equal(first, data.decoded({**sample, "__seed__": 8}, size=32, augment=True)[0])


def test_without_augmentation_it_is_the_middle_square():
    sample = {"__key__": "a", "__seed__": 7, "jpg": jpeg(80, 64), "cls": b"0"}
    with Image.open(io.BytesIO(sample["jpg"])) as image:
        middle = np.asarray(image.crop((12, 4, 68, 60)))
    assert np.array_equal(data.decoded(sample, size=56, augment=False)[0], middle)


def test_what_is_no_image_with_a_label_is_named():
    with pytest.raises(ValueError, match=r"b has no \.jpg beside a \.cls"):
        data.decoded({"__key__": "b", "__seed__": 0, "png": b""}, size=8, augment=False)


def test_data_that_does_not_say_its_classes_is_refused(tmp_path):
    for part in ("train", "val"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "a.jpg").write_bytes(jpeg(8, 8))
    with pytest.raises(SystemExit, match="give --classes N"):
        data.sources(Namespace(data=tmp_path, classes=None))
    with pytest.raises(SystemExit, match="there is no folder"):
        data.sources(Namespace(data=tmp_path / "train", classes=None))


def test_synthetic_images_can_be_any_number_and_those_held_back_differ():
    args = Namespace(
        data=None, classes=4, synthetic=1_000_000, synthetic_val=12, image_size=16, batch_size=4, seed=0, augment=True
    )
    training, held_back, classes = data.sources(args)
    assert (len(training), len(held_back), classes) == (1_000_000, 12, 4)
    stream = data.stream_of(held_back, args, 0, 1, training=False)
    images, labels = next(data.batches(stream, args, classes, 3, training=False))
    assert images.shape == (4, 16, 16, 3) and np.array_equal(labels, np.eye(4))
    others, _ = next(
        data.batches(data.stream_of(training, args, 0, 1, training=False), args, classes, 1, training=False)
    )
    assert not np.array_equal(images, others)


def test_too_few_images_for_a_step_are_refused():
    args = Namespace(batch_size=16, seed=0)
    with pytest.raises(SystemExit, match="smaller --batch-size"):
        data.stream_of(data.synthetic(20, 2, 8, 1), args, 0, 2, training=True)
