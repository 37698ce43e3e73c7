"""Puts the labels of changed definitions into recorded cases: `python relabel.py DEFINITIONS.py FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from recorder import case, load


def main() -> None:
    for failure in load(sys.argv[1]):
        path = Path(sys.argv[2], f"{failure.name}.json")
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            document = case(failure, kept["evidence"])
            path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
