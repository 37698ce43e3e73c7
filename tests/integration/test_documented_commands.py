"""Every command that a document shows is run, in the order in which it stands there."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.storage.test_fileservers import require_nfs
from tests.sites.imagenet import make_archives

from muster.store.keyring import new_key

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
REFERENCE = ROOT / "docs" / "commands.md"
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
BASH_BLOCK = re.compile(r"^(?P<mark><!-- not run: [^\n]+ -->\n)?```bash\n(?P<body>.*?)^```$", re.M | re.S)
YAML_BLOCK = re.compile(r"^```yaml\n(?P<body>.*?)^```$", re.M | re.S)

# What the documents call "your script": it logs, writes an output and a checkpoint, and takes any arguments.
SCRIPT = """
import os
import sys
from pathlib import Path

from muster import Run

run = Run.get_context()
print("rank", os.environ.get("RANK", "0"), "of", os.environ.get("WORLD_SIZE", "1"), sys.argv[1:])
for step in range(3):
    run.log("loss", 1 / (step + 1), step=step)
    run.progress(step + 1, 3, "steps")
run.log("images_per_sec", 100.0 * int(os.environ.get("WORLD_SIZE", "1")))
Path("outputs").mkdir(exist_ok=True)
Path("outputs/model.pt").write_text("a model")
Path("outputs/events.out.tfevents.0").write_bytes(b"")
if "MUSTER_CHECKPOINT_DIR" in os.environ and os.environ.get("RANK", "0") == "0":
    unfinished = Path(os.environ["MUSTER_CHECKPOINT_DIR"]) / ".step_100"
    unfinished.mkdir()
    (unfinished / "weights").write_text("a model in the making")
    unfinished.rename(unfinished.with_name("step_100"))
