"""The configuration of each agent, in a file that only the agent can read."""

from __future__ import annotations

from muster.clusters.options import parse_options
from muster.engines.base import Cluster, Connection
from muster.host.files import PRIVATE, write_json
from muster.server.context import Context
from muster.wire.codec import to_json
from muster.wire.node.agents import AgentConfig


def write_config(
    context: Context,
    cluster: Cluster,
    node: str,
    connection: Connection | None,
    address: str,
    gpus: tuple[str, ...] | None = None,
    linger_s: float | None = None,
    long_lived: bool = True,
) -> AgentConfig:
    """Write an agent's configuration; one that is not long-lived came with an attempt, and leaves with it."""
    if node not in context.nodes.agent_tokens:
        context.nodes.agent_tokens[node] = context.tokens.create("agent", node)
    paths, options = context.paths.node(node), parse_options(cluster.options)
    config = AgentConfig(
        node=node,
        cluster=cluster.name,
        root=str(paths.root),
        server=context.nodes.addresses if connection is None else _addresses(context, connection),
        token=context.nodes.agent_tokens[node],
        address=address,
        gpus=gpus,
        pinned_certificate=context.remote.certificate,
        setup=options.setup,
        long_lived=long_lived,
        linger_s=linger_s,
        subnet=None if context.nodes.engines.on_this_machine(cluster.engine) else options.subnet,
    )
    paths.config.parent.mkdir(parents=True, exist_ok=True)
    write_json(paths.config, to_json(config), mode=PRIVATE)
    return config


def _addresses(context: Context, connection: Connection) -> tuple[str, ...]:
    """How nodes on other machines reach the server: TLS first, a shared folder where that does not work."""
    tls, files = context.remote.urls(connection), f"file:{context.paths.spool}"
    return {"tls": tls, "files": (files,)}.get(connection.mode) or (*tls, files)
