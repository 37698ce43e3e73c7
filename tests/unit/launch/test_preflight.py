from __future__ import annotations

import pytest

from muster.job.parts import Distribution, Mpi, PyTorch, Resources, TensorFlow
from muster.job.spec import JobSpec
from muster.launch.preflight import disagreement, joined_notices, needs, shm_bytes
from muster.wire.codec import from_json, to_json
from muster.wire.node.agents import Facts
from muster.wire.node.plan import Needs


def needed(
    command: str | tuple[str, ...], distribution: Distribution | None = None, nodes: int = 1, **env: str
) -> Needs:
    resources = Resources(instance_count=nodes, shm_size="2g")
    spec = JobSpec(command=command, distribution=distribution, resources=resources, environment_variables=env)
    return needs(spec, 0, ("0", "1"))


@pytest.mark.parametrize(
    ("command", "programs", "required"),
    [
        (("torchrun", "--nproc-per-node", "4", "train.py"), ("torchrun",), ()),
        ("torchrun train.py", ("torchrun",), ()),
        ("accelerate launch train.py", ("accelerate",), ()),
        ("torchrun train.py || python train.py", (), ()),
        ("PATH=/opt/bin:$PATH torchrun train.py", (), ()),
        ("source env/bin/activate && torchrun train.py", (), ()),
        ("pip install torch\ntorchrun train.py", (), ()),
        ("/opt/env/bin/torchrun train.py", (), ()),
        ("python -m torch.distributed.launch train.py", (), ("torch",)),
        (("python3", "-u", "-m", "torch.distributed.run", "train.py"), (), ("torch",)),
        ("python -m mypackage.train", (), ()),
        ("python train.py", (), ()),
        ("echo 'unclosed", (), ()),
    ],
)
def test_only_what_the_command_certainly_starts_is_required(
    command: str | tuple[str, ...], programs: tuple[str, ...], required: tuple[str, ...]
) -> None:
    found = needed(command)
    assert (found.programs, found.required) == (programs, required)


def test_each_convention_looks_for_its_framework() -> None:
    assert needed("python train.py").modules == ()
    assert needed("python train.py", PyTorch()).modules == ("torch",)
    assert needed("python train.py", TensorFlow(worker_count=1)).modules == ("tensorflow",)
    assert "mpi4py" in needed("python train.py", Mpi()).modules
    assert needed("python -m torch.distributed.run x.py", PyTorch()).modules == ("torch",)


def test_ranks_ports_and_devices_are_told() -> None:
    found = needed("python train.py", PyTorch(process_count_per_instance=3), nodes=2, MASTER_PORT="7000")
    assert (found.ranks, found.port, found.devices, found.gpus) == (3, 7000, True, ("0", "1"))
    assert found.shm_bytes == 2 << 30
    assert not needed("python train.py", PyTorch()).devices
    assert from_json(Needs, to_json(found)) == found


def test_sizes_of_shared_memory() -> None:
    assert [shm_bytes(text) for text in (None, "512", "64k", "2G")] == [None, 512, 64 << 10, 2 << 30]


def fact(version: str = "", *notices: str) -> Facts:
    return Facts(versions={"torch": version} if version else {}, notices=notices)


def test_the_same_version_everywhere_is_agreement_and_none_is_no_disagreement() -> None:
    names = ["node-0", "node-1", "node-2"]
    assert disagreement(names, [fact("2.13.0"), fact("2.13.0"), fact("2.13.0")]) is None
    assert disagreement(names, [fact("2.13.0"), fact(), Facts()]) is None


def test_different_versions_name_both_nodes() -> None:
    said = disagreement(["node-0", "node-1", "node-2"], [fact("2.13.0"), fact("2.13.0"), fact("2.9.1")])
    assert said is not None
    assert said.startswith("torch is 2.13.0 on node-0 and 2.9.1 on node-2;")


def test_what_several_nodes_say_is_told_once() -> None:
    assert joined_notices(["a", "b", "c"], [fact("", "no torch"), fact("", "no torch", "no shm"), Facts()]) == [
        "a, b: no torch",
        "b: no shm",
    ]
