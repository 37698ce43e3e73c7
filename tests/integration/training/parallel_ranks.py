"""Started on four ranks by torchrun: trains in every way of examples/parallel, and in one process."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[3] / "examples" / "parallel"))

import experts
import local_sgd
import mesh
import parameter_server
import pipeline
import sharded
import synthetic_gradients
import tensor
from reference import PAIRS, TEXTS, Result, Task, accuracy, alone, difference, late, parser
from timeline import Timeline

from muster.training import join

Train = Callable[..., Result]
SMALL = ("--check", "--width", "32", "--batch-size", "24", "--blocks", "8", "--steps", "2")
EXACT: dict[str, tuple[Train, Task, dict[str, object]]] = {
    "tensor": (tensor.train, TEXTS, {"sequence": False}),
    "sequence": (tensor.train, TEXTS, {"sequence": True}),
    "sharded": (sharded.train, TEXTS, {}),
    "experts": (experts.train, experts.MIXTURE, {"experts": 8}),
    **{ways: (mesh.train, TEXTS, {"ways": ways, "inner": 2, "microbatches": 4}) for ways in mesh.WAYS},
    **{name: (pipeline.train, TEXTS, {"schedule": name, "microbatches": 8}) for name in pipeline.SCHEDULES},
    "local": (local_sgd.train, TEXTS, {"optimizer": "sgd", "every": 1, "outer_lr": 1.0, "outer_momentum": 0.0}),
    "server": (
        parameter_server.train,
        PAIRS,
        {"optimizer": "sgd", "staleness": 0, "hiccups": 0.3, "pause_s": 0.002},
    ),
    "locked": (synthetic_gradients.train, PAIRS, {"locked": True, "lag": 0, "guess_lr": 0.01, "delay_s": 0.0}),
}


def main() -> None:
    torch.set_num_threads(1)
    world = join()
    timeline = Timeline(world, False)
    references: dict[tuple[int, str], Result] = {}
    found: dict[str, object] = {}
    for name, (train, task, more) in EXACT.items():
        args = argparse.Namespace(**{**vars(parser("").parse_args(SMALL)), **more})
        result = train(args, world, timeline)
        key = (id(task), args.optimizer)
        if world.rank == 0:
            references[key] = references.get(key) or alone(args, task)
            found[name] = [difference(result, references[key]), result.is_exact, result.figures]
    given = parser("", steps=150, batch_size=96, width=64, lr=1.0, optimizer="sgd").parse_args([])
    args = argparse.Namespace(**vars(given), staleness=2, hiccups=0.1, pause_s=0.005)
    result = parameter_server.train(args, world, timeline)
    found["stale"] = [late(result), result.losses[0], result.figures]
    given = parser("", steps=250, batch_size=64, width=64, lr=0.003).parse_args([])
    args = argparse.Namespace(**vars(given), locked=False, lag=3, guess_lr=0.01, delay_s=0.0)
    result = synthetic_gradients.train(args, world, timeline)
    if world.rank == 0:
        found["decoupled"] = accuracy(args, result.weights)
        Path(sys.argv[1]).write_text(json.dumps(found))
    world.leave()


if __name__ == "__main__":
    main()
