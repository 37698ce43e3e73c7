"""The digits of scikit-learn as packed JPEGs, and a start that the three ResNet-50 examples share.

    python digits.py FOLDER COUNT SIDE WIDTH

writes FOLDER/data (train and val, each a tar shard) and FOLDER/start-tensorflow and FOLDER/start-keras: checkpoints of
step 0 with the weights that the PyTorch example begins with for `--seed 0`. Runs where PyTorch and scikit-learn are.
"""

import io
import sys
import tarfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits

from muster.training import ArrayCheckpointer
from muster.training.data import Shuffle, Stream

EXAMPLE = Path(__file__).parents[3] / "examples" / "resnet50"
sys.path.insert(0, str(EXAMPLE))
from model import ResNet50  # noqa: E402

CLASSES = 10
HELD_BACK = 260


def main(folder: Path, count: int, side: int, width: int) -> None:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))
    parts = {"train": order[HELD_BACK : HELD_BACK + count], "val": order[:HELD_BACK]}
    for part, chosen in parts.items():
        write_shard(folder / "data" / part / f"{part}-00000.tar", digits, chosen, side)
    (folder / "data" / "classes.txt").write_text("".join(f"{digit}\n" for digit in range(CLASSES)))
    weights = initial_weights(width)
    state = Stream(folder / "data" / "train", 1, shuffle=Shuffle(0)).state()
    progress = {"step": 0, "top1": None, "validated": None, "stream": state}
    for name, rename in (("tensorflow", for_tensorflow), ("keras", for_keras)):
        checkpointer = ArrayCheckpointer(folder / f"start-{name}")
        checkpointer.save(0, {rename(key): value for key, value in weights.items()}, progress)
        checkpointer.close()


def write_shard(path: Path, digits, chosen, side: int) -> None:
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w") as shard:
        for number, index in enumerate(chosen):
            pixels = (digits.images[index] * (255 / 16)).astype(np.uint8)
            picture = Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR).convert("RGB")
            jpeg = io.BytesIO()
            picture.save(jpeg, "JPEG", quality=95)
            for kind, content in (("jpg", jpeg.getvalue()), ("cls", str(digits.target[index]).encode())):
                member = tarfile.TarInfo(f"{number:06d}.{kind}")
                member.size = len(content)
                shard.addfile(member, io.BytesIO(content))


def initial_weights(width: int) -> dict[str, np.ndarray]:
    """As the PyTorch example has them at its start, by the names of the TensorFlow one, channels last."""
    torch.manual_seed(0)
    model = ResNet50(CLASSES, width)
    found = {}

    def take(name: str, convolution, normalization) -> None:
        found[f"{name}/kernel"] = convolution.weight.detach().numpy().transpose(2, 3, 1, 0)
        found[f"{name}/scale"] = normalization.weight.detach().numpy()
        found[f"{name}/shift"] = normalization.bias.detach().numpy()

    take("stem", model.stem[0], model.stem[1])
    names = [(stage, index) for stage, depth in enumerate((3, 4, 6, 3)) for index in range(depth)]
    for (stage, index), block in zip(names, model.blocks, strict=True):
        for part, place in (("reduce", 0), ("work", 3), ("expand", 6)):
            take(f"stage{stage}/block{index}/{part}", block.residual[place], block.residual[place + 1])
        if index == 0:
            take(f"stage{stage}/block{index}/shortcut", *block.shortcut)
    found["head/kernel"], found["head/bias"] = model.head.weight.detach().numpy().T, model.head.bias.detach().numpy()
    return found


def for_tensorflow(name: str) -> str:
    return f"weights/{name}"


def for_keras(name: str) -> str:
    layer, _, kind = name.rpartition("/")
    layer = layer.replace("/", "_")
    if kind in ("scale", "shift"):
        return f"model/{layer}_normalization/{'gamma' if kind == 'scale' else 'beta'}"
    return f"model/{layer}/{kind}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(word) for word in sys.argv[2:]))
