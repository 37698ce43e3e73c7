"""The environment of a rank, as the launch file has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from muster.agent.attempt import Attempt, PreparedAttempt
from muster.agent.run.launch_file import LaunchFiles
from muster.agent.services import NodeServices
from muster.defaults import RANK_HOOKS
from muster.paths import AttemptPaths, NodePaths
from muster.wire.node.agents import InputOrder, Order
from muster.wire.node.plan import NodePlan, RankPlan

AGENT = {"HOME": "/h", "USER": "u", "SECRET": "s", "PATH": "/odd", "PYTHONPATH": "/odd", "LD_PRELOAD": "x", "TZ": "UTC"}
NOBODY = cast(Any, None)


def environment(
    planned: Mapping[str, str] | None = None,
    user: Mapping[str, str] | None = None,
    agent: Mapping[str, str] = AGENT,
    rank: int = 0,
    resume: str | None = None,
    inputs: tuple[InputOrder, ...] = (),
) -> dict[str, str]:
    plan = RankPlan(rank, 0, rank, ("true",), planned or {}, "user_logs/log.txt")
    order = Order("r", 1, "go", user_env=user or {}, inputs=inputs, plan=NodePlan(0, "n0", "127.0.0.1", (), (plan,)))
    prepared = PreparedAttempt(
        (), {"data": "/d"}, {"model": "/o"}, "/env/bin/python", "/env/bin", "/node/tmp", resume=resume
    )
    services = NodeServices(NodePaths(Path("/n")), NOBODY, NOBODY, Path("/node/runtime/1"), "m", agent, NOBODY)
    return LaunchFiles(Attempt(order, AttemptPaths(Path("/node")), prepared=prepared), services).environment(plan)


def test_the_environment_is_built_from_a_known_base() -> None:
    assert environment({"RANK": "3"}, rank=3) == {
        "HOME": "/h",
        "USER": "u",
        "TZ": "UTC",
        "LANG": "C.UTF-8",
        "PATH": "/env/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "TMPDIR": "/node/tmp",
        "PYTHONPATH": "/node/runtime/1",
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor_u",
        "MUSTER_HOOKS": ",".join(RANK_HOOKS),
        "RANK": "3",
        "MUSTER_NODE_MARK": "m",
        "MUSTER_EVENTS_FILE": "/node/streams/events/rank_3.jsonl",
        "MUSTER_UPLOADS_DIR": "/node/uploads",
        "MUSTER_STOP_FILE": "/node/inside/stop",
        "MUSTER_CHECKPOINT_DIR": "/node/checkpoints",
        "MUSTER_INPUT_data": "/d",
        "MUSTER_OUTPUT_model": "/o",
        "AZURE_ML_INPUT_data": "/d",
        "AZURE_ML_OUTPUT_model": "/o",
    }


def test_scripts_find_data_assets_by_their_own_names() -> None:
    sources = {"images": "azureml:photos:3", "newest": "azureml:iris@latest", "files": "azureml://datastores/w/paths/f"}
    inputs = tuple(InputOrder(name, source, "ro_mount", "uri_folder") for name, source in sources.items())
    assert environment(inputs=inputs)["MUSTER_ASSETS"] == '{"photos": "images", "iris": "newest"}'


def test_users_variables_win_over_the_base_and_the_plan_over_them() -> None:
    env = environment({"A": "plan", "LANG": "de"}, {"A": "user", "TMPDIR": "/scratch"})
    assert (env["A"], env["LANG"], env["TMPDIR"]) == ("plan", "de", "/scratch")


def test_the_runtime_stands_before_the_users_own_python_path() -> None:
    assert environment({"PYTHONPATH": "/mine:/too"})["PYTHONPATH"] == "/node/runtime/1:/mine:/too"


def test_proxies_and_certificates_of_the_site_are_kept() -> None:
    site = {"https_proxy": "http://p", "NO_PROXY": "x", "SSL_CERT_FILE": "/ca"}
    assert site.items() <= environment(agent={**AGENT, **site}).items()


def test_the_last_checkpoint_is_named_where_there_is_one() -> None:
    assert "MUSTER_RESUME_DIR" not in environment()
    assert environment(resume="/r")["MUSTER_RESUME_DIR"] == "/r"


def test_what_was_compiled_is_kept_where_the_job_does_not_choose_another_place() -> None:
    assert environment(agent={**AGENT, "TMPDIR": "/t"})["TORCHINDUCTOR_CACHE_DIR"] == "/t/torchinductor_u"
    chosen = environment(user={"TORCHINDUCTOR_CACHE_DIR": "/mine"})
    assert chosen["TORCHINDUCTOR_CACHE_DIR"] == "/mine"


def test_a_job_chooses_what_is_put_into_its_ranks() -> None:
    assert environment(user={"MUSTER_HOOKS": ""})["MUSTER_HOOKS"] == ""
