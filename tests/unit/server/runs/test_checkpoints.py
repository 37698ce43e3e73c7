"""Which published parts make a checkpoint that an attempt can resume from."""

from types import SimpleNamespace

from muster.server.runs.checkpoints import complete_sets


def part(number, name, attempt=1, node_rank=0, files=()):
    return SimpleNamespace(id=number, name=name, attempt=attempt, node_rank=node_rank, files=list(files), at=number)


def file(path, sha256):
    return {"path": path, "sha256": sha256, "size": 1}


def test_the_newest_comes_first():
    found = complete_sets([part(1, "step_1"), part(2, "step_2"), part(3, "step_1", attempt=2)])
    assert [(item.attempt, item.name) for item in found] == [(2, "step_1"), (1, "step_2"), (1, "step_1")]


def test_a_name_that_is_used_again_is_another_checkpoint():
    assert [item.id for item in complete_sets([part(1, "last"), part(2, "last")])] == [2, 1]


def test_where_nodes_write_parts_all_of_them_are_needed():
    rows = [
        part(1, "step_1", node_rank=0),
        part(2, "step_1", node_rank=1),
        part(3, "step_2", node_rank=1),
        part(4, "step_3", node_rank=0),
        part(5, "step_3", node_rank=1),
        part(6, "step_4", node_rank=0),
    ]
    assert [item.name for item in complete_sets(rows)] == ["step_3", "step_1"]


def test_files_of_one_name_are_kept_apart_where_they_differ():
    rows = [
        part(1, "s", node_rank=0, files=[file("config", "c"), file("shard", "a")]),
        part(2, "s", node_rank=1, files=[file("config", "c"), file("shard", "b")]),
    ]
    (found,) = complete_sets(rows)
    assert [(item.target, item.part) for item in found.files()] == [
        ("config", 1),
        ("shard", 1),
        ("node_1/shard", 2),
    ]


def test_a_part_that_says_how_many_there_are_is_not_taken_for_the_whole():
    first = part(1, "step_1", node_rank=0, files=[file("part_0_of_2", "a")])
    assert complete_sets([first]) == []
    second = part(2, "step_1", node_rank=1, files=[file("part_1_of_2", "b")])
    assert [item.name for item in complete_sets([first, second])] == ["step_1"]


def test_one_part_of_one_is_the_whole_even_where_other_nodes_publish():
    rows = [part(1, "whole", files=[file("part_0_of_1", "a")]), part(2, "other", node_rank=1)]
    assert [item.name for item in complete_sets(rows)] == ["whole"]
