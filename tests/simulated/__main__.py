"""`python -m tests.simulated`: so many steps of the pure decisions, or around the real server."""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path

from tests.simulated.play import play
from tests.simulated.pure_server import PureServer

RESULTS = Path(__file__).parents[2] / "bench" / "results" / "simulated.json"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulated", description=__doc__)
    parser.add_argument("--server", choices=("pure", "real"), default="pure")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="the first episode; each has the next one")
    parser.add_argument("--one", action="store_true", help="play this seed alone")
    parser.add_argument("--record", action="store_true", help="add the figure to bench/results")
    options = parser.parse_args()
    if options.server == "real":
        from tests.simulated.real_server import RealServer

        make = RealServer
    else:
        make = partial(PureServer)  # type: ignore[assignment]
    began, done, seed = time.monotonic(), 0, options.seed
    while done < options.steps:
        taken, failure = play(make, seed)
        done += taken
        if failure is not None:
            print(f"seed {seed}: {failure.message}\n  {len(failure.choices)} choices: {list(failure.choices)}")
            return 1
        seed += 1
        if options.one:
            break
    lasted_s = time.monotonic() - began
    print(f"{done:,} steps in {seed - options.seed:,} episodes, {lasted_s:.0f} s: no invariant was broken")
    if options.record:
        _record(options.server, done, options.seed, seed, lasted_s)
    return 0


def _record(server: str, steps: int, first: int, end: int, lasted_s: float) -> None:
    """Add to what is known; seeds that were played before count once."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    before = known.get(server, {"steps": 0, "episodes": 0, "seconds": 0.0, "broken": 0, "next_seed": 0})
    if first >= before["next_seed"]:
        known[server] = {
            "steps": before["steps"] + steps,
            "episodes": before["episodes"] + end - first,
            "seconds": round(before["seconds"] + lasted_s, 1),
            "broken": 0,
            "next_seed": end,
        }
    RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
