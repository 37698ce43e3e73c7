"""Responses that carry bytes: all, or the requested range."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

Pieces = Callable[[int, int], Iterator[bytes]]
"""Reads so many bytes from an offset."""


def answer(request: Request, size: int, pieces: Pieces, etag: str | None = None, is_growing: bool = False) -> Response:
    """The response to GET or HEAD of a file; a range beyond the end of a growing file is empty for now."""
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
    length = max(0, last - first + 1)
    headers["Content-Length"] = str(length)
    status = 200
    if header:
        status = 206
        headers["Content-Range"] = f"bytes {first}-{last}/{size}" if length else f"bytes */{size}"
    if request.method == "HEAD" or not length:
        return Response(status_code=status, headers=headers, media_type="application/octet-stream")
    return StreamingResponse(pieces(first, length), status, headers, media_type="application/octet-stream")


def parse_range(header: str | None, size: int) -> tuple[int, int]:
    """The first and last requested byte; the whole file without a (valid) range."""
    if not header or not header.startswith("bytes=") or "," in header:
        return 0, size - 1
    first, _, last = header.removeprefix("bytes=").partition("-")
    try:
        if not first:
            return max(0, size - max(0, int(last))), size - 1
        return max(0, int(first)), min(int(last), size - 1) if last else size - 1
    except ValueError:
        return 0, size - 1
