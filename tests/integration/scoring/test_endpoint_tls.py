"""Endpoints over https: verified by their own authority, in the front door and in the only replica's own hands."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.conftest import wait_until
from tests.integration.cli.conftest import cli
from tests.integration.scoring.test_endpoints import SCRIPT, deployment
from tests.integration.scoring.test_front_door import takers

from muster.errors import JobError
from muster.server.endpoints import certificates, keys
from muster.server.http.tls import made_for
from muster.wire.serving.endpoints import NewEndpoint

__all__ = ["cli"]


def _context(authority: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority)


def _ask(port: int, key: str, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    connection.request("POST", "/score", "{}", {"Authorization": f"Bearer {key}"})
    answer = connection.getresponse()
    assert answer.status == 200 and json.loads(answer.read())["color"] == "blue"
    return connection


@pytest.mark.timeout(300)
def test_an_endpoint_answers_over_https_and_is_verified(cli: Any) -> None:
    (cli.folder / "src").mkdir()
    cli.script("src/score.py", SCRIPT)
    assert cli("endpoint", "create", "digits", "--tls").returncode == 0
    (cli.folder / "blue.yml").write_text(deployment("blue"))
    done = cli("endpoint", "deploy", "-f", "blue.yml", "--all-traffic")
    assert done.returncode == 0 and "https://127.0.0.1" in done.stderr, done.stderr
    view = json.loads(cli("endpoint", "show", "digits", "--json").stdout)
    port = urlsplit(view["scoring_uri"]).port
    assert port is not None
    key = json.loads(cli("endpoint", "keys", "digits", "--json").stdout)["primary"]
    trusted = _context(cli("endpoint", "show", "digits", "--certificate").stdout)
    # By name and by authority, as any other client does it.
    _ask(port, key, trusted).close()
    with pytest.raises(ssl.SSLCertVerificationError):
        _ask(port, key, _context(None))
    with pytest.raises(ssl.SSLCertVerificationError):
        _ask(port, key, _context(made_for([])[0].decode()))
    plain = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with pytest.raises((OSError, http.client.HTTPException)):
        plain.request("GET", "/")
        plain.getresponse()
    plain.close()

    def is_direct() -> bool:
        connection = _ask(port, key, trusted)
        try:
            return bool(takers(cli.folder, "serve.replica", port))
        finally:
            connection.close()

    wait_until(is_direct, 60, "requests without a hop")
    asked = cli("endpoint", "invoke", "digits", "--data", "{}")
    assert asked.returncode == 0 and "blue" in asked.stdout, asked.stderr
    assert "SHA256:" in cli("endpoint", "show", "digits").stdout
    assert cli("endpoint", "delete", "digits", "--yes").returncode == 0


def test_a_pair_that_is_given_is_used_and_one_that_does_not_fit_refused() -> None:
    certificate, key = (part.decode() for part in made_for(["score.example.org"]))
    kept = certificates.with_tls(
        keys.fresh(), NewEndpoint("digits", tls=True, certificate=certificate, private_key=key)
    )
    assert (kept.authority, kept.certificate, kept.private_key) == (certificate, certificate, key)
    assert certificates.certified(kept, "10.0.0.5") is None
    other = made_for([])[1].decode()
    for wrong in (other, "no key"):
        with pytest.raises(JobError):
            certificates.with_tls(keys.fresh(), NewEndpoint("digits", certificate=certificate, private_key=wrong))
    with pytest.raises(ValueError, match="belong together"):
        NewEndpoint("digits", certificate=certificate)


def test_another_address_gets_another_certificate_by_the_same_authority() -> None:
    kept = certificates.with_tls(keys.fresh(), NewEndpoint("digits", tls=True))
    first = certificates.certified(kept, "10.0.0.5")
    assert first is not None and certificates.certified(first, "10.0.0.5") is None
    second = certificates.certified(first, "10.0.0.6")
    assert second is not None and second.authority == first.authority and second.certificate != first.certificate
    assert certificates.certified(keys.fresh(), "10.0.0.5") is None
