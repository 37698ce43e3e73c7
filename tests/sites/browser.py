"""A browser of few words: it follows redirects, keeps cookies, and fills in forms."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener


class _Form(HTMLParser):
    """The first form of a page that sends something."""

    def __init__(self) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form" and self.action is None and (given.get("method") or "").lower() == "post":
            self.action = given.get("action") or ""
        elif tag == "input" and self.action is not None and given.get("name"):
            self.fields.setdefault(str(given["name"]), given.get("value") or "")


def fill_in(url: str, answers: Mapping[str, str], most: int = 8) -> str:
    """Open a page and send its forms, one after another, until there is none; returns the last page."""
    opener = build_opener(HTTPCookieProcessor(CookieJar()), ProxyHandler({}))
    answer = opener.open(url, timeout=10)
    for _ in range(most):
        page = answer.read().decode()
        form = _Form()
        form.feed(page)
        if form.action is None:
            return page
        fields = {name: answers.get(name, value) for name, value in form.fields.items()}
        answer = opener.open(urljoin(answer.url, form.action), urlencode(fields).encode(), timeout=10)
    raise AssertionError(f"the forms do not end: {page[:500]}")
