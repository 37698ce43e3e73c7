"""The addresses under `/portal/`: the page, its files, and the content security policy."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from muster.server.portal.assets import Asset, portal_assets

router = APIRouter(include_in_schema=False)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Vary": "Accept-Encoding",
}
_FOR_EVER = "public, max-age=31536000, immutable"


@router.get("/")
@router.get("/portal")
async def home() -> Response:
    return RedirectResponse("/portal/", 307)


@router.get("/portal/files/{digest}/{path:path}")
async def file(digest: str, path: str, request: Request) -> Response:
    """A file of the portal. A request for another version is answered too, without caching."""
    assets = portal_assets()
    found = assets.files.get(path)
    if found is None:
        raise HTTPException(404, "the portal has no such file")
    return _answer(request, found, _FOR_EVER if digest == assets.digest else "no-store")


@router.get("/portal/{path:path}")
async def page(path: str, request: Request) -> Response:
    """The page; a script reads from the address what to show."""
    return _answer(request, portal_assets().page, "no-cache")


def _answer(request: Request, asset: Asset, kept: str) -> Response:
    headers = {**HEADERS, "Cache-Control": kept}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=asset.kind)
    return Response(asset.plain, headers=headers, media_type=asset.kind)
