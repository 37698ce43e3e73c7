"""Expert parallel: after each block a router sends every token to one of several experts, which lie on different ranks.

Each rank has a part of the batch and of the experts. Tokens travel to the rank of their expert, and what it says about
them travels back: two exchanges of all with all (all-to-all) forward, and two backward. All other weights are the same
on every rank, as in data parallel.
"""

import argparse
import time
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from language import Block, loss_of, transformer
from reference import Result, Task, batch_of, finish, model_of, optimizer_of, parser, text_batch
from sharded import part_of
from timeline import Timeline, doing
from torch import Tensor, nn

from muster.training import World, join


class Experts(nn.Module):
    """Applies to each token the two layers of the expert that the router chooses."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.count, self.ranks = count, 1
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, count)
        layers = (
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(count)
        )
        self.experts = nn.ModuleDict({str(number): two for number, two in enumerate(layers)})
        self.group: dist.ProcessGroup | None = None
        # How many of this rank's tokens each expert got.
        self.register_buffer("asked", torch.zeros(count), persistent=False)

    def keep(self, world: World) -> None:
        """Keep only this rank's experts."""
        self.ranks, self.group = world.size, world.group
        if self.count % self.ranks:
            raise SystemExit(
                f"{self.count} experts cannot be divided over {self.ranks} ranks; --experts is a multiple of them"
            )
        share = self.count // self.ranks
        mine = range(world.rank * share, (world.rank + 1) * share)
        self.experts = nn.ModuleDict({str(number): self.experts[str(number)] for number in mine})

    def forward(self, seen: Tensor) -> Tensor:
        tokens = self.norm(seen).flatten(0, 1)
        chance, chosen = self.router(tokens).softmax(-1).max(-1)
        # Sorted by expert, and so by rank.
        order = chosen.argsort(stable=True)
        counts = chosen.bincount(minlength=self.count)
        self.asked += counts
        said = (self.ask if self.ranks == 1 else self.ask_ranks)(tokens[order], counts)
        # Weighted by the router's probability, through which the router learns.
        return seen + (chance[:, None] * said[order.argsort()]).view_as(seen)

    def ask(self, tokens: Tensor, counts: Tensor) -> Tensor:
        parts = tokens.split(counts.tolist())
        return torch.cat([expert(part) for expert, part in zip(self.experts.values(), parts, strict=True)])

    def ask_ranks(self, tokens: Tensor, counts: Tensor) -> Tensor:
        """Send tokens to the ranks of their experts; the results come back in the same order."""
        coming = torch.empty_like(counts)
        dist.all_to_all_single(coming, counts, group=self.group)
        sent, received = (of_experts.view(self.ranks, -1).sum(1).tolist() for of_experts in (counts, coming))
        arrived = Exchange.apply(tokens, sent, received, self.group)
        # They arrive by rank and expert; regroup by expert and rank, to call each expert once.
        pieces = arrived.split(coming.tolist())
        own = len(self.experts)
        said = [
            expert(torch.cat(pieces[number::own])).split(coming[number::own].tolist())
            for number, expert in enumerate(self.experts.values())
        ]
        back = torch.cat([of_expert[rank] for rank in range(self.ranks) for of_expert in said])
        return Exchange.apply(back, received, sent, self.group)


class Exchange(torch.autograd.Function):
    """Exchanges rows with all ranks; gradients go back to the ranks that the rows came from."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup | None
    ) -> Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        found = rows.new_empty(sum(received), rows.shape[1])
        with doing("exchange"):
            dist.all_to_all_single(found, rows.contiguous(), received, sent, group=group)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return Exchange.apply(gradient, ctx.received, ctx.sent, ctx.group), None, None, None


def mixture(args: argparse.Namespace) -> nn.Sequential:
    """The Transformer of the other examples, with experts after each of its blocks."""
    layers = list(transformer(args.width, args.blocks))
    experts = {layer: Experts(args.width, args.experts) for layer in layers if isinstance(layer, Block)}
    return nn.Sequential(*(part for layer in layers for part in (layer, experts.get(layer)) if part is not None))


MIXTURE = Task(mixture, text_batch, loss_of)


def train(args: argparse.Namespace, world: World, timeline: Timeline) -> Result:
    model = model_of(args, MIXTURE).to(world.device)
    layers = [layer for layer in model if isinstance(layer, Experts)]
    for layer in layers:
        layer.keep(world)
    optimizer = optimizer_of(args, model)
    own = {parameter: None for layer in layers for parameter in layer.experts.parameters()}
    shared = [parameter for parameter in model.parameters() if parameter not in own]
    losses = []
    for step in range(args.steps):
        with timeline.recording(step == args.steps - 2):
            inputs, targets = (
                part_of(part, world.rank, world.size).to(world.device) for part in batch_of(args, MIXTURE, step)
            )
            with doing("forward"):
                loss = loss_of(model(inputs), targets)
            optimizer.zero_grad()
            with doing("backward"):
                loss.backward()
            with doing("exchange"):
                share_gradients(shared, own, world)
            with doing("update"):
                optimizer.step()
        losses.append(float(world.mean(loss)))
    asked = world.sum(torch.stack([layer.asked for layer in layers]))
    busiest = float((asked / asked.sum(1, keepdim=True)).max())
    weights = {name: value for part in world.gather(model.state_dict()) for name, value in part.items()}
    return Result(losses, weights, {"experts": args.experts, "busiest": busiest})


def share_gradients(shared: list[nn.Parameter], own: Iterable[nn.Parameter], world: World) -> None:
    """Average gradients over the ranks; an expert's gradient already includes the tokens of all ranks."""
    whole = torch.cat([parameter.grad.flatten() for parameter in shared])
    if world.size > 1:
        dist.all_reduce(whole, group=world.group)
    for parameter, gradient in zip(shared, whole.split([parameter.numel() for parameter in shared]), strict=True):
        parameter.grad = gradient.view_as(parameter)
    for parameter in (*shared, *own):
        parameter.grad /= world.size


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--experts", type=int, default=8, help="behind each block, over all ranks")
    args = arguments.parse_args()
    world = join()
    torch.set_num_threads(1)
    timeline, began = Timeline(world, args.timeline), time.monotonic()
    finish(args, world, train(args, world, timeline), timeline, began, MIXTURE)


if __name__ == "__main__":
    main()
