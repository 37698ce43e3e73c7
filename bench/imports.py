"""The cost of `import muster` and `muster --help`, compared with bare Python."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.measure import Figure, interleave, median, quick, report


def main() -> None:
    is_quick = quick(__doc__)
    muster = Path(sys.executable).with_name("muster")
    samples = interleave(
        5 if is_quick else 25,
        {
            "bare": lambda: seconds(sys.executable, "-c", "pass"),
            "import": lambda: seconds(sys.executable, "-c", "import muster"),
            "use": lambda: seconds(
                sys.executable, "-c", "from muster import Experiment, Run, ScriptRunConfig, Workspace"
            ),
            "help": lambda: seconds(str(muster), "--help"),
        },
    )
    bare = statistics.median(samples["bare"])
    figures = [
        median("bare Python", samples["bare"], "s"),
        Figure("import muster, beyond bare Python", statistics.median(samples["import"]) - bare, "s", at_most=0.1),
        Figure("from muster import Experiment, Run …, beyond bare", statistics.median(samples["use"]) - bare, "s"),
        median("muster --help", samples["help"], "s", at_most=0.3),
    ]
    report("imports", figures, is_quick)


def seconds(*command: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
