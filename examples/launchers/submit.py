"""Every example of this folder through the Python SDK: `python submit.py pytorch/torchrun`."""

import argparse
import shlex
from pathlib import Path

from muster import Experiment, ScriptRunConfig, Workspace
from muster.runconfig import MpiConfiguration, PyTorchConfiguration, TensorflowConfiguration

HERE = Path(__file__).parent
LAUNCH = shlex.split(
    "python -m torch.distributed.launch --nnodes 2 --nproc_per_node 2 --node_rank $NODE_RANK "
    "--master_addr $MASTER_ADDR --master_port $MASTER_PORT"
)
TORCHRUN = shlex.split(
    "torchrun --nnodes 2 --nproc-per-node 2 --node-rank $NODE_RANK "
    "--master-addr $MASTER_ADDR --master-port $MASTER_PORT"
)
ACCELERATE = shlex.split(
    "accelerate launch --multi_gpu --num_machines 2 --num_processes 4 --machine_rank $NODE_RANK "
    "--main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT --mixed_precision no --dynamo_backend no"
)
MPI = ("mpi/job", "horovod-torch/job", "horovod-tensorflow/job", "horovod-keras/job", "jax/job")
MPI += ("xgboost/job", "lightgbm/job", "dask/job")
TRAINER = shlex.split("--max_steps 40 --logging_steps 5 --learning_rate 3e-3")


def config(name: str) -> ScriptRunConfig:
    """The configuration that corresponds to the job file of the same name."""
    if name == "pytorch/job":
        # The v1 way to pass the local rank; a script that reads LOCAL_RANK needs no argument.
        return per_process("pytorch", ["--local_rank", "$LOCAL_RANK"])
    if name == "pytorch/torchrun":
        return per_node("pytorch", [*TORCHRUN, "train.py"])
    if name == "pytorch/launch":
        return per_node("pytorch", [*LAUNCH, "train.py"])
    if name == "pytorch/launch-use-env":
        return per_node("pytorch", [*LAUNCH, "--use_env", "train.py"])
    if name == "pytorch/one-node":
        command = ["torchrun", "--standalone", "--nproc-per-node", 2, "train.py"]
        return ScriptRunConfig(HERE / "pytorch", command=command, compute_target="local")
    if name == "accelerate/job":
        made = per_node("accelerate", [*ACCELERATE, "train.py"])
        made.run_config.environment_variables["ACCELERATE_USE_CPU"] = "true"
        return made
    if name == "lightning/job":
        return per_node("lightning", ["python", "train.py", "--num_nodes", 2, "--devices", 2])
    if name == "lightning/per-process":
        return per_process("lightning", ["--num_nodes", 2, "--devices", 2])
    if name == "transformers/job":
        return per_node("transformers", [*TORCHRUN, "train.py", *TRAINER])
    if name == "transformers/per-process":
        return per_process("transformers", TRAINER)
    if name in ("fsdp/job", "tensor-parallel/job", "pipeline/job", "keras/job"):
        return per_process(name.split("/")[0])
    if name in MPI:
        return mpi(name.split("/")[0])
    if name == "deepspeed/one-node":
        return ScriptRunConfig(
            source_directory=HERE / "deepspeed",
            command=["deepspeed", "--num_gpus", 2, "--master_port", "$MASTER_PORT", "train.py"],
            compute_target="local",
            distributed_job_config=PyTorchConfiguration(node_count=1),
        )
    if name.startswith("deepspeed/"):
        # deepspeed/job-2 is ZeRO stage 2 over MPI, deepspeed/pytorch-3 stage 3 over PyTorch.
        over, _, stage = name.removeprefix("deepspeed/").partition("-")
        return (mpi if over == "job" else per_process)("deepspeed", ["--stage", stage or 1])
    if name == "tensorflow/job":
        return tensorflow("tensorflow")
    if name == "tensorflow-keras/job":
        made = tensorflow("tensorflow-keras")
        made.run_config.environment_variables["TF_USE_LEGACY_KERAS"] = "1"
        return made
    if name in ("single/job", "scikit-learn/job"):
        return ScriptRunConfig(HERE / name.split("/")[0], script="train.py", compute_target="local")
    if name == "shell/job":
        command = "bash train.sh 50 && wc -c outputs/model.txt"
        return ScriptRunConfig(HERE / "shell", command=command, compute_target="local")
    raise SystemExit(f"there is no example {name}, or only a job file can say it")


def per_process(folder: str, arguments: list[str | int] | None = None) -> ScriptRunConfig:
    """Four processes on two nodes; the count is the total."""
    return ScriptRunConfig(
        source_directory=HERE / folder,
        script="train.py",
        arguments=arguments,
        compute_target="local",
        distributed_job_config=PyTorchConfiguration(process_count=4, node_count=2),
    )


def per_node(folder: str, command: list[str | int]) -> ScriptRunConfig:
    """One process on each node, which starts the rest."""
    return ScriptRunConfig(
        source_directory=HERE / folder,
        command=command,
        compute_target="local",
        distributed_job_config=PyTorchConfiguration(node_count=2),
    )


def mpi(folder: str, arguments: list[str | int] | None = None) -> ScriptRunConfig:
    return ScriptRunConfig(
        source_directory=HERE / folder,
        script="train.py",
        arguments=arguments,
        compute_target="local",
        distributed_job_config=MpiConfiguration(process_count_per_node=2, node_count=2),
    )


def tensorflow(folder: str) -> ScriptRunConfig:
    return ScriptRunConfig(
        source_directory=HERE / folder,
        script="train.py",
        compute_target="local",
        distributed_job_config=TensorflowConfiguration(worker_count=2, parameter_server_count=0),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="such as pytorch/job or deepspeed/pytorch-3")
    run = Experiment(Workspace.from_config(), "launchers").submit(config(parser.parse_args().name))
    run.wait_for_completion(show_output=True)