"""


JOB_FILE = "code: ./src\ncommand: python train.py --epochs ${{inputs.epochs}}\ninputs: {epochs: 1, lr: 0.1}\n"
RUNS_OF_THE_REFERENCE = ("4f2c", "90ab", "brave-otter", "calm-lynx")


@dataclass(frozen=True)
class Shown:
    """A command of a document, and the job file that stood before it."""

    line: int
    command: str
    job_file: str | None


def shown(document: Path) -> list[Shown]:
    """Commands in order; a backslash at the end of a line goes on in the next."""
    text = document.read_text()
    job_files = [match for match in YAML_BLOCK.finditer(text) if re.search(r"^command:", match["body"], re.M)]
    found = []
    for match in BASH_BLOCK.finditer(text):
        if match["mark"]:
            continue
        before = [job["body"] for job in job_files if job.start() < match.start()]
        line = text.count("\n", 0, match.start("body")) + 1
        for command in match["body"].replace("\\\n", " ").splitlines():
            found.append(Shown(line, command.strip(), before[-1] if before else None))
    return [item for item in found if item.command and not item.command.startswith("#")]


def reference_examples() -> list[Shown]:
    """The lines after a prompt in the generated command reference."""
    lines = REFERENCE.read_text().splitlines()
    return [Shown(number, line[2:], None) for number, line in enumerate(lines, 1) if line.startswith("$ ")]


WITH_COMMANDS = [document for document in DOCUMENTS if shown(document)]


def test_the_documents_that_teach_show_commands() -> None:
    names = {document.name for document in WITH_COMMANDS}
    assert {"README.md", "quickstart.md", "troubleshooting.md"} <= names


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_a_shown_command_is_muster_or_make(document: Path) -> None:
    """Anything else belongs in a block that is not marked as bash, since nothing runs it."""
    assert all(item.command.split()[0] in {"muster", "make"} for item in shown(document))
    assert document == REFERENCE or "```console" not in document.read_text()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("document", WITH_COMMANDS, ids=lambda document: document.name)
def test_the_commands_of_a_document_work(document: Path, workspace: Path) -> None:
    prepare(workspace)
    if any(item.command == "muster init" for item in shown(document)):
        shutil.rmtree(workspace / ".muster")
    else:
        # Where a document looks at the latest run, the reader has one.
        execute(Shown(0, "muster run train.py --quiet", None), workspace, document)
    for item in shown(document):
        if item.job_file is not None:
            (workspace / "job.yml").write_text(item.job_file)
        execute(item, workspace, document)


@pytest.mark.timeout(300)
def test_the_file_server_of_the_walkthrough_is_made_filled_and_shown(workspace: Path) -> None:
    require_nfs()
    prepare(workspace)
    document = ROOT / "docs" / "walkthrough.md"
    (not_run,) = (match["body"] for match in BASH_BLOCK.finditer(document.read_text()) if match["mark"])
    for command in ("muster run examples/walkthrough/data.yml --quiet", *not_run.splitlines()):
        execute(Shown(0, command, None), workspace, document)
    execute(Shown(0, "muster fileserver delete pictures-server --yes", None), workspace, document)


@pytest.mark.timeout(600)
def test_the_examples_of_the_command_reference_work(workspace: Path) -> None:
    prepare(workspace)
    (workspace / "fails.py").write_text("raise SystemExit(3)\n")
    (workspace / "job.yml").write_text(JOB_FILE)
    (workspace / "cluster.yml").write_text("name: gpus\nsize: Standard_NC6s_v3\nmax_instances: 2\n")
    (workspace / "environment.yml").write_text("name: sums\ndependencies: [{pip: [six==1.17.0]}]\n")
    (workspace / "requirements.txt").write_text("six==1.17.0\n")
    (workspace / "project").mkdir()
    (workspace / "sas.txt").write_text("sv=2020-02-10&sr=c&sp=rl&sig=c2lnbmF0dXJl")
    (workspace / "keys.json").write_text('{"key": "…", "secret": "…"}')
    (workspace / "token.txt").write_text("hf_0123456789")
    make_archives(workspace)
    encrypt(workspace)
    for name in RUNS_OF_THE_REFERENCE:
        execute(Shown(0, f"muster run train.py --procs 2 --name {name} --quiet", None), workspace, REFERENCE)
    for item in reference_examples():
        if item.command.startswith(("muster up", "muster login", "muster import mlflow http")):
            continue
        if item.command.startswith("muster fileserver create") and "--cluster" in item.command:
            # It needs machines in a network of their own.
            continue
        if needs_a_run_that_sleeps(item.command):
            enter_a_run_that_sleeps(item, workspace)
            continue
        if item.command.startswith("muster serve"):
            serve_until_cancelled(item, workspace)
            continue
        if item.command.startswith("muster cancel"):
            cancel_a_run_that_sleeps(item, workspace)
            continue
        if item.command.startswith("muster notify test"):
            # Nobody answers at the addresses of examples.
            execute(item, workspace, REFERENCE, allowed={1})
            continue
        if item.command == "muster init":
            shutil.rmtree(workspace / "elsewhere", ignore_errors=True)
            (workspace / "elsewhere").mkdir()
            execute(item, workspace / "elsewhere", REFERENCE)
            continue
        if item.command.startswith("muster retry"):
            execute(Shown(0, "muster run fails.py --quiet", None), workspace, REFERENCE, allowed={1})
            # It fails once more, and the command follows it.
            execute(item, workspace, REFERENCE, allowed={0} if "--detach" in item.command else {1})
            continue
        if item.command.startswith("muster rerun"):
            execute(Shown(0, "muster run job.yml --quiet", None), workspace, REFERENCE)
        if item.command.startswith("muster ps") or "runs:/@latest" in item.command:
            execute(Shown(0, "muster run train.py --procs 2 --quiet", None), workspace, REFERENCE)
        if item.command.startswith("muster rm") and "--yes" not in item.command:
            answer_yes(item, workspace)
            continue
        execute(item, workspace, REFERENCE)


def needs_a_run_that_sleeps(command: str) -> bool:
    entering = command.split()[1] in ("shell", "stacks", "forward", "tensorboard")
    return entering or command == "muster mlflow" or command.startswith("muster notify @latest")


def enter_a_run_that_sleeps(item: Shown, folder: Path) -> None:
    """What goes on until Ctrl-C is ended once it serves."""
    if "@latest" in item.command:
        execute(Shown(0, "muster run sleeper.py --procs 2 --detach", None), folder, REFERENCE)
    if item.command.split()[1] in ("shell", "stacks", "notify"):
        execute(item, folder, REFERENCE)
    else:
        words = shlex.split(item.command)[1:] + (["--port", "0"] if "tensorboard" in item.command else [])
        serving = subprocess.Popen([BIN / "muster", *words], cwd=folder, stderr=subprocess.PIPE, text=True)
        with serving:
            said = ""
            while "Ctrl-C" not in said and "CTRL+C" not in said:
                assert serving.stderr is not None
                line = serving.stderr.readline()
                assert line, said
                said += line
            serving.send_signal(signal.SIGINT)
            assert serving.wait(60) in (0, 130), said
    if "@latest" in item.command:
        execute(Shown(0, "muster cancel @latest --force", None), folder, REFERENCE)
        execute(Shown(0, "muster wait @latest", None), folder, REFERENCE, allowed={130})
        execute(Shown(0, "muster rm @latest --yes", None), folder, REFERENCE)


def serve_until_cancelled(item: Shown, folder: Path) -> None:
    """On a port of this test's own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    execute(Shown(item.line, f"{item.command} --port {port} --detach", None), folder, REFERENCE)
    execute(Shown(0, "muster cancel @latest --force", None), folder, REFERENCE)
    execute(Shown(0, "muster wait @latest", None), folder, REFERENCE, allowed={130})
    execute(Shown(0, "muster rm @latest --yes", None), folder, REFERENCE)


