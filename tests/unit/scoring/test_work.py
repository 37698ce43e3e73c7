"""Mini-batches are the same in every attempt, and a piece of a table is read alone."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from muster.scoring.batch import tables, work
from muster.scoring.batch.rows import BadResult, rows_of
from muster.scoring.batch.work import Batch, Settings
from muster.wire.codec import to_json
from muster.wire.serving.batch import BatchSettings


def test_files_are_cut_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b/2", "a", "b/1", ".hidden", "_skipped/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    files = work.input_files(str(tmp_path))
    assert list(files) == ["a", "b/1", "b/2"]
    found = list(work.batches(str(tmp_path), files, "files", 2))
    assert [(batch.number, batch.names, batch.items) for batch in found] == [(0, ("a", "b/1"), 2), (1, ("b/2",), 1)]
    assert [Batch.of(batch.message()) for batch in found] == found


def test_other_files_or_another_size_make_another_plan() -> None:
    plan = work.plan_digest({"a": 1}, "files", 10)
    assert plan == work.plan_digest({"a": 1}, "files", 10)
    assert len({plan, work.plan_digest({"a": 2}, "files", 10), work.plan_digest({"a": 1}, "files", 9)}) == 3


@pytest.mark.parametrize(
    ("names", "form"),
    [(["a.csv", "b.CSV"], "csv"), (["a.jsonl"], "jsonl"), (["a.parquet"], "parquet"), (["a.csv", "b.jpg"], "files")],
)
def test_the_format_follows_from_the_names(names: list[str], form: str) -> None:
    assert work.format_of(names, "") == form
    assert work.format_of(names, "files") == "files"


def test_a_row_of_a_csv_may_have_several_lines(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    rows = [[str(number), 'two\nlines, "quoted"' if number % 3 == 0 else "x"] for number in range(50)]
    with file.open("w", newline="") as target:
        csv.writer(target).writerows([["id", "text"], *rows])
    pieces = list(tables.pieces(str(file), "csv", 7))
    assert sum(count for _, _, count in pieces) == 50 and max(count for _, _, count in pieces) == 7
    read = [tables.read(str(file), "csv", begin, end) for begin, end, _ in pieces]
    assert [len(part) for part in read] == [count for _, _, count in pieces]
    assert [str(value) for part in read for value in part["id"]] == [row[0] for row in rows]
    assert read[0]["text"][0] == 'two\nlines, "quoted"'


def test_json_lines_and_parquet_are_read_piece_by_piece(tmp_path: Path) -> None:
    lines = tmp_path / "t.jsonl"
    lines.write_text("".join(json.dumps({"id": number}) + "\n" for number in range(10)) + "\n")
    pieces = list(tables.pieces(str(lines), "jsonl", 4))
    assert [count for _, _, count in pieces] == [4, 4, 2]
    assert [int(value) for begin, end, _ in pieces for value in tables.read(str(lines), "jsonl", begin, end)["id"]] == [
        *range(10)
    ]
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"id": list(range(10))}), table, row_group_size=3)
    pieces = list(tables.pieces(str(table), "parquet", 4))
    assert [
        int(value) for begin, end, _ in pieces for value in tables.read(str(table), "parquet", begin, end)["id"]
    ] == [*range(10)]


@pytest.mark.parametrize("content", [b"", b"id\n", b"id\n\n\n"])
def test_a_table_without_rows_has_no_pieces(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    assert not list(tables.pieces(str(tmp_path / "t.csv"), "csv", 5))


def test_a_quote_that_is_not_closed_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id\n"1\n2\n')
    with pytest.raises(tables.BadTable, match="quote"):
        list(tables.pieces(str(tmp_path / "t.csv"), "csv", 5))


def test_results_become_one_line_each() -> None:
    assert rows_of(["a\nb", {"x": 1}, 2.5, b"raw"]) == ["a b", '{"x": 1}', "2.5", "raw"]
    # A file's name that is no text (b"\xe9.txt") is kept as far as a line of UTF-8 can have it.
    assert rows_of(["\udce9.txt"]) == ["?.txt"]
    for wrong in ("text", None, 5):
        with pytest.raises(BadResult):
            rows_of(wrong)


def test_the_settings_that_a_client_sends_are_those_that_a_rank_reads() -> None:
    sent = to_json(BatchSettings("s.py", ("-x",), "csv", 7, "per_file", "out.csv", 1, 9.0, 3, 2))
    assert Settings.parse(json.dumps(sent)).dump() == json.dumps(sent)
