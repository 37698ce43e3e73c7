"""Headers of tar files."""

from __future__ import annotations

import tarfile

import pytest

from muster.shards.tar import ABSENT, Places, header, places_from_text


@pytest.mark.parametrize("name", ["000000.jpg", "999999.cls", "a" * 96 + ".bin", "é.jpg"])
@pytest.mark.parametrize("size", [0, 1, 511, 8**11 - 1])
def test_a_header_is_that_of_pythons_own_writer(name: str, size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    assert header(name, size) == member.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.parametrize("place", [(-5, 100), (10, -4), (990, 11), (-1, 5)])
def test_places_outside_of_the_shard_are_not_believed(place: tuple[int, int]) -> None:
    good = Places(1000, ["a", "b"], {"jpg": [(512, 20), ABSENT]})
    assert places_from_text(good.to_text(), 1000) == good
    assert places_from_text(Places(1000, ["a", "b"], {"jpg": [place, ABSENT]}).to_text(), 1000) is None
