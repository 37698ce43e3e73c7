"""Local updates (DiLoCo): each rank trains by itself for --every steps, then all take a step together.

The mean of how far they went is the gradient of that step, for an outer optimizer with Nesterov momentum. Nothing is
exchanged in between: 1/--every of the traffic, so that slow networks do. With --every 1 --optimizer sgd --outer-lr 1
--outer-momentum 0 it is the same as one process.
"""

import argparse
import time

import torch
import torch.distributed as dist
from reference import TEXTS, Result, batch_of, finish, model_of, optimizer_of, parser, whole
from sharded import part_of
from timeline import Timeline, doing
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from muster.training import World, join


class Outer:
    """The weights that all ranks last agreed on, and the step that they take together."""

    def __init__(self, model: nn.Module, lr: float, momentum: float) -> None:
        self._model, self._lr, self._momentum = model, lr, momentum
        self._agreed = parameters_to_vector(model.parameters()).detach()
        self._speed = torch.zeros_like(self._agreed)
        self.exchanged = 0

    def step(self, world: World) -> None:
        went = self._agreed - parameters_to_vector(self._model.parameters()).detach()
        with doing("exchange"):
            dist.all_reduce(went, group=world.group)
        went /= world.size
        self._speed = self._momentum * self._speed + went
        self._agreed -= self._lr * self._nesterov(went)
        vector_to_parameters(self._agreed.clone(), self._model.parameters())
        self.exchanged += went.numel()

    def _nesterov(self, went: Tensor) -> Tensor:
        return went + self._momentum * self._speed


def train(args: argparse.Namespace, world: World, timeline: Timeline) -> Result:
    model = model_of(args).to(world.device)
    outer = Outer(model, args.outer_lr, args.outer_momentum)
    optimizer = optimizer_of(args, model)
    losses = []
    with timeline.recording():
        for step in range(args.steps):
            inputs, targets = (
                part_of(part, world.rank, world.size).to(world.device) for part in batch_of(args, TEXTS, step)
            )
            with doing("forward"):
                loss = TEXTS.loss(model(inputs), targets)
            optimizer.zero_grad()
            with doing("backward"):
                loss.backward()
            with doing("update"):
                optimizer.step()
            if (step + 1) % args.every == 0 or step + 1 == args.steps:
                outer.step(world)
            losses.append(loss.detach())
    of_steps = world.mean(torch.stack(losses)).tolist()
    weights = whole(model)
    of_gradients = args.steps * sum(value.numel() for value in weights.values())
    is_exact = (args.every, args.optimizer, args.outer_lr, args.outer_momentum) == (1, "sgd", 1.0, 0.0)
    return Result(of_steps, weights, {"traffic": outer.exchanged / of_gradients}, is_exact)


def main() -> None:
    arguments = parser(__doc__ or "", steps=400)
    arguments.add_argument("--every", type=int, default=10, help="steps between two exchanges")
    arguments.add_argument("--outer-lr", type=float, default=1.0)
    arguments.add_argument("--outer-momentum", type=float, default=0.5)
    args = arguments.parse_args()
    world = join()
    torch.set_num_threads(1)
    timeline, began = Timeline(world, args.timeline), time.monotonic()
    finish(args, world, train(args, world, timeline), timeline, began)


if __name__ == "__main__":
    main()
