"""Which protocols a server takes calls of."""

from __future__ import annotations

from contextvars import copy_context

import pytest

from muster import errors
from muster.defaults import NEWEST_PROTOCOL, OLDEST_PROTOCOL, PROTOCOL_VERSION
from muster.server.http.app import _check_version as check_version


def test_neighbouring_versions_work_together():
    assert OLDEST_PROTOCOL < PROTOCOL_VERSION < NEWEST_PROTOCOL
    for spoken in (None, *map(str, range(OLDEST_PROTOCOL, NEWEST_PROTOCOL + 1))):
        # As each call does: what it learns of its caller ends with it.
        copy_context().run(check_version, spoken)


@pytest.mark.parametrize(
    ("spoken", "older"),
    [
        ("1", "client or agent"),
        (str(NEWEST_PROTOCOL + 1), "server"),
        ("-3", "client"),
        ("x", "client"),
        ("9" * 50, "c"),
    ],
)
def test_others_are_told_who_is_to_be_upgraded(spoken: str, older: str):
    with pytest.raises(errors.ProtocolMismatch, match=f"{OLDEST_PROTOCOL} to {NEWEST_PROTOCOL}") as refused:
        check_version(spoken)
    assert older in refused.value.hint
