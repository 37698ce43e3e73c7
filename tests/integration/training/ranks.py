"""Started on two ranks by torchrun: looks at what only several ranks can show, and writes it down as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(Path(__file__).parents[3] / "examples" / "resnet50"))

from data import Loader, validation_keys
from model import ResNet50
from options import arguments
from sources import Synthetic
from step import Step
from validate import validate

from muster.training import Checkpointer, CheckpointFailed, NoiseScale, join

SMALL = ["--width", "4", "--image-size", "32", "--synthetic", "64", "--momentum", "0", "--warmup-epochs", "0"]


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    world = join()
    found = {
        "accumulation": [moved(world, accumulate) for accumulate in (1, 2)],
        "validation": validation(world),
        "noise": noise(world),
        "sharded": sharded(folder / "ddp"),
        "fsdp": fully_sharded(folder / "fsdp"),
        "shared": shared(world),
        "refused": refused(world, folder / "held"),
        "apart": apart(world, folder / "apart"),
    }
    left_alone(world, folder, found)


def moved(world, accumulate: int) -> list[float]:
    """How a step of 8 images on each rank changes a model without batch statistics, whole or in parts."""
    args = arguments(world, [*SMALL, "--batch-size", "8", "--accumulate", str(accumulate), "--weight-decay", "0"])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    step = Step(args, world, model)
    source = torch.Generator().manual_seed(5)
    images, labels = torch.randn(16, 3, 32, 32, generator=source), torch.randint(10, (16,), generator=source)
    own = slice(8 * world.rank, 8 * world.rank + 8)
    step(images[own], labels[own], 0.5)
    return [value for parameter in model.parameters() for value in parameter.flatten().tolist()][:40]


def validation(world) -> dict[str, float]:
    args = arguments(world, [*SMALL, "--batch-size", "4"])
    torch.manual_seed(0)
    model = ResNet50(10, 4)
    data = Synthetic(27, 10, 32, world.device)
    keys = validation_keys(len(data), 4, world.rank, world.size)
    return validate(model, Loader(data, args, world, training=False).over(keys), world, amp=False)


def noise(world) -> list[float]:
    """The estimate, and the gradient that the hook left behind."""
    torch.manual_seed(0)
    network = DistributedDataParallel(nn.Linear(20, 3))
    scale = NoiseScale(4, 8, decay=0.5)
    scale.attach(network)
    source = torch.Generator().manual_seed(7 + world.rank)
    for _ in range(3):
        network.zero_grad()
        network(torch.randn(4, 20, generator=source) + 1).square().mean().backward()
        scale.step()
    reduced = sum(parameter.grad.square().sum().item() for parameter in network.parameters())
    return [scale.value or -1.0, reduced]


def sharded(folder: Path) -> dict[str, object]:
    """Both ranks write a part of what both have; another model of each rank gets it back."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 64))
    network = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    network(torch.randn(8, 64) + dist.get_rank()).square().mean().backward()
    optimizer.step()
    keeper = Checkpointer(network, optimizer, folder)
    keeper.save(1, {"rank": dist.get_rank()})
    keeper.close()
    expected = [value.clone() for value in model.parameters()]
    for value in model.parameters():
        value.data.zero_()
    progress = Checkpointer(network, optimizer, folder).load()
    same = all(torch.equal(a, b) for a, b in zip(expected, model.parameters(), strict=True))
    means = [torch.zeros(64), torch.zeros(64)]
    dist.all_gather(means, model[1].running_mean)
    names = sorted(path.name for path in (folder / "step_1").iterdir())
    return {"names": names, "same": same, "rank": progress["rank"], "one_statistic": torch.equal(*means)}


def fully_sharded(folder: Path) -> bool:
    """FSDP2: each rank holds and writes its half."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    keeper = Checkpointer(model, optimizer, folder)
    keeper.save(1)
    keeper.close()
    expected = [value.full_tensor().clone() for value in model.parameters()]
    averages = [optimizer.state[value]["exp_avg"].full_tensor().clone() for value in model.parameters()]
    again = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    fully_shard(again, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    fresh = torch.optim.AdamW(again.parameters(), lr=0.1)
    Checkpointer(again, fresh, folder).load()
    weights = [value.full_tensor() for value in again.parameters()]
    loaded = [fresh.state[value]["exp_avg"].full_tensor() for value in again.parameters()]
    pairs = zip([*expected, *averages], [*weights, *loaded], strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def shared(world) -> list[object]:
    own = torch.full((3,), float(world.rank + 1))
    world.share([own])
    return [own.tolist(), world.sum(torch.tensor([world.rank + 1.0])).tolist(), world.any(world.rank == 1)]


def refused(world, folder: Path) -> list[str]:
    """What each rank is told of a folder that another process has."""
    script = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); input('held')"
    said = ""
    if world.rank == 0:
        folder.mkdir()
        holder = subprocess.Popen(
            [sys.executable, "-c", script, str(folder / ".lock")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        holder.stdout.read(4)
    dist.barrier()
    try:
        Checkpointer(nn.Linear(2, 2), None, folder)
    except CheckpointFailed as error:
        said = str(error)
    if world.rank == 0:
        holder.communicate("done")
    return world.gather(said)


def apart(world, folder: Path) -> list[str]:
    """What each rank is told when they save after different numbers of steps."""
    keeper = Checkpointer(nn.Linear(2, 2), None, folder)
    keeper.save(5 + world.rank)
    try:
        keeper.close()
    except CheckpointFailed as error:
        return world.gather(str(error))
    return world.gather("")


def left_alone(world, folder: Path, found: dict[str, object]) -> None:
    """A rank dies; the other one's next checkpoint fails and it hears of it. Then there is nobody to take leave of."""
    keeper = Checkpointer(nn.Linear(2, 2), None, folder / "alone")
    keeper.save(1)
    keeper.wait()
    if world.rank == 0:
        keeper.save(2)
        try:
            keeper.close()
        except CheckpointFailed as error:
            found["alone"] = str(error)
        (folder / "found.json").write_text(json.dumps(found))
    os._exit(0)


if __name__ == "__main__":
    main()
