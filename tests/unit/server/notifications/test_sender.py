"""What sends notifications against receivers that attack, and against those who write addresses and names."""

from __future__ import annotations

import signal
import smtplib
import socket
import threading
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from typing import Any

import pytest

from muster.errors import JobError
from muster.server.notifications import sender
from muster.server.notifications.addresses import read_address
from muster.server.notifications.errands import HttpErrand, MailErrand, SmtpSettings
from muster.server.notifications.sender import carry

LOCAL = ("127.0.0.1",)


class Receiver:
    """Answers each connection with what it is told to say, as long as that is taken."""

    def __init__(self, say: Callable[[socket.socket], None]) -> None:
        self.heard: list[bytes] = []
        self._say = say
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/hook"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.heard.append(connection.recv(1 << 16))
                try:
                    self._say(connection)
                except OSError:
                    pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def receiver() -> Iterator[Callable[[Callable[[socket.socket], None]], Receiver]]:
    made: list[Receiver] = []

    def make(say: Callable[[socket.socket], None]) -> Receiver:
        made.append(Receiver(say))
        return made[-1]

    yield make
    for item in made:
        item.close()


def post(url: str, allowed: tuple[str, ...] | None = LOCAL) -> HttpErrand:
    return HttpErrand("e1", url, {"Content-Type": "application/json"}, "{}", allowed)


def forever(text: bytes) -> Callable[[socket.socket], None]:
    def say(connection: socket.socket) -> None:
        while True:
            connection.sendall(text)

    return say


def test_nobody_is_sent_on(receiver: Any) -> None:
    inside = receiver(lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret"))
    for code in (301, 302, 303, 307, 308):
        head = f"HTTP/1.1 {code} Moved\r\nLocation: {inside.url}\r\nContent-Length: 0\r\n\r\n".encode()
        outcome = carry(post(receiver(lambda connection, head=head: connection.sendall(head)).url))
        assert not outcome.taken and "not followed" in outcome.answer
    assert inside.heard == []


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "2130706433", "0x7f000001", "127.1", "0177.0.0.1", "0.0.0.0", "[::1]", "[::]",
        "[::ffff:127.0.0.1]", "169.254.169.254", "[::ffff:169.254.169.254]", "[2002:7f00:1::]", "[fe80::1]",
    ],
)  # fmt: skip
def test_no_spelling_of_the_servers_own_machine_is_reached(receiver: Any, host: str) -> None:
    inside = receiver(lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
    port = inside.url.rpartition(":")[2]
    outcome = carry(post(f"http://{host}:{port}", allowed=()))
    assert not outcome.taken and inside.heard == []


def test_an_answer_without_end_is_cut_off(receiver: Any) -> None:
    head = b"HTTP/1.1 500 Broken\r\nContent-Type: text/plain\r\n\r\n"
    endless = forever(b"x" * 65536)

    def body(connection: socket.socket) -> None:
        connection.sendall(head)
        endless(connection)

    outcome = carry(post(receiver(body).url))
    assert outcome.answer.startswith("HTTP 500: xxx") and len(outcome.answer) < 400
    outcome = carry(post(receiver(forever(b"\x1b[2JX-Header: " + b"y" * 1000 + b"\r\n")).url))
    assert not outcome.taken and len(outcome.answer) < 400 and "\x1b" not in outcome.answer
    many = receiver(lambda c: (c.sendall(b"HTTP/1.1 200 OK\r\n"), forever(b"A: b\r\n")(c)))  # type: ignore[func-returns-value]
    assert not carry(post(many.url)).taken


def test_one_that_dribbles_is_given_up(receiver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "ERRAND_S", 0.5)
    before = signal.signal(signal.SIGALRM, sender._too_slow)
    over = threading.Event()

    def dribble(connection: socket.socket) -> None:
        while not over.wait(0.05):
            connection.sendall(b"H")

    try:
        outcome = carry(post(receiver(dribble).url))
    finally:
        over.set()
        signal.signal(signal.SIGALRM, before)
    assert not outcome.taken and "too slow" in outcome.answer


class Mailbox:
    """Takes the place of a mail server."""

    taken: list[EmailMessage] = []

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Mailbox:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send_message(self, message: EmailMessage) -> dict[str, str]:
        self.taken.append(message)
        return {}


@pytest.mark.parametrize(
    "name", ["run\r\nBcc: eve@example.org", "run\nX-Evil: 1", "a\r\n\r\nbody", "\u2028Bcc: x", "ü" * 500]
)
def test_a_runs_name_adds_no_header_to_a_mail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smtplib, "SMTP", Mailbox)
    settings = SmtpSettings("mail.example.org", "muster@example.org", security="none")
    outcome = carry(MailErrand("e1", "ada@example.org", f"{name} failed", "it failed", settings))
    assert outcome.taken, outcome.answer
    message = Mailbox.taken.pop()
    known = {"From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"}
    assert set(message) - known <= {"Content-Type", "Content-Transfer-Encoding", "MIME-Version"}
    head = message.as_bytes().partition(b"\n\n")[0]
    assert not any(line.startswith((b"Bcc", b"X-Evil")) for line in head.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        "https://x.org/a\r\nX-Evil: 1", "https://x.org/a b", "http://user:pw@x.org/", "file:///etc/passwd", "gopher://x/",
        "mailto:ada@example.org\r\nBcc: eve@example.org", "mailto:ada@example.org,eve@example.org", 
        "mailto:<ada@x.org>", "https://x.org\t/a", "unix:///run/docker.sock", "https:///a",
    ],
)  # fmt: skip
def test_addresses_that_say_more_than_an_address_are_refused(text: str) -> None:
    with pytest.raises(JobError):
        read_address(text)
