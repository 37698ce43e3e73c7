"""A bare PyTorch loop of the example's model: nothing but the steps, on one batch that stays on the device."""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model-folder", type=Path, required=True)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--image-size", type=int, default=224)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--warmup-steps", type=int, default=20)
parser.add_argument("--compile", default="default")


def main() -> None:
    args = parser.parse_args()
    sys.path.insert(0, str(args.model_folder))
    from model import ResNet50

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.type == "cuda"
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    model = ResNet50(10, args.width).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-5, fused=on_gpu)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    images = torch.randn(args.batch_size, 3, args.image_size, args.image_size, device=device, dtype=dtype)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (args.batch_size,), device=device)

    def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(model(images).float(), labels, label_smoothing=0.1)

    if on_gpu and args.compile != "off":
        loss_of = torch.compile(loss_of, mode=args.compile)

    def finish() -> float:
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    began = finish()
    for step in range(args.steps):
        if step == args.warmup_steps:
            began = finish()
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = loss_of(images, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    seconds = finish() - began
    figures = {"images_per_sec": (args.steps - args.warmup_steps) * args.batch_size / seconds}
    Path("outputs").mkdir(exist_ok=True)
    Path("outputs/throughput.json").write_text(json.dumps(figures))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
