"""The command lines of container engines. Pure, standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

DOCKER, PODMAN, APPTAINER = "docker", "podman", "apptainer"
KINDS = (PODMAN, DOCKER, APPTAINER)
MARK, RUN, ATTEMPT = "muster.mark", "muster.run", "muster.attempt"
# Folders are mounted as they are, and must not get another label for that.
_SECURITY = ("--security-opt", "label=disable", "--security-opt", "no-new-privileges")


class Engine(NamedTuple):
    """A container engine of this host."""

    kind: str
    program: str
    rootless: bool = False


class Mount(NamedTuple):
    source: str
    target: str
    writable: bool = False


class Host(NamedTuple):
    """The parts of the host that go into a container."""

    uid: int
    gid: int
    gpus: bool = False
    rdma: Sequence[str] = ()
    """Device files of InfiniBand."""
    may_lock_memory: bool = False
    extra: Sequence[str] = ()
    """Arguments that this host's engine needs (MUSTER_CONTAINER_ARGS)."""


class AttemptContainer(NamedTuple):
    """The container of one attempt: its owner and its view of the host."""

    name: str
    mark: str
    run: str
    attempt: int
    work: str
    mounts: Sequence[Mount] = ()
    hostname: str = ""
    """Set if it may differ from the host's."""


def run_command(
    engine: Engine,
    image: str,
    attempt: AttemptContainer,
    host: Host,
    shm_bytes: int,
    args: Sequence[str],
    inside: Sequence[str],
) -> list[str]:
    """Run one attempt's container in the foreground, with `inside` as its process 1."""
    if engine.kind == APPTAINER:
        return _apptainer(engine, image, attempt, host, inside)
    command = [engine.program, "run", "--name", attempt.name, "--pull", "never", "--entrypoint", inside[0]]
    for key, value in ((MARK, attempt.mark), (RUN, attempt.run), (ATTEMPT, str(attempt.attempt))):
        command += ["--label", f"{key}={value}"]
    command += _hostname(attempt)
    command += ["--network", "host", "--shm-size", f"{shm_bytes}b", "--workdir", attempt.work]
    command += [*_user(engine, host), *_SECURITY, *_devices(engine, host)]
    for mount in attempt.mounts:
        command += ["--volume", f"{mount.source}:{mount.target}:{'rw' if mount.writable else 'ro'}"]
    return [*command, *host.extra, *args, image, *inside[1:]]


def _apptainer(engine: Engine, image: str, attempt: AttemptContainer, host: Host, inside: Sequence[str]) -> list[str]:
    # apptainer's containers share the host's network and user anyway, and end with their first process.
    command = [engine.program, "exec", "--containall", "--cleanenv", "--pid", "--no-init", "--pwd", attempt.work]
    command += _hostname(attempt)
    if host.gpus:
        command.append("--nv")
    # --containall would give it a small /dev/shm of its own.
    shared = Mount("/dev/shm", "/dev/shm", True)
    for mount in (shared, *(Mount(path, path, True) for path in host.rdma), *attempt.mounts):
        command += ["--bind", f"{mount.source}:{mount.target}:{'rw' if mount.writable else 'ro'}"]
    return [*command, *host.extra, image, *inside]


def _hostname(attempt: AttemptContainer) -> list[str]:
    return ["--hostname", attempt.hostname] if attempt.hostname else []


def _user(engine: Engine, host: Host) -> list[str]:
    own = ["--user", f"{host.uid}:{host.gid}"]
    # Without a root daemon, the user inside is mapped from the one outside.
    return [*own, "--userns", "keep-id"] if engine.kind == PODMAN and engine.rootless else own


def _devices(engine: Engine, host: Host) -> list[str]:
    """GPUs (all of them: CUDA_VISIBLE_DEVICES selects, as outside), and RDMA with its locked memory."""
    options: list[str] = []
    if host.gpus:
        options += ["--device", "nvidia.com/gpu=all"] if engine.kind == PODMAN else ["--gpus", "all"]
    for path in host.rdma:
        options += ["--device", path]
    if host.rdma:
        options += ["--cap-add", "IPC_LOCK"]
        if host.may_lock_memory:
            options += ["--ulimit", "memlock=-1:-1"]
    return options


def probe_command(engine: Engine, image: str, extra: Sequence[str], script: str) -> list[str]:
    """Run a short Python program in an image; it finds the modules that ranks would, which start in another folder."""
    script = f"import sys; sys.path[:] = [folder for folder in sys.path if folder]\n{script}"
    if engine.kind == APPTAINER:
        return [engine.program, "exec", "--containall", "--cleanenv", *extra, image, "python3", "-s", "-c", script]
    options = ["--rm", "--pull", "never", "--network", "none", "--entrypoint", "python3"]
    return [engine.program, "run", *options, *extra, image, "-s", "-c", script]


def pull_command(engine: Engine, image: str, auth_file: str = "", target: str = "") -> list[str]:
    """Fetch an image; apptainer stores it as a file."""
    if engine.kind == APPTAINER:
        return [engine.program, "pull", "--force", target, f"docker://{image}"]
    return [engine.program, *_docker_config(engine, auth_file), "pull", *_auth(engine, auth_file), image]


def push_command(engine: Engine, image: str, auth_file: str = "") -> list[str]:
    return [engine.program, *_docker_config(engine, auth_file), "push", *_auth(engine, auth_file), image]


def save_command(engine: Engine, image: str, file: str) -> list[str]:
    """Write an image with its name to a file, in the only format that both podman and docker read."""
    form = ["--format", "docker-archive"] if engine.kind == PODMAN else []
    return [engine.program, "save", *form, "--output", file, image]


def load_command(engine: Engine, file: str) -> list[str]:
    return [engine.program, "load", "--input", file]


def build_command(
    engine: Engine,
    image: str,
    folder: str,
    dockerfile: str,
    args: Mapping[str, str],
    auth_file: str = "",
    extra: Sequence[str] = (),
) -> list[str]:
    command = [engine.program, *_docker_config(engine, auth_file), "build", *_auth(engine, auth_file)]
    for name, value in sorted(args.items()):
        command += ["--build-arg", f"{name}={value}"]
    return [*command, *extra, "--tag", image, "--file", f"{folder}/{dockerfile}", folder]


def inspect_image_command(engine: Engine, image: str) -> list[str]:
    """Prints the image's id; fails if it is not here."""
    return [engine.program, "image", "inspect", "--format", "{{.Id}}", image]


def inspect_command(engine: Engine, name: str) -> list[str]:
    return [engine.program, "inspect", "--format", "{{.State.OOMKilled}}", name]


def remove_command(engine: Engine, *names: str) -> list[str]:
    return [engine.program, "rm", "--force", "--volumes", *names]


def list_command(engine: Engine, mark: str, key: tuple[str, int] | None = None) -> list[str]:
    """Prints the ids of a node's containers, or of those of one attempt."""
    command = [engine.program, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={MARK}={mark}"]
    if key is not None:
        command += ["--filter", f"label={RUN}={key[0]}", "--filter", f"label={ATTEMPT}={key[1]}"]
    return command


def _auth(engine: Engine, auth_file: str) -> list[str]:
    return ["--authfile", auth_file] if auth_file and engine.kind == PODMAN else []


def _docker_config(engine: Engine, auth_file: str) -> list[str]:
    return ["--config", auth_file.rpartition("/")[0]] if auth_file and engine.kind == DOCKER else []
