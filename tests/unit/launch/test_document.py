from __future__ import annotations

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
DOCUMENT = (HERE.parents[2] / "docs" / "launch-contract.md").read_text()


def test_every_planned_variable_is_documented() -> None:
    planned = {
        name
        for path in (HERE / "golden").glob("*.json")
        for node in json.loads(path.read_text())["nodes"]
        for rank in node["ranks"]
        for name in rank["env"]
    }
    documented = set(re.findall(r"[A-Z][A-Za-z0-9_]+", DOCUMENT))
    assert planned - documented == set()


def test_every_planned_log_name_is_documented() -> None:
    logs = {
        rank["log"]
        for path in (HERE / "golden").glob("*.json")
        for node in json.loads(path.read_text())["nodes"]
        for rank in node["ranks"]
    }
    for log in logs:
        general = re.sub(r"_\d+", "_0", log)
        ending = general.rsplit("_", 1)[-1]
        assert general in DOCUMENT or f"_{ending}" in DOCUMENT, log
