"""Fully sharded data parallel (FSDP2): each rank has a part of the batch and of every weight, gradient and state.

A block is gathered just before it is used and let go after it; its gradients are summed and divided again at once.
"""

import argparse
import time
import warnings

import torch
from language import loss_of, texts
from reference import Result, finish, model_of, optimizer_of, parser, whole
from timeline import Timeline, doing
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from muster.training import World, join


def split(model: nn.Module, mesh: DeviceMesh) -> None:
    """Shard every layer of the chain over the ranks of a mesh; each is gathered by itself."""
    # Nothing here changes a layer's output in place.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    for layer in model.children():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def part_of(text: Tensor, rank: int, ranks: int) -> Tensor:
    """A rank's texts of a step."""
    if len(text) % ranks:
        raise SystemExit(f"a batch of {len(text)} cannot be divided into {ranks} equal parts")
    return text.chunk(ranks)[rank]


def train(args: argparse.Namespace, world: World, timeline: Timeline) -> Result:
    model = model_of(args).to(world.device)
    split(model, init_device_mesh(world.device.type, (world.size,)))
    optimizer = optimizer_of(args, model)
    kept = sum(parameter.to_local().numel() for parameter in model.parameters())
    losses = []
    for step in range(args.steps):
        with timeline.recording(step == args.steps - 2, collectives=True):
            text = part_of(texts(args.batch_size, seed=step + 1), world.rank, world.size).to(world.device)
            with doing("forward"):
                loss = loss_of(model(text[:, :-1]), text[:, 1:])
            optimizer.zero_grad()
            with doing("backward"):
                loss.backward()
            with doing("update"):
                optimizer.step()
        losses.append(float(world.mean(loss)))
    weights = whole(model)
    share = kept / sum(value.numel() for value in weights.values())
    return Result(losses, weights, {"share_of_the_weights": share})


def main() -> None:
    args = parser(__doc__ or "").parse_args()
    world = join()
    torch.set_num_threads(1)
    timeline, began = Timeline(world, args.timeline), time.monotonic()
    finish(args, world, train(args, world, timeline), timeline, began)


if __name__ == "__main__":
    main()
