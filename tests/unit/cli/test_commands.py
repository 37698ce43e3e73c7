"""The commands themselves: names, help, refusals, and the document made from them."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main
from tools.command_reference import examples, reference
from typer.testing import CliRunner

from muster import defaults
from muster.cli.commands.cluster import with_flags
from muster.cli.commands.files import choose, target_of
from muster.cli.commands.logs import nothing_printed, selection
from muster.cli.commands.models.endpoint import _percents
from muster.cli.commands.workspace import WorkspaceBrief, WorkspaceStatus, server_command, status_lines
from muster.cli.console import Paint
from muster.cli.following.state import RunState
from muster.cli.lazy import find
from muster.cli.main import PANELS, app
from muster.cli.options import complete_metrics, complete_orders, complete_runs, metric_words, run_words
from muster.cli.text import time_text
from muster.clusters.options import Flag
from muster.errors import MusterError, NotFound, UserError
from muster.wire.codec import Json
from muster.wire.runs import FileView
from muster.wire.stream import LogQuery

ROOT = Path(__file__).parents[3]
COMMANDS = [
    "audit",
    "backup",
    "batch-endpoint",
    "bench",
    "cache",
    "cancel",
    "cluster",
    "compare",
    "cost",
    "data",
    "datastore",
    "doctor",
    "down",
    "download",
    "endpoint",
    "env",
    "explain",
    "fileserver",
    "forward",
    "gc",
    "import",
    "init",
    "key",
    "login",
    "logout",
    "logs",
    "metrics",
    "mlflow",
    "model",
    "notify",
    "plot",
    "portal",
    "ps",
    "ray",
    "repair",
    "rerun",
    "restore",
    "retry",
    "rm",
    "run",
    "score",
    "secret",
    "serve",
    "shell",
    "show",
    "simulate",
    "stacks",
    "status",
    "tag",
    "tensorboard",
    "token",
    "trust",
    "up",
    "user",
    "wait",
    "workspaces",
]
WORDS = {name: word for panel in PANELS.values() for name, word in panel.items()}
group: Any = typer.main.get_command(app)


def invoke(*args: str) -> Any:
    return CliRunner().invoke(app, args)


def test_the_commands_are_the_documented_ones() -> None:
    assert sorted(group.commands) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_of_each_command_what_its_help_says(name: str) -> None:
    assert group.commands[name].name == name
    assert group.commands[name].get_short_help_str(200) == WORDS[name].help


def test_the_list_of_commands_is_broken_between_words() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    assert max(map(len, shown.splitlines())) <= 80
    told = " ".join(shown.split())
    assert all(word.help in told for panel in PANELS.values() for word in panel.values())


def test_the_help_teaches_by_examples_in_groups() -> None:
    said = invoke("--help").output
    for heading in ("Run:", "Look:", "Keep and remove:", "Workspace:"):
        assert f"\n{heading}\n" in said
    assert "\n    muster run train.py --nodes 2 --procs 4 -- --epochs 3\n" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_has_an_example(name: str) -> None:
    said = invoke(name, "--help")
    assert said.exit_code == 0
    assert f"muster {name}" in said.output.split("Examples:")[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_can_be_parsed(name: str) -> None:
    command = group.commands[name]
    for line in examples(command):
        words = shlex.split(line.split(" > ")[0])
        assert words[:2] == ["muster", name]
        with command.make_context(name, words[2:]):
            pass


def test_the_command_reference_is_in_step_with_the_commands() -> None:
    written = (ROOT / "docs" / "commands.md").read_text()
    assert written == reference(), "run: python -m tools.command_reference > docs/commands.md"


def test_a_wrong_option_says_where_arguments_of_a_script_go() -> None:
    said = invoke("run", "train.py", "--epochs", "3")
    assert said.exit_code == 2
    assert "Arguments of the script go after `--`" in said.output


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("run", "x.py", "--nodes", "two"), "'--nodes': 'two' is not a whole number"),
        (("run", "x.py", "--nodes", "0"), "'--nodes': 0 is out of range; give at least 1"),
        (("run", "x.py", "--gpus-per-node", "half"), "'--gpus-per-node': 'half' is not a number"),
        (("serve", "x.py", "--port", "99999"), "'--port': 99999 is out of range; give at most 65535"),
        (("batch-endpoint", "invoke", "x", "-i", "y", "-m", "0"), "'-m': 0 is out of range; give at least 1"),
    ],
)
def test_a_refused_value_of_an_option_is_named_with_what_is_allowed(args: tuple[str, ...], told: str) -> None:
    said = invoke(*args)
    assert said.exit_code == 2
    assert told in said.output


@pytest.mark.parametrize("name", [name for name, word in WORDS.items() if word.target.endswith("COMMANDS")])
def test_the_commands_of_a_group_are_listed_in_whole_sentences(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "80"}).output
    assert max(map(len, shown.splitlines())) <= 80
    told = " ".join(shown.split())
    for command in group.commands[name].commands.values():
        assert command.get_short_help_str(1000) in told


@pytest.mark.parametrize(
    "args",
    [
        ("run", "nope.py"),
        ("run", "nope.yml"),
        ("run", "x.py", "--nodes", "0"),
        ("run", "x.py", "--procs", "1.5"),
        ("run", "x.py", "--timeout", "soon"),
        ("run", "x.py", "--input", "a"),
        ("run", "x.py", "--env", "NOT_SET_ANYWHERE"),
        ("run", "x.py", "--priority", "urgent", "--dry-run"),
        ("run", "x.py", "--name", "no spaces", "--dry-run"),
        ("run", "job.yml", "--dry-run", "--", "--epochs", "3"),
        ("run", "job.yml", "--dry-run", "--input", "nope=3"),
        ("run", "list.yml", "--dry-run"),
        ("ps", "--status", "Sleeping"),
        ("wait", "x", "--timeout", "0"),
        ("nonsense",),
    ],
)
def test_bad_input_is_refused_with_exit_code_two(
    args: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("")
    (tmp_path / "job.yml").write_text("command: echo hi\n")
    (tmp_path / "list.yml").write_text("- a\n- b\n")
    said = invoke(*args)
    assert said.exit_code == 2, said.output
    assert "rror" in said.output
    assert "Traceback" not in said.output


def test_a_dry_run_prints_every_rank_and_needs_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    said = invoke("run", "train.py", "--nodes", "2", "--procs", "2", "--dry-run", "--", "--rank", "$RANK")
    assert said.exit_code == 0, said.output
    assert "2 nodes, 4 processes" in said.output
    assert "RANK=3" in said.output
    assert "train.py --rank 3" in said.output
    assert not (tmp_path / ".muster").exists()


def test_a_dry_run_without_a_server_says_what_it_did_not_look_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yml").write_text("command: echo\ninputs: {d: {path: azureml:flowers:1}}\n")
    said = invoke("run", "job.yml", "--dry-run")
    assert said.exit_code == 0
    assert "inputs.d: whether azureml:flowers:1 is there is not known" in " ".join(said.output.split())


def test_a_dry_run_of_a_job_file_as_json_takes_options_into_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yml").write_text("command: echo ${{inputs.epochs}}\ninputs: {epochs: 3}\n")
    said = invoke("run", "job.yml", "--procs", "2", "--input", "epochs=9", "--timeout", "1h", "--dry-run", "--json")
    assert said.exit_code == 0, said.output
    plan = json.loads(said.stdout)
    assert [rank["argv"] for node in plan["nodes"] for rank in node["ranks"]] == [["bash", "-c", "echo 9"]] * 2
    assert plan["spec"]["limits"]["timeout"] == 3600


def loaded_by(*args: str, **environment: str) -> set[str]:
    """The modules that a fresh command line has loaded when it ends."""
    code = f"""
