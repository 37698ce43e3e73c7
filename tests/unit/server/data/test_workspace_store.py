"""The workspace store: that it answers is known before anything is served."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from muster.errors import UserError
from muster.server.data.workspace_store import check_answers
from muster.store.backend import Store


class Elsewhere(Store):
    """A store that is not here, and does what a test says."""

    local_root = None

    def __init__(self, answer: object) -> None:
        super().__init__("memory://x")
        self.answer = answer

    def exists(self, name: str) -> bool:
        if isinstance(self.answer, threading.Event):
            self.answer.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return False


def test_a_store_that_answers_or_is_a_folder_is_taken(tmp_path: Path) -> None:
    check_answers(Elsewhere(None), "s3://x", {})
    check_answers(Store(str(tmp_path)), str(tmp_path), {})


def test_a_store_that_fails_is_told_without_what_opens_it() -> None:
    failing = Elsewhere(PermissionError("the key hunter2 is wrong\nand more"))
    with pytest.raises(UserError, match=r"s3://x cannot be used: PermissionError: the key \*\*\* is wrong\n"):
        check_answers(failing, "s3://x", {"store_options": {"key": "hunter2"}})


def test_a_store_that_is_silent_is_not_waited_for() -> None:
    silent = threading.Event()
    try:
        with pytest.raises(UserError, match=r"s3://x gave no answer within 0\.05 s"):
            check_answers(Elsewhere(silent), "s3://x", {}, answer_s=0.05)
    finally:
        silent.set()
