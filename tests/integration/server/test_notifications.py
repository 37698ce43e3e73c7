"""Notifications that reach real receivers: hooks that refuse, hang and speak nonsense, a mail server, dead servers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from tests.conftest import wait_until
from tests.integration.server.conftest import Site, on_both_databases

from muster.client.connect import connect
from muster.client.workspace import find_workspace
from muster.errors import Conflict
from muster.server.notifications.forms import signature

LONG_S = 90.0


@dataclass
class Hook:
    """A receiver that answers as it is told to, one answer after the other, and then takes everything."""

    answers: list[Callable[[socket.socket], None]] = field(default_factory=list)
    received: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    taken: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append((headers, json.loads(body)))
        request.close_connection = True
        if self.answers:
            self.answers.pop(0)(request.connection)
            return
        self.taken.append(json.loads(body))
        request.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    def wait(self, count: int = 1) -> list[dict[str, Any]]:
        return wait_until(lambda: self.taken if len(self.taken) >= count else None, LONG_S, f"{count} notifications")


def serve(hook: Hook, port: int = 0) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.handle(self)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hook.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    return server


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    server = serve(made)
    yield made
    server.shutdown()
    server.server_close()


def refuse(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nlate")


def talk_nonsense(connection: socket.socket) -> None:
    connection.sendall(b"\x00\xff\x16garbage\r\n\r\n" * 100)


def hang_up(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


@on_both_databases
def test_a_job_says_in_one_line_who_is_told_that_it_failed(site: Site, hook: Hook) -> None:
    added = site.client.add_receiver("hook", hook.url, runs="named")
    failed = site.run(command="echo about to fail; exit 3", notify="hook")
    quiet = site.run(command="true")
    assert site.wait(failed)["status"] == "Failed" and site.wait(quiet)["status"] == "Completed"
    (said,) = hook.wait()
    assert (said["event"], said["run"]["id"], said["verdict"]["code"]) == ("fails", failed, "exit_code")
    headers, _ = hook.received[0]
    body = json.dumps(said)
    assert added.secret is not None
    assert headers["webhook-signature"] == signature(added.secret, said["id"], headers["webhook-timestamp"], body)
    (view,) = site.client.watches(failed)
    wait_until(lambda: site.client.watches(failed)[0].last.taken_at, LONG_S, "the record of it")  # type: ignore[union-attr]
    assert view.name == "hook"
    assert site.client.test_receiver("hook").taken and len(hook.taken) == 2


def test_a_receiver_that_refuses_hangs_up_and_talks_nonsense_gets_it_in_the_end(site: Site, hook: Hook) -> None:
    hook.answers += [refuse, talk_nonsense]
    run = site.run(command="sleep 2")
    site.client.watch(run, hook.url, when=["ends"])
    site.wait(run)
    with pytest.raises(Conflict, match=f"run {run} has ended already: Completed"):
        site.client.watch(run, hook.url)
    (said,) = hook.wait()
    assert said["event"] == "completes"
    # The same id each time: a receiver can drop what it has.
    assert {headers["webhook-id"] for headers, _ in hook.received} == {said["id"]} and len(hook.received) == 3


def test_one_receiver_that_hangs_holds_up_no_other_and_no_server(site: Site, hook: Hook) -> None:
    released = threading.Event()
    stuck = Hook(answers=[lambda _: released.wait(LONG_S) and None])
    server = serve(stuck)
    try:
        run = site.run(command="true", notify=[stuck.url, hook.url])
        site.wait(run)
        wait_until(lambda: stuck.received, LONG_S, "the receiver that hangs")
        assert hook.wait()[0]["run"]["id"] == run
        other = site.run(command="true", notify=hook.url)
        site.wait(other)
        assert hook.wait(2)[1]["run"]["id"] == other
        assert not stuck.taken
    finally:
        released.set()
        server.shutdown()
        server.server_close()


def test_a_server_that_is_killed_before_it_could_deliver_is_made_good_by_the_next(site: Site, hook: Hook) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    late = Hook()
    run = site.run(command="true", notify=f"http://127.0.0.1:{port}/hook")
    site.wait(run)
    server = site.server()
    server.kill()
    server.wait()
    receiver = serve(late, port)
    try:
        client = connect(find_workspace(site.folder))
        assert client.run(run).status == "Completed"
        assert late.wait()[0]["event"] == "completes"
        client.close()
    finally:
        receiver.shutdown()
        receiver.server_close()


def test_a_loss_that_is_no_number_and_a_run_that_stands_still(site: Site, hook: Hook, tmp_path: Path) -> None:
    (site.folder / "train.py").write_text(
        "import os, time\nfrom muster import Run\nRun.get_context().log('loss', float('nan'))\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}):\n    time.sleep(0.2)\n"
    )
    run = site.run(command="python train.py", code=".", notify={"to": hook.url, "quiet_s": 10})
    assert {said["event"] for said in hook.wait(2)} == {"nan", "hangs"}
    (tmp_path / "go").touch()
    site.wait(run)
    assert hook.wait(3)[2]["event"] == "completes"


class Mailbox:
    """What aiosmtpd hands over."""

    def __init__(self) -> None:
        self.mails: list[Any] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append((envelope.rcpt_tos, message_from_bytes(envelope.content, policy=policy.default)))
        return "250 taken"


def _knock(controller: Controller) -> None:
    with socket.create_connection(controller.server.sockets[0].getsockname()):
        pass


def test_mail_goes_by_the_workspaces_mail_server(workspace: Path) -> None:
    mailbox = Mailbox()
    controller = Controller(mailbox, hostname="127.0.0.1", port=0)
    # The port is the system's choice; the controller would try to reach port 0.
    controller._trigger_server = lambda: _knock(controller)  # type: ignore[method-assign]
    controller.start()
    port = controller.server.sockets[0].getsockname()[1]
    config = workspace / ".muster" / "workspace.json"
    smtp = {"host": "127.0.0.1", "port": port, "security": "none", "from": "muster@example.org"}
    config.write_text(json.dumps({**json.loads(config.read_text()), "smtp": smtp}))
    client = connect(find_workspace(workspace))
    try:
        site = Site(workspace, client)
        run = site.run(command="exit 4", notify="mailto:ada@example.org")
        site.wait(run)
        ((recipients, mail),) = wait_until(lambda: mailbox.mails, LONG_S, "the mail")
        assert (recipients, mail["Subject"]) == (["ada@example.org"], f"{run} failed")
        assert "exited with code 4" in mail.get_content()
    finally:
        client.close()
        controller.stop()
