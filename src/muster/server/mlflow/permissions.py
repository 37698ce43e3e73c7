"""The permissions that calls of MLflow's protocol need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from muster import errors
from muster.control.access import RUN, Action, Caller, require, require_any
from muster.server.http.needs import begin
from muster.server.mlflow import run_views, runs
from muster.server.mlflow.protocol import Args
from muster.wire.people import MEMBER

_SEARCHES = ("search", "get-latest-versions")
"""Calls that use POST and change nothing."""
_OF_RUNS: Mapping[str, Action] = {
    "update": Action.CHANGE_RUN,
    "set-tag": Action.CHANGE_RUN,
    "delete-tag": Action.CHANGE_RUN,
    "delete": Action.DELETE_RUN,
    "restore": Action.DELETE_RUN,
}


@dataclass(frozen=True)
class Acting:
    """The caller: a person, or a run whose rank calls through its node's proxy."""

    caller: Caller
    run_id: str | None = None

    def require(self, connection: Connection, action: Action, run_id: str | None) -> None:
        """Refuse an action that this caller may not take on a run, or on data without an owner (None)."""
        begin(action, run_id or "mlflow")
        if run_id is None:
            require(self.caller, action, None, "what is kept for MLflow")
        elif run_id != self.run_id or action == Action.DELETE_RUN:
            row = run_views.find(connection, run_id)
            if self.run_id is not None and not runs.is_made_by_client(row):
                raise errors.AccessDenied(f"a rank of {self.run_id} changes its own run, and none of Muster's others")
            require(self.caller, action, row.submitted_by, f"the run {run_id}")


def acting(connection: Connection, caller: Caller, run_id: str | None) -> Acting:
    """A rank may read, register and log like the person who submitted its run, but never as an administrator."""
    if run_id is not None and caller.role == RUN:
        owner = run_views.find(connection, run_id).submitted_by
        return Acting(Caller(MEMBER, owner or "", caller.token), run_id)
    if not caller.is_person:
        raise errors.AccessDenied(
            "MLflow's calls are for people, and for ranks through the address that they are given"
        )
    return Acting(caller)


def check(connection: Connection, who: Acting, method: str, path: str, args: Args) -> None:
    """Refuse a call that its caller may not make."""
    noun, _, verb = path.strip("/").partition("/")
    if method == "GET" or verb in _SEARCHES:
        who.require(connection, Action.READ, None)
    elif noun != "runs":
        who.require(connection, Action.REGISTER, None)
    elif verb == "create":
        begin(Action.LOG_TO_RUN, "mlflow")
        require_any(who.caller, Action.LOG_TO_RUN)
    else:
        who.require(connection, _OF_RUNS.get(verb, Action.LOG_TO_RUN), args.text("run_id", "run_uuid"))
