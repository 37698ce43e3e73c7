"""Long lists in pages: each names the next one in a `Link` header, with an opaque cursor."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query, Request, Response

from muster import errors
from muster.wire.workspace import TOTAL_HEADER

T = TypeVar("T")
Part = int | float | str
Key = tuple[Part, ...]
"""The sort key of an item: since keys are compared, the item itself may be gone by then."""

PAGE_MOST = 10_000
_PAGE = 1000
_RUNS_PAGE = 100
_CURSOR_MOST = 4096
_INT_MOST = 2**63 - 1


@dataclass(frozen=True)
class Page:
    """The requested part of a list, and the response whose headers name the next one."""

    request: Request
    response: Response
    limit: int | None
    after: Key | None
    """The last item that the caller has; None: the list from its beginning."""

    def of(self, items: Sequence[T], key: Callable[[T], Key]) -> list[T]:
        """The page of a whole list, sorted by its keys."""
        ordered = sorted(items, key=key)
        begin = 0
        if self.after is not None:
            try:
                begin = bisect_right(ordered, self.after, key=key)
            except TypeError:
                raise foreign_cursor() from None
        end = None if self.limit is None else begin + self.limit + 1
        return self.trim(ordered[begin:end], key)

    def trim(self, items: Sequence[T], key: Callable[[T], Key]) -> list[T]:
        """The page of the items that follow the cursor: one more than the limit shows that there is a next page."""
        if self.limit is None or len(items) <= self.limit:
            return list(items)
        kept = list(items[: self.limit])
        url = self.request.url.include_query_params(cursor=_encode(self._list, key(kept[-1])), limit=self.limit)
        self.response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'
        return kept

    def say_total(self, count: int) -> None:
        """Add the total count of the list to its first page."""
        self.response.headers[TOTAL_HEADER] = str(count)

    def number_after(self) -> int | None:
        """The cursor of a list that is ordered by one whole number."""
        if self.after is None:
            return None
        if len(self.after) != 1 or not isinstance(self.after[0], int):
            raise foreign_cursor()
        return self.after[0]

    @property
    def _list(self) -> int:
        return _list_of(self.request)


def paged(default: int | None) -> Callable[..., Coroutine[Any, Any, Page]]:
    """The dependency of a route that answers in pages; without a default only callers that give a limit get pages."""

    async def page(
        request: Request,
        response: Response,
        limit: Annotated[int | None, Query(ge=1, le=PAGE_MOST)] = default,
        cursor: Annotated[str | None, Query(max_length=_CURSOR_MOST)] = None,
    ) -> Page:
        return Page(request, response, limit, _decode(_list_of(request), cursor) if cursor else None)

    return page


PageOf = Annotated[Page, Depends(paged(_PAGE))]
RunsPageOf = Annotated[Page, Depends(paged(_RUNS_PAGE))]
FilesPageOf = Annotated[Page, Depends(paged(None))]


def _list_of(request: Request) -> int:
    """Which list an address stands for: cursors of other lists are not valid for it."""
    return zlib.crc32(request.url.path.encode())


def _encode(which: int, key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps([which, *key], separators=(",", ":")).encode()).decode().rstrip("=")


def _decode(which: int, text: str) -> Key:
    try:
        found = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    if not isinstance(found, list) or len(found) < 2 or not all(_is_part(part) for part in found):
        raise errors.JobError(
            f"{text[:80]!r} is not a cursor of a list", "Take the `Link` header of the last page as it came."
        )
    if found[0] != which:
        raise foreign_cursor()
    return tuple(found[1:])


def _is_part(value: object) -> bool:
    if isinstance(value, int):
        return abs(value) <= _INT_MOST
    return isinstance(value, float | str)


def foreign_cursor() -> errors.JobError:
    """The error for a cursor that does not fit the list."""
    return errors.JobError(
        "the cursor belongs to another list", "Send a cursor to the address whose `Link` header gave it."
    )
