"""Addresses of receivers and the forms of messages."""

from __future__ import annotations

import json
from email.header import decode_header

import pytest

from muster.errors import JobError
from muster.server.notifications.addresses import Target, looks_like_address, read_address
from muster.server.notifications.errands import HttpErrand, MailErrand, SmtpSettings
from muster.server.notifications.forms import errand, signature
from muster.server.notifications.sender import carry
from muster.server.notifications.state import read_smtp
from muster.wire.notifications.events import Notification, NotifiedRun

RUN = NotifiedRun("train-1", "<!channel> & co", "digits", "Failed", "local", "ada", 2, 1.0, 2.0, 3.0)
FAILED = Notification("id-1", "fails", 3.0, "train-1 failed", "exit code 3\n```boom```", "w", RUN, url="https://h/run")
SMTP = SmtpSettings("mail.example.org", "muster@example.org")


def http(target: Target, said: Notification = FAILED, secret: str | None = None) -> HttpErrand:
    made = errand(target, said, secret, 1614265330.0, None, None)
    assert isinstance(made, HttpErrand)
    return made


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        ("https://example.org/hook?token=1", "webhook", "https://example.org/…"),
        ("http://127.0.0.1:9000", "webhook", "http://127.0.0.1:9000"),
        ("https://hooks.slack.com/services/T0/B0/secret", "slack", "https://hooks.slack.com/…"),
        ("slack+https://chat.example.org/hooks/1", "slack", "https://chat.example.org/…"),
        ("https://contoso.webhook.office.com/webhookb2/1", "teams", "https://contoso.webhook.office.com/…"),
        ("https://ntfy.sh/topic", "ntfy", "https://ntfy.sh/…"),
        ("https://evil-ntfy.sh/topic", "webhook", "https://evil-ntfy.sh/…"),
        ("mailto:ada@example.org", "mail", "ada@example.org"),
        ("ada@example.org", "mail", "ada@example.org"),
    ],
)
def test_addresses_are_known_by_their_form_and_shown_without_their_secret(text: str, kind: str, shown: str) -> None:
    target = read_address(text)
    assert (target.kind, target.shown) == (kind, shown)
    assert looks_like_address(text)


@pytest.mark.parametrize(
    "text",
    ["ftp://example.org", "https://", "https://user:pw@example.org/x", "https://exa mple.org", "https://[::1",
     "https://h:99999/", "mailto:", "mailto:a@b@c", "a@b\nBcc: c@d", "file:///etc/passwd", "https://h/\r\nX: 1"],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_repeating_secrets(text: str) -> None:
    with pytest.raises(JobError, match="is not an") as refused:
        read_address(text)
    assert "pw" not in str(refused.value)


def test_a_signature_is_that_of_standard_webhooks() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    made = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", '{"test": 2432232314}')
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    signed = http(Target("webhook", "https://h/x"), secret=secret)
    assert signed.headers["webhook-signature"] == signature(secret, "id-1", "1614265330", signed.body)
    assert "webhook-signature" not in http(Target("webhook", "https://h/x")).headers


def test_a_webhook_gets_the_whole_notification() -> None:
    said = json.loads(http(Target("webhook", "https://h/x")).body)
    assert (said["id"], said["event"], said["run"]["id"]) == ("id-1", "fails", "train-1")


def test_slack_calls_no_channel_that_a_job_names() -> None:
    text = json.loads(http(Target("slack", "https://h/x")).body)["text"]
    assert text.startswith("*train-1 failed*") and "<https://h/run|Open the run>" in text
    called = Notification("i", "fails", 1.0, "<!channel> failed", "", "w", None)
    assert "<!" not in json.loads(http(Target("slack", "https://h/x"), called).body)["text"]


def test_teams_gets_an_adaptive_card() -> None:
    card = json.loads(http(Target("teams", "https://h/x")).body)["attachments"][0]
    assert card["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert card["content"]["body"][0]["text"] == "train-1 failed"
    assert card["content"]["actions"][0]["url"] == "https://h/run"


def test_ntfy_gets_text_with_headers_of_plain_letters() -> None:
    said = http(
        Target("ntfy", "https://ntfy.sh/x"), Notification("i", "fails", 1.0, "größer\nX: 1", "é" * 9000, "w", None)
    )
    ((data, charset),) = decode_header(said.headers["Title"])
    assert (data.decode(charset), said.headers["Priority"]) == ("größer X: 1", "4")
    assert len(said.body.encode()) < 4096


def test_a_mail_has_a_subject_and_the_page() -> None:
    made = errand(Target("mail", "ada@example.org"), FAILED, None, 0.0, SMTP, None)
    assert isinstance(made, MailErrand)
    assert (made.to, made.subject) == ("ada@example.org", "train-1 failed")
    assert "exit code 3" in made.text and "https://h/run" in made.text


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/x", "http://localhost:1/", "http://[::1]:1/", "http://169.254.169.254/"]
)
def test_nobody_but_an_administrator_reaches_the_servers_own_machine(url: str) -> None:
    outcome = carry(HttpErrand("i", url, {}, "{}", allowed=()))
    assert not outcome.taken and "not listed under `reach`" in outcome.answer


def test_settings_of_mail() -> None:
    assert read_smtp(None) is None
    assert read_smtp({"host": "h", "from": "m@h", "security": "tls"}) == SmtpSettings("h", "m@h", 465, "tls")
    for wrong in (
        {"host": "h"},
        {"host": "h", "from": "f", "port": "x"},
        {"host": "h", "from": "f", "security": "ssl"},
        [],
    ):
        with pytest.raises(Exception, match=r"workspace\.json"):
            read_smtp(wrong)  # type: ignore[arg-type]
