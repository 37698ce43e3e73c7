"""A node of a cluster in a virtual machine whose kernel mounts a file server over NFS: `make second-kernel`.

For machines whose own kernel has no NFS client. It needs root, qemu-system-x86, busybox-static and nfs-ganesha, fetches
Debian's cloud kernel with apt, and takes some minutes: the machine is emulated. The node's folder is locked here, so
that the engine takes the agent inside for the one that it started; everything else is as on any cluster.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil

from muster.client.api import Client
from muster.client.connect import connect
from muster.client.fileservers.calls import FileServers, new_file_server
from muster.client.submit import submit
from muster.client.workspace import create_workspace
from muster.host.files import read_json, write_json
from muster.host.locks import FileLock
from muster.job.explain import make_spec
from muster.paths import NodePaths
from muster.wire.codec import from_json, to_json
from muster.wire.node.agents import AgentConfig

REPOSITORY = Path(__file__).parents[2]
MODULES = (
    *("virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci"),
    *("failover", "net_failover", "virtio_net"),
    *("sunrpc", "grace", "lockd", "netfs", "fscache", "dns_resolver", "nfs", "auth_rpcgss", "nfsv4"),
)
HOST = "10.0.2.2"
"""This machine, as the guest sees it."""
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /root
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
for pass in 1 2 3; do for module in {modules}; do insmod /modules/$module.ko 2>/dev/null; done; done
ip link set lo up; ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0; ip route add default via 10.0.2.2
hostname vm-0
export PATH=/bin:/usr/bin HOME=/root PYTHONPATH=/muster PYTHONDONTWRITEBYTECODE=1
echo "guest: $(uname -sr), $(grep -w nfs4 /proc/filesystems | tr -d '\\t ')"
/usr/bin/python3 -m muster.agent /agent.json
echo "guest: the agent ended with $?"; tail -20 {log}
poweroff -f
"""
COMMAND = """
uname -r
grep $MUSTER_MOUNTS/pictures /proc/mounts
grep $MUSTER_MOUNTS/own /proc/mounts
for mount in pictures own; do
    find $MUSTER_MOUNTS/$mount/ -type f | wc -l
    sha256sum < $MUSTER_MOUNTS/$mount/set/large.bin
    touch $MUSTER_MOUNTS/$mount/x || true
done
"""


def main() -> None:
    missing = [name for name in ("qemu-system-x86_64", "busybox", "ganesha.nfsd", "ldd") if shutil.which(name) is None]
    if missing or os.getuid() != 0:
        sys.exit(f"this needs root, and these programs: {', '.join(missing) or 'all are there'}")
    kernel = fetched_kernel(REPOSITORY / "build" / "second-kernel")
    with tempfile.TemporaryDirectory(prefix="muster-kernel-") as folder:
        root = Path(folder)
        client = connect(create_workspace(root / "w"))
        try:
            run_there(client, root, kernel)
        finally:
            with suppress(Exception):
                client.shutdown(force=True)
            client.close()


def run_there(client: Client, root: Path, kernel: Path) -> None:
    """Serve files here, have a node inside mount and read them, and say what it printed."""
    large = os.urandom(24 << 20)
    source = root / "source" / "set"
    source.mkdir(parents=True)
    (source / "large.bin").write_bytes(large)
    (source / "small.txt").write_text("small\n")
    servers, mounts = FileServers(client.calls), []
    # What has a # in its path is served by Muster's own server.
    for name, folder, program in (("pictures", "served", "nfs-ganesha"), ("own", "served#", "Muster's own server")):
        servers.create(new_file_server(name, "1GB", folder=str(root / folder)))
        view = servers.until_served(name)
        say(f"host: {os.uname().release}; {program} serves {view.export} at {view.address}:{view.port}")
        shutil.copytree(source, root / folder / "data" / "set")
        mounts.append({"source": f"nfs://{HOST}:{view.port}{view.export}", "target": name})
    paths = NodePaths(root / "w" / ".muster" / "nodes" / "vm-0")
    paths.root.mkdir(parents=True)
    with FileLock(paths.lock).acquire():
        client.create_cluster("vm", options={"max_nodes": 1, "min_nodes": 1, "cpus": 1, "mounts": mounts})
        run = submit(client, make_spec({"command": COMMAND, "compute": "vm"}), root, python="/usr/bin/python3").id
        wait(paths.config.exists, 60, "the node's configuration")
        config = from_json(AgentConfig, read_json(paths.config))
        with forwarded(config.server[0].removeprefix("unix:")) as port:
            inside = replace(config, server=(f"http://{HOST}:{port}",), address="10.0.2.15")
            image = packed(root / "guest", kernel, inside)
            with machine(kernel, image):
                wait(lambda: client.run(run).status in ("Completed", "Failed", "Canceled"), 600, "the run")
        ended = client.run(run)
        printed = client.read_file(run, "user_logs/std_log.txt").decode()
        say(f"run: {ended.status} {ended.verdict.message if ended.verdict else ''}")
        say(printed)
        if printed.count(hashlib.sha256(large).hexdigest()) != 2 or printed.count(" nfs4 ") != 2:
            sys.exit("the guest did not read the files over NFS")
    say("the kernel's own NFS client read what both file servers hold")


