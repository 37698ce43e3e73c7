"""Who may do what: one table, and one function that checks every call against it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from muster import errors
from muster.wire.people import ADMIN, MEMBER, READER, ROLES, Role

AGENT: Final = "agent"
RUN: Final = "run"
GRANT: Final = "grant"
Holder = Role | Literal["agent", "run", "grant"]
"""Who presents a token: a person in a role, a node's agent, a run, or somebody with a grant."""


@dataclass(frozen=True)
class Caller:
    """The holder of a token."""

    role: Holder
    subject: str
    """A person's name, a node, or a run."""
    token: str = ""
    """The id of the token; not a secret."""

    @property
    def is_person(self) -> bool:
        return self.role in ROLES


class Action(Enum):
    """What a caller can do on the server; the value is its name in the audit log."""

    READ = "read"
    SUBMIT = "run.submit"
    SEND_CODE = "code.send"
    CHANGE_RUN = "run.change"
    LOG_TO_RUN = "run.log"
    CANCEL_RUN = "run.cancel"
    RETRY_RUN = "run.retry"
    ENTER_RUN = "run.enter"
    DELETE_RUN = "run.delete"
    REGISTER = "register"
    NOTIFY = "notify"
    MANAGE_ENDPOINT = "endpoint.change"
    READ_DATA = "data.read"
    WRITE_DATA = "data.write"
    DELETE_DATA = "data.delete"
    CREATE_DATASTORE = "datastore.create"
    USE_DATASTORE = "datastore.test"
    CHANGE_DATASTORE = "datastore.change"
    SET_SECRET = "secret.set"
    USE_SECRET = "secret.use"
    DELETE_SECRET = "secret.delete"
    CREATE_GRANT = "grant.create"
    REVOKE_GRANT = "grant.revoke"
    MANAGE_TOKEN = "token.change"
    MANAGE_PEOPLE = "people.change"
    MANAGE_CLUSTER = "cluster.change"
    MANAGE_WORKSPACE = "workspace.change"
    READ_AUDIT = "audit.read"
    READ_CODE = "code.read"
    SERVE_NODE = "node.serve"


Reach = Literal["no", "own", "all"]


@dataclass(frozen=True)
class Rule:
    """On whose things each kind of caller may act; an administrator may act on everybody's."""

    text: str
    """The action in words, for messages."""
    reader: Reach
    member: Reach
    run: Reach = "no"
    """For the token of a run: `own` is the run itself."""


RULES: Mapping[Action, Rule] = {
    Action.READ: Rule(
        "see runs with their logs, metrics and files, clusters, cost, models, data assets, datastores without "
        "credentials, names of secrets, people",
        "all", "all", "own",
    ),
    Action.READ_CODE: Rule("download the code of a run", "all", "all"),
    Action.READ_DATA: Rule("read files of datastores and data assets", "all", "all", "own"),
    Action.SUBMIT: Rule("submit a job, see its plan", "no", "all"),
    Action.SEND_CODE: Rule("send code for a job", "no", "all"),
    Action.CHANGE_RUN: Rule("change a run's name, tags and description", "no", "own", "own"),
    Action.LOG_TO_RUN: Rule("log metrics to a run, add files to it", "no", "own", "own"),
    Action.CANCEL_RUN: Rule("cancel a run", "no", "own"),
    Action.RETRY_RUN: Rule("retry a run", "no", "own"),
    Action.ENTER_RUN: Rule("open a shell in a run, see its stacks, forward its ports", "no", "own"),
    Action.DELETE_RUN: Rule("delete a run", "no", "own"),
    Action.REGISTER: Rule("register models, environments and data assets", "no", "all"),
    Action.NOTIFY: Rule("have events of runs sent somewhere, change and test receivers", "no", "own"),
    Action.MANAGE_ENDPOINT: Rule("change and delete an endpoint, deploy to it, see its keys", "no", "own"),
    Action.WRITE_DATA: Rule("write files to datastores", "no", "all"),
    Action.DELETE_DATA: Rule("delete files of datastores", "no", "all"),
    Action.CREATE_DATASTORE: Rule("create a datastore", "no", "all"),
    Action.USE_DATASTORE: Rule("test a datastore, use it in jobs", "no", "all"),
    Action.CHANGE_DATASTORE: Rule("replace or delete a datastore", "no", "own"),
    Action.SET_SECRET: Rule("set a secret", "no", "own"),
    Action.USE_SECRET: Rule("use a secret in jobs (others' only where it is shared)", "no", "own"),
    Action.DELETE_SECRET: Rule("delete a secret", "no", "own"),
    Action.CREATE_GRANT: Rule("hand out a grant to files of a datastore", "no", "all"),
    Action.REVOKE_GRANT: Rule("revoke a grant", "no", "own"),
    Action.MANAGE_TOKEN: Rule("create, list, rotate and revoke tokens", "own", "own"),
    Action.MANAGE_PEOPLE: Rule("add, invite, change and remove people", "no", "no"),
    Action.MANAGE_CLUSTER: Rule("create, change and delete clusters, cordon nodes", "no", "no"),
    Action.MANAGE_WORKSPACE: Rule("end the server, change keys, collect garbage", "no", "no"),
    Action.READ_AUDIT: Rule("read the audit log", "no", "no"),
    Action.SERVE_NODE: Rule("speak for a node, as its agent does", "no", "no"),
}  # fmt: skip
UNRECORDED = frozenset(
    {Action.READ, Action.READ_CODE, Action.READ_DATA, Action.READ_AUDIT, Action.SEND_CODE, Action.SERVE_NODE}
)
"""Actions that the audit log leaves out when they are allowed: reading, and what has no effect by itself."""

