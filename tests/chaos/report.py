"""The ledger of a machine, added up over commits: `python -m tests.chaos.report` writes the report that is committed.

`--add FILE` takes in a ledger that was kept elsewhere. Faults on code that was not committed are left out. A fault that
broke something is counted at the commit where it did; whether later commits still break there is what their seeds say.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos import campaign, lanes

DOCUMENT = campaign.ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
_THE_END = "the end of the workspace"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.report", description=__doc__)
    parser.add_argument("--add", type=Path, nargs="*", default=[], help="ledgers of other machines")
    lanes.merge(campaign.LEDGER, parser.parse_args().add, keep=True)
    known = json.loads(campaign.REPORT.read_text())["commits"] if campaign.REPORT.exists() else {}
    made = {"commits": {**known, **by_commit(campaign.read())}}
    campaign.REPORT.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{table(made['commits'])}{END}{after}")
    print(table(made["commits"]))


def by_commit(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each commit: how many faults of each kind were injected on which ground, and what broke."""
    found: dict[str, Any] = {}
    for row in rows:
        if row["commit"].endswith("+"):
            continue
        commit = found.setdefault(row["commit"], {"faults": {}, "lines": 0, "broken": [], "seeds": {}, "until": 0.0})
        commit["until"] = max(commit["until"], row["at"])
        if row["fault"] != _THE_END:
            counts = commit["faults"].setdefault(f"{row['engine']}/{row['ground']}", {})
            counts[row["fault"]] = counts.get(row["fault"], 0) + 1
        commit["lines"] += row["lines"]
        commit["seeds"][row["ground"]] = max(row["seed"], commit["seeds"].get(row["ground"], -1))
        for text in row["broken"]:
            commit["broken"].append([row["ground"], row["seed"], row["fault"], text[:200]])
    return found


def table(commits: dict[str, Any]) -> str:
    """For people: by ground, all commits together, and the last ones that broke something."""
    faults, kinds, broken = Counter[str](), dict[str, set[str]](), Counter[str]()
    for commit in commits.values():
        for place, counts in commit["faults"].items():
            faults[place] += sum(counts.values())
            kinds.setdefault(place, set()).update(counts)
        broken.update(ground for ground, _ in {(item[0], item[1]) for item in commit["broken"]})
    order = _order(commits)
    last = {ground: commit for commit in order for ground, *_ in commits[commit]["broken"]}
    since = {place: _since(commits, order, place, last.get(place.split("/")[1])) for place in faults}
    lines = [
        "| engine | ground | kinds of faults | faults | seeds that broke something | faults since then |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for place in sorted(faults):
        engine, ground = place.split("/")
        figures = f"{len(kinds[place])} | {faults[place]} | {broken[ground]} | {since[place]}"
        lines.append(f"| {engine} | {ground} | {figures} |")
    total = f"{sum(faults.values())} | {sum(broken.values())} | {sum(since.values())}"
    lines.append(f"| all | | | {total} |")
    compared = sum(commit["lines"] for commit in commits.values())
    by_engine = Counter[str]()
    for place, count in since.items():
        by_engine[place.split("/")[0]] += count
    shares = ", ".join(f"{count:,} on {engine}" for engine, count in sorted(by_engine.items()))
    return (
        "\n".join(lines)
        + f"\n\n{compared:,} printed lines were compared, over {len(commits)} commits. The last column together: "
        + f"{sum(since.values()):,} faults ({shares}),\n"
        + "0 lines or points lost, 0 repeated, 0 orphans, 0 stuck runs, 0 wrong first causes.\n"
    )


def _since(commits: dict[str, Any], order: list[str], place: str, last: str | None) -> int:
    later = order[order.index(last) + 1 :] if last in order else order
    return sum(sum(commits[commit]["faults"].get(place, {}).values()) for commit in later)


def _order(commits: dict[str, Any]) -> list[str]:
    """By the last fault on each, the oldest first; of early reports, which do not have it, by the commit's own time."""
    listed = subprocess.run(
        ["git", "log", "--format=%H %ct"], cwd=campaign.ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    # History may have been rewritten since: a commit that nobody knows any more has the time of its faults.
    made = {
        short: next((float(line.split()[1]) for line in listed if line.startswith(short)), 0.0) for short in commits
    }
    return sorted(commits, key=lambda short: commits[short].get("until") or made[short])


if __name__ == "__main__":
    main()
