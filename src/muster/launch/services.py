"""Services of a job: programs beside rank 0, their ports, and how people reach them. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from muster.job.parts import Service
from muster.job.spec import JobSpec
from muster.launch.gang import Gang
from muster.wire.node.plan import RankPlan

SERVICE = "service"
_REFERENCE = re.compile(r"\$\{\{\s*(inputs|outputs)\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_DEFAULT_LOG_DIR = "outputs"
_SSHD = """\
sshd=$(PATH="$PATH:/usr/sbin:/sbin" command -v sshd) || {{ echo 'muster: there is no sshd on this node'; exit 0; }}
folder=$(mktemp -d) && chmod 700 "$folder" && printf '%s\\n' {keys} > "$folder/authorized_keys"
ssh-keygen -q -t ed25519 -N '' -f "$folder/host_key"
exec "$sshd" -D -e -f /dev/null -p {port} -h "$folder/host_key" -o ListenAddress=127.0.0.1 -o UsePAM=no \\
  -o PidFile=none -o StrictModes=no -o PasswordAuthentication=no -o AuthorizedKeysFile="$folder/authorized_keys"
"""


def num_free_ports(spec: JobSpec) -> int:
    """How many ports the node of rank 0 must hold for services."""
    return sum(service.port is None for service in spec.services.values())


def service_ports(gang: Gang) -> dict[str, int]:
    """The port of each service: its own choice, or one of the last ports that rank 0's node holds."""
    held = list(gang.slots[0].ports[len(gang.slots[0].ports) - num_free_ports(gang.spec) :])
    return {name: service.port or held.pop(0) for name, service in gang.spec.services.items()}


def service_environment(gang: Gang) -> dict[str, str]:
    """The variables with the services' ports, for every rank."""
    return {f"MUSTER_SERVICE_{name}_PORT": str(port) for name, port in service_ports(gang).items()}


def service_ranks(gang: Gang, base: Mapping[str, str], first: int) -> list[RankPlan]:
    """The processes of services beside rank 0, numbered from `first`; the run neither waits for nor fails with them."""
    ports = service_ports(gang)
    commands = {name: _command(service, ports[name]) for name, service in gang.spec.services.items()}
    started = [(name, command) for name, command in commands.items() if command]
    return [
        RankPlan(
            rank=first + index,
            node_rank=0,
            local_rank=first + index,
            argv=("bash", "-c", command),
            env={**base, **gang.user_env},
            log=f"user_logs/service_{name}.txt",
            role=SERVICE,
            essential=False,
        )
        for index, (name, command) in enumerate(started)
    ]


def service_notices(gang: Gang, run_id: str) -> tuple[str, ...]:
    """How people reach each service."""
    return tuple(
        f"service {name} ({gang.spec.services[name].type}) is on port {port} of rank 0's node: "
        f"`muster forward {run_id} {port}` reaches it"
        for name, port in service_ports(gang).items()
    )


def _command(service: Service, port: int) -> str:
    """The bash text that starts a service; empty where the job's own program listens."""
    if service.type == "tensor_board":
        folder = _in_quotes(service.log_dir or _DEFAULT_LOG_DIR)
        start = f'exec python -m tensorboard.main --logdir "{folder}" --host 127.0.0.1 --port {port}'
        return f"{_needs('tensorboard', 'TensorBoard')}\n{start}\n"
    if service.type == "jupyter_lab":
        # Its log shows the token that gives access.
        start = f"exec python -m jupyterlab --ip 127.0.0.1 --port {port} --no-browser --allow-root"
        return f"{_needs('jupyterlab', 'JupyterLab')}\n{start}\n"
    if service.type == "ssh":
        return _SSHD.format(keys=shlex.quote((service.ssh_public_keys or "").strip()), port=port)
    return ""


def _needs(module: str, name: str) -> str:
    message = f"muster: {name} is not installed in the environment of this job; add {module} to it"
    return f"python -c 'import {module}' 2> /dev/null || {{ echo {shlex.quote(message)}; exit 0; }}"


def _in_quotes(text: str) -> str:
    """A path for double quotes; references to inputs and outputs become variables with their paths."""
    pieces, end = [], 0
    for match in _REFERENCE.finditer(text):
        pieces += [_escaped(text[end : match.start()]), _variable(match)]
        end = match.end()
    return "".join([*pieces, _escaped(text[end:])])


def _escaped(text: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", text)


def _variable(match: re.Match[str]) -> str:
    return f"${{MUSTER_{match[1][:-1].upper()}_{match[2]}}}"
