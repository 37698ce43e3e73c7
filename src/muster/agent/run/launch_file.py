"""From a prepared attempt and its plan to the files that its keeper reads, with the whole environment of each rank."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from muster.agent.attempt import Attempt
from muster.agent.refusal import Refusal
from muster.agent.run.container import describe, sandbox
from muster.agent.run.mpi.layout import HERE, Installation, MpiFiles
from muster.agent.run.records import Launch, LaunchRank
from muster.agent.run.runtime_copy import keeper_folder
from muster.agent.run.variables import NODE_MARK, SYSTEM_PATH
from muster.agent.services import NodeServices
from muster.defaults import GRACE_FAILURE_S, KILL_AFTER_TERM_S, RANK_HOOKS
from muster.environments.images.command import APPTAINER
from muster.errors import JobError
from muster.host.files import PRIVATE, write_json
from muster.host.sandbox import machine
from muster.launch.expand import expand_all
from muster.wire.node.agents import InputOrder
from muster.wire.node.plan import RankPlan

# The agent's own variables that a rank needs: its user, and this site's proxies.
_KEPT = ("USER", "LOGNAME", "TZ", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
# These make no sense in an image.
_OF_THIS_HOST = ("HOME", "SHELL", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


_MLFLOW_HOOK = "mlflow"
_ASSET = re.compile(r"azureml:([^/:@]+)")


class Tracking(Protocol):
    """Where a rank logs to with other tools than Muster's own."""

    def variables(self, rank: int) -> dict[str, str]: ...


class LaunchFiles:
    """The files that the keeper of one attempt reads."""

    def __init__(self, attempt: Attempt, services: NodeServices, tracking: Tracking | None = None) -> None:
        """`tracking`: where the ranks find MLflow."""
        assert attempt.prepared is not None and attempt.order.plan is not None
        self._attempt = attempt
        self._order = attempt.order
        self._plan = attempt.order.plan
        self._prepared = attempt.prepared
        self._paths = attempt.paths
        self._services = services
        self._tracking = tracking
        self._confined = attempt.order.sandbox is not None and attempt.prepared.container is None
        self._mpi = self._mpi_files()
        self._stop_file = str(attempt.paths.inside / "stop")

    def write(self) -> None:
        """Write `launch.json`, and `container.json` where the ranks run in a container; raises Refusal, OSError."""
        launch = self._launch()
        write_json(self._paths.launch, launch, mode=PRIVATE)
        name = (self._mpi.hostname if self._mpi else None) or ""
        if self._prepared.container is not None:
            container = describe.describe(self._prepared.container, self._attempt, self._services, name)
            write_json(self._paths.container, container, mode=PRIVATE)
        elif self._confined:
            container = sandbox.describe(self._attempt, self._services, name)
            write_json(self._paths.container, container, mode=PRIVATE)

    def environment(self, rank: RankPlan) -> dict[str, str]:
        """The whole environment of a rank: a fixed base, the user's variables, the plan's, and paths."""
        prepared, used, agent_env = self._prepared, self._prepared.container, self._services.environ
        variables = prepared.environment.variables if prepared.environment else {}
        given = {**variables, **self._order.user_env, **rank.env}
        names = _KEPT if used else (*_KEPT, *_OF_THIS_HOST)
        env = {name: agent_env[name] for name in names if agent_env.get(name)}
        if self._confined:
            env.update(self._own_account())
        env["LANG"] = "C.UTF-8"
        env["PATH"] = f"{prepared.python_bin}:{SYSTEM_PATH}"
        env["TMPDIR"] = prepared.tmp
        env["MUSTER_HOOKS"] = ",".join(RANK_HOOKS)
        runtime, own = str(self._services.runtime), given.get("PYTHONPATH", "")
        if not used:
            env["TORCHINDUCTOR_CACHE_DIR"] = _torch_compile_cache(agent_env)
        if prepared.environment and not used:
            # Packages that a command adds with pip belong to the attempt: others use the same environment.
            added, version = self._paths.added, ".".join(prepared.environment.built.python.split(".")[:2])
            env["PIP_PREFIX"] = str(added)
            env["PATH"] = f"{prepared.python_bin}:{added / 'bin'}:{SYSTEM_PATH}"
            runtime = f"{runtime}:{added / 'lib' / f'python{version}' / 'site-packages'}"
        if self._tracking is not None:
            env["MUSTER_HOOKS"] += f",{_MLFLOW_HOOK}"
            env.update(self._tracking.variables(rank.rank))
            env.update(_loopback_without_proxy(env))
        env.update(given)
        env["PYTHONPATH"] = f"{runtime}:{own}" if own else runtime
        env.update(self._muster_variables(rank.rank))
        return describe.rank_environment(used, self._paths, env, given) if used else env

    def _own_account(self) -> dict[str, str]:
        """The account variables of the ranks of a sandbox."""
        assert self._order.sandbox is not None
        account = sandbox.account_of(self._order.sandbox)
        user = {} if account is None else {"USER": account.name or str(account.uid)}
        return {"HOME": str(self._paths.home), **user, **({"LOGNAME": user["USER"]} if user else {})}

    def _muster_variables(self, rank: int) -> dict[str, str]:
        """Muster's own variables: the paths that a rank needs."""
        prepared, paths = self._prepared, self._paths
        return {
            NODE_MARK: self._services.mark,
            "MUSTER_EVENTS_FILE": str(paths.streams / "events" / f"rank_{rank}.jsonl"),
            "MUSTER_UPLOADS_DIR": str(paths.uploads),
            "MUSTER_STOP_FILE": self._stop_file,
            "MUSTER_CHECKPOINT_DIR": str(paths.checkpoints),
            **({"MUSTER_RESUME_DIR": prepared.resume} if prepared.resume else {}),
            **({"MUSTER_MOUNTS": str(paths.mounts)} if prepared.mounts else {}),
            **_named("INPUT", prepared.inputs),
            **_assets(self._order.inputs),
            **_named("OUTPUT", prepared.outputs),
        }

    def _launch(self) -> Launch:
        ranks: list[LaunchRank] = []
        wrapped: list[tuple[RankPlan, dict[str, str]]] = []
        for rank in self._plan.ranks:
            env = self.environment(rank)
            if rank.wrapped:
                wrapped.append((rank, env))
            else:
                # Besides mpirun only services are started, which nothing waits for.
                is_launcher = self._mpi is not None and rank.essential
                ranks.append(self._rank(*(self._mpi.launcher(rank, env) if self._mpi and is_launcher else (rank, env))))
        return {
            "ranks": ranks,
            "whole_gang": self._order.num_nodes == 1,
            "journal": str(self._paths.journal) if not self._confined and not self._prepared.container else os.devnull,
            "stop_file": self._stop_file,
            "grace_failure_s": GRACE_FAILURE_S,
            "kill_after_term_s": KILL_AFTER_TERM_S,
            "mpi": self._mpi.make(wrapped, self._stop_file) if self._mpi else None,
        }

    def _rank(self, rank: RankPlan, env: dict[str, str]) -> LaunchRank:
        argv = list(rank.argv)
        if rank.expand:
            try:
                argv = list(expand_all(argv, env))
            except JobError as error:
                raise Refusal("bad_input", f"rank {rank.rank}: {error.message}. {error.hint}") from error
        program = _find(argv[0], env["PATH"], self._paths.work)
        return {
            "rank": rank.rank,
            "program": program,
            "argv": [program or argv[0], *argv[1:]],
            "env": env,
            "cwd": str(self._paths.work),
            "log": str(self._paths.streams / rank.log),
            "essential": rank.essential,
        }

    def _mpi_files(self) -> MpiFiles | None:
        prepared, used = self._prepared, self._prepared.container
        if prepared.mpi is None:
            return None
        installation = HERE
        if used is not None:
            library = keeper_folder(self._services.runtime)
            installation = Installation(
                used.contents.executable, library, True, own_memory=used.engine.kind != APPTAINER
            )
        elif self._confined:
            installation = Installation(
                machine.base_python(), keeper_folder(self._services.runtime), True, own_memory=True
            )
        return MpiFiles(self._plan, self._paths, prepared.mpi, self._order.secret, installation)


