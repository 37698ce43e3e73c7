"""From a prepared attempt and its plan to the files that its keeper reads."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from muster.agent.attempt import PreparedAttempt
from muster.agent.refusal import Refusal
from muster.agent.run.container import describe
from muster.agent.run.mpi.layout import HERE, Ground, MpiFiles
from muster.agent.run.records import Launch, LaunchContainer, LaunchRank
from muster.agent.run.runtime_copy import keeper_folder
from muster.agent.run.variables import RankPaths, rank_environment
from muster.agent.services import NodeServices
from muster.defaults import GRACE_FAILURE_S, KILL_AFTER_TERM_S
from muster.environments.images.command import APPTAINER
from muster.errors import JobError
from muster.host.files import PRIVATE, write_json
from muster.launch.expand import expand_all
from muster.paths import AttemptPaths
from muster.wire.node.agents import Order
from muster.wire.node.plan import NodePlan, RankPlan


class LaunchFiles:
    """What the keeper of one attempt reads."""

    def __init__(
        self, order: Order, plan: NodePlan, prepared: PreparedAttempt, paths: AttemptPaths, services: NodeServices
    ) -> None:
        self._order = order
        self._plan = plan
        self._prepared = prepared
        self._paths = paths
        self._services = services
        self._mpi = self._mpi_files()
        self._stop_file = str(paths.root / "stop")

    def write(self) -> None:
        """Write `launch.json`, and `container.json` where the ranks run in a container; raises Refusal, OSError."""
        launch = self._launch()
        if self._prepared.container is not None:
            write_json(self._paths.container, self._container(), mode=PRIVATE)
        write_json(self._paths.launch, launch, mode=PRIVATE)

    def _launch(self) -> Launch:
        ranks: list[LaunchRank] = []
        wrapped: list[tuple[RankPlan, dict[str, str]]] = []
        for rank in self._plan.ranks:
            env = self._environment(rank)
            if rank.wrapped:
                wrapped.append((rank, env))
            else:
                ranks.append(self._rank(*(self._mpi.launcher(rank, env) if self._mpi else (rank, env))))
        return {
            "ranks": ranks,
            "whole_gang": self._order.num_nodes == 1,
            "journal": str(self._paths.journal),
            "stop_file": self._stop_file,
            "grace_failure_s": GRACE_FAILURE_S,
            "kill_after_term_s": KILL_AFTER_TERM_S,
            "mpi": self._mpi.make(wrapped, self._stop_file) if self._mpi else None,
        }

    def _container(self) -> LaunchContainer:
        prepared, services = self._prepared, self._services
        assert prepared.container is not None
        folders = (prepared.inputs, prepared.outputs, prepared.tmp)
        name = (self._mpi.hostname if self._mpi else None) or ""
        return describe.describe(
            prepared.container, self._order, self._plan, self._paths, services.runtime, services.mark,
            services.environ, folders, name,
        )  # fmt: skip

    def _environment(self, rank: RankPlan) -> dict[str, str]:
        """The whole environment of a rank."""
        prepared, used = self._prepared, self._prepared.container
        user_env = {**(prepared.environment.variables if prepared.environment else {}), **self._order.user_env}
        agent_env = self._services.environ
        own_env = describe.base_environment(used, self._paths, agent_env) if used else agent_env
        env = rank_environment(rank.rank, rank.env, user_env, own_env, self._rank_paths())
        return describe.rank_environment(used, self._paths, env, {**user_env, **rank.env}) if used else env

    def _rank_paths(self) -> RankPaths:
        prepared, paths = self._prepared, self._paths
        return RankPaths(
            python_bin=prepared.python_bin,
            runtime=str(self._services.runtime),
            tmp=prepared.tmp,
            streams=str(paths.streams),
            uploads=str(paths.uploads),
            checkpoints=str(paths.checkpoints),
            stop_file=self._stop_file,
            mark=self._services.mark,
            inputs=prepared.inputs,
            outputs=prepared.outputs,
            resume=prepared.resume,
            compiled=None if prepared.container else _compiled(self._services.environ),
        )

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
        ground = HERE
        if used is not None:
            library = keeper_folder(self._services.runtime)
            ground = Ground(used.contents.executable, library, True, own_memory=used.engine.kind != APPTAINER)
        return MpiFiles(self._plan, self._paths, prepared.mpi, self._order.secret, ground)


def _compiled(agent_env: Mapping[str, str]) -> str:
    """Where torch.compile would look without Muster, so that runs share it with each other and with the user."""
    user = agent_env.get("USER") or agent_env.get("LOGNAME") or str(os.getuid())
    return f"{agent_env.get('TMPDIR') or '/tmp'}/torchinductor_{user}"


def _find(program: str, path: str, cwd: Path) -> str:
    """The program's absolute path; empty when PATH does not have it."""
    if "/" in program:
        return program if program.startswith("/") else os.path.normpath(cwd / program)
    return shutil.which(program, path=path) or ""
