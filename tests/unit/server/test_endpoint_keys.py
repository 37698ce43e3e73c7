"""What opens endpoints, when it is made anew."""

from __future__ import annotations

from muster.server.endpoints import keys


def test_ending_all_tokens_leaves_the_front_doors_way_to_running_replicas_as_it_is() -> None:
    first = keys.fresh()
    second = keys.renewed(first, "aml_token", "primary")
    third = keys.renewed(second, "aml_token", "primary")
    assert len({first.signing, second.signing, third.signing}) == 3
    assert first.inner("run") == second.inner("run") == third.inner("run") != third.inner("other")


def test_one_key_is_made_anew_and_the_other_stays() -> None:
    first = keys.fresh()
    second = keys.renewed(first, "key", "primary")
    assert second.primary != first.primary
    assert (second.secondary, second.inner("run")) == (first.secondary, first.inner("run"))