import atexit, sys
atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))
sys.argv[1:] = {list(args)}
from muster.cli.main import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )
    return set(done.stderr.split())


def commands_among(loaded: set[str]) -> set[str]:
    return {name.rpartition(".")[2] for name in loaded if name.startswith("muster.cli.commands.")}


def test_the_help_loads_no_command_and_no_library_but_typer() -> None:
    loaded = loaded_by("--help")
    heavy = {"rich", "pydantic", "yaml", "fastapi", "sqlalchemy", "psutil", "torch", "fsspec", "http.client"}
    assert "muster.cli.lazy" in loaded
    assert not heavy & loaded
    assert not commands_among(loaded)


def test_a_command_loads_its_own_module() -> None:
    assert commands_among(loaded_by("ps", "--help")) == {"records", "listing"}
    assert commands_among(loaded_by("cluster", "--help")) == {"cluster"}


def test_what_a_run_needs_only_later_is_not_loaded_before_it_is_submitted() -> None:
    loaded = loaded_by("run", "--help")
    assert commands_among(loaded) == {"run"}
    later = ("muster.launch", "muster.cli.following", "muster.cli.views", "muster.client.storage", "logging", "rich")
    assert not [name for name in loaded if name.startswith(later)]


def test_a_shell_completes_words_without_loading_commands_and_options_with_the_one_they_are_of() -> None:
    completing = {"_MUSTER_COMPLETE": "complete_bash"}
    assert not commands_among(loaded_by(**completing, COMP_WORDS="muster r", COMP_CWORD="1"))
    assert commands_among(loaded_by(**completing, COMP_WORDS="muster ps --st", COMP_CWORD="2")) == {
        "records",
        "listing",
    }


