"""Small JPEGs, and shards of them."""

import io
import tarfile

from PIL import Image


def jpeg(shade: int, size=(40, 30)) -> bytes:
    target = io.BytesIO()
    Image.new("RGB", size, (shade, 0, 255 - shade)).save(target, "JPEG")
    return target.getvalue()


def write_shards(folder, shards=5, per_shard=6, size=(40, 30)):
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        with tarfile.open(folder / f"s-{shard}.tar", "w") as tar:
            for number in range(per_shard):
                label = shard * per_shard + number
                for name, content in (
                    (f"{number:04d}.jpg", jpeg(label * 8, size)),
                    (f"{number:04d}.cls", str(label).encode()),
                ):
                    about = tarfile.TarInfo(name)
                    about.size = len(content)
                    tar.addfile(about, io.BytesIO(content))