_OF_AGENTS = frozenset({Action.SERVE_NODE, Action.READ_CODE})
_OF_GRANTS = frozenset({Action.READ_DATA, Action.WRITE_DATA, Action.DELETE_DATA})


def reach(caller: Caller, action: Action) -> Reach:
    """On whose things a caller may perform an action."""
    if caller.role == ADMIN:
        return "all"
    if caller.role == AGENT:
        # Which node and which attempts it speaks for is checked where they are known.
        return "all" if action in _OF_AGENTS else "no"
    if caller.role == GRANT:
        # The grant itself says which files.
        return "all" if action in _OF_GRANTS else "no"
    rule = RULES[action]
    return {MEMBER: rule.member, READER: rule.reader, RUN: rule.run}[caller.role]


def may(caller: Caller, action: Action, owner: str | None = None) -> bool:
    """Whether a caller may act on what belongs to `owner`; None: it belongs to nobody."""
    found = reach(caller, action)
    return found == "all" or (found == "own" and owner is not None and owner == caller.subject)


def require(caller: Caller, action: Action, owner: str | None, what: str) -> None:
    """Raise where a caller may not do this; the message says who may."""
    if may(caller, action, owner):
        return
    if reach(caller, action) == "own":
        whose = f"it belongs to {owner}" if owner else "it belongs to nobody"
        raise errors.AccessDenied(
            f"{caller.subject} ({caller.role}) may not do this to {what}: {whose} ({action.value})",
            "Its owner can, and every administrator.",
        )
    raise errors.AccessDenied(_refusal(caller, action), _hint(caller, action))


def require_any(caller: Caller, action: Action) -> None:
    """Raise where a caller may do this to nothing at all; the owner is checked where it is known."""
    if reach(caller, action) == "no":
        raise errors.AccessDenied(_refusal(caller, action), _hint(caller, action))


def narrower(first: Role, second: Role) -> Role:
    """The role with fewer rights."""
    return max(first, second, key=ROLES.index)


def _refusal(caller: Caller, action: Action) -> str:
    what = {RUN: f"the token of the run {caller.subject}", AGENT: f"the token of the agent of {caller.subject}"}
    who = what.get(caller.role) or f"{caller.subject} with the role {caller.role!r}"
    return f"{who} may not {RULES[action].text} ({action.value})"


def _hint(caller: Caller, action: Action) -> str:
    rule = RULES[action]
    who = [ADMIN, *([MEMBER] if rule.member != "no" else []), *([READER] if rule.reader != "no" else [])]
    name = "NAME" if caller.role in (RUN, AGENT) else caller.subject
    return f"This takes the role {' or '.join(who)}; an administrator gives it: `muster user role {name} {who[-1]}`."