def test_figures_in_the_help_are_the_default_ones() -> None:
    assert invoke("cancel", "--help").output.count(f"{defaults.GRACE_CANCEL_S:g} seconds") == 2
    assert f"[default: {time_text(defaults.GC_AGE_S)}]" in invoke("gc", "--help").output
    assert f"[default: {time_text(defaults.GRANT_S)}]" in invoke("datastore", "grant", "--help").output


def test_a_mistyped_command_is_put_right() -> None:
    said = invoke("cancle", "x")
    assert said.exit_code == 2
    assert "Did you mean 'cancel'" in said.output


@pytest.mark.parametrize(("typed", "meant"), [("list", "ps"), ("stop", "cancel"), ("delete", "rm"), ("submit", "run")])
def test_a_command_of_other_tools_is_put_right(typed: str, meant: str) -> None:
    said = invoke(typed, "x")
    assert said.exit_code == 2
    assert f"Did you mean '{meant}'?" in said.output


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("online-endpoint create", "endpoint"), ("online-deployment create", "endpoint deploy"),
        ("endpoint get-credentials", "keys"), ("endpoint update", "traffic"), ("batch-endpoint list-jobs", "runs"),
        ("model create", "register"), ("model archive", "promote --stage Archived"),
    ],
)  # fmt: skip
def test_the_words_of_azure_ml_are_put_right(typed: str, meant: str) -> None:
    said = invoke(*typed.split(), "x")
    assert said.exit_code == 2 and f"Did you mean '{meant}'?" in said.output


def test_a_name_is_written_without_an_option() -> None:
    assert "Write the name without an option." in invoke("endpoint", "create", "-n", "digits").output


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        (["blue=90", "blue=10"], "blue is there twice"),
        (["blue=1.5"], "blue=1.5: that is not a percentage"),
        (["blue"], "NAME=VALUE"),
    ],
)
def test_shares_that_cannot_be_meant_are_refused(shares: list[str], said: str) -> None:
    with pytest.raises(MusterError, match=said):
        _percents("DEPLOYMENT=PERCENT", shares)


def test_shares_may_come_in_one_piece() -> None:
    assert _percents("DEPLOYMENT=PERCENT", ["blue=90 green=10%"]) == {"blue": 90, "green": 10}


