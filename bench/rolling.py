"""An endpoint that is updated repeatedly under the load of `ab`: how many requests fail.

The deployment is not idempotent, so that no request is retried without the client's knowledge: one lost by an update
would be seen. `ab` (apache2-utils) sends requests over persistent connections until it has 100,000 answers.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from bench.measure import Figure, quick, report, temporary_workspace

BETWEEN_S = 5.0
SCRIPT = "import json\ndef run(data):\n    return json.loads(data)\n"
DEPLOYMENT = """
name: blue
endpoint_name: rolling
code_configuration: {code: src, scoring_script: score.py}
request_settings: {request_timeout_ms: 60000, max_concurrent_requests_per_instance: 64, max_queue_wait_ms: 60000}
idempotent: false
"""


def main() -> None:
    is_quick = quick(__doc__)
    if shutil.which("ab") is None:
        sys.exit("bench.rolling needs ab (apache2-utils)")
    count = 2000 if is_quick else 100_000
    with temporary_workspace() as workspace:
        folder = workspace.folder
        (folder / "src").mkdir()
        (folder / "src" / "score.py").write_text(SCRIPT)
        (folder / "blue.yml").write_text(DEPLOYMENT)
        (folder / "body.json").write_text('{"a": 1}')
        muster(folder, "create", "rolling")
        muster(folder, "deploy", "-f", "blue.yml", "--all-traffic")
        failed, answered, updates, wall_s = updated_under_load(folder, count)
        muster(folder, "delete", "rolling", "--yes")
    figures = [
        Figure("failed requests", failed, "requests", at_most=0),
        Figure("requests", answered, "requests", at_least=count),
        Figure("updates meanwhile", updates, "updates", at_least=1),
        Figure("requests, updates included", answered / wall_s, "1/s"),
    ]
    report("rolling", figures, is_quick)


def updated_under_load(folder: Path, count: int) -> tuple[int, int, int, float]:
    """Requests that failed, requests in all, updates, and the time that it took."""
    uri = json.loads(muster(folder, "show", "rolling", "--json"))["scoring_uri"]
    key = json.loads(muster(folder, "keys", "rolling", "--json"))["primary"]
    began, updates = time.monotonic(), 0
    command = [
        "ab", "-q", "-k", "-c", "8", "-n", str(count), "-p", "body.json", "-T", "application/json",
        "-H", f"Authorization: Bearer {key}", uri,
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as asking:
        while asking.poll() is None or not updates:
            muster(folder, "deploy", "-f", "blue.yml")
            updates += 1
            with suppress(subprocess.TimeoutExpired):
                asking.wait(BETWEEN_S)
        said, _ = asking.communicate()
    wall_s = time.monotonic() - began
    if asking.returncode:
        sys.exit(f"ab gave up: {said}")
    failed = number(said, "Failed requests") + number(said, "Non-2xx responses")
    return failed, number(said, "Complete requests"), updates, wall_s


def number(said: str, what: str) -> int:
    found = re.search(rf"{what}:\s+(\d+)", said)
    return int(found[1]) if found else 0


def muster(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "muster.cli", "endpoint", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"muster endpoint {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
