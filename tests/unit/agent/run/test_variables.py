from __future__ import annotations

from muster.agent.run.variables import RankPaths, rank_environment

PLACES = RankPaths(
    python_bin="/env/bin",
    runtime="/node/runtime/1",
    tmp="/node/tmp",
    streams="/node/streams",
    uploads="/node/uploads",
    checkpoints="/node/checkpoints",
    stop_file="/node/stop",
    mark="m",
    inputs={"data": "/d"},
    outputs={"model": "/o"},
)
AGENT = {"HOME": "/h", "USER": "u", "SECRET": "s", "PATH": "/odd", "PYTHONPATH": "/odd", "LD_PRELOAD": "x", "TZ": "UTC"}


def test_the_environment_is_built_from_a_known_base() -> None:
    env = rank_environment(3, {"RANK": "3"}, {}, AGENT, PLACES)
    assert env == {
        "HOME": "/h",
        "USER": "u",
        "TZ": "UTC",
        "LANG": "C.UTF-8",
        "PATH": "/env/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "TMPDIR": "/node/tmp",
        "PYTHONPATH": "/node/runtime/1",
        "MUSTER_HOOKS": "stacks",
        "RANK": "3",
        "MUSTER_NODE_MARK": "m",
        "MUSTER_EVENTS_FILE": "/node/streams/events/rank_3.jsonl",
        "MUSTER_UPLOADS_DIR": "/node/uploads",
        "MUSTER_STOP_FILE": "/node/stop",
        "MUSTER_CHECKPOINT_DIR": "/node/checkpoints",
        "MUSTER_INPUT_data": "/d",
        "MUSTER_OUTPUT_model": "/o",
    }


def test_users_variables_win_over_the_base_and_the_plan_over_them() -> None:
    env = rank_environment(0, {"A": "plan", "LANG": "de"}, {"A": "user", "TMPDIR": "/scratch"}, AGENT, PLACES)
    assert (env["A"], env["LANG"], env["TMPDIR"]) == ("plan", "de", "/scratch")


def test_the_runtime_stands_before_the_users_own_python_path() -> None:
    env = rank_environment(0, {"PYTHONPATH": "/mine:/too"}, {}, AGENT, PLACES)
    assert env["PYTHONPATH"] == "/node/runtime/1:/mine:/too"


def test_proxies_and_certificates_of_the_site_are_kept() -> None:
    site = {"https_proxy": "http://p", "NO_PROXY": "x", "SSL_CERT_FILE": "/ca"}
    env = rank_environment(0, {}, {}, {**AGENT, **site}, PLACES)
    assert site.items() <= env.items()


def test_the_last_checkpoint_is_named_where_there_is_one() -> None:
    assert "MUSTER_RESUME_DIR" not in rank_environment(0, {}, {}, AGENT, PLACES)
    assert rank_environment(0, {}, {}, AGENT, PLACES._replace(resume="/r"))["MUSTER_RESUME_DIR"] == "/r"


def test_what_was_compiled_is_kept_where_the_job_does_not_choose_another_place() -> None:
    places = PLACES._replace(compiled="/tmp/compiled")
    assert rank_environment(0, {}, {}, AGENT, places)["TORCHINDUCTOR_CACHE_DIR"] == "/tmp/compiled"
    chosen = rank_environment(0, {}, {"TORCHINDUCTOR_CACHE_DIR": "/mine"}, AGENT, places)
    assert chosen["TORCHINDUCTOR_CACHE_DIR"] == "/mine"


def test_a_job_chooses_what_is_put_into_its_ranks() -> None:
    env = rank_environment(0, {}, {"MUSTER_HOOKS": ""}, AGENT, PLACES)
    assert env["MUSTER_HOOKS"] == ""
