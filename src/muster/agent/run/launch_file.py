"""From a prepared attempt and its plan to the file that the keeper starts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.agent.prepare.steps import Prepared, Refusal
from muster.agent.run.container import describe
from muster.agent.run.mpi.layout import HERE, Ground, Setting
from muster.agent.run.variables import Places, rank_environment
from muster.defaults import GRACE_FAILURE_S, KILL_AFTER_TERM_S
from muster.environments.images.command import APPTAINER
from muster.errors import JobError
from muster.launch.expand import expand_all
from muster.launch.model import NodePlan, RankPlan, node_plan_from_json
from muster.paths import AttemptPaths
from muster.protocol import Order


def make_launch(
    order: Order, prepared: Prepared, paths: AttemptPaths, runtime: Path, mark: str, agent_env: Mapping[str, str]
) -> dict[str, Any]:
    """What the keeper reads: every rank with its final command and environment."""
    assert order.plan is not None
    used = prepared.environment.container if prepared.environment else None
    places = Places(
        python_bin=prepared.python_bin,
        runtime=str(runtime),
        tmp=prepared.tmp,
        streams=str(paths.streams),
        uploads=str(paths.uploads),
        checkpoints=str(paths.checkpoints),
        stop_file=str(stop_file(paths)),
        mark=mark,
        inputs=prepared.inputs,
        outputs=prepared.outputs,
        resume=prepared.resume,
        compiled=None if used else _compiled(agent_env),
    )
    node = node_plan_from_json(order.plan)
    mpi = _mpi(order, prepared, node, paths, runtime)
    ranks, wrapped = [], []
    own_env = describe.base_environment(used, paths, agent_env) if used else agent_env
    for rank in node.ranks:
        user_env = {**(prepared.environment.variables if prepared.environment else {}), **order.user_env}
        env = rank_environment(rank.rank, rank.env, user_env, own_env, places)
        if used is not None:
            env = describe.rank_environment(used, paths, env, {**user_env, **rank.env})
        if rank.wrapped:
            wrapped.append((rank, env))
        else:
            ranks.append(_rank(*(mpi.launcher(rank, env) if mpi else (rank, env)), paths))
    return {
        "ranks": ranks,
        "whole_gang": order.num_nodes == 1,
        "journal": str(paths.journal),
        "stop_file": places.stop_file,
        "grace_failure_s": GRACE_FAILURE_S,
        "kill_after_term_s": KILL_AFTER_TERM_S,
        "mpi": mpi.make(wrapped, places.stop_file) if mpi else None,
    }


def describe_container(
    order: Order, prepared: Prepared, paths: AttemptPaths, runtime: Path, mark: str, agent_env: Mapping[str, str]
) -> dict[str, Any]:
    """What the keeper outside a container reads."""
    assert order.plan is not None and prepared.environment is not None and prepared.environment.container is not None
    folders = (prepared.inputs, prepared.outputs, prepared.tmp)
    node = node_plan_from_json(order.plan)
    mpi = _mpi(order, prepared, node, paths, runtime)
    name = (mpi.hostname if mpi else None) or ""
    return describe.describe(
        prepared.environment.container, order, node, paths, runtime, mark, agent_env, folders, name
    )


def _mpi(order: Order, prepared: Prepared, node: NodePlan, paths: AttemptPaths, runtime: Path) -> Setting | None:
    if prepared.mpi is None:
        return None
    used = prepared.environment.container if prepared.environment else None
    ground = HERE
    if used is not None:
        own_memory = used.engine.kind != APPTAINER
        ground = Ground(used.contents.executable, describe.library(runtime), named=True, own_memory=own_memory)
    return Setting(node, paths, prepared.mpi, order.secret, ground)


def _compiled(agent_env: Mapping[str, str]) -> str:
    """Where torch.compile would look without Muster, so that runs share it with each other and with the user."""
    user = agent_env.get("USER") or agent_env.get("LOGNAME") or str(os.getuid())
    return f"{agent_env.get('TMPDIR') or '/tmp'}/torchinductor_{user}"


def stop_file(paths: AttemptPaths) -> Path:
    """Exists once the ranks should stop."""
    return paths.root / "stop"


def _rank(rank: RankPlan, env: dict[str, str], paths: AttemptPaths) -> dict[str, Any]:
    argv = list(rank.argv)
    if rank.expand:
        try:
            argv = list(expand_all(argv, env))
        except JobError as error:
            raise Refusal("bad_input", f"rank {rank.rank}: {error.message}. {error.hint}") from error
    program = _find(argv[0], env["PATH"], paths.work)
    return {
        "rank": rank.rank,
        "program": program,
        "argv": [program or argv[0], *argv[1:]],
        "env": env,
        "cwd": str(paths.work),
        "log": str(paths.streams / rank.log),
        "essential": rank.essential,
    }


def _find(program: str, path: str, cwd: Path) -> str:
    """The program's absolute path; empty when PATH does not have it."""
    if "/" in program:
        return program if program.startswith("/") else os.path.normpath(cwd / program)
    return shutil.which(program, path=path) or ""
