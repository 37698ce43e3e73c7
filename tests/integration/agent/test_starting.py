"""From an order to running ranks: code, inputs, environment, ports, and what is refused."""

from __future__ import annotations

import io
import signal
import socket
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import psutil

from muster.wire.node.agents import InputOrder, Order

from .conftest import Harness, alive, is_nursery, plan_of, until


def test_code_inputs_and_outputs_are_in_place(node: Harness, folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data/x").write_text("data\n")
    (folder / "one.csv").write_text("csv\n")
    digest = node.server.add_code({"train.sh": b"cat lib/text\n", "lib/text": b"from the code\n"})
    node.start_agent()
    command = (
        "sh train.sh; cat $MUSTER_INPUT_mounted/x $MUSTER_INPUT_copied/x $MUSTER_INPUT_file; "
        "echo $MUSTER_INPUT_direct; basename $MUSTER_INPUT_file; echo changed > $MUSTER_INPUT_copied/x; "
        "echo model > $MUSTER_OUTPUT_model/m; echo broken > lib/text"
    )
    inputs = (
        InputOrder("mounted", str(folder / "data"), "ro_mount", "uri_folder"),
        InputOrder("copied", str(folder / "data"), "download", "uri_folder"),
        InputOrder("file", str(folder / "one.csv"), "download", "uri_file"),
        InputOrder("direct", str(folder / "data"), "direct", "uri_folder"),
    )
    for _ in range(2):
        key = node.run(command, snapshot=digest, inputs=inputs, outputs=("model",))
        node.server.wait_event(key, "delivered")
        expected = f"from the code\ndata\ndata\ncsv\n{folder}/data\none.csv\n"
        assert node.log(key).decode() == expected
        assert node.server.kept.files[(*key, "outputs/model/m")] == b"model\n"
    assert (folder / "data/x").read_text() == "data\n"


def test_a_missing_input_is_refused_by_name(node: Harness, folder: Path) -> None:
    node.start_agent()
    key = node.run("true", inputs=(InputOrder("images", str(folder / "nowhere"), "ro_mount", "uri_folder"),))
    refused = node.server.wait_event(key, "refused")
    assert refused.data.code == "data_unavailable"
    assert "images" in refused.data.message
    assert "nowhere" in refused.data.message
    assert node.server.wait_event(key, "ended").data.reason == "refused"
    node.server.wait_event(key, "delivered")
    node.forget(key)


def test_an_archive_that_escapes_is_refused(node: Harness, folder: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("../../escaped"), io.BytesIO())
    digest = node.server.add_archive(buffer.getvalue())
    node.start_agent()
    key = node.run("true", snapshot=digest)
    refused = node.server.wait_event(key, "refused")
    assert refused.data.code == "bad_input"
    assert "escaped" in refused.data.message


def test_code_is_fetched_when_the_server_is_back(node: Harness) -> None:
    node.start_agent()
    digest = node.server.add_code({"a": b"arrived\n"})
    archive = node.server.kept.archives.pop(digest)
    key = node.run("cat a", snapshot=digest)
    # The handler fails and breaks the connection for as long as it has no such archive.
    until(lambda: "did not arrive" in node.paths.log.read_text(), what="a failed fetch")
    node.server.kept.archives[digest] = archive
    node.server.wait_event(key, "delivered")
    assert node.log(key) == b"arrived\n"


def test_a_missing_program_is_told_in_log_and_exit(node: Harness) -> None:
    node.start_agent()
    key = node.run(["sleep", "1000"], ["no-such-program", "x"])
    node.server.wait_event(key, "delivered")
    exit = node.exits(key)[1]
    assert exit["exit_code"] == 127
    assert "no-such-program" in exit["refusal"]
    assert b"rank 1 could not be started: there is no program 'no-such-program' on PATH" in node.log(key, 1)
    assert node.exits(key)[0]["expected"]


def test_a_file_that_is_not_executable_is_told(node: Harness) -> None:
    digest = node.server.add_code({"script.sh": b"echo x\n"})
    node.start_agent()
    key = node.run(["./script.sh"], snapshot=digest)
    node.server.wait_event(key, "delivered")
    assert node.exits(key)[0]["exit_code"] == 126
    assert b"Permission denied" in node.log(key)


def test_an_undefined_variable_of_a_command_list_is_refused(node: Harness) -> None:
    node.start_agent()
    key = node.run(["echo", "$LOCAL_RANKK"])
    refused = node.server.wait_event(key, "refused")
    assert refused.data.code == "bad_input"
    assert "LOCAL_RANKK" in refused.data.message


def test_command_lists_are_expanded_in_the_final_environment(node: Harness) -> None:
    node.start_agent()
    key = node.run(["echo", "$RANK", "a  b", "$$HOME", "${MUSTER_OUTPUT_o}"], outputs=("o",))
    node.server.wait_event(key, "delivered")
    assert node.log(key).decode() == f"0 a  b $HOME {node.paths.attempt(*key).work}/outputs/o\n"


def test_ranks_see_a_known_environment_and_no_descriptor_of_muster(node: Harness, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("SECRET_OF_THE_SHELL", "x")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    node.start_agent()
    key = node.run(
        [
            "python",
            "-c",
            "import os,sys; print(sorted(os.listdir('/proc/self/fd'))); print(os.environ); print(sys.executable)",
        ]
    )
    node.server.wait_event(key, "delivered")
    log = node.log(key).decode()
    assert log.startswith("['0', '1', '2', '3']\n"), "3 is the listing itself"
    assert "SECRET_OF_THE_SHELL" not in log
    assert "Europe/Berlin" in log
    assert str(Path(sys.executable).parent) in log.splitlines()[-1]


def test_signals_are_as_a_shell_would_give_them(node: Harness) -> None:
    node.start_agent()
    key = node.run("grep -E 'Sig(Ign|Blk)' /proc/self/status; umask; ps -o pgid=,sid= $$ | xargs echo $$")
    node.server.wait_event(key, "delivered")
    lines = node.log(key).decode().split("\n")
    assert lines[0].split() == ["SigBlk:", "0" * 16]
    # Signals 32 and 33 belong to the C library: whoever started the tests may have left them ignored for good.
    assert int(lines[1].split()[1], 16) & ~(0b11 << 31) == 0
    assert lines[2] == "0022"
    assert len(set(lines[3].split())) == 1, "a rank leads its own session and group"


def test_ports_are_held_until_the_ranks_are_gone_and_then_released(node: Harness) -> None:
    node.start_agent()
    # Not the default: jobs of other tests that run at the same time begin there.
    first = 17105
    node.server.order(Order(run="p", attempt=1, action="prepare", ports_count=2, ports_preferred=first))
    ports = node.server.wait_event(("p", 1), "prepared").data.ports
    assert len(set(ports)) == 2
    other = node.run("true", ports_count=2, ports_preferred=first)
    assert not set(ports) & set(node.server.wait_event(other, "prepared").data.ports)
    go = Order(run="p", attempt=1, action="go", plan=plan_of("until [ -e go ]; do sleep 0.02; done"))
    node.server.order(replace(go, ports_count=2))
    node.pids(("p", 1))
    node.kill_agent()
    until(lambda: not node.marked(), what="the end of the ranks")
    node.start_agent()
    again = node.run("true", ports_count=1, ports_preferred=ports[0])
    assert node.server.wait_event(again, "prepared").data.ports == ports[:1]


def test_a_port_that_somebody_listens_on_is_passed_over(node: Harness) -> None:
    node.start_agent()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        key = node.run("true", ports_count=1, ports_preferred=port)
        assert node.server.wait_event(key, "prepared").data.ports[0] != port


def test_a_prepared_attempt_that_is_stopped_ends_without_a_start(node: Harness) -> None:
    node.start_agent()
    node.server.order(Order(run="w", attempt=1, action="prepare"))
    node.server.wait_event(("w", 1), "prepared")
    node.stop(("w", 1))
    assert node.server.wait_event(("w", 1), "ended").data.reason == "cancelled"
    node.server.wait_event(("w", 1), "delivered")
    assert not node.server.events(("w", 1), "started")


def test_a_stop_of_an_attempt_that_never_came_is_answered(node: Harness) -> None:
    node.start_agent()
    node.stop(("never", 1))
    node.server.wait_event(("never", 1), "delivered")
    node.forget(("never", 1))


def test_what_the_server_needs_no_longer_is_removed_with_the_next_delivery(node: Harness) -> None:
    node.start_agent()
    key = node.run("echo x")
    node.server.wait_event(key, "delivered")
    node.server.kept.forgettable.add(key)
    until(lambda: not node.paths.attempt(*key).root.exists(), what="the removal")
    until(lambda: node.server.kept.heartbeats[-1].holding == (), what="a heartbeat without it")


def test_a_running_attempt_that_is_not_wanted_any_more_is_ended_and_removed(node: Harness) -> None:
    node.start_agent()
    key = node.run("sleep 1000")
    pid = node.pids(key)[0]
    node.server.kept.forgettable.add(key)
    until(lambda: not node.paths.attempt(*key).root.exists(), what="the removal")
    assert not alive(pid)


def test_an_attempt_of_which_the_server_has_not_heard_is_prepared_again(node: Harness) -> None:
    node.start_agent()
    digest = node.server.add_code({"a": b"arrived\n"})
    archive = node.server.kept.archives.pop(digest)
    key = node.run("cat a", snapshot=digest)
    until(lambda: node.paths.attempt(*key).order.exists(), what="the order on disk")
    node.kill_agent()
    node.server.kept.archives[digest] = archive
    node.start_agent()
    assert node.server.kept.hellos[-1].holding == ()
    node.server.wait_event(key, "delivered")
    assert node.log(key) == b"arrived\n"


def test_the_short_temporary_folder_takes_sockets(node: Harness, folder: Path) -> None:
    deep = folder / ("d" * 60)
    node.paths = type(node.paths)(deep / "node")
    node.start_agent()
    key = node.run(["python", "-c", "import multiprocessing as m; print(m.Manager().list([1]))"])
    node.server.wait_event(key, "delivered")
    assert node.log(key) == b"[1]\n"
    node.forget(key)


def test_two_hundred_attempts_leave_nothing(node: Harness) -> None:
    agent = node.start_agent()
    process = psutil.Process(agent.pid)

    def burst(count: int) -> None:
        keys = [node.run("echo x; echo y > outputs/f", "true", ports_count=1) for _ in range(count)]
        for key in keys:
            node.server.wait_event(key, "delivered", timeout_s=60)
        for key in keys:
            node.forget(key)

    def settled() -> set[str]:
        """Descriptors and children, one name for each."""
        nursery = psutil.Process(node.nursery())
        children = [child.name() for child in process.children(recursive=True) if not is_nursery(child.pid)]
        counts = {"agent": process.num_fds(), "nursery": nursery.num_fds(), "zombies": len(children)}
        return {f"{name} {number}" for name, count in counts.items() for number in range(count)}

    burst(10)
    before = settled()
    for _ in range(5):
        burst(40)
    until(lambda: settled() <= before, what=f"no more descriptors and children than before: {before} {settled()}")
    until(lambda: not list(node.paths.attempts.iterdir()), what="empty folders")
    assert process.memory_info().rss < 40 << 20
    assert process.num_threads() < 16


def test_a_rank_shows_its_stacks_on_a_signal_and_goes_on(node: Harness) -> None:
    script = "import os, time\ndef training(): os.kill(os.getpid(), {0}); print('goes on')\ntraining()"
    node.start_agent()
    key = node.run(["python", "-c", script.format(int(signal.SIGRTMAX - 6))])
    node.server.wait_event(key, "delivered")
    assert b"in training" in node.log(key)
    assert b"goes on" in node.log(key)


def test_what_torchrun_starts_shows_its_stacks_too(node: Harness) -> None:
    script = (
        f"import os\ndef training(): os.kill(os.getpid(), {int(signal.SIGRTMAX - 6)}); print('goes on')\ntraining()"
    )
    digest = node.server.add_code({"train.py": script.encode()})
    node.start_agent()
    key = node.run(["torchrun", "--standalone", "--nproc-per-node", "2", "train.py"], snapshot=digest)
    node.server.wait_event(key, "delivered", timeout_s=120)
    assert node.log(key).count(b"in training") == 2
    assert node.log(key).count(b"goes on") == 2


def test_what_torchrun_ends_has_said_where_it_was(node: Harness) -> None:
    script = """
import os, pathlib, time
ready = pathlib.Path(os.environ["TMPDIR"], "ready")
def unpack():
    ready.touch()
    time.sleep(600)
if os.environ["RANK"] == "1":
    unpack()
while not ready.exists():
    time.sleep(0.01)
raise TimeoutError("rank 1 did not answer")
"""
    digest = node.server.add_code({"train.py": script.encode()})
    node.start_agent()
    key = node.run(["torchrun", "--standalone", "--nproc-per-node", "2", "train.py"], snapshot=digest)
    node.server.wait_event(key, "delivered", timeout_s=120)
    said = node.log(key)
    assert b"muster: where rank 1 (process " in said and b"in unpack\n" in said
    assert b"line 8: unpack()\n" in said
    assert b"where rank 0" not in said


def test_a_job_switches_the_hooks_off(node: Harness) -> None:
    script = f"import os; os.kill(os.getpid(), {int(signal.SIGRTMAX - 6)})"
    node.start_agent()
    key = node.run(["python", "-c", script], user_env={"MUSTER_HOOKS": ""})
    assert node.server.wait_event(key, "exited").data.signal == signal.SIGRTMAX - 6
