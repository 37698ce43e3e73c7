"""A synthetic language with a known optimum, and the two small models that learn it.

Each token depends on the two before it: one of four can follow, the first of them seven times in ten. No model can have
a smaller loss than the entropy of that choice (0.86) or an accuracy above 0.70, so these show how good a model is.
"""

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot, scaled_dot_product_attention

TOKENS = 8
CHANCES = (0.7, 0.2, 0.07, 0.03)
BEST_LOSS = -sum(chance * math.log(chance) for chance in CHANCES)
BEST_ACCURACY = CHANCES[0]
LENGTH = 16


def texts(count: int, seed: int, length: int = LENGTH) -> Tensor:
    """Texts with one token more than `length`, the same for the same seed."""
    grammar = torch.rand(TOKENS, TOKENS, TOKENS, generator=torch.Generator().manual_seed(0)).argsort(-1)[..., :4]
    source = torch.Generator().manual_seed(seed)
    found = [*torch.randint(TOKENS, (2, count), generator=source)]
    choices = torch.multinomial(torch.tensor(CHANCES), count * (length - 1), True, generator=source)
    for choice in choices.view(length - 1, count):
        found.append(grammar[found[-2], found[-1], choice])
    return torch.stack(found, 1)


def loss_of(said: Tensor, wanted: Tensor) -> Tensor:
    """The loss without the first token of a text, which nothing predicts."""
    return cross_entropy(said[:, 1:].flatten(0, 1), wanted[:, 1:].flatten())


class Block(nn.Module):
    """Attention to earlier tokens, then two layers for each token."""

    def __init__(self, width: int, head: int = 8) -> None:
        super().__init__()
        self.head = head
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, seen: Tensor) -> Tensor:
        x = self.norm_1(seen)
        # As many heads as this rank has columns for: all of them, unless the block is split over ranks.
        heads = (part(x).unflatten(-1, (-1, self.head)).transpose(1, 2) for part in (self.query, self.key, self.value))
        attended = scaled_dot_product_attention(*heads, is_causal=True)
        seen = seen + self.out(attended.transpose(1, 2).flatten(2))
        return seen + self.down(nn.functional.gelu(self.up(self.norm_2(seen))))


class Embedding(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, width)
        self.places = nn.Parameter(torch.randn(LENGTH, width) / math.sqrt(width))

    def forward(self, given: Tensor) -> Tensor:
        return self.tokens(given) + self.places[: given.shape[1]]


def transformer(width: int = 32, blocks: int = 4, seed: int = 0) -> nn.Sequential:
    """A chain, so that a pipeline can cut it anywhere."""
    torch.manual_seed(seed)
    head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, TOKENS))
    return nn.Sequential(Embedding(width), *(Block(width) for _ in range(blocks)), head)


def pairs(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """The last two tokens as one row, and the one that follows."""
    found = texts(count, seed, length=2)
    return one_hot(found[:, :2], TOKENS).flatten(1).float(), found[:, 2]


def layers(width: int = 128, depth: int = 4, seed: int = 0) -> nn.Sequential:
    """A plain network from two tokens to the next, as a chain of `depth` layers."""
    torch.manual_seed(seed)
    sizes = [2 * TOKENS, *[width] * (depth - 1)]
    inner = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(sizes)]
    return nn.Sequential(*inner, nn.Sequential(nn.Linear(width, TOKENS)))
