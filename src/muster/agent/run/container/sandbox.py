"""From a prepared attempt to the sandbox of its ranks: the node's system folders, and only their own files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from muster.agent.attempt import Attempt
from muster.agent.refusal import Refusal
from muster.agent.run.container.describe import attempt_mounts, make_folders, own_folders
from muster.agent.run.records import LaunchContainer
from muster.agent.run.runtime_copy import keeper_folder
from muster.agent.run.variables import NODE_MARK, SYSTEM_PATH
from muster.agent.services import NodeServices
from muster.host.sandbox import machine
from muster.host.sandbox.command import Account, Shown, View, command, is_seen
from muster.paths import user_runtime_dir
from muster.wire.node.agents import Order
from muster.wire.node.containers import Confinement

_GPU_FILES = ("nvidia*", "kfd", "dri", "dxg")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def account_of(confinement: Confinement) -> Account | None:
    """The account that the ranks run as; None: the agent's own. Raises Refusal where that is impossible."""
    wanted = confinement.unix_user
    if wanted and os.getuid() != 0:
        message = f"the ranks of {confinement.person} are to run as {wanted}, and the agent is not root here"
        raise Refusal("platform", message)
    try:
        return machine.account_of(wanted, confinement.person)
    except KeyError as error:
        raise Refusal("platform", f"the ranks of {confinement.person} are to run as {wanted}, and there is no such "
                      "account on this node. `muster user unix` names another") from error  # fmt: skip


def check(order: Order) -> None:
    """Refuse an attempt that cannot be confined here."""
    if order.sandbox is None or order.container is not None:
        return
    if trouble := machine.trouble():
        raise Refusal("environment", f"the job asks for `isolation: sandbox`, and this node has none: {trouble}")
    account_of(order.sandbox)


def describe(attempt: Attempt, services: NodeServices, hostname: str) -> LaunchContainer:
    """The description for the keeper on the node; creates what the sandbox needs, owned by the ranks' account."""
    order, prepared, paths = attempt.order, attempt.prepared, attempt.paths
    assert prepared is not None and order.plan is not None and order.sandbox is not None
    make_folders(paths)
    for rank in order.plan.ranks:
        # MLflow's proxy writes there too, and must not be the one that creates it.
        (paths.streams / "events" / f"rank_{rank.rank}.jsonl").touch()
    account = account_of(order.sandbox)
    if account is not None:
        machine.hand_over([*own_folders(paths), paths.launch], account)
        paths.root.chmod(0o700)
    shown = [Shown(item.source, item.target, item.writable) for item in attempt_mounts(prepared, paths)]
    shown += devices(bool(order.plan.gpus))
    runtime, python = services.runtime.parent, machine.base_python()
    given = [services.environ.get(name, "") for name in _CERTIFICATES]
    read = [str(runtime), *_programs(prepared.python_bin), *machine.python_folders((prepared.python, python))]
    read += [*machine.resolver(), *(path for path in given if path and not is_seen(path, machine.system_folders()))]
    shown += [Shown(path, path) for path in read if os.path.exists(path)]  # noqa: PTH110
    view = View(
        machine.system_folders(),
        tuple(shown),
        hidden=_hidden(services),
        blank=_key_files(services),
        cwd=str(paths.root),
        hostname=hostname,
    )
    copy = keeper_folder(services.runtime)
    inside = [python, "-I", "-S", str(copy / "muster/agent/run/container/inside.py"), str(copy), str(paths.root)]
    return {
        "kind": "sandbox",
        "command": command(machine.bubblewrap(), view, python, account, inside),
        "inspect": [],
        "remove": [],
        # Ranks can read it from their keeper: it must contain nothing of the agent's own.
        "env": {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", NODE_MARK: services.mark},
        "ranks": [rank.rank for rank in order.plan.ranks],
        "root": str(paths.root),
        "journal": str(paths.journal),
    }


def confined(order: Order, services: NodeServices, argv: Sequence[str]) -> list[str]:
    """A command that runs a program of the job's choice, as confined as its ranks."""
    if order.sandbox is None:
        return list(argv)
    python = machine.base_python()
    shown = tuple(Shown(path, path) for path in machine.python_folders((argv[0], python)))
    view = View(machine.system_folders(), shown, hidden=_hidden(services), blank=_key_files(services))
    return command(machine.bubblewrap(), view, python, account_of(order.sandbox), argv)


def _hidden(services: NodeServices) -> tuple[str, ...]:
    """Paths that may be inside a system folder and must be hidden."""
    home = os.path.expanduser("~")  # noqa: PTH111
    return tuple(dict.fromkeys((str(services.paths.root.parents[1]), home, str(user_runtime_dir()))))


def _key_files(services: NodeServices) -> tuple[str, ...]:
    """The workspace's key file, where it is inside a system folder."""
    file = services.environ.get("MUSTER_KEY_FILE", "")
    return (file,) if file and os.path.isfile(file) and is_seen(file, machine.system_folders()) else ()  # noqa: PTH113


def _programs(python_bin: str) -> list[str]:
    """Folders of an interpreter that the node made itself."""
    return [folder for folder in python_bin.split(":") if Path(folder).parent.name == "bin"]


def devices(gpus: bool, folder: Path = Path("/dev")) -> list[Shown]:
    """GPUs for a job that has some (CUDA_VISIBLE_DEVICES says which), and what RDMA needs."""
    found = [path for name in _GPU_FILES for path in sorted(folder.glob(name))] if gpus else []
    found += [folder / "infiniband"] if (folder / "infiniband").exists() else []
    return [Shown(str(path), str(path), device=True) for path in found]
