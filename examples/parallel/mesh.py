"""Two ways at once, on a mesh of ranks: --ways data,tensor or pipeline,tensor or pipeline,data.

Rows of the mesh have --inner ranks, which divide the work in the second way; the rows divide it in the first. The inner
way talks most, so it belongs inside a node; the outer one crosses nodes.
"""

import argparse
import logging
import time

import pipeline
import sharded
import tensor
import torch
from language import loss_of, texts
from reference import Result, finish, model_of, optimizer_of, parser, whole
from timeline import Timeline, doing
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import Schedule1F1B

from muster.training import World, join

WAYS = ("data,tensor", "pipeline,tensor", "pipeline,data")


def train(args: argparse.Namespace, world: World, timeline: Timeline) -> Result:
    if world.size % args.inner:
        raise SystemExit(f"{world.size} ranks cannot be laid out in rows of {args.inner}")
    outer, inner = args.ways.split(",")
    shape = (world.size // args.inner, args.inner)
    # Weights that are split twice are gathered in two steps, only once, at the end.
    logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
    mesh = init_device_mesh(world.device.type, shape, mesh_dim_names=(outer, inner))
    if outer == "pipeline":
        return in_stages(args, world, timeline, mesh, inner)
    return data_and_tensor(args, world, timeline, mesh)


def data_and_tensor(args: argparse.Namespace, world: World, timeline: Timeline, mesh: DeviceMesh) -> Result:
    """The ranks of a row split the matrices; those of a column split the batch and their part of the weights."""
    model = model_of(args).to(world.device)
    tensor.split(model, mesh["tensor"])
    sharded.split(model, mesh["data"])
    optimizer = optimizer_of(args, model)
    row, rows = mesh["data"].get_local_rank(), mesh["data"].size()
    losses = []
    for step in range(args.steps):
        with timeline.recording(step == args.steps - 2, collectives=True):
            text = sharded.part_of(texts(args.batch_size, seed=step + 1), row, rows).to(world.device)
            with doing("forward"):
                loss = loss_of(model(text[:, :-1]), text[:, 1:])
            optimizer.zero_grad()
            with doing("backward"):
                loss.backward()
            with doing("update"):
                optimizer.step()
        losses.append(float(world.mean(loss)))
    return Result(losses, whole(model))


def in_stages(args: argparse.Namespace, world: World, timeline: Timeline, mesh: DeviceMesh, inner: str) -> Result:
    """Each row is a stage, whose ranks divide its matrices or its texts."""
    index, stages = mesh["pipeline"].get_local_rank(), mesh["pipeline"].size()
    part = pipeline.stage_of(model_of(args), index, stages).to(world.device)
    own, ranks = 0, 1
    if inner == "tensor":
        tensor.split(part, mesh["tensor"])
    else:
        sharded.split(part, mesh["data"])
        own, ranks = mesh["data"].get_local_rank(), mesh["data"].size()
    stage = pipeline.Stage(part, index, stages, world.device, group=mesh["pipeline"].get_group())
    schedule = Schedule1F1B(stage, args.microbatches, loss_fn=loss_of)
    optimizer = optimizer_of(args, part)
    losses: list[float] = []
    for step in range(args.steps):
        with timeline.recording(step == args.steps - 2):
            text = sharded.part_of(texts(args.batch_size, seed=step + 1), own, ranks).to(world.device)
            losses += pipeline.one_step(schedule, text, index == 0, index == stages - 1)
            optimizer.step()
            optimizer.zero_grad()
    everything = world.gather((losses, whole(part)))
    of_steps = zip(*(found for found, _ in everything if found), strict=True)
    return Result(
        [sum(values) / len(values) for values in of_steps],
        {name: value for _, found in everything for name, value in found.items()},
    )


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--ways", choices=WAYS, default="data,tensor")
    arguments.add_argument("--inner", type=int, default=2, help="ranks in a row of the mesh")
    arguments.add_argument("--microbatches", type=int, default=4)
    args = arguments.parse_args()
    world = join()
    torch.set_num_threads(1)
    timeline, began = Timeline(world, args.timeline), time.monotonic()
    finish(args, world, train(args, world, timeline), timeline, began)


if __name__ == "__main__":
    main()
