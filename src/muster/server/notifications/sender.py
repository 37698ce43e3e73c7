"""The child process that delivers notifications: a receiver that hangs delays nobody else.

It reads requests from standard input and writes outcomes to standard output; it ends with its parent.
"""

from __future__ import annotations

import signal
import smtplib
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.utils import formatdate
from http.client import HTTPException, HTTPResponse
from types import FrameType
from urllib.parse import urlsplit

from muster.errors import MusterError
from muster.host.children import Parent
from muster.host.egress import Fence, fenced, networks
from muster.host.http import Address, Connection
from muster.server.notifications.errands import Errand, HttpErrand, MailErrand, Outcome
from muster.wire.codec import from_json, to_json
from muster.wire.text import printable

ERRAND_S = 15.0
"""How long one delivery may take, however slowly the receiver answers."""
_ANSWER_BYTES = 300
_LONGEST_WAIT_S = 3600.0


def main() -> None:
    parent = Parent(exit_after_s=0.0)
    signal.signal(signal.SIGALRM, _too_slow)
    for request in parent.requests():
        # The codec tells the kinds apart by their `kind`.
        parent.send(to_json(carry(from_json(Errand, request))))  # type: ignore[arg-type]


def carry(errand: Errand) -> Outcome:
    """Try once; whatever goes wrong becomes an outcome."""
    try:
        with _at_most(ERRAND_S):
            return _post(errand) if isinstance(errand, HttpErrand) else _mail(errand)
    except MusterError as error:
        return Outcome(errand.id, False, _short(error.message))
    except TimeoutError:
        return Outcome(errand.id, False, f"no answer within {ERRAND_S:.0f} s")
    except smtplib.SMTPResponseException as error:
        text = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        return Outcome(errand.id, False, _short(f"the mail server says {error.smtp_code}: {text}"))
    except (OSError, HTTPException, smtplib.SMTPException, ValueError) as error:
        return Outcome(errand.id, False, _short(f"{type(error).__name__}: {error}"))


def _short(text: str) -> str:
    """A receiver's answer, cut and made printable: it may be long, or hold escape sequences."""
    return printable(" ".join(text[: 2 * _ANSWER_BYTES].split()))[:_ANSWER_BYTES]


def _post(errand: HttpErrand) -> Outcome:
    parts = urlsplit(errand.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fence = None if errand.allowed is None else Fence(networks(errand.allowed))
    connection = Connection(Address(f"{parts.scheme}://{parts.netloc}"), ERRAND_S, external=True)
    with (
        fenced(fence),
        connection.exchange("POST", target, body=errand.body.encode(), headers=dict(errand.headers)) as response,
    ):
        if 200 <= response.status < 300:
            return Outcome(errand.id, True, f"HTTP {response.status}")
        return Outcome(errand.id, False, _refusal(response), _retry_after(response))


def _refusal(response: HTTPResponse) -> str:
    if 300 <= response.status < 400:
        return f"HTTP {response.status}: it sends elsewhere, and is not followed; give that address itself"
    text = " ".join(response.read(_ANSWER_BYTES).decode(errors="replace").split())
    return f"HTTP {response.status}" + (f": {text}" if text.isprintable() and text else "")


def _retry_after(response: HTTPResponse) -> float | None:
    given = response.headers.get("Retry-After", "")
    return min(float(given), _LONGEST_WAIT_S) if given.isascii() and given.isdigit() and len(given) < 10 else None


def _mail(errand: MailErrand) -> Outcome:
    message = EmailMessage()
    message["From"], message["To"] = errand.smtp.sender, errand.to
    message["Subject"] = " ".join(errand.subject.split())
    message["Date"] = formatdate()
    # The same mail again has the same id, so that a mailbox can drop it.
    message["Message-ID"] = f"<{errand.id}@muster.invalid>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(errand.text or errand.subject)
    smtp = errand.smtp
    tls = ssl.create_default_context()
    if smtp.security == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(smtp.host, smtp.port, timeout=ERRAND_S, context=tls)
    else:
        server = smtplib.SMTP(smtp.host, smtp.port, timeout=ERRAND_S)
    with server:
        if smtp.security == "starttls":
            server.starttls(context=tls)
        if smtp.user:
            server.login(smtp.user, smtp.password)
        refused = server.send_message(message)
    return Outcome(errand.id, not refused, f"refused: {refused}" if refused else f"{smtp.host} took it")


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _too_slow(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError("too slow")


if __name__ == "__main__":
    main()
