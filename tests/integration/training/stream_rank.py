"""One rank that reads a stream through PyTorch's workers, and writes down what it took and where it is."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from muster.training.data import Sample, Shuffle, Stream, TorchLoader


def key(sample: Sample) -> str:
    return str(sample["__key__"])


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("source", "journal", "state"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("rank", "world", "workers", "batch", "stop"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    shuffle = Shuffle(seed=3, shards=4, run=4, pool=64)
    stream = Stream(args.source, args.batch, rank=args.rank, world_size=args.world, shuffle=shuffle)
    if args.state:
        stream.restore(json.loads(args.state))
    with Path(args.journal).open("w") as journal:
        for number, keys in enumerate(TorchLoader(stream, key, workers=args.workers, collate=list), 1):
            journal.write(json.dumps({"keys": keys, "state": stream.state()}) + "\n")
            journal.flush()
            if number == args.stop:
                # Killed from outside while its workers read ahead.
                input()
        journal.write(json.dumps({"keys": [], "state": stream.state()}) + "\n")


if __name__ == "__main__":
    main()