def encrypt(folder: Path) -> None:
    """Where a key is changed, there is one."""
    for name in ("first.key", "new.key"):
        (folder / name).write_text(new_key())
    config = folder / ".muster" / "workspace.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "encryption": {"key_file": "../first.key"}}))


def answer_yes(item: Shown, folder: Path) -> None:
    """In a terminal, since the command asks."""
    ours, its = pty.openpty()
    command = [BIN / "muster", *shlex.split(item.command)[1:]]
    asking = subprocess.Popen(command, cwd=folder, stdin=its, stdout=its, stderr=its, start_new_session=True)
    os.close(its)
    os.write(ours, b"y\n")
    code = asking.wait(60)
    said = os.read(ours, 65536).decode()
    os.close(ours)
    assert code == 0, said


def cancel_a_run_that_sleeps(item: Shown, folder: Path) -> None:
    """The run that the example names is removed first, since names are unique."""
    named = item.command.split()[2]
    if named in RUNS_OF_THE_REFERENCE:
        execute(Shown(0, f"muster rm {named} --yes", None), folder, REFERENCE)
    name = f"--name {named}" if named in RUNS_OF_THE_REFERENCE else ""
    execute(Shown(0, f"muster run sleeper.py --detach {name}", None), folder, REFERENCE)
    execute(item, folder, REFERENCE)
    if named in RUNS_OF_THE_REFERENCE:
        execute(Shown(0, f"muster wait {named}", None), folder, REFERENCE, allowed={130})
        execute(Shown(0, f"muster rm {named} --yes", None), folder, REFERENCE)
        execute(Shown(0, f"muster run train.py --procs 2 --name {named} --quiet", None), folder, REFERENCE)


