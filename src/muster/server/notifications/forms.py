"""Notifications in the formats of receivers: plain JSON, Slack, Teams, ntfy, e-mail. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

from muster.server.notifications.addresses import Target
from muster.server.notifications.errands import Errand, HttpErrand, MailErrand, SmtpSettings
from muster.version import VERSION
from muster.wire.codec import Json, to_json
from muster.wire.notifications import events
from muster.wire.notifications.events import Notification

_PRIORITIES = {events.FAILS: "4", events.HANGS: "4", events.NAN: "4"}
_TAGS = {
    events.COMPLETES: "white_check_mark",
    events.FAILS: "x",
    events.CANCELS: "stop_sign",
    events.HANGS: "hourglass",
    events.NAN: "warning",
}
_NTFY_BYTES = 3800
"""ntfy turns a longer message into a file."""
SECRET_PREFIX = "whsec_"


def errand(
    target: Target,
    notification: Notification,
    secret: str | None,
    now: float,
    smtp: SmtpSettings | None,
    allowed: tuple[str, ...] | None,
) -> Errand:
    """What is to be sent. `secret` signs it; `allowed`: see `HttpErrand`."""
    if target.kind == "mail":
        assert smtp is not None
        text = "\n\n".join(part for part in (notification.text, _details(notification), notification.url) if part)
        return MailErrand(notification.id, target.address, notification.title, text, smtp)
    headers, body = _http_form(target, notification)
    headers |= {"User-Agent": f"muster/{VERSION}", "webhook-id": notification.id, "webhook-timestamp": f"{now:.0f}"}
    if secret is not None:
        headers["webhook-signature"] = signature(secret, notification.id, f"{now:.0f}", body)
    return HttpErrand(notification.id, target.address, headers, body, allowed)


def signature(secret: str, message_id: str, timestamp: str, body: str) -> str:
    """The signature of Standard Webhooks, which libraries of many languages verify."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    digest = hmac.new(key, f"{message_id}.{timestamp}.{body}".encode(), hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def _http_form(target: Target, notification: Notification) -> tuple[dict[str, str], str]:
    as_json = {"Content-Type": "application/json"}
    if target.kind == "slack":
        return as_json, json.dumps(_slack(notification))
    if target.kind == "teams":
        return as_json, json.dumps(_teams(notification))
    if target.kind == "ntfy":
        return _ntfy_headers(notification), _cut(_plain(notification), _NTFY_BYTES)
    return as_json, json.dumps(to_json(notification))


def _slack(notification: Notification) -> Json:
    lines = [f"*{_slack_text(notification.title)}*"]
    if notification.text:
        lines.append(f"```{_slack_text(notification.text)[:2500]}```")
    if details := _details(notification):
        lines.append(_slack_text(details))
    if notification.url:
        lines.append(f"<{notification.url}|Open the run>")
    return {"text": "\n".join(lines)}


def _slack_text(text: str) -> str:
    # Otherwise a job's name could mention a whole channel.
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("```", "'''")


def _teams(notification: Notification) -> Json:
    head: dict[str, Json] = {"type": "TextBlock", "size": "Medium", "weight": "Bolder", "wrap": True}
    blocks: list[Json] = [{**head, "text": notification.title}]
    for text in (notification.text[:5000], _details(notification)):
        if text:
            blocks.append({"type": "TextBlock", "text": text, "wrap": True})
    card: dict[str, Json] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
    }
    if notification.url:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open the run", "url": notification.url}]
    content: dict[str, Json] = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [content]}


def _ntfy_headers(notification: Notification) -> dict[str, str]:
    headers = {"Content-Type": "text/plain; charset=utf-8", "Title": _header(notification.title)}
    if notification.event in _PRIORITIES:
        headers["Priority"] = _PRIORITIES[notification.event]
    if notification.event in _TAGS:
        headers["Tags"] = _TAGS[notification.event]
    if notification.url:
        headers["Click"] = notification.url
    return headers


def _plain(notification: Notification) -> str:
    return "\n".join(part for part in (notification.text, _details(notification)) if part) or notification.title


def _details(notification: Notification) -> str:
    """Such as `resnet50-k3v9x2ab · imagenet · on local · by ada`."""
    run = notification.run
    if run is None:
        return ""
    who = f" · by {run.person}" if run.person else ""
    attempt = f" · attempt {run.attempt}" if run.attempt > 1 else ""
    return f"{run.id} · {run.experiment} · on {run.cluster}{who}{attempt}"


def _header(text: str) -> str:
    """The text as a header's value: without line breaks, other than ASCII encoded by RFC 2047."""
    text = " ".join(text.split())
    return text if text.isascii() else f"=?UTF-8?B?{base64.b64encode(text.encode()).decode()}?="


def _cut(text: str, most_bytes: int) -> str:
    data = text.encode()
    return text if len(data) <= most_bytes else data[:most_bytes].decode(errors="ignore") + "…"
