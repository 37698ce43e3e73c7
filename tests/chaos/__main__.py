"""`python -m tests.chaos`: inject faults by seed, and check what became of every run."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from tests.chaos import campaign, lanes
from tests.chaos.grounds import GROUNDS

KEPT = {"CI", "HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}


def main() -> int:
    options = _arguments()
    for name in list(os.environ):
        if name not in KEPT and not name.startswith(("LC_", "MUSTER_TEST_")):
            del os.environ[name]
    known = {ground.name: ground for ground in GROUNDS}
    names = [name for words in options.ground or [",".join(known)] for name in words.split(",")]
    if unknown := sorted(set(names) - set(known)):
        print(f"there is no ground {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    if options.lanes > 1:
        first = max(options.first, *(campaign.next_seed(known[name], options.ledger) for name in names))
        return lanes.run(options.lanes, names, options.minutes, first, options.ledger)
    # One that is named twice gets two shares of the time.
    grounds = [known[name] for name in names]
    deadline = time.monotonic() + options.minutes * 60
    failed = 0
    for number, ground in enumerate(grounds):
        # What one takes beyond its share, all that come after it give up alike.
        until = time.monotonic() + max(0.0, deadline - time.monotonic()) / (len(grounds) - number)
        if why := ground.missing():
            print(f"{ground.name}: left out, {why}", flush=True)
            failed += bool(os.environ.get("CI"))
            continue
        try:
            outcomes = campaign.run(ground, _seeds(options, ground), until, options.ledger)
        except Exception:
            # The harness's own failure; the other grounds have their time all the same.
            traceback.print_exc()
            failed += 1
            continue
        bad = [item for item in outcomes if item.broken]
        failed += len(bad)
        lines = sum(item.lines for item in outcomes)
        print(f"{ground.name}: {len(outcomes)} faults, {lines:,} lines compared, {len(bad)} broken", flush=True)
    return 1 if failed else 0


def _seeds(options: argparse.Namespace, ground: campaign.Ground) -> Iterator[int]:
    if options.seed is not None:
        return iter([options.seed] * options.times)
    if options.fault:
        chosen = [n for n, fault in enumerate(ground.faults) if options.fault in fault.name]
        every = len(ground.faults)
        return (base * every + n for base in range(options.times) for n in chosen)
    first, step = options.first, options.step
    if (next_one := campaign.next_seed(ground, options.ledger)) > first:
        first += -(-(next_one - first) // step) * step
    return iter(range(first, first + options.count * step, step)) if options.count else itertools.count(first, step)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    names = ", ".join(ground.name for ground in GROUNDS)
    parser.add_argument("--ground", action="append", help=f"of {names}; several with commas; default: all")
    parser.add_argument("--seed", type=int, help="play this seed alone")
    parser.add_argument("--times", type=int, default=1, help="how often, with --seed or --fault")
    parser.add_argument("--fault", help="only faults whose name has these words")
    parser.add_argument("--count", type=int, default=0, help="how many seeds on each ground; default: as time allows")
    parser.add_argument("--first", type=int, default=0, help="no seed before this one")
    parser.add_argument("--step", type=int, default=1, help="from one seed to the next")
    parser.add_argument("--lanes", type=int, default=1, help="so many at a time, each in a process of its own")
    # Absolute: each workspace is played in a folder of its own.
    parser.add_argument(
        "--ledger", type=lambda text: Path(text).absolute(), default=campaign.LEDGER, help="where outcomes are added"
    )
    parser.add_argument("--minutes", type=float, default=4.0, help="for all grounds together")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
