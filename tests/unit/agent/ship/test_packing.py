"""Which files go together."""

from __future__ import annotations

from pathlib import Path

from muster.agent.ship.files import _BATCH_BYTES, _BATCH_FILES, _SMALL_BYTES, pack


def made(folder: Path, sizes: dict[str, int]) -> dict[str, Path]:
    for name, size in sizes.items():
        with (folder / name).open("wb") as file:
            file.truncate(size)
    return {name: folder / name for name in sizes}


def test_every_file_is_packed_once_small_ones_together_and_large_ones_alone(tmp_path: Path) -> None:
    sizes = {f"s{number}": 10 for number in range(_BATCH_FILES + 10)} | {"l": _SMALL_BYTES + 1, "m": _SMALL_BYTES}
    parcels = pack(made(tmp_path, sizes))
    assert sorted(name for parcel in parcels for name, _ in parcel) == sorted(sizes)
    assert sorted(len(parcel) for parcel in parcels) == [1, 11, _BATCH_FILES]


def test_a_call_stays_within_its_bytes(tmp_path: Path) -> None:
    parcels = pack(made(tmp_path, {f"{number}": _SMALL_BYTES for number in range(40)}))
    held = [sum(path.stat().st_size for _, path in parcel) for parcel in parcels]
    assert sum(held) == 40 * _SMALL_BYTES and max(held) <= _BATCH_BYTES


def test_a_file_that_is_gone_meanwhile_is_found_out_when_it_is_sent(tmp_path: Path) -> None:
    assert pack({"gone": tmp_path / "gone"}) == [[("gone", tmp_path / "gone")]]
