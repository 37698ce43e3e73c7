"""What a copy does with each file, before it does anything."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from muster.client.transfer.looking import Change, Difference, Shown, changes, difference, level
from muster.client.transfer.places import parse_place, stored
from muster.client.transfer.plan import Copy, decide, landing
from muster.errors import Conflict, JobError, UserError
from muster.wire.data.access import FileEntry

A = "azureml://datastores/blob/paths"


def lands(source: str, target: str, *, one_file: bool, into_folder: bool = False) -> tuple[str, str | None]:
    found = landing(parse_place(source), parse_place(target), one_file=one_file, into_folder=into_folder)
    return str(found.folder), found.one_name


@pytest.mark.parametrize(
    ("source", "target", "one_file", "into_folder", "expected"),
    [
        ("1.txt", f"{A}/renamed.txt", True, False, (f"{A}/", "renamed.txt")),
        ("1.txt", f"{A}/deep/renamed.txt", True, False, (f"{A}/deep", "renamed.txt")),
        ("1.txt", f"{A}/folder/", True, False, (f"{A}/folder", "1.txt")),
        ("1.txt", f"{A}/folder", True, True, (f"{A}/folder", "1.txt")),
        ("1.txt", "azureml://datastores/blob", True, True, (f"{A}/", "1.txt")),
        ("images", f"{A}/photos", False, False, (f"{A}/photos", None)),
        ("images", f"{A}/photos", False, True, (f"{A}/photos", None)),
        ("images", f"{A}/photos/", False, True, (f"{A}/photos/images", None)),
        (f"{A}/photos", "back", False, True, ("back", None)),
        (f"{A}/photos", ".", False, True, (".", None)),
        (f"{A}/a.txt", ".", True, True, (".", "a.txt")),
        ("https://example.com/data/train.csv?x=1", f"{A}/in/", True, False, (f"{A}/in", "train.csv")),
    ],
)
def test_a_copy_lands_where_cp_would_put_it(
    source: str, target: str, one_file: bool, into_folder: bool, expected: tuple[str, str | None]
) -> None:
    assert lands(source, target, one_file=one_file, into_folder=into_folder) == expected


def copies(**sizes: int) -> list[Copy]:
    return [Copy(FileEntry(name, size), name) for name, size in sizes.items()]


def there(**sizes: int) -> dict[str, FileEntry]:
    return {name: FileEntry(name, size) for name, size in sizes.items()}


def test_what_is_the_same_is_skipped_and_what_is_new_is_copied() -> None:
    asked: list[str] = []

    def identical(alike: Iterable[Copy]) -> set[str]:
        asked.extend(copy.name for copy in alike)
        return {"a"}

    plan = decide(copies(a=1, b=2, c=3), there(a=1, b=9), identical, overwrite=True)
    assert asked == ["a"], "contents are compared only where sizes are equal"
    assert [copy.name for copy in plan.copies] == ["b", "c"]
    assert plan.same == ("a",)
    assert plan.size == 5


def test_a_difference_is_refused_by_name_and_before_anything_moves() -> None:
    with pytest.raises(Conflict, match=r"b at the folder, and 1 more are there with another content"):
        decide(copies(a=1, b=2, c=3), there(b=9, c=9), lambda _: set(), overwrite=False, where="the folder")


def test_what_the_source_does_not_have_goes_only_when_asked() -> None:
    assert decide(copies(a=1), there(z=1), lambda _: set(), overwrite=True).removals == ()
    assert decide(copies(a=1), there(z=1, y=1), lambda _: set(), overwrite=True, delete=True).removals == ("y", "z")


def test_a_level_has_folders_with_what_is_below_them() -> None:
    files = [FileEntry("a/1", 10), FileEntry("a/b/2", 5), FileEntry("c", 1)]
    assert level(files) == [Shown("a/", 15, 2), Shown("c", 1, 1)]


def test_two_looks_say_what_came_changed_and_went() -> None:
    before = {"a": FileEntry("a", 1, etag="x"), "b": FileEntry("b", 1, etag="x"), "d": FileEntry("d", 1, etag="x")}
    now = {"a": FileEntry("a", 1, etag="y"), "c": FileEntry("c", 3), "d": FileEntry("d", 1, etag="x")}
    assert changes(before, now) == [Change("changed", "a", 1), Change("gone", "b", 1), Change("new", "c", 3)]


def test_only_a_datastore_can_be_written_to_by_commands_that_need_one() -> None:
    assert stored(f"{A}/x", "rm").path == "x"
    with pytest.raises(UserError, match="rm needs one"):
        stored("./images", "rm")
    with pytest.raises(JobError, match="leaves its store"):
        stored(f"{A}/../x", "rm")


def test_two_versions_are_compared_by_hashes_where_both_are_known() -> None:
    left = [FileEntry("a", 1, "x"), FileEntry("b", 1, "x"), FileEntry("c", 1), FileEntry("d", 1, "x")]
    right = [FileEntry("a", 1, "x"), FileEntry("b", 1, "y"), FileEntry("c", 1, "z"), FileEntry("e", 2, "x")]
    expected = (Change("changed", "b", 1), Change("gone", "d", 1), Change("new", "e", 2))
    assert difference(left, right) == Difference(expected, same=2, unknown=1)