def _loopback_without_proxy(env: Mapping[str, str]) -> dict[str, str]:
    """NO_PROXY with loopback, which a site's proxy cannot reach."""
    names = [name for name in ("no_proxy", "NO_PROXY") if env.get(name)] or ["no_proxy", "NO_PROXY"]
    if not any(env.get(name) for name in ("http_proxy", "HTTP_PROXY")):
        return {}
    return {name: ",".join(filter(None, (env.get(name), "127.0.0.1"))) for name in names}


def _torch_compile_cache(agent_env: Mapping[str, str]) -> str:
    """The cache that torch.compile uses without Muster, so that runs share it with each other and with the user.

    It would look in the rank's own TMPDIR.
    """
    user = agent_env.get("USER") or agent_env.get("LOGNAME") or str(os.getuid())
    return f"{agent_env.get('TMPDIR') or '/tmp'}/torchinductor_{user}"


def _find(program: str, path: str, cwd: Path) -> str:
    """The program's absolute path; empty when PATH does not have it."""
    if "/" in program:
        return program if program.startswith("/") else os.path.normpath(cwd / program)
    return shutil.which(program, path=path) or ""


def _named(kind: str, paths: Mapping[str, str]) -> dict[str, str]:
    """The variables with the paths of inputs or outputs, by Muster's names and by Azure ML's."""
    return {f"{prefix}_{kind}_{name}": path for name, path in paths.items() for prefix in ("MUSTER", "AZURE_ML")}


def _assets(inputs: Iterable[InputOrder]) -> dict[str, str]:
    """Which input each data asset is, for scripts that look for it by its own name."""
    matches = ((_ASSET.match(item.source), item.name) for item in inputs)
    found = {match[1]: name for match, name in matches if match}
    return {"MUSTER_ASSETS": json.dumps(found)} if found else {}
