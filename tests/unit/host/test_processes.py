"""What the kernel tells of processes that it killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.host.processes import oom_kills


def write(root: Path, files: dict[str, str]) -> str:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return f"{root}/"


MACHINE = {"proc/vmstat": "pgfault 7\noom_kill 31\ndrop_pagecache 0\n"}
V2 = "low 0\nhigh 0\nmax 4\noom 2\noom_kill 2\noom_group_kill 0\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/user.slice/a\n", "sys/fs/cgroup/user.slice/a/memory.events": V2}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.events": V2}, 2),
        ({"proc/self/cgroup": "0::/\n"}, 31),
        ({"proc/self/cgroup": "0::/user.slice/no-memory-controller\n"}, 31),
        ({"proc/self/cgroup": "4:memory:/job_7\n0::/\n", "sys/fs/cgroup/memory/job_7/memory.oom_control": V1}, 3),
        ({"proc/self/cgroup": "2:cpu,memory:/outside/a:b\n", "sys/fs/cgroup/memory/memory.oom_control": V1}, 3),
        ({"proc/self/cgroup": "4:memory:/\n0::/\n", "sys/fs/cgroup/memory/memory.oom_control": V1}, 31),
        # Kernels before 4.13 do not count there.
        (
            {"proc/self/cgroup": "4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.oom_control": "oom_kill_disable 0\n"},
            31,
        ),
        ({}, 31),
    ],
)
def test_kills_are_counted_in_the_own_memory_cgroup_where_there_is_one(tmp_path, files, expected) -> None:
    assert oom_kills(write(tmp_path, {**MACHINE, **files})).kills == expected


def test_nothing_is_known_without_proc(tmp_path) -> None:
    assert oom_kills(f"{tmp_path}/").kills == 0
