"""The process that serves a node's blocks, as its agent starts it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from muster.agent import peers
from muster.agent.peers import Peers, Shared
from muster.wire.node.peers import BlocksAnswer, BlocksReport, PeerIdentity


def test_one_that_does_not_begin_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "stuck"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(peers, "_START_S", 0.1)
    monkeypatch.setattr(peers.sys, "executable", str(program))
    asked: list[str] = []

    def blocks(request: object) -> BlocksAnswer:
        asked.append(request.url)  # type: ignore[attr-defined]
        return BlocksAnswer("s", "0", (), 0)

    link = SimpleNamespace(introduce_peer=lambda: PeerIdentity("c", "k", "00"), blocks=blocks)
    node = Peers(link, SimpleNamespace(data_cache=tmp_path), "n0", "127.0.0.1", "mark")  # type: ignore[arg-type]
    answer = node.exchange(("run", 1), Shared("input", "x", True), BlocksReport("c", 1))
    node.close()
    # It takes part, and serves nothing.
    assert answer is not None and asked == [""]
