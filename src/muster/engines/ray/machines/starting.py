"""Ray on given hosts: one command to type on each, with a token, TLS and quick failure detection.

The secrets are files: command lines and process lists show only their paths.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

GCS_PORT = 6379
CLIENT_PORT = 10001

# A dead node is noticed after about 3 s, one that does not answer after about 12 s.
TUNING = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "15",
    "RAY_USAGE_STATS_ENABLED": "0",
    # The worker that started an agent stays for the next gang.
    "RAY_idle_worker_killing_time_threshold_ms": "600000",
    # With it about one in twenty servers that the head starts for its clients dies while starting.
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}

# With the head's tables in Redis, nodes wait for the head for as long as a machine may take to restart.
PATIENT = {"RAY_gcs_rpc_server_reconnect_timeout_s": "120"}

TOKEN, CA, CERTIFICATE, KEY = "token", "ca.crt", "node.crt", "node.key"
SECRETS = (TOKEN, CA, CERTIFICATE, KEY)


@dataclass(frozen=True)
class Host:
    """A machine that Ray is started on; the first of several is the head."""

    address: str
    login: str = ""
    """For ssh: `user@host`; empty: the address."""

    @property
    def reached_at(self) -> str:
        return self.login or self.address


@dataclass(frozen=True)
class Setup:
    """How Ray is started on the hosts of a cluster."""

    hosts: Sequence[Host]
    folder: str
    """The folder of the secrets on each host; `$HOME` is each host's own."""
    ray: str = "ray"
    """The program; its Python must have Muster too."""
    further: Sequence[str] = ()
    """Further arguments of `ray start`."""
    tls: bool = True
    redis: str = ""
    """`HOST:PORT` of the Redis in which the head keeps its tables; empty: in its memory."""
    storage_namespace: str = ""
    """The cluster's name in that Redis."""

    @property
    def head(self) -> Host:
        return self.hosts[0]

    @property
    def address(self) -> str:
        """The address to which the server attaches."""
        return f"ray://{self.head.address}:{CLIENT_PORT}"


def environment(setup: Setup, host: Host) -> dict[str, str]:
    """The environment of Ray's processes on a host."""
    found = TUNING | token_environment(f"{setup.folder}/{TOKEN}")
    if setup.tls:
        found |= tls_environment(*(f"{setup.folder}/{name}" for name in (CA, CERTIFICATE, KEY)))
    if setup.redis:
        found |= PATIENT | (redis_environment(setup.redis, setup.storage_namespace) if host == setup.head else {})
    return found


def redis_environment(address: str, namespace: str) -> dict[str, str]:
    """Where the head keeps its tables; for the head alone."""
    return {"RAY_REDIS_ADDRESS": address, "RAY_external_storage_namespace": namespace}


def token_environment(file: str) -> dict[str, str]:
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": file}


def tls_environment(authority: str, certificate: str, key: str) -> dict[str, str]:
    return {
        "RAY_USE_TLS": "1",
        "RAY_TLS_CA_CERT": authority,
        "RAY_TLS_SERVER_CERT": certificate,
        "RAY_TLS_SERVER_KEY": key,
    }


def arguments(setup: Setup, host: Host) -> list[str]:
    """`ray start` on one host."""
    made = [setup.ray, "start", f"--node-ip-address={host.address}"]
    if host == setup.head:
        made += ["--head", f"--port={GCS_PORT}", f"--ray-client-server-port={CLIENT_PORT}", "--include-dashboard=false"]
    else:
        made += [f"--address={setup.head.address}:{GCS_PORT}"]
    return [*made, "--disable-usage-stats", *setup.further]


def command(setup: Setup, host: Host) -> str:
    """The one command to type on a host."""
    # In double quotes, so that the shell on the host inserts its own home.
    settings = [f'{name}="{value}"' for name, value in environment(setup, host).items()]
    return " ".join(["env", *settings, shlex.join(arguments(setup, host))])