@pytest.mark.parametrize(
    "command", [item.command for item in reference_examples() if item.command.startswith("muster up")]
)
def test_the_examples_of_muster_up_serve(command: str, workspace: Path) -> None:
    """On a port of this test's own, and on this machine's address in place of the example's."""
    if "--cert" in command:
        openssl = (
            "openssl req -x509 -newkey rsa:2048 -nodes -keyout server.key -out server.pem -days 2 -subj /CN=localhost"
        )
        subprocess.run(openssl.split(), cwd=workspace, check=True, capture_output=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shown = shlex.split(command.replace("10.0.0.5", "127.0.0.1"))
    with (workspace / "up.log").open("wb") as log:
        server = subprocess.Popen(
            [BIN / "muster", *shown[1:], "--port", str(port)], cwd=workspace, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 30
        while not accepts(port):
            assert server.poll() is None and time.monotonic() < deadline, (workspace / "up.log").read_text()
            time.sleep(0.05)
    finally:
        server.terminate()
        server.wait(30)


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def execute(item: Shown, folder: Path, document: Path, allowed: Collection[int] | None = None) -> None:
    done = subprocess.run(
        ["bash", "-c", item.command],
        cwd=folder,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"{document.name}:{item.line}: {item.command}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}"
    # `muster doctor` may find something amiss on the machine, which it then says with exit code 1.
    fitting = allowed or ({0, 1} if item.command.startswith("muster doctor") else {0})
    assert done.returncode in fitting, said
    assert "Traceback" not in done.stderr, said


def prepare(folder: Path) -> None:
    """The folder of a reader: a clone with everything installed, a script and data."""
    (folder / "src").mkdir()
    (folder / "images").mkdir()
    (folder / "images" / "one.txt").write_text("an image")
    trace = [f"{60 * number},{30 * (number % 7 + 1)},{1 + number % 2}" for number in range(40)]
    (folder / "month.csv").write_text("\n".join(["start,length,gpus", *trace, ""]))
    for place in ("train.py", "src/train.py"):
        (folder / place).write_text(SCRIPT)
    (folder / "model.pt").write_text("a model")
    (folder / "evaluate.py").write_text("print('evaluated')\n")
    (folder / "score.py").write_text("def run(mini_batch):\n    return mini_batch\n")
    (folder / "deployment.yml").write_text(
        "name: first\nendpoint_name: nightly\nmodel: {path: model.pt}\n"
        "code_configuration: {code: ., scoring_script: score.py}\n"
    )
    (folder / "blue.yml").write_text(
        "name: blue\nendpoint_name: digits\ncode_configuration: {code: ., scoring_script: score.py}\n"
    )
    (folder / "endpoint.yml").write_text("name: letters\nauth_mode: key\n")
    (folder / "batch-endpoint.yml").write_text("name: monthly\ndescription: once a month\n")
    (folder / "request.json").write_text('{"text": "hi"}')
    (folder / "datastore.yml").write_text(
        "name: flowers\ntype: azure_blob\naccount_name: garden\ncontainer_name: pictures\n"
    )
    (folder / "data.yml").write_text("name: letters\ntype: uri_folder\npath: images\n")
    (folder / "model.yml").write_text("name: resnet50\npath: images\n")
    (folder / "analyse.py").write_text("import os\nprint(os.environ['MLFLOW_TRACKING_URI'])\n")
    keep_in_mlflow(folder / "mlruns" / "0")
    (folder / "sleeper.py").write_text("import time\ntime.sleep(600)\n")
    (folder / "train.sbatch").write_text("#!/bin/bash\n#SBATCH -N 2 --time=10\nsrun python train.py\n")
    for log in ("slurm-4711.out", "rank_0.log", "rank_1.log"):
        (folder / log).write_text("epoch 1\nKilled\n")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__", "outputs"))
    example = folder / "examples" / "resnet50" / "job.yml"
    # The example as it is takes minutes; test_demo.py looks at what it does.
    example.write_text(re.sub(r"steps: \d+", "steps: 2", example.read_text()))
    install(folder)


def keep_in_mlflow(experiment: Path) -> None:
    """One run, as MLflow writes it to a folder."""
    run = experiment / ("0" * 32)
    (run / "metrics").mkdir(parents=True)
    (experiment / "meta.yaml").write_text("experiment_id: '0'\nlifecycle_stage: active\nname: Default\n")
    (run / "meta.yaml").write_text(
        f"run_id: {run.name}\nexperiment_id: '0'\nlifecycle_stage: active\nrun_name: first\nstatus: 3\n"
        "start_time: 1700000000000\nend_time: 1700000060000\nuser_id: ada\n"
    )
    (run / "metrics" / "loss").write_text("1700000001000 0.5 1\n")


def install(folder: Path) -> None:
    """Make `make` find everything installed: this Python's environment, and stamps newer than pyproject.toml."""
    shutil.copy2(ROOT / "Makefile", folder)
    shutil.copy2(ROOT / "pyproject.toml", folder)
    (folder / ".venv").mkdir()
    (folder / ".venv" / "pyvenv.cfg").touch()
    (folder / ".venv" / "bin").symlink_to(BIN)
    for stamp in (".created", ".base", ".dev", ".torch"):
        (folder / ".venv" / stamp).touch()
