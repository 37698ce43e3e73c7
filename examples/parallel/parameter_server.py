"""Asynchronous updates: rank 0 keeps the weights, the others push gradients to it when they have one and go on.

No worker waits for the others, unless it is more than --staleness steps ahead of the slowest. With a bound of 0 all
wait for all in every step, and the result is that of one process. --hiccups makes workers pause now and then, as busy
machines do.
"""

import argparse
import random
import time

import torch
import torch.distributed as dist
from reference import PAIRS, Result, batch_of, finish, model_of, parser
from timeline import Clock, Timeline, doing
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from muster.training import World, join

SERVER = 0


def serve(args: argparse.Namespace, workers: int) -> tuple[Tensor, dict[str, float]]:
    """Apply each gradient as it arrives, and answer with the current weights."""
    weights = parameters_to_vector(model_of(args, PAIRS).parameters()).detach()
    clocks = dict.fromkeys(range(1, workers + 1), 0)
    """How many steps each worker has pushed."""
    seen = dict.fromkeys(clocks, 0)
    """How many updates the weights of each worker include."""
    held: set[int] = set()
    lags: list[int] = []
    gradient, updates = torch.empty_like(weights), 0
    while any(clock < args.steps for clock in clocks.values()):
        worker = dist.recv(gradient)
        lags.append(updates - seen[worker])
        weights -= args.lr / workers * gradient
        updates += 1
        clocks[worker] += 1
        held.add(worker)
        for waiting in sorted(may_go_on(held, clocks, args.staleness)):
            dist.send(weights, waiting)
            seen[waiting] = updates
            held.remove(waiting)
    return weights, {"mean_lag": sum(lags) / len(lags), "largest_lag": float(max(lags))}


def may_go_on(held: set[int], clocks: dict[int, int], staleness: int) -> set[int]:
    """The workers that are not too far ahead of the slowest."""
    slowest = min(clocks.values())
    return {worker for worker in held if clocks[worker] - slowest <= staleness}


def work(args: argparse.Namespace, world: World, timeline: Timeline) -> tuple[list[float], float]:
    """Push gradients of this worker's part of every batch; returns the losses and the share of time spent waiting."""
    model = model_of(args, PAIRS)
    rank, workers = world.rank - 1, world.size - 1
    dice, clock, losses = random.Random(world.rank), Clock(), []
    weights = parameters_to_vector(model.parameters()).detach()
    began = time.monotonic()
    for step in range(args.steps):
        if dice.random() < args.hiccups:
            with doing("pause"):
                time.sleep(args.pause_s)
        with doing("forward"):
            inputs, targets = (part.chunk(workers)[rank] for part in batch_of(args, PAIRS, step))
            loss = PAIRS.loss(model(inputs), targets)
        with doing("backward"):
            gradients = torch.autograd.grad(loss, list(model.parameters()))
        with clock.waiting():
            dist.send(torch.cat([gradient.flatten() for gradient in gradients]), SERVER)
            dist.recv(weights, SERVER)
        vector_to_parameters(weights, model.parameters())
        losses.append(loss.item())
    return losses, clock.waited_s / (time.monotonic() - began)


def train(args: argparse.Namespace, world: World, timeline: Timeline) -> Result:
    if world.size < 2 or args.batch_size % (world.size - 1):
        raise SystemExit(
            f"{world.size} ranks are a server and {world.size - 1} workers, with an equal part each of a batch of "
            f"{args.batch_size}: that must be possible"
        )
    weights, lags = None, {}
    losses, waited = [], 0.0
    with timeline.recording():
        if world.rank == SERVER:
            weights, lags = serve(args, world.size - 1)
        else:
            losses, waited = work(args, world, timeline)
    of_workers = [found for found in world.gather((losses, waited)) if found[0]]
    mean = [sum(values) / len(values) for values in zip(*(losses for losses, _ in of_workers), strict=True)]
    model = model_of(args, PAIRS)
    if weights is not None:
        vector_to_parameters(weights, model.parameters())
    waits = {"waiting": sum(share for _, share in of_workers) / len(of_workers)}
    return Result(mean, model.state_dict(), lags | waits, is_exact=args.staleness == 0)


def main() -> None:
    arguments = parser(__doc__ or "", steps=400, batch_size=256, width=128, lr=1.0, optimizer="sgd")
    arguments.add_argument("--staleness", type=int, default=4, help="steps that a worker may be ahead of the slowest")
    arguments.add_argument("--hiccups", type=float, default=0.0, help="how often a worker pauses in a step")
    arguments.add_argument("--pause-s", type=float, default=0.02, help="for how long")
    args = arguments.parse_args()
    world = join()
    torch.set_num_threads(1)
    timeline, began = Timeline(world, args.timeline), time.monotonic()
    finish(args, world, train(args, world, timeline), timeline, began, PAIRS)


if __name__ == "__main__":
    main()
