"""Tensor parallel: every rank has some columns or rows of each matrix, and all work on the same batch.

A block needs the other ranks twice forward (after attention, after the two layers) and twice backward. With --sequence
the normalisation between is divided too, along the text, so that no rank keeps the activations of all tokens there.
"""

import argparse
import time

import torch
from language import Block, loss_of, texts
from reference import Result, finish, model_of, optimizer_of, parser, whole
from timeline import Timeline, doing
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from muster.training import World, join


def split(model: nn.Module, mesh: DeviceMesh, sequence: bool = False) -> None:
    """Divide every block of the model over the ranks of a mesh."""
    for name, layer in model.named_children():
        if isinstance(layer, Block):
            parallelize_module(layer, mesh, along_the_text() if sequence else plan())
            check_heads(name, layer, mesh)
    if sequence:
        first, *_, last = model.children()
        parallelize_module(first, mesh, PrepareModuleOutput(output_layouts=Replicate(), **KEPT_DIVIDED))
        gathered = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate(), use_local_output=True)
        parallelize_module(last, mesh, gathered)


def plan() -> dict[str, ParallelStyle]:
    """Columns, then rows: activations in between stay split, and one sum makes the result whole again."""
    columns = ("query", "key", "value", "up")
    return {name: ColwiseParallel() for name in columns} | {"out": RowwiseParallel(), "down": RowwiseParallel()}


KEPT_DIVIDED = {"desired_output_layouts": Shard(1), "use_local_output": False}


def along_the_text() -> dict[str, ParallelStyle]:
    """The sum after each pair of layers leaves each rank its part of the text, until the next pair needs all of it."""
    return {
        **{name: SequenceParallel() for name in ("norm_1", "norm_2")},
        **{name: ColwiseParallel(input_layouts=Shard(1)) for name in ("query", "key", "value", "up")},
        **{name: RowwiseParallel(output_layouts=Shard(1), use_local_output=False) for name in ("out", "down")},
    }


def check_heads(name: str, block: nn.Module, mesh: DeviceMesh) -> None:
    heads = block.query.out_features // block.head
    if heads % mesh.size():
        raise SystemExit(f"block {name} has {heads} heads, which {mesh.size()} ranks cannot divide")


def train(args: argparse.Namespace, world: World, timeline: Timeline) -> Result:
    model = model_of(args).to(world.device)
    split(model, init_device_mesh(world.device.type, (world.size,)), args.sequence)
    optimizer = optimizer_of(args, model)
    losses = []
    for step in range(args.steps):
        with timeline.recording(step == args.steps - 2, collectives=True):
            text = texts(args.batch_size, seed=step + 1).to(world.device)
            with doing("forward"):
                loss = loss_of(model(text[:, :-1]), text[:, 1:])
            optimizer.zero_grad()
            with doing("backward"):
                loss.backward()
            with doing("update"):
                optimizer.step()
        losses.append(loss.item())
    return Result(losses, whole(model))


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--sequence", action="store_true", help="divide the normalisation too, along the text")
    args = arguments.parse_args()
    world = join()
    torch.set_num_threads(1)
    timeline, began = Timeline(world, args.timeline), time.monotonic()
    finish(args, world, train(args, world, timeline), timeline, began)


if __name__ == "__main__":
    main()
