from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from muster.agent import devices
from muster.agent.prepare import ports, preflight
from muster.agent.prepare.preflight import PythonCheck, check_machine
from muster.agent.refusal import Refusal
from muster.host.children import spawning
from muster.wire.node.agents import Facts
from muster.wire.node.plan import Needs

BIN = str(Path(sys.executable).parent)


def look(needs: Needs, user_env: Mapping[str, str] | None = None, root: Path = Path("/")) -> Facts:
    check_machine(needs, user_env or {}, root)
    return PythonCheck(needs, sys.executable, BIN, user_env or {}, root).result()


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with a framework in it that would end whoever imports it."""
    (tmp_path / "jaxlike").mkdir()
    (tmp_path / "jaxlike" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "jaxlike-1.2.3+cpu.dist-info").mkdir()
    return tmp_path


def test_versions_are_found_without_importing_anything(packages: Path) -> None:
    found = look(Needs(modules=("jaxlike", "psutil")), {"PYTHONPATH": str(packages)})
    assert found.versions["jaxlike"] == "1.2.3+cpu"
    assert found.versions["psutil"].count(".") == 2


def test_a_second_look_starts_no_process_until_something_is_installed(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"PYTHONPATH": str(packages)}
    looks: list[str] = []
    real = preflight._run_probe
    monkeypatch.setattr(preflight, "_run_probe", lambda *given: looks.append("look") or real(*given))
    first = look(Needs(modules=("jaxlike",)), env)
    assert look(Needs(modules=("jaxlike",)), env) == first
    assert len(looks) == 1
    (packages / "jaxlike-1.2.3+cpu.dist-info").rename(packages / "jaxlike-2.0.dist-info")
    os.utime(packages, ns=(1, 1))
    assert look(Needs(modules=("jaxlike",)), env).versions == {"jaxlike": "2.0"}
    assert len(looks) == 2


def test_a_missing_framework_is_a_refusal_only_where_the_command_runs_it() -> None:
    with pytest.raises(Refusal) as refused:
        look(Needs(modules=("nosuchframework",), required=("nosuchframework",)))
    assert refused.value.event.code == "environment"
    assert "has no nosuchframework (install it there with pip install nosuchframework" in str(refused.value)
    assert look(Needs(modules=("nosuchframework",))) == Facts()


def test_a_python_without_torch_is_told_about_it(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    found = PythonCheck(Needs(modules=("torch",)), str(bare), BIN, {}).result()
    assert len(found.notices) == 1
    assert "has no torch (install it there with pip install torch," in found.notices[0]


def test_a_python_that_cannot_be_asked_holds_nothing_up(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho nonsense\n")
    broken.chmod(0o755)
    assert PythonCheck(Needs(modules=("torch",), required=("torch",)), str(broken), BIN, {}).result() == Facts()


def test_a_python_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_PROBE_TIMEOUT_S", 0.2)
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nsleep 600\ntrue\n")
    hanging.chmod(0o755)
    assert PythonCheck(Needs(modules=("torch",)), str(hanging), BIN, {}).result() == Facts()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(_is_free, spawning).result()


def test_a_launcher_that_is_not_there_is_refused_with_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refused:
        look(Needs(programs=("torchrun",)), {"PATH": str(tmp_path)})
    assert refused.value.event.code == "launcher_missing"
    assert "begins with torchrun" in str(refused.value)
    assert "pip install torch" in str(refused.value)
    (tmp_path / "torchrun").touch(0o755)
    assert look(Needs(programs=("torchrun",)), {"PATH": str(tmp_path)}) == Facts()


def test_an_interface_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(Refusal) as refused:
        look(Needs(), {"GLOO_SOCKET_IFNAME": "nosuch0"})
    assert refused.value.event.code == "bad_input"
    assert "There are: " in str(refused.value)
    assert "lo" in str(refused.value)
    assert look(Needs(), {"GLOO_SOCKET_IFNAME": devices.interface_names()[0]}) == Facts()


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The files of a kernel that has two GPUs, InfiniBand, accelerated Ethernet and an adapter without a driver."""
    files = {
        "proc/driver/nvidia/gpus/0000:01:00.0/information": "",
        "proc/driver/nvidia/gpus/0000:02:00.0/information": "",
        "proc/self/status": "Name:\tagent\nCapEff:\t0000000000004000\n",
        "sys/class/net/eth0/type": "1\n",
        "sys/class/net/ib0/type": "32\n",
        "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        "sys/class/infiniband/mlx5_0/ports/1/rate": "100 Gb/sec (4X EDR)\n",
        "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
        "sys/class/infiniband/mlx5_0/device/net/ib0/type": "32\n",
        "sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n",
        "sys/class/infiniband/mlx5_1/ports/1/rate": "2.5 Gb/sec (1X SDR)\n",
        "sys/class/infiniband/mlx5_1/ports/1/link_layer": "Ethernet\n",
        "sys/bus/pci/devices/0003:00:00.0/class": "0x020700\n",
        "sys/bus/pci/devices/0001:00:00.0/class": "0x030200\n",
        "dev/infiniband/uverbs0": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    driver = tmp_path / "sys/bus/pci/drivers/mlx5_core"
    driver.mkdir(parents=True)
    (tmp_path / "sys/class/infiniband/mlx5_0/device/driver").symlink_to(driver)
    (tmp_path / "dev/shm").mkdir()
    return tmp_path


def test_devices_are_read_from_the_kernels_files(machine: Path) -> None:
    found = devices.gather(machine)
    assert [(item.name, item.kind) for item in found.interfaces] == [("eth0", "ethernet"), ("ib0", "infiniband")]
    first, second = found.rdma
    assert (first.name, first.link_layer, first.state, first.rate_gbit) == ("mlx5_0:1", "InfiniBand", "ACTIVE", 100)
    assert (first.driver, first.netdev) == ("mlx5_core", "ib0")
    assert (second.link_layer, second.state, second.rate_gbit) == ("Ethernet", "DOWN", 2.5)
    assert found.uverbs
    assert found.memlock_bytes is None
    assert found.idle_adapters == ("0003:00:00.0",)
    assert found.gpus == 2


def test_a_machine_without_any_of_these_files_is_a_plain_one(tmp_path: Path) -> None:
    found = devices.gather(tmp_path)
    assert (found.rdma, found.uverbs, found.idle_adapters, found.gpus) == ((), False, (), 0)


def test_gpus_that_are_not_as_promised_are_a_fault_of_the_node(machine: Path) -> None:
    assert look(Needs(gpus=("0", "1")), root=machine) == Facts()
    with pytest.raises(Refusal) as refused:
        look(Needs(gpus=("0", "1", "2")), root=machine)
    assert refused.value.event.code == "gpu_fault"
    assert "promised 3 GPUs (0, 1, 2), and the driver shows 2" in str(refused.value)
    with pytest.raises(Refusal):
        look(Needs(gpus=("2",)), root=machine)
    assert look(Needs(gpus=("MIG-a", "MIG-b", "MIG-c")), root=machine) == Facts()


def test_too_little_shared_memory_is_told(machine: Path) -> None:
    assert "asks for" in look(Needs(shm_bytes=1 << 60), root=machine).notices[0]
    assert "free for 1000000000 ranks" in look(Needs(ranks=10**9), root=machine).notices[0]
    (machine / "dev/shm").rmdir()
    assert "there is no /dev/shm" in look(Needs(ranks=2), root=machine).notices[0]


def test_devices_travel_only_where_the_plan_wants_them(machine: Path) -> None:
    assert look(Needs(devices=True), root=machine).devices.gpus == 2
    assert look(Needs(), root=machine) == Facts()


def test_a_chosen_port_that_is_taken_is_refused_and_says_by_whom(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Refusal) as refused:
            ports.hold(1, port, folder=tmp_path, chosen=port)
    assert f"MASTER_PORT is {port} as the job asks, and another program listens there" in str(refused.value)
    assert f"process {os.getpid()}" in str(refused.value)


def test_a_chosen_port_that_another_job_holds_is_refused(tmp_path: Path) -> None:
    (held,) = ports.hold(1, folder=tmp_path)
    with pytest.raises(Refusal, match="another job on this machine holds it"):
        ports.hold(1, held.port, folder=tmp_path, chosen=held.port)
    held.lock.release()
    (again,) = ports.hold(1, held.port, avoid=[held.port], folder=tmp_path, chosen=held.port)
    assert again.port == held.port, "a chosen port is chosen for every attempt"
    again.lock.release()


def _is_free(lock: threading.RLock) -> bool:
    free = lock.acquire(blocking=False)
    if free:
        lock.release()
    return free
