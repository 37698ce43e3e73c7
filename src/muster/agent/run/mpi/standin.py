"""What `srun --mpi=pmix` starts for every rank: passes PMIx's variables to its node's keeper, which starts the rank.

It stays until the rank has ended, so that the step lasts as long as its ranks. The keeper follows and stops the ranks:
Slurm ends a step at once when one of its ranks fails, and the others would get no time to save a checkpoint.
`standin.py NODES INSIDE`: NODES.0, NODES.1 … are the nodes' folders, INSIDE the attempt's MPI part in each.
Run as a file with `-I -S`, because it is in the way of every rank.
"""

from __future__ import annotations

import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    # Not `signal`, whose enumerations take long to create.
    import _signal as signal

FIFO = "said"
PATIENCE_S = 60.0
_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.5

_FROM_PMIX = ("PMIX_", "SLURM_PMIX", "SLINGSHOT_")
# By these Open MPI 4 recognizes srun; they are too few for Lightning to do so, too.
_OF_THE_STEP = ("SLURM_JOBID", "SLURM_STEPID", "SLURM_STEP_ID", "SLURM_NODELIST")


def main() -> None:
    # The agents learn of every end themselves, and stop the ranks.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    nodes, inside = sys.argv[1:]
    folder = f"{nodes}.{os.environ['SLURM_NODEID']}/{inside}"
    rank = os.environ.get("PMIX_RANK", "")
    if not rank.isdigit():
        sys.exit(f"muster: srun started task {os.environ.get('SLURM_PROCID')} without PMIx")
    if not _is_open(f"{folder}/{FIFO}"):
        sys.exit(f"muster: the node's keeper did not come within {PATIENCE_S:g} s ({folder})")
    sys.exit(_stand_in(folder, int(rank)))


def pmix_file(folder: str, rank: int) -> str:
    """The file with PMIx's variables for a rank's stand-in: lines of an environment, each ended by a zero byte."""
    return f"{folder}/pmix.{rank}"


def done_fifo(folder: str, rank: int) -> str:
    """Held open by the keeper until the rank has ended."""
    return f"{folder}/done.{rank}"


def _stand_in(folder: str, rank: int) -> int:
    lines = [
        f"{name}={value}".encode("utf-8", "surrogateescape")
        for name, value in os.environ.items()
        if name.startswith(_FROM_PMIX) or name in _OF_THE_STEP
    ]
    target = pmix_file(folder, rank)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(descriptor, b"\0".join(lines))
    os.close(descriptor)
    try:
        done = os.open(done_fifo(folder, rank), os.O_RDONLY | os.O_NONBLOCK)
        fifo = os.open(f"{folder}/{FIFO}", os.O_WRONLY | os.O_NONBLOCK)
        os.write(fifo, b'{"kind": "here", "rank": %d}\n' % rank)
        os.close(fifo)
    except OSError:
        # No keeper: it has ended the attempt.
        return 1
    return 0 if _last_word(done) else 1


def _last_word(done: int) -> bytes:
    """What the keeper writes when the rank succeeded; nothing when the keeper is gone."""
    while True:
        try:
            return os.read(done, 1)
        except BlockingIOError:
            select.select([done], [], [])


def _is_open(fifo: str) -> bool:
    """Whether the keeper listens; that of another node may be a moment behind."""
    deadline = time.monotonic() + PATIENCE_S
    pause_s = _PAUSE_S
    while not os.path.exists(fifo):  # noqa: PTH110
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
    return True


if __name__ == "__main__":
    main()
