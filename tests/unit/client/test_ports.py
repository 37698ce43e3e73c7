"""Which ports somebody means."""

from __future__ import annotations

import pytest

from muster.client.inside.ports import Forwarded, parse_ports, service_ports
from muster.errors import UserError

SERVICES = {"tensorboard": 6006}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8888", Forwarded(8888)),
        ("9000:8888", Forwarded(8888, 9000)),
        ("0:8888", Forwarded(8888, 0)),
        ("tensorboard", Forwarded(6006)),
        ("0:tensorboard", Forwarded(6006, 0)),
    ],
)
def test_a_port_is_a_number_or_a_name(text: str, expected: Forwarded) -> None:
    assert parse_ports(text, SERVICES) == expected


@pytest.mark.parametrize("text", ["", "0", "70000", "web", "x:80", "99999:80", "-1", "1:2:3"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_ports(text, SERVICES)
    assert caught.value.hint


def test_services_are_ports_by_name() -> None:
    assert service_ports({"a": 80, "b": {"port": 81, "x": 1}, "c": "text", "d": {"port": True}}) == {"a": 80, "b": 81}
    assert service_ports(None) == {} and service_ports([1]) == {}
