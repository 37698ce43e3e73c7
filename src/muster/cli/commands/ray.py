"""Machines for the engine `ray`: `muster ray hosts` starts Ray on given ones, `muster ray file` describes a cloud's."""

from __future__ import annotations

import importlib.metadata
import io
import shlex
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
import yaml

from muster.cli.console import notice, say
from muster.cli.options import argument, option, switch
from muster.client.connect import connect
from muster.client.workspace import find_workspace
from muster.clusters.file import load_cluster_file
from muster.clusters.options import parse_options
from muster.engines.ray.machines import certificates
from muster.engines.ray.machines.launcher import Described, make_file
from muster.engines.ray.machines.starting import CA, CERTIFICATE, KEY, SECRETS, TOKEN, Host, Setup, command
from muster.engines.ray.options import RayOptions
from muster.errors import NotFound, UserError

Name = Annotated[str, argument("NAME", "The cluster's name.")]
Redis = Annotated[
    str,
    option("HOST:PORT", "A Redis in which the head keeps its tables, so that it survives (docs/ray.md).", "--redis"),
]
Hosts = Annotated[list[str], option("[USER@]ADDRESS", "A machine, the head first; repeatable.", "--host")]


def hosts(
    name: Name,
    host: Hosts,
    ssh: Annotated[bool, switch("Start Ray there over ssh, and create the cluster.", "--ssh")] = False,
    ray: Annotated[str, option("PROGRAM", "Where `ray` is on the machines.")] = "ray",
    tls: Annotated[bool, typer.Option("--tls/--no-tls", help="Encrypt the traffic between Ray's processes.")] = True,
    server_address: Annotated[str | None, option("ADDRESS", "This machine's address as the others see it.")] = None,
    redis: Redis = "",
) -> None:
    """Start Ray on given machines with a token, TLS and quick failure detection, or print the commands that do.

    Without --ssh nothing is started: the files to copy and the one command to type on each machine are printed.

    \b
    Examples:
      muster ray hosts many --host 10.0.0.1 --host 10.0.0.2
    """
    folder = find_workspace(Path.cwd()).root / "ray" / name
    listed = [Host(text.rpartition("@")[2], text) for text in host]
    _check_redis(redis)
    setup = Setup(listed, f"$HOME/.muster/ray/{name}", ray, tls=tls, redis=redis, storage_namespace=name)
    certificates.make(folder, [item.address for item in listed])
    options = _options(setup, folder, server_address)
    if not ssh:
        files = " ".join(str(folder / item) for item in SECRETS)
        secrets = f".muster/ray/{name}"
        print("# copy the secrets to every machine, into its home:")
        for item in listed:
            address = item.reached_at
            print(f"ssh {address} 'umask 077; mkdir -p {secrets}' && scp -p {files} {address}:{secrets}/")
        print("# then, the head first, on each machine:")
        for item in listed:
            print(f"ssh {item.reached_at} {shlex.quote(command(setup, item))}")
        print("# and here:")
        given = " ".join(f"--option {key}={value}" for key, value in options.items())
        print(f"muster cluster create {name} --engine ray {given}")
        return
    for item in listed:
        _start(setup, item, folder)
        say(f"Ray runs on {item.address}")
    _create(name, options)
    say(f"cluster {name} is ready: {setup.address}")


def file(
    name: Name,
    provider: Annotated[str, option("PROVIDER", "azure, aws, gcp, local or kubernetes.")],
    to: Annotated[Path | None, option("FILE", "Where to write it (default: NAME.ray.yaml).")] = None,
    region: Annotated[str, option("REGION", "The cloud's region.")] = "",
    user: Annotated[str, option("USER", "Who logs in over ssh.")] = "",
    host: Annotated[list[str] | None, option("ADDRESS", "For local: machines, the head first.", "--host")] = None,
    cluster_file: Annotated[
        Path | None, option("FILE", "A cluster file (default: the cluster NAME).", "--from")
    ] = None,
    redis: Redis = "",
    ray_version: Annotated[
        str, option("VERSION", "For kubernetes: the version of Ray in the image (default: the one here).")
    ] = "",
) -> None:
    """Write or update a cluster file for Ray's launcher (`ray up`) or KubeRay from a cluster's description.

    Sizes, counts, idle time, labels and security follow the description; everything else in the file stays.

    \b
    Examples:
      muster ray file many --provider azure --region westeurope --from cluster.yml
    """
    options = load_cluster_file(cluster_file).options if cluster_file else connect().cluster(name).options
    if cluster_file:
        RayOptions.refuse_unknown(options)
    path = to or Path(f"{name}.ray.yaml")
    known = yaml.safe_load(path.read_text()) if path.exists() else None
    if known is not None and not isinstance(known, dict):
        raise UserError(f"{path} is not a mapping.", "Choose another file with --to.")
    token = certificates.make_token(find_workspace(Path.cwd()).root / "ray" / name)
    _check_redis(redis)
    version = ray_version or (_ray_here() if provider == "kubernetes" else "")
    described = Described(
        name, parse_options(options), provider, region, tuple(host or ()), user, str(token), redis, version
    )
    made = make_file(described, known)
    text = yaml.safe_dump(made, sort_keys=False)
    changed = made != known
    path.write_text(text)
    state = "is unchanged" if not changed else "is updated" if known is not None else "is written"
    say(f"{path} {state}; {'kubectl apply -f' if provider == 'kubernetes' else 'ray up'} {path} applies it")


def _ray_here() -> str:
    try:
        return importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _check_redis(address: str) -> None:
    host, _, port = address.rpartition(":")
    if address and not (host and port.isdecimal() and 0 < int(port) < 65536):
        raise UserError(
            f"{address!r} is not the address of a Redis server.", "Give HOST:PORT, such as redis.internal:6379."
        )


def _start(setup: Setup, host: Host, folder: Path) -> None:
    """Copy the secrets and start Ray on one machine; they are sent through ssh's input, never on a command line."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for item in SECRETS:
            archive.add(folder / item, item)
    script = f'umask 077; mkdir -p "{setup.folder}" && tar -xf - -C "{setup.folder}" && {command(setup, host)}'
    called = ["ssh", "-o", "BatchMode=yes", host.reached_at, script]
    done = subprocess.run(called, input=packed.getvalue(), capture_output=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise UserError(
            f"Ray was not started on {host.reached_at}: {lines[-1] if lines else f'ssh ended with {done.returncode}'}",
            f"Try `ssh {host.reached_at} {setup.ray} --version`; give --ray where it is elsewhere.",
        )


def _create(name: str, options: Mapping[str, str]) -> None:
    client = connect()
    try:
        known = client.cluster(name)
    except NotFound:
        made = client.create_cluster(name, "ray", options)
    else:
        made = client.change_cluster(name, {**known.options, **options})
    for text in made.notices:
        notice(text)


def _options(setup: Setup, folder: Path, server_address: str | None) -> dict[str, str]:
    found = {"address": setup.address, "token_file": str(folder / TOKEN)}
    if setup.tls:
        found |= {"tls_ca": str(folder / CA), "tls_cert": str(folder / CERTIFICATE), "tls_key": str(folder / KEY)}
    return found | ({"server_address": server_address} if server_address else {})


COMMANDS = (hosts, file)
