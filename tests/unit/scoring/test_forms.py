"""What scripts with `@rawhttp` take from a request: headers, forms, files."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from muster.scoring.serve.body import BadInput
from muster.scoring.serve.http import AMLResponse, Request, answer_of

PICTURE = b"\x89PNG\r\n\x1a\n\x00--not-the-end\r\n--\xff\r\n"
BODY = (
    b"before, which is nobody's\r\n"
    b'--x1y\r\nContent-Disposition: form-data; name="threshold"\r\n\r\n0.5\r\n'
    b'--x1y\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
    + PICTURE
    + b'\r\n--x1y\r\nContent-Disposition: form-data; name="image"; filename="b"\r\n\r\n\r\n'
    b"--x1y\r\nContent-Disposition: form-data\r\n\r\nwithout a name\r\n--x1y--\r\nafter"
)


def request(body: bytes = BODY, kind: str = 'multipart/form-data; boundary="x1y"', query: str = "") -> Request:
    return Request("POST", "/score", query, {"content-type": kind, "x-tenant": "t"}, body)


def test_files_and_fields_of_a_form(tmp_path: Path) -> None:
    asked = request()
    assert asked.form == {"threshold": "0.5"}
    first, second = asked.files.getlist("image")
    assert asked.files["image"] is first and asked.files.getlist("none") == []
    assert (first.filename, first.content_type, first.stream.read()) == ("a.png", "image/png", PICTURE)
    assert (second.filename, second.read()) == ("b", b"")
    first.seek(0)
    first.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes() == PICTURE
    first.seek(0)
    first.save(into := io.BytesIO())
    assert into.getvalue() == PICTURE
    assert request(b"a=1&a=2&b=", "application/x-www-form-urlencoded").form.getlist("a") == ["1", "2"]


def test_bodies_that_are_no_form_have_none() -> None:
    for kind in (
        "multipart/form-data",
        "text/plain",
        "",
        "multipart/form-data; boundary=",
        "multipart/x; boundary=x1y",
    ):
        assert not request(kind=kind).files and not request(kind=kind).form
    for body in (b"", b"--x1y", b"--x1y\r\n", b"--x1y--", BODY[:-60], os.urandom(200), b"--x1y\r\n" * 900):
        request(body).files  # noqa: B018


def test_a_form_of_too_many_parts_is_the_clients_fault() -> None:
    part = b'--x1y\r\nContent-Disposition: form-data; name="%d"\r\n\r\n1\r\n'
    most = b"".join(part % number for number in range(1000))
    assert len(request(most + b"--x1y--").form) == 1000
    with pytest.raises(BadInput, match="more than 1,000 parts"):
        request(most + part % 1000 + b"--x1y--").form  # noqa: B018


def test_a_body_that_is_no_json_may_be_asked_for_quietly() -> None:
    assert request(b'{"a": 1}').get_json() == {"a": 1} and request(b"{").get_json(silent=True) is None
    with pytest.raises(ValueError, match="Expecting"):
        request(b"{").json  # noqa: B018


def test_headers_are_found_however_they_are_written() -> None:
    asked = request(query="a=1&a=2")
    assert asked.headers["X-Tenant"] == asked.headers.get("x-tenant") == "t" and "X-TENANT" in asked.headers
    assert dict(asked.headers)["Content-Type"] == asked.content_type and asked.headers.get("other") is None
    assert asked.args["a"] == "1" and asked.args.getlist("a") == ["1", "2"] and asked.full_path == "/score?a=1&a=2"
    assert asked.get_data(True) == asked.get_data() == BODY


def test_what_an_answer_is_may_be_said_in_three_ways() -> None:
    answer = AMLResponse(b"...", 200)
    answer.mimetype = "image/png"
    assert answer_of(answer).headers["content-type"] == "image/png"
    assert answer_of(AMLResponse("x", 200, {"Content-Type": "text/x"})).headers["content-type"] == "text/x"
    assert answer_of(AMLResponse({"a": 1}, 200, json_str=True)).headers["content-type"] == "application/json"
    assert answer_of(AMLResponse(None, 200)).body == b"{}"
