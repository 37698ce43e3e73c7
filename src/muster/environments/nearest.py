"""Substitutes for what an environment cannot get: the nearest Python, pip's name of a conda package. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from muster.environments.venvs import interpreters

Version = tuple[int, ...]
# The names in conda and pip; empty for a package that comes with others or with the machine.
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


_MLFLOW = re.compile(r"(?P<name>mlflow(?:-skinny)?)\s*(?:(?:==|<=|<|~=)\s*[01]\b.*|<\s*2(?:\.0)*)", re.IGNORECASE)
_MLFLOW_OF_TODAY = ">=2.22,<3"


def modern_mlflow(pip: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The same packages with an MLflow that works with current packages, and the notices about it.

    MLflow 1 sets no upper bounds for its dependencies, so that pip combines it with versions that it cannot import.
    """
    lines, notices = [], []
    names = [re.split(r"[\[\s=<>!~;]", line.strip().lower(), maxsplit=1)[0] for line in pip]
    for line in pip:
        if match := _MLFLOW.fullmatch(line.strip()):
            lines.append(f"{match['name']}{_MLFLOW_OF_TODAY}")
            notices.append(f"{line.strip()} cannot be imported together with current packages: {lines[-1]} is taken")
        elif "azureml-mlflow" in names and line.strip() in ("mlflow", "mlflow-skinny"):
            # It asks for MLflow 2; scripts that log models in its way fail with the defaults of 3.
            lines.append(f"{line.strip()}{_MLFLOW_OF_TODAY}")
            notices.append(f"azureml-mlflow goes with MLflow 2: {lines[-1]} is taken")
        else:
            lines.append(line)
    if "azureml-mlflow" in names and not any(name in ("mlflow", "mlflow-skinny") for name in names):
        # It installs MLflow as well.
        lines.append(f"mlflow-skinny{_MLFLOW_OF_TODAY}")
    return tuple(lines), tuple(notices)


# The first version of each that was built for NumPy 2; earlier ones set no upper bound for it.
_FOR_NUMPY_2 = {
    "pandas": (2, 2, 2),
    "scikit-learn": (1, 4, 2),
    "scipy": (1, 13),
    "matplotlib": (3, 9),
    "torch": (2, 3),
    "tensorflow": (2, 18),
    "tensorflow-cpu": (2, 18),
    "tensorflow-gpu": (99,),
    "pyarrow": (16,),
    "h5py": (3, 11),
    "numba": (0, 60),
    "opencv-python": (4, 10),
    "opencv-python-headless": (4, 10),
    "scikit-image": (0, 23),
    "statsmodels": (0, 14, 2),
    "xgboost": (2, 1),
    "pywavelets": (1, 6),
    "shapely": (2, 0, 4),
    "pytables": (3, 9),
}
_PIN = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*(?:==|<=|<|~=)\s*(?P<version>\d+(?:\.\d+)*)")


_OLD_XGBOOST = re.compile(r"xgboost(?:-cpu)?\s*(?:==|<=|<|~=)\s*(?:0|1\.[0-5])\b.*", re.IGNORECASE)


def before_pandas_2(pip: Sequence[str]) -> str:
    """The package that imports what pandas 2 has removed, if nothing bounds pandas; empty if there is none."""
    bounded = any(re.match(r"pandas\s*(?:==|<|~=)", line.strip(), re.IGNORECASE) for line in pip)
    return "" if bounded else next((line.strip() for line in pip if _OLD_XGBOOST.fullmatch(line.strip())), "")


def before_numpy_2(pip: Sequence[str]) -> str:
    """The package pinned to a version from before NumPy 2, if nothing bounds NumPy; empty if there is none."""
    names = [re.split(r"[\[\s=<>!~;]", line.strip().lower(), maxsplit=1)[0] for line in pip]
    if any(name == "numpy" and line.strip().lower() != "numpy" for name, line in zip(names, pip, strict=True)):
        return ""
    for line in pip:
        if match := _PIN.match(line.strip()):
            first = _FOR_NUMPY_2.get(match["name"].lower().replace("_", "-"))
            version = tuple(int(part) for part in match["version"].split("."))
            if first is not None and version < first:
                return line.strip()
    return ""


def nearest_python(wanted: str, here: Sequence[Version]) -> Version | None:
    """The available version nearest to the wanted one: the next newer one, or else the newest; None without any."""
    usable = sorted({version for version in here if version >= interpreters.OLDEST})
    if not usable:
        return None
    given = [version for sign, version in interpreters.clauses(wanted) if sign in ("=", "~=", ">=", "<=", "<", ">")]
    least = min(given, default=interpreters.OLDEST)
    newer = [version for version in usable if version[: len(least)] >= least]
    return min(newer, key=lambda version: version[:2]) if newer else usable[-1]


def pip_requirements(conda: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """conda's packages as requirements of pip, and those that have no counterpart in pip."""
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
    """`=1.21`, `==1.21.2=build`, `>=1,<2` in pip's syntax."""
    if not text:
        return ""
    plain = text.strip().replace(" ", "")
    if not plain.startswith("=") or plain.startswith("=>"):
        return plain
    version = plain.lstrip("=").split("=", 1)[0]
    is_exact = plain.startswith("==") or version.count(".") >= 2
    return f"=={version}" if is_exact or version.endswith("*") else f"=={version}.*"
