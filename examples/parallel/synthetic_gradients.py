"""Synthetic gradients: the layers are divided over ranks, and no rank waits for the gradient of the layers behind it.

Each rank but the last has a small module that guesses, from what its layers put out and the label, the gradient that
will come back (a decoupled neural interface, Jaderberg et al. 2017). The rank takes its step with the guess at once;
the true gradient arrives up to --lag steps later, and teaches the module. With --locked it is plain backpropagation,
which waits.
"""

import argparse
import time
from collections import deque

import torch
import torch.distributed as dist
from language import TOKENS
from reference import PAIRS, Result, batch_of, finish, model_of, optimizer_of, parser
from timeline import Clock, Timeline, doing
from torch import Tensor, nn
from torch.nn.functional import mse_loss, one_hot

from muster.training import World, join


class Guess(nn.Module):
    """Guesses the gradient of the layers' output; its first guess is zero."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width + TOKENS, width)
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, put_out: Tensor, labels: Tensor) -> Tensor:
        return self.layer(torch.cat([put_out, one_hot(labels, TOKENS).to(put_out)], 1))


class Neighbours:
    """Sends outputs forward and their gradients back; counts the time spent waiting."""

    def __init__(self, args: argparse.Namespace, world: World, dtype: torch.dtype) -> None:
        self._rank, self._shape, self._dtype = world.rank, (args.batch_size + 1, args.width), dtype
        # A common zero, from a clock that the processes of a machine share.
        self._delay_s, self._began = args.delay_s, world.gather(time.monotonic())[0]
        self._sent: deque[tuple[dist.Work, Tensor]] = deque()
        self.clock = Clock()

    def send(self, what: Tensor, to: int) -> None:
        """Send without waiting. A last row has the time, to simulate a network slower than this machine's memory."""
        message = torch.cat([what, torch.full_like(what[:1], time.monotonic() - self._began)])
        # The message must stay in memory until it is sent.
        self._sent.append((dist.isend(message, to), message))
        while len(self._sent) > 64:
            self._sent.popleft()[0].wait()

    def activations(self) -> Tensor:
        return self._received(self._rank - 1)

    def gradient(self) -> Tensor:
        return self._received(self._rank + 1)

    def finish(self) -> None:
        for work, _ in self._sent:
            work.wait()

    def _received(self, source: int) -> Tensor:
        found = torch.empty(self._shape, dtype=self._dtype)
        with self.clock.waiting():
            dist.recv(found, source)
            left_s = float(found[-1, 0]) + self._delay_s - (time.monotonic() - self._began)
            time.sleep(max(0.0, left_s))
        return found[:-1]


class Rank:
    """The layers of one rank, with what they need to go on without the others."""

    def __init__(self, args: argparse.Namespace, world: World) -> None:
        whole = model_of(args, PAIRS)
        if len(whole) % world.size:
            raise SystemExit(f"{len(whole)} layers (--blocks) cannot be divided over {world.size} ranks")
        share = len(whole) // world.size
        names = range(world.rank * share, (world.rank + 1) * share)
        self.names = [str(name) for name in names]
        self.layers = nn.Sequential(*(whole[name] for name in names))
        dtype = next(whole.parameters()).dtype
        self.is_first, self.is_last, self._rank = world.rank == 0, world.rank == world.size - 1, world.rank
        self._optimizer = optimizer_of(args, self.layers)
        self._guess = Guess(args.width).to(dtype)
        self._teacher = torch.optim.Adam(self._guess.parameters(), lr=args.guess_lr)
        self._untaught: deque[tuple[Tensor, Tensor]] = deque()
        self._lag = 0 if args.locked else args.lag
        self._locked = args.locked
        self.neighbours = Neighbours(args, world, dtype)

    def step(self, inputs: Tensor, labels: Tensor) -> float | None:
        """Pass one batch through these layers; returns the loss on the last rank."""
        given = inputs if self.is_first else self.neighbours.activations().requires_grad_()
        loss = None
        with doing("forward"):
            put_out = self.layers(given)
        if self.is_last:
            loss = PAIRS.loss(put_out, labels)
            gradient = None
        else:
            self.neighbours.send(put_out.detach(), self._rank + 1)
            gradient = self.neighbours.gradient() if self._locked else self._guessed(put_out.detach(), labels)
        with doing("backward"):
            self._optimizer.zero_grad()
            (put_out if loss is None else loss).backward(gradient)
        if not self.is_first:
            self.neighbours.send(given.grad, self._rank - 1)
        with doing("update"):
            self._optimizer.step()
        if not (self.is_last or self._locked) and len(self._untaught) > self._lag:
            self._learn()
        return None if loss is None else loss.item()

    def finish(self) -> None:
        while self._untaught:
            self._learn()
        self.neighbours.finish()

    def _guessed(self, put_out: Tensor, labels: Tensor) -> Tensor:
        self._untaught.append((put_out, labels))
        with torch.no_grad():
            # The guess is for one sample: the gradient of a mean over the batch would be too small to learn well.
            return self._guess(put_out, labels) / len(labels)

    def _learn(self) -> None:
        put_out, labels = self._untaught.popleft()
        true = self.neighbours.gradient() * len(labels)
        with doing("update"):
            self._teacher.zero_grad()
            mse_loss(self._guess(put_out, labels), true).backward()
            self._teacher.step()


def train(args: argparse.Namespace, world: World, timeline: Timeline) -> Result:
    if world.size < 2:
        raise SystemExit("one rank has nobody to wait for: give it two or more, with --procs")
    rank = Rank(args, world)
    losses: list[float] = []
    began = time.monotonic()
    with timeline.recording():
        for step in range(args.steps):
            loss = rank.step(*batch_of(args, PAIRS, step))
            losses += [] if loss is None else [loss]
    waited = rank.neighbours.clock.waited_s / (time.monotonic() - began)
    rank.finish()
    weights = {
        f"{name}.{key}": value.detach()
        for name, layer in zip(rank.names, rank.layers, strict=True)
        for key, value in layer.state_dict().items()
    }
    everything = world.gather((losses, weights, waited))
    return Result(
        everything[-1][0],
        {name: value for _, found, _ in everything for name, value in found.items()},
        {"waiting": sum(waited for _, _, waited in everything) / world.size},
        is_exact=args.locked,
    )


def main() -> None:
    arguments = parser(__doc__ or "", steps=600, batch_size=256, width=128, lr=0.002)
    arguments.add_argument("--locked", action="store_true", help="backpropagation: wait for the true gradient")
    arguments.add_argument("--lag", type=int, default=4, help="steps after which the true gradient is waited for")
    arguments.add_argument(
        "--delay-s", type=float, default=0.0, help="that a message takes, on an imagined network (ranks of one machine)"
    )
    arguments.add_argument("--guess-lr", type=float, default=0.01, help="of the modules that guess")
    args = arguments.parse_args()
    world = join()
    torch.set_num_threads(1)
    timeline, began = Timeline(world, args.timeline), time.monotonic()
    finish(args, world, train(args, world, timeline), timeline, began, PAIRS)


if __name__ == "__main__":
    main()
