"""Pipeline parallel: each rank has some layers, and passes on what comes out of them, one micro-batch after the other.

Schedules: gpipe (all forward, then all backward), 1f1b (each backward as early as possible, so that fewer activations
are kept), interleaved (two shorter stages on each rank, so that the pipeline fills and drains in half the time).
"""

import argparse
import time
from collections import OrderedDict
from typing import Any

import torch
from language import loss_of, texts
from reference import Result, finish, model_of, optimizer_of, parser
from timeline import Timeline, doing
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from muster.training import World, join

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}
PER_RANK = {"gpipe": 1, "1f1b": 1, "interleaved": 2}


def stage_of(model: nn.Sequential, index: int, stages: int) -> nn.Sequential:
    """An equal part of the blocks; the first also has the embedding, the last the head. Layers keep their names."""
    blocks = len(model) - 2
    if blocks % stages:
        raise SystemExit(f"{blocks} blocks cannot be divided into {stages} equal stages; --blocks is a multiple of it")
    begin, end = index * blocks // stages + 1, (index + 1) * blocks // stages + 1
    chosen = range(0 if index == 0 else begin, len(model) if index == stages - 1 else end)
    return nn.Sequential(OrderedDict((str(number), model[number]) for number in chosen))


class Stage(PipelineStage):
    """Records which micro-batch it works on, for the picture."""

    def forward_one_chunk(self, microbatch: int, *args: Any, **options: Any) -> Any:
        with doing(f"forward {self.stage_index} {microbatch}"):
            return super().forward_one_chunk(microbatch, *args, **options)

    def backward_one_chunk(self, microbatch: int, *args: Any, **options: Any) -> Any:
        with doing(f"backward {self.stage_index} {microbatch}"):
            return super().backward_one_chunk(microbatch, *args, **options)


def train(args: argparse.Namespace, world: World, timeline: Timeline) -> Result:
    if args.batch_size % args.microbatches:
        raise SystemExit(f"a batch of {args.batch_size} cannot be cut into {args.microbatches} equal micro-batches")
    stages = world.size * PER_RANK[args.schedule]
    # Stage 0 on rank 0, stage 1 on rank 1, and so on, around again where a rank has two.
    mine = range(world.rank, stages, world.size)
    parts = nn.ModuleList(stage_of(model_of(args), index, stages) for index in mine)
    placed = [Stage(part, index, stages, world.device) for part, index in zip(parts, mine, strict=True)]
    schedule = SCHEDULES[args.schedule](
        placed if PER_RANK[args.schedule] > 1 else placed[0], args.microbatches, loss_fn=loss_of
    )
    optimizer = optimizer_of(args, parts)
    is_first, is_last = world.rank == 0, stages - 1 in mine
    losses: list[float] = []
    for step in range(args.steps):
        with timeline.recording(step == args.steps - 2):
            losses += one_step(schedule, texts(args.batch_size, seed=step + 1), is_first, is_last)
            optimizer.step()
            optimizer.zero_grad()
    weights = {name: value for part in parts for name, value in part.state_dict().items()}
    everything = world.gather((losses, {name: value.detach() for name, value in weights.items()}))
    return Result(
        next(found for found, _ in everything if found),
        {name: value for _, found in everything for name, value in found.items()},
        {"microbatches": args.microbatches, "stages": stages},
    )


def one_step(schedule: Any, text: Tensor, is_first: bool, is_last: bool) -> list[float]:
    """The first stage gets the texts, the last one the targets; a rank with both stages gets both."""
    losses: list[Tensor] = []
    given = (text[:, :-1],) if is_first else ()
    wanted = {"target": text[:, 1:], "losses": losses} if is_last else {}
    schedule.step(*given, **wanted)
    return [torch.stack(losses).mean().item()] if is_last else []


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    arguments.add_argument("--microbatches", type=int, default=8)
    args = arguments.parse_args()
    world = join()
    torch.set_num_threads(1)
    timeline, began = Timeline(world, args.timeline), time.monotonic()
    finish(args, world, train(args, world, timeline), timeline, began)


if __name__ == "__main__":
    main()
