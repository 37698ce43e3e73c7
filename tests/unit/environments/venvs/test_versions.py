"""Versions that do not exist become the nearest that do."""

from __future__ import annotations

import pytest

from muster.environments.venvs.versions import candidates, exact, loosened, pinned


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("scikit-learn==0.20.3", "scikit-learn", "0.20.3"),
        ("numpy == 1.21.*", "numpy", "1.21"),
        ("horovod[pytorch]==0.19", "horovod[pytorch]", "0.19"),
        ("protobuf<3.20", "protobuf", ""),
        ("numpy~=1.18", "numpy", ""),
        ("numpy>=1.18", "", ""),
        ("numpy", "", ""),
        ("six @ file:///x.whl", "", ""),
        ("numpy==1.2; python_version<'3.8'", "", ""),
    ],
)
def test_pins_are_read(text: str, name: str, version: str) -> None:
    assert pinned(text) == (name, version)


def test_the_next_newer_version_is_tried_before_any() -> None:
    assert list(candidates("torch==1.6.0")) == [("torch==1.6.0", False), ("torch>=1.6.0", True), ("torch", False)]
    assert loosened("torch==1.6.0") == "torch>=1.6.0"
    assert (loosened("protobuf<3.20"), loosened("numpy>=1.18")) == ("protobuf", "numpy>=1.18")


def test_what_a_resolver_printed_is_read() -> None:
    assert exact("scikit-learn", "scikit-learn==1.1.3\n    # via -r x\n") == "scikit-learn==1.1.3"
    assert exact("scikit_learn", "scikit-learn==1.1.3") in ("scikit_learn==1.1.3", "")
    assert exact("torch", "torchvision==1\n") == ""