def test_serving_beyond_this_machine_needs_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    certificate.write_text("")
    key.write_text("")

    def command(host: str, **options: Any) -> list[str]:
        return server_command(tmp_path, host, 8910, **{"tls": False, "cert": None, "key": None, **options})[3:]

    assert command("127.0.0.1") == ["--workspace", str(tmp_path), "--tcp", "127.0.0.1:8910", "--foreground"]
    assert "localhost:8910" in command("localhost")
    assert "[::1]:8910" in command("::1")
    assert "--tls-self-signed" in command("0.0.0.0", tls=True)
    assert command("10.0.0.5", cert=certificate, key=key)[4:8] == [
        "--tls-cert",
        str(certificate),
        "--tls-key",
        str(key),
    ]
    for host in ("0.0.0.0", "10.0.0.5", "::", "node-1.example"):
        with pytest.raises(UserError, match="without encryption"):
            command(host)
    with pytest.raises(UserError, match="belong together"):
        command("127.0.0.1", cert=certificate)
    with pytest.raises(NotFound):
        command("127.0.0.1", cert=tmp_path / "no", key=key)
    with pytest.raises(UserError, match="--tls"):
        command("127.0.0.1", cert=certificate, key=key, tls=True)


FILES = [FileView(path, 1, None, 1) for path in ("outputs/a.pt", "outputs/deep/b.pt", "user_logs/std_log.txt")]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([], ["outputs/a.pt", "outputs/deep/b.pt", "user_logs/std_log.txt"]),
        (["outputs"], ["outputs/a.pt", "outputs/deep/b.pt"]),
        (["outputs/"], ["outputs/a.pt", "outputs/deep/b.pt"]),
        (["outputs/a.pt", "outputs/a.pt"], ["outputs/a.pt"]),
        (["*.txt"], ["user_logs/std_log.txt"]),
    ],
)
def test_files_are_chosen_by_path_folder_or_pattern(wanted: list[str], found: list[str]) -> None:
    assert [entry.path for entry in choose(FILES, wanted)] == found


def test_a_file_that_the_run_does_not_have_is_refused() -> None:
    with pytest.raises(NotFound, match="output") as refused:
        choose(FILES, ["output"])
    assert "outputs" in refused.value.hint


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "", "..", "link/x"])
def test_no_name_leaves_the_target_folder(name: str, tmp_path: Path) -> None:
    root = tmp_path / "target"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    with pytest.raises(UserError, match="outside"):
        target_of(root, name)
    assert target_of(root, "outputs/a.pt") == root / "outputs" / "a.pt"


def test_logs_are_chosen_by_rank_and_attempt(
    run_view: Callable[..., Any], attempt_view: Callable[..., Any], rank_view: Callable[..., Any]
) -> None:
    ranks = [
        rank_view(0, log="user_logs/std_log_node_0_worker.txt"),
        rank_view(1, log="user_logs/std_log_node_0_ps.txt"),
    ]
    view = run_view(attempts=[attempt_view(number=number, ranks=ranks) for number in (1, 2)])

    asked = LogQuery(tail=5)
    assert selection(view, None, None, asked) == LogQuery(tail=5, from_attempt=2)
    assert selection(view, 1, 1, asked) == LogQuery(tail=5, rank=1, attempt=1)
    assert selection(run_view(attempts=[]), 1, None, asked) == LogQuery(tail=5, rank=1)
    for rank, attempt in ((2, None), (None, 3)):
        with pytest.raises(UserError, match="no such"):
            selection(view, rank, attempt, asked)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tail", "1", "--head", "1"], "exclude each other"),
        (["--lines", "1:2", "--head", "1"], "exclude each other"),
        (["-f", "--head", "1"], "--follow is for what is still to come"),
        (["--lines", "2:1"], "the last one comes before the first"),
        (["--lines", "0:1"], "--lines 0:1: give the first and the last one, from 1 on"),
        (["--lines", ":"], "--lines :: give the first and the last one"),
        (["--rank", "0", "--bytes", "x:1"], "--bytes x:1: give the first and the last one, from 0 on"),
        (["--since", "yesterday"], "--since yesterday: give how long ago"),
        (["--raw", "--json"], "--json prints lines"),
    ],
)
def test_parts_of_logs_that_exclude_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch, run_view: Callable[..., Any], arguments: list[str], said: str
) -> None:
    monkeypatch.setattr("muster.cli.commands.logs.connect_to_read", lambda: SimpleNamespace(run=lambda ref: run_view()))
    result = invoke("logs", "r-1", *arguments)
    assert said in " ".join(result.output.split())


