"""Answers that carry bytes: whole, or the range that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

Pieces = Callable[[int, int], Iterator[bytes]]
"""Reads from an offset, so many bytes."""


def answer(request: Request, size: int, pieces: Pieces, etag: str | None = None, is_growing: bool = False) -> Response:
    """A file's bytes for GET, and what HEAD tells of it; beyond the end of one that grows there is nothing yet."""
    headers = {"Accept-Ranges": "bytes"}
    if etag:
        headers["ETag"] = f'"{etag}"'
        wanted = request.headers.get("if-match")
        if wanted and wanted.strip('"') != etag:
            return Response(status_code=412, headers=headers)
    header = request.headers.get("range")
    first, last = parse_range(header, size)
    if header and first >= size > 0 and not is_growing:
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{size}"})
    headers["Content-Length"] = str(max(0, last - first + 1))
    status = 200
    if header:
        status = 206
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type="application/octet-stream")
    return StreamingResponse(pieces(first, last - first + 1), status, headers, media_type="application/octet-stream")


def parse_range(header: str | None, size: int) -> tuple[int, int]:
    """First and last byte asked for; the whole file without a (sensible) range."""
    if not header or not header.startswith("bytes=") or "," in header:
        return 0, size - 1
    first, _, last = header.removeprefix("bytes=").partition("-")
    try:
        if not first:
            return max(0, size - int(last)), size - 1
        return int(first), min(int(last), size - 1) if last else size - 1
    except ValueError:
        return 0, size - 1
