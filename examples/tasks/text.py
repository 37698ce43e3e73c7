"""Classifies lines of text with a small Transformer, from a file with a label and a text in each line.

The tokenizer is learned from the same file: pairs of neighbours that occur most often become one token, as in byte-pair
encoding. Without --data the script writes itself a file of made-up reviews, in which "not" turns the meaning around.
"""

import itertools
import math
import random
import re
from collections import Counter
from pathlib import Path

import torch
from loop import parser, shares, start, train
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from muster.training import World

PAD, UNKNOWN, BEGIN = 0, 1, 2
GOOD = ["great", "lovely", "brilliant", "solid", "charming", "clever", "warm", "sharp", "honest", "fine"]
BAD = ["awful", "dull", "clumsy", "weak", "boring", "shallow", "cold", "messy", "hollow", "poor"]
THINGS = ["plot", "acting", "music", "ending", "dialogue", "pace", "cast", "camera", "story", "script"]


def made_up(path: Path, count: int, seed: int) -> None:
    """Write reviews whose label is the opinion of most of their clauses, with negations."""
    source = random.Random(seed)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            clauses, opinion = [], 0
            for _ in range(source.choice((1, 3, 3, 5))):
                good, negated = source.random() < 0.5, source.random() < 0.4
                word = source.choice(GOOD if good else BAD)
                thing = source.choice(THINGS)
                clauses.append(f"the {thing} {'is not' if negated else 'is'} {word}")
                opinion += 1 if good != negated else -1
            file.write(f"{'good' if opinion > 0 else 'bad'}\t{', '.join(clauses)}.\n")


class Tokenizer:
    """Splits words into frequent pieces; a piece that begins a word has a mark."""

    def __init__(self, texts: list[str], size: int) -> None:
        words = Counter(word for text in texts for word in self._words(text))
        spelled = {word: ("▁" + word[0], *word[1:]) for word in words}
        pieces = sorted({piece for spelling in spelled.values() for piece in spelling})
        self.merges: dict[tuple[str, str], int] = {}
        while len(pieces) + 3 < size:
            pairs: Counter[tuple[str, str]] = Counter()
            for word, spelling in spelled.items():
                for pair in itertools.pairwise(spelling):
                    pairs[pair] += words[word]
            if not pairs:
                break
            best = max(pairs, key=lambda pair: (pairs[pair], pair))
            self.merges[best] = len(self.merges)
            pieces.append("".join(best))
            spelled = {word: merged(spelling, best) for word, spelling in spelled.items()}
        self.numbers = {piece: index + 3 for index, piece in enumerate(pieces)}
        self._known: dict[str, list[int]] = {}

    @staticmethod
    def _words(text: str) -> list[str]:
        return re.findall(r"\w+|[^\w\s]", text.lower())

    def __len__(self) -> int:
        return len(self.numbers) + 3

    def __call__(self, text: str) -> list[int]:
        return [BEGIN, *(number for word in self._words(text) for number in self._word(word))]

    def _word(self, word: str) -> list[int]:
        if word not in self._known:
            spelling: tuple[str, ...] = ("▁" + word[0], *word[1:])
            while len(spelling) > 1:
                pairs = [pair for pair in itertools.pairwise(spelling) if pair in self.merges]
                if not pairs:
                    break
                spelling = merged(spelling, min(pairs, key=self.merges.__getitem__))
            self._known[word] = [self.numbers.get(piece, UNKNOWN) for piece in spelling]
        return self._known[word]


def merged(spelling: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    """A spelling in which a pair of neighbours has become one piece."""
    found: list[str] = []
    for piece in spelling:
        if found and (found[-1], piece) == pair:
            found[-1] += piece
        else:
            found.append(piece)
    return tuple(found)


class Classifier(nn.Module):
    """An encoder of a few layers; the output of the first token, the same in every text, gives the class."""

    def __init__(self, tokens: int, classes: int, width: int, layers: int, longest: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tokens, width, padding_idx=PAD)
        self.places = nn.Parameter(torch.randn(longest, width) / math.sqrt(width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, texts: Tensor) -> Tensor:
        seen = self.tokens(texts) + self.places[: texts.shape[1]]
        return self.head(self.encoder(seen, src_key_padding_mask=texts == PAD)[:, 0])


def read(path: Path) -> tuple[list[str], list[str]]:
    """Labels and texts of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t", 1) for line in lines if "\t" in line]
    if not pairs:
        raise SystemExit(f"{path} has no line with a label, a tab and a text")
    return [label for label, _ in pairs], [text for _, text in pairs]


def encoded(texts: list[str], tokenizer: Tokenizer, longest: int) -> Tensor:
    """Texts as numbers, padded to the longest one, or cut to the length that the model takes."""
    rows = [torch.tensor(tokenizer(text)[:longest]) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def accuracy(model: nn.Module, world: World, held_back: list[Tensor]) -> dict[str, float]:
    counts = torch.zeros(2)
    with torch.no_grad():
        for texts, labels in shares(held_back, world, 256):
            counts += torch.tensor([float((model(texts).argmax(1) == labels).sum()), len(labels)])
    right, count = world.sum(counts)
    return {"accuracy": float(right / count)}


def main() -> None:
    arguments = parser(__doc__ or "", epochs=14, lr=1e-3, batch_size=32)
    arguments.add_argument("--data", type=Path, help="lines with a label, a tab and a text")
    arguments.add_argument("--lines", type=int, default=8000, help="of made-up reviews, without --data")
    arguments.add_argument("--tokens", type=int, default=400)
    arguments.add_argument("--width", type=int, default=64)
    arguments.add_argument("--layers", type=int, default=2)
    arguments.add_argument("--longest", type=int, default=64, help="tokens of a text; the rest is cut")
    args = arguments.parse_args()
    world = start(args)
    path = args.data
    if path is None:
        # Every rank makes its own copy of the same file.
        path = Path(f"reviews_{world.rank}.tsv")
        made_up(path, args.lines, args.seed)
    labels, texts = read(path)
    names = sorted(set(labels))
    tokenizer = Tokenizer(texts, args.tokens)
    data = [encoded(texts, tokenizer, args.longest), torch.tensor([names.index(label) for label in labels])]
    split = len(texts) * 9 // 10
    held_back = [tensor[split:] for tensor in data]
    train(
        args,
        world,
        Classifier(len(tokenizer), len(names), args.width, args.layers, args.longest),
        TensorDataset(*(tensor[:split] for tensor in data)),
        lambda model, batch: cross_entropy(model(batch[0]).float(), batch[1]),
        lambda model, world: accuracy(model, world, held_back),
    )


if __name__ == "__main__":
    main()