def test_no_output_is_not_taken_for_a_failure() -> None:
    running, ended = RunState(status="Running"), RunState(status="Completed")
    assert nothing_printed(running, LogQuery()) == "the run has printed nothing yet; -f waits for it"
    assert nothing_printed(ended, LogQuery(rank=1, tail=20)) == "rank 1 printed nothing"
    assert "without these options" in nothing_printed(ended, LogQuery(grep="x"))


def test_completion_offers_ids_names_and_the_latest(run_view: Callable[..., Any]) -> None:
    words = dict(run_words([run_view()]))
    assert set(words) == {"@latest", "r1a2b3c4", "brave-otter"}
    assert words["r1a2b3c4"] == "Completed resnet50"
    assert list(run_words([])) == []


def test_completion_offers_metrics_and_templates(tmp_path: Path) -> None:
    assert metric_words({"node/cpu_percent", "loss", "accuracy"}) == ["accuracy", "loss", "node/cpu_percent"]
    asked = {"_MUSTER_COMPLETE": "complete_bash", "COMP_WORDS": "muster init --template t", "COMP_CWORD": "3"}
    program = Path(sys.executable).with_name("muster")
    done = subprocess.run([program], env={**os.environ, **asked}, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["transformers", "tensorflow"]


def test_completion_never_starts_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from muster.client.workspace import create_workspace

    create_workspace(tmp_path, "quiet")
    monkeypatch.chdir(tmp_path)
    assert list(complete_runs("")) == list(complete_orders("")) == []
    assert list(complete_metrics(SimpleNamespace(params={"run": "@latest"}), "")) == []
    assert not (tmp_path / ".muster" / "server" / "server.json").exists()


def test_the_status_tells_of_a_server_that_does_not_run() -> None:
    found = WorkspaceStatus(WorkspaceBrief("w", "/w/.muster", None), why="x")
    assert status_lines(found, Paint(False))[1] == "server     not running; the next command starts it"


def test_an_engine_brings_its_own_options_to_the_creation_of_clusters() -> None:
    given: dict[str, Any] = {}

    def create(name: str, option: str = "", as_json: bool = False, **flags: Json) -> None:
        given.update(flags, name=name)

    flags = {"toy": [Flag("token_file", "FILE", "its token."), Flag("line", "L", "a line.", "texts")]}
    app = typer.Typer(rich_markup_mode=None)
    app.command()(with_flags(create, flags))
    assert "Toy: its token." in CliRunner().invoke(app, ["--help"]).output
    done = CliRunner().invoke(app, ["small", "--token-file", "t", "--line", "a", "--line", "b"])
    assert done.exit_code == 0, done.output
    assert given == {"name": "small", "token_file": "t", "line": ["a", "b"]}


def test_every_command_has_json_but_those_that_serve_or_print_files() -> None:
    without = {
        "up",
        "backup",
        "restore",
        "repair",
        "env export",
        "ray hosts",
        "ray file",
        "import sbatch",
        "data cat",
    }
    without |= {"shell", "forward", "tensorboard", "mlflow", "plot"}
    lacking = set()
    for name, word in {name: word for panel in PANELS.values() for name, word in panel.items()}.items():
        found = find(f"commands.{word.target}")
        for function in [found] if callable(found) else found:
            if "as_json" not in inspect.signature(function).parameters:
                lacking.add(name if callable(found) else f"{name} {function.__name__.rstrip('_')}")
    assert lacking == without
