"""Job files that come as text."""

from __future__ import annotations

from tests.unit.server.conftest import Server


def test_a_job_file_is_read_and_its_errors_have_lines(server: Server) -> None:
    status, found = server.call("POST", "/jobs/read", {"text": "command: echo hello\ncompute: two\n"})
    assert status == 200
    assert (found["spec"]["command"], found["spec"]["compute"], found["code"]) == ("echo hello", "two", None)
    status, found = server.call("POST", "/jobs/read", {"text": "command: echo\nfoo: 1\n", "source": "mine.yml"})
    assert status == 422
    assert "mine.yml:2" in found["error"]["message"]


def test_no_file_of_the_server_is_read(server: Server) -> None:
    for name in ("/etc/hosts.yml", "file:/etc/passwd", "../secret.yml", "requirements.txt"):
        status, found = server.call("POST", "/jobs/read", {"text": f"command: x\nenvironment: {name}\n"})
        assert status == 422
        assert "which is not here" in found["error"]["message"]
