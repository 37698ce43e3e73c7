"""Job files as text."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from muster.control.access import Action
from muster.server.http.needs import needs
from muster.server.jobs import reading
from muster.wire.portal.jobs import JobRead, JobText

router = APIRouter(tags=["jobs"])


@router.post("/jobs/read", dependencies=[needs(Action.SUBMIT)])
async def read_job(body: JobText) -> JobRead:
    """The job document of a job file's text, or where the text is wrong."""
    return await asyncio.to_thread(reading.read, body)
