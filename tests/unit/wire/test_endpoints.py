"""What an endpoint may be asked to be."""

from __future__ import annotations

import pytest

from muster.wire.serving.endpoints import check_host


@pytest.mark.parametrize("host", [None, "10.0.0.5", "::1", "0.0.0.0", "node-7", "7b.cluster.local", "localhost"])
def test_hosts_that_a_node_may_have(host: str | None) -> None:
    check_host(host)


@pytest.mark.parametrize("host", ["", "8.8.8.8.8", "10.0.0", "10.0.0.256", "a b", "http://node", "node:80", "nöde"])
def test_mistyped_hosts_are_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r"is not valid: use an address such as 10\.0\.0\.5"):
        check_host(host)
