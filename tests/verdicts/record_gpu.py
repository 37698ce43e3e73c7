"""Records failures on a machine with a GPU: `python tests/verdicts/record_gpu.py FOLDER`. Needs no Muster there."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = Path(__file__).with_name("fail_gpu.py")
# name, way, number of ranks, rank that fails
CASES = [
    ("gpu-memory", "memory", 1, 0),
    ("gpu-memory-grown", "memory-grown", 1, 0),
    ("gpu-memory-2", "memory", 2, 1),
    ("gpu-assert", "assert", 1, 0),
    ("gpu-illegal-address", "illegal-address", 1, 0),
    ("gpu-illegal-address-2", "illegal-address", 2, 1),
    ("gpu-illegal-address-cupy", "illegal-address-cpp", 1, 0),
    ("gpu-bad-device", "bad-device", 1, 0),
    ("gpu-jax-memory", "jax-memory", 1, 0),
    ("gpu-nccl-shared-device", "nccl", 2, 0),
]


def main() -> None:
    found = [record(*case) for case in CASES]
    Path(sys.argv[1], "gpu.json").write_text(json.dumps(found, indent=1))


def record(name: str, way: str, num_ranks: int, who: int) -> dict:
    ranks = []
    for rank in range(num_ranks):
        log = Path(sys.argv[1], f"{name}.{rank}.log")
        env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(num_ranks)}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "6105", "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as out:
            process = subprocess.Popen([sys.executable, str(SCRIPT), way, str(who)], stdout=out, stderr=out, env=env)
        ranks.append((process, log))
    deadline = time.monotonic() + 90
    while all(process.poll() is None for process, _ in ranks) and time.monotonic() < deadline:
        time.sleep(0.1)
    ended_at = time.time()
    time.sleep(0.5)
    facts = []
    for rank, (process, log) in enumerate(ranks):
        expected = process.poll() is None
        process.terminate()
        code = process.wait()
        tail = log.read_bytes()[-32768:].decode(errors="replace")
        log.unlink()
        facts.append({"rank": rank, "code": code, "expected": expected, "ended_at": ended_at, "tail": tail})
    print(name, [fact["code"] for fact in facts], flush=True)
    return {"name": name, "way": way, "ranks": facts}


if __name__ == "__main__":
    main()
