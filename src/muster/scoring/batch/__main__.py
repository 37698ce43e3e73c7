"""`python -m muster.scoring.batch SETTINGS`: the command that every rank of a batch scoring runs."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path
from typing import Dict, Optional, Tuple

from muster.runtime.run import Run
from muster.scoring import frames
from muster.scoring.batch import work
from muster.scoring.batch.coordinator import Coordinator
from muster.scoring.batch.rank import InitFailed, Keeper, Rank, output_path, reach, wait_to_be_ended
from muster.scoring.batch.spool import Spool
from muster.scoring.batch.work import Settings
from muster.scoring.listening import listener_on


def main() -> int:
    settings = Settings.parse(sys.argv[1])
    root, model = os.environ["MUSTER_INPUT_data"], os.environ.get("MUSTER_INPUT_model", "")
    rank, num_ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    os.environ["AZUREML_BI_OUTPUT_PATH"] = output_path()
    files = work.input_files(root)
    if not files:
        print("muster: there is no file in the input", file=sys.stderr)
        return 1
    form = work.format_of(list(files), settings.format)
    coordinator: Optional[Coordinator] = None
    address, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "0"))
    if rank == 0:
        host = address if num_ranks > 1 else "127.0.0.1"
        coordinator, address, port = _coordinate(settings, root, files, form, num_ranks, listener_on(host, port))
    keeper = Keeper(settings, root, form, model)
    connection = reach(address, port, rank)
    if coordinator is None:
        return _work(keeper, connection, settings)
    return _lead(coordinator, keeper, connection, settings)


def _coordinate(
    settings: Settings, root: str, files: Dict[str, int], form: str, num_ranks: int, listener: socket.socket
) -> Tuple[Coordinator, str, int]:
    """The part of rank 0 that listens for the others, and resumes what an earlier attempt published."""
    run = Run.get_context()
    size = work.size_of(settings, form)
    spool = Spool(Path(os.environ.get("TMPDIR", ".")) / "scored", work.plan_digest(files, form, size))
    # The results do not contain what scripts write by themselves: then nothing of an earlier attempt counts.
    resumes = settings.output_action != work.SUMMARY
    spared = spool.resume(run.resume_dir if resumes else None)
    if spared:
        print("goes on after {:,} mini-batches that an earlier attempt scored".format(spared))
    coordinator = Coordinator(settings, spool, work.batches(root, files, form, size), num_ranks, run)
    coordinator.serve(listener)
    host, port = listener.getsockname()[:2]
    return coordinator, host, port


def _lead(coordinator: Coordinator, keeper: Keeper, connection: socket.socket, settings: Settings) -> int:
    """Work like any other rank, in a thread next to the coordinator."""
    codes = []
    thread = threading.Thread(target=lambda: codes.append(_work(keeper, connection, settings)), daemon=True)
    thread.start()
    finished = threading.Thread(target=coordinator.finish, args=(Path(output_path()),), daemon=True)
    finished.start()
    thread.join()
    if not codes or codes[0] not in (0, 1):
        return codes[0] if codes else 1
    finished.join()
    return 1 if coordinator.problem else codes[0]


def _work(keeper: Keeper, connection: socket.socket, settings: Settings) -> int:
    try:
        problem = Rank(keeper, connection, settings).work()
    except InitFailed as error:
        print("muster: init() failed: {}".format(error), file=sys.stderr)
        return 3
    except (frames.Closed, OSError):
        wait_to_be_ended()
        return 1
    if problem:
        print("muster: given up: {}".format(problem), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
