"""Names of environments: the curated ones, and today's meaning of Azure ML's names. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

CURATED = (
    "pytorch",
    "tensorflow",
    "keras",
    "horovod-torch",
    "horovod-tensorflow",
    "horovod-compat",
    "deepspeed",
    "lightning",
    "transformers",
    "jax",
    "sklearn",
)
FLAVOURS = ("cpu", "gpu")
_REGISTRY = re.compile(r"azureml://registries/[^/]+/environments/(?P<name>[^/:@]+).*")
_VERSIONED = re.compile(r"(?P<name>[^:@]+)(?:[:@].*)?")
_OLD = re.compile(
    r"azureml-.*|acpt-.*|tf-?\d.*|openmpi-?\d.*|minimal(-ubuntu.*)?|responsibleai.*"
    r"|(pytorch|tensorflow|keras|sklearn|scikit-learn|lightgbm|xgboost|dask)-?v?\d.*"
)
# A part of an old name, and the curated environment that it means: alone, and with MPI.
_MEANINGS = (
    (r"tensorflow.*horovod|horovod.*tensorflow|tf.*horovod", "horovod-tensorflow", "horovod-tensorflow"),
    (r"horovod", "horovod-torch", "horovod-torch"),
    (r"deepspeed", "deepspeed", "deepspeed"),
    (r"acpt", "pytorch", "deepspeed"),
    (r"lightning", "lightning", "lightning"),
    (r"transformers|huggingface|hugging-face", "transformers", "transformers"),
    (r"keras", "keras", "keras"),
    (r"tensorflow|(^|-)tf\d", "tensorflow", "tensorflow"),
    (r"pytorch|torch", "pytorch", "pytorch"),
    (r"sklearn|scikit|lightgbm|xgboost|automl|responsibleai|tabular|dask", "sklearn", "sklearn"),
    (r"(^|-)jax", "jax", "jax"),
)
_WITH_HOROVOD = {
    "pytorch": "horovod-torch",
    "deepspeed": "horovod-torch",
    "tensorflow": "horovod-tensorflow",
    "keras": "horovod-tensorflow",
}
_WITH_MODULE = {
    "deepspeed": "deepspeed",
    "lightning": "lightning",
    "pytorch_lightning": "lightning",
    "transformers": "transformers",
    "accelerate": "transformers",
    "datasets": "transformers",
}
_TENSORFLOW_1 = re.compile(r"(tensorflow|tf)-?1\.\d")
# Images that contain an operating system, Python, conda or MPI, and no framework.
_PLAIN_IMAGE = re.compile(
    r"mcr\.microsoft\.com/(azureml|mirror|devcontainers)/.*"
    r"|((docker\.io/)?library/|docker\.io/)?(python|ubuntu|debian|buildpack-deps|bash|busybox|alpine)"
    r"|(docker\.io/)?(continuumio|condaforge|mambaorg|nvidia)/[\w.-]*(conda|mamba|forge|cuda)[\w.-]*"
)
_CURATED_IMAGE = re.compile(r"mcr\.microsoft\.com/azureml/curated/(?P<name>[^/]+)")
# Images published by the makers of a framework.
_FRAMEWORK_IMAGE = re.compile(
    r"(docker\.io/|nvcr\.io/)?(?P<owner>pytorch|tensorflow|nvidia|huggingface|horovod)/(?P<name>[\w.-]+)"
)
_BARE = re.compile(r"minimal|tutorial|openmpi|base|python-?\d|mlflow|inference")


def with_imports(name: str, modules: Collection[str], is_mpi: bool) -> tuple[str, str] | None:
    """The curated environment for a name of Azure ML's when the script imports a certain module, and that module.

    In Azure ML, PyTorch's images contained more than one environment here. None: the meaning of the name alone.
    """
    found = meaning(name, is_mpi)
    if found is None or not found.old:
        return None
    if is_mpi and "horovod" in modules and found.curated in _WITH_HOROVOD:
        return _WITH_HOROVOD[found.curated], "horovod"
    for module, other in _WITH_MODULE.items():
        if module in modules and found.curated in ("pytorch", "deepspeed"):
            return (other, module) if other != found.curated else None
    return None


def is_azure(name: str) -> bool:
    """Whether a name is one of Azure ML's for a curated environment."""
    found = meaning(name, is_mpi=False)
    return found is not None and found.old


def azure_notice(name: str, curated: str | None) -> str:
    """A notice of the meaning of a name of Azure ML's; None: no framework."""
    if curated is None:
        return f"environment {name} holds no framework: the job runs in the current Python"
    said = f"environment {name} is a name of Azure ML's; it stands for {curated}"
    if _TENSORFLOW_1.search(bare(name).lower()):
        said += (
            ", which holds TensorFlow 2: TensorFlow 1 exists for no Python of today, and its calls are in tf.compat.v1"
        )
    return said


@dataclass(frozen=True)
class Meaning:
    """The meaning of a name."""

    curated: str | None
    """None: no framework at all; the current Python."""
    flavour: str | None = None
    """From the name itself; None if it depends on the nodes."""
    old: bool = False
    """It is a name of Azure ML's."""


def of_image(image: str, is_mpi: bool) -> Meaning | None:
    """The contents of a public image that also work without it; None for an image with unknown contents."""
    name = image.split("@")[0]
    head, _, last = name.rpartition("/")
    name = f"{head}/{last.split(':')[0]}" if head else last.split(":")[0]
    if match := _CURATED_IMAGE.fullmatch(name):
        return meaning(f"AzureML-{match['name']}", is_mpi)
    if _PLAIN_IMAGE.fullmatch(name):
        return Meaning(None)
    if match := _FRAMEWORK_IMAGE.fullmatch(name):
        return meaning(f"AzureML-{match['owner']}-{match['name']}", is_mpi)
    return None


def bare(name: str) -> str:
    """A name without `azureml:`, registry, version and label."""
    match = _REGISTRY.fullmatch(name) or _VERSIONED.fullmatch(name.removeprefix("azureml:"))
    return match["name"] if match else name


def version_of(name: str) -> str | None:
    """The version in `NAME:VERSION`; None for the newest."""
    head, mark, version = name.removeprefix("azureml:").partition(":")
    return version if mark and "//" not in name and head else None


def meaning(name: str, is_mpi: bool) -> Meaning | None:
    """The meaning of a name; None for one that is not curated."""
    text = bare(name).lower()
    stem, _, flavour = text.rpartition("-")
    if text in CURATED:
        return Meaning(text)
    if stem in CURATED and flavour in FLAVOURS:
        return Meaning(stem, flavour)
    if not _OLD.fullmatch(text) and not name.startswith("azureml://registries/"):
        return None
    for pattern, alone, with_mpi in _MEANINGS:
        if re.search(pattern, text):
            return Meaning(with_mpi if is_mpi else alone, old=True)
    return Meaning(None, old=True) if _BARE.search(text) else None
