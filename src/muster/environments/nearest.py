"""Where an environment asks for what cannot be had: the nearest Python, pip's name of a conda package. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from muster.environments.venvs import interpreters

Version = tuple[int, ...]
# conda's name, and pip's; empty for what comes with others or with the machine.
_OF_CONDA = {
    "pytorch": "torch",
    "pytorch-gpu": "torch",
    "pytorch-cpu": "torch",
    "tensorflow-gpu": "tensorflow",
    "matplotlib-base": "matplotlib",
    "opencv": "opencv-python-headless",
    "py-xgboost": "xgboost",
    "py-lightgbm": "lightgbm",
    "pytables": "tables",
    "msgpack-python": "msgpack",
    "python-dateutil": "python-dateutil",
    "cudatoolkit": "",
    "cuda": "",
    "cudnn": "",
    "nccl": "",
    "pytorch-cuda": "",
    "pytorch-mutex": "",
    "cpuonly": "",
    "mkl": "",
    "blas": "",
    "libgcc": "",
    "libgcc-ng": "",
    "libstdcxx-ng": "",
    "gcc": "",
    "gxx": "",
    "gcc_linux-64": "",
    "gxx_linux-64": "",
    "git": "",
    "setuptools": "",
    "wheel": "",
}
_CONDA = re.compile(r"(?:[\w./-]+::)?(?P<name>[A-Za-z0-9_][\w.-]*)\s*(?P<version>[=<>!~].*)?")


def nearest_python(wanted: str, here: Sequence[Version]) -> Version | None:
    """The version here that is nearest to what is wanted: the next newer one, or else the newest; None without any."""
    usable = sorted({version for version in here if version >= interpreters.OLDEST})
    if not usable:
        return None
    given = [version for sign, version in interpreters.clauses(wanted) if sign in ("=", "~=", ">=", "<=", "<", ">")]
    least = min(given, default=interpreters.OLDEST)
    newer = [version for version in usable if version[: len(least)] >= least]
    return min(newer, key=lambda version: version[:2]) if newer else usable[-1]


def pip_requirements(conda: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """conda's packages as requirements of pip, and those that pip has no use for."""
    found, left_out = [], []
    for text in conda:
        match = _CONDA.fullmatch(text.strip())
        name = match["name"].lower() if match else text
        known = _OF_CONDA.get(name, name)
        if match is None or not known:
            left_out.append(text)
        else:
            found.append(f"{known}{_version(match['version'])}")
    return tuple(found), tuple(left_out)


def _version(text: str | None) -> str:
    """`=1.21`, `==1.21.2=build`, `>=1,<2` as pip writes them."""
    if not text:
        return ""
    plain = text.strip().replace(" ", "")
    if not plain.startswith("=") or plain.startswith("=>"):
        return plain
    version = plain.lstrip("=").split("=", 1)[0]
    is_exact = plain.startswith("==") or version.count(".") >= 2
    return f"=={version}" if is_exact or version.endswith("*") else f"=={version}.*"