def fetched_kernel(folder: Path) -> Path:
    """Debian's kernel for virtual machines with its modules, unpacked."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("k/boot/vmlinuz-*")):
        depends = subprocess.run(
            ["apt-cache", "depends", "linux-image-cloud-amd64"], check=True, capture_output=True, text=True
        ).stdout
        (name,) = re.findall(r"Depends: (linux-image-\S+)", depends)
        subprocess.run(["apt-get", "download", name], cwd=folder, check=True)
        (package,) = folder.glob("linux-image-*.deb")
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder / "k")], check=True)
    return folder / "k"


def packed(root: Path, kernel: Path, config: AgentConfig) -> Path:
    """The guest's files: a shell, Python, Muster and the modules of an NFS client."""
    for name in ("bin", "modules", "muster", "usr/bin", "etc"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("busybox", "bash"):
        shutil.copy(shutil.which(name) or "", root / "bin" / name)
    for module in MODULES:
        for found in kernel.rglob(f"{module}.ko"):
            shutil.copy(found, root / "modules")
    python = Path(shutil.which("python3", path="/usr/bin") or "").resolve()
    shutil.copy(python, root / "usr" / "bin" / "python3")
    library = Path("/usr/lib") / python.name
    unwanted = shutil.ignore_patterns("__pycache__", "test", "idlelib", "lib2to3", "ensurepip", "tkinter", "config-*")
    shutil.copytree(
        library, root / library.relative_to("/"), ignore=unwanted, symlinks=False, ignore_dangling_symlinks=True
    )
    loaded = (Path("/bin/bash"), python, *library.glob("lib-dynload/*.so"), *Path(psutil.__file__).parent.glob("*.so"))
    for program in loaded:
        copy_libraries(program, root)
    skipped = shutil.ignore_patterns("__pycache__", "portal", "*.csv")
    shutil.copytree(REPOSITORY / "src" / "muster", root / "muster" / "muster", ignore=skipped)
    shutil.copytree(
        Path(psutil.__file__).parent, root / "muster" / "psutil", ignore=shutil.ignore_patterns("__pycache__")
    )
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\n")
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n10.0.2.15 vm-0\n")
    write_json(root / "agent.json", to_json(config))
    (root / "init").write_text(INIT.format(modules=" ".join(MODULES), log=f"{config.root}/agent.log"))
    (root / "init").chmod(0o755)
    image = root.with_suffix(".img")
    with image.open("wb") as out:
        names = subprocess.run(["find", "."], cwd=root, check=True, capture_output=True).stdout
        subprocess.run(["busybox", "cpio", "-o", "-H", "newc"], cwd=root, input=names, stdout=out, check=True)
    return image


def copy_libraries(program: Path, root: Path) -> None:
    shown = subprocess.run(["ldd", str(program)], check=False, capture_output=True, text=True).stdout
    for path in re.findall(r"(/\S+)", shown):
        target = root / path.lstrip("/")
        if Path(path).is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


@contextmanager
def machine(kernel: Path, image: Path) -> Iterator[None]:
    (vmlinuz,) = kernel.glob("boot/vmlinuz-*")
    command = [
        "qemu-system-x86_64", "-m", "1024", "-nographic", "-no-reboot", "-nic", "user,model=virtio-net-pci",
        "-kernel", str(vmlinuz), "-initrd", str(image), "-append", "console=ttyS0 quiet no_timer_check rdinit=/init",
    ]  # fmt: skip
    guest = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    threading.Thread(target=tell, args=(guest,), daemon=True).start()
    try:
        yield
    finally:
        guest.kill()
        guest.wait()


def tell(guest: subprocess.Popen[bytes]) -> None:
    assert guest.stdout is not None
    for line in guest.stdout:
        text = line.decode(errors="replace").rstrip()
        if "guest:" in text or "--verbose" in sys.argv:
            say(text[max(0, text.find("guest:")) :])


@contextmanager
def forwarded(path: str) -> Iterator[int]:
    """A port of this machine behind which the server's socket is."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    theirs, _ = listening.accept()
                    ours = socket.socket(socket.AF_UNIX)
                    ours.connect(path)
                    for pair in ((theirs, ours), (ours, theirs)):
                        threading.Thread(target=pump, args=pair, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]


def pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


def wait(condition: object, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            sys.exit(f"{what} did not come within {seconds:.0f} s")
        time.sleep(0.5)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
