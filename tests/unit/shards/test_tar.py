"""Headers of tar files."""

from __future__ import annotations

import tarfile

import pytest

from muster.shards.tar import header


@pytest.mark.parametrize("name", ["000000.jpg", "999999.cls", "a" * 96 + ".bin", "é.jpg"])
@pytest.mark.parametrize("size", [0, 1, 511, 8**11 - 1])
def test_a_header_is_that_of_pythons_own_writer(name: str, size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    assert header(name, size) == member.tobuf(tarfile.USTAR_FORMAT)
