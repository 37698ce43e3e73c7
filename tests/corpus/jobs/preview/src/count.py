"""Counts the rows of a table."""

import argparse
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--table")
parser.add_argument("--model", default="")
args = parser.parse_args()
table = Path(args.table)
file = table if table.is_file() else next(table.glob("*.csv"))
rows = len(file.read_text().splitlines()) - 1
if args.model:
    Path(args.model, "rows.txt").write_text(str(rows))
print("counted", rows, "rows")
