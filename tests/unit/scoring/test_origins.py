"""Which pages of other sites may ask a replica, as AML_CORS_ORIGINS says."""

from __future__ import annotations

import pytest

from muster.scoring.origins import VARIABLE, Origins

SITE = "https://app.example.org"


@pytest.mark.parametrize(
    ("allowed", "origin", "said"),
    [
        ("", SITE, {}),
        ("*", "", {}),
        ("*", SITE, {"access-control-allow-origin": "*"}),
        (f"https://other.example.org, {SITE}/", SITE, {"vary": "Origin", "access-control-allow-origin": SITE}),
        (SITE, "https://evil.example.org", {"vary": "Origin"}),
        (SITE, "null", {"vary": "Origin"}),
    ],
)
def test_an_answer_names_the_site_that_is_allowed(allowed: str, origin: str, said: dict[str, str]) -> None:
    asked = {"origin": origin} if origin else {}
    assert Origins({VARIABLE: allowed}).headers(asked) == said


def test_a_browser_that_asks_first_hears_what_it_may_send() -> None:
    origins = Origins({VARIABLE: SITE})
    asked = {
        "origin": SITE,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type",
    }
    said = origins.preflight("OPTIONS", asked)
    assert said is not None and said["access-control-allow-headers"] == "authorization, content-type"
    assert "POST" in said["access-control-allow-methods"]
    assert origins.preflight("POST", asked) is None
    assert origins.preflight("OPTIONS", {"origin": SITE}) is None
    assert Origins({}).preflight("OPTIONS", asked) is None
