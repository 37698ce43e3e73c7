"""Grants decided without a server: whose grants hold, what an attempt is given, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import Connection, create_engine, insert

from muster import errors
from muster.control.access import Caller
from muster.job.spec import JobSpec
from muster.server.context import Context
from muster.server.data import grants
from muster.server.data.grants import Holder
from muster.server.data.state import DataState
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.storage.grants import verify
from muster.wire.data.access import READ, WRITE, NewGrant

HOLDER = Holder("r", 1, same_machine=False)
KEY = b"k" * 32


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    tables.metadata.create_all(engine)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture
def context(tmp_path: Path) -> Context:
    files = SimpleNamespace(store=SimpleNamespace(local_root=tmp_path, encrypted=False))
    vault = SimpleNamespace(grant_key=KEY)
    return cast(Context, SimpleNamespace(files=files, vault=vault, data=DataState(), grants_subnet=None))


def register(connection: Connection, kind: str, **options: object) -> None:
    row = {"name": "data", "kind": kind, "options": options, "created_at": 0.0}
    connection.execute(insert(tables.datastores).values(**row))


def job(**parts: Any) -> JobSpec:
    return JobSpec.model_validate({"command": "true", **parts}, strict=False)


def transaction(connection: Connection) -> Transaction:
    return cast(Transaction, SimpleNamespace(execute=connection.execute, connection=connection, after_commit=[]))


def test_an_input_of_the_workspace_is_read_through_the_server_by_a_grant_of_its_attempt(
    context: Context, connection: Connection
) -> None:
    spec = job(inputs={"x": {"path": "azureml://datastores/workspaceblobstore/paths/a"}})
    (order,) = grants.input_orders(context, connection, spec, HOLDER)
    assert order.access is not None and order.access.kind == "muster"
    grant = verify(order.access.token, KEY, 0.0 + (order.access.expires_at or 0.0) - 1)
    assert (grant.path, grant.scope, grant.subject) == ("a", READ, "run/r/1")
    here = Holder("r", 1, same_machine=True)
    (order,) = grants.input_orders(context, connection, spec, here)
    assert order.access is not None and order.access.kind == "file"


def test_what_fails_for_one_input_does_not_keep_the_others_back(context: Context, connection: Connection) -> None:
    addresses = {"gone": "azureml://datastores/nowhere/paths/a", "there": "azureml://datastores/data/paths/a"}
    register(connection, "nfs", path="/mnt/x")
    spec = job(inputs={name: {"path": address} for name, address in addresses.items()})
    gone, there = grants.input_orders(context, connection, spec, HOLDER)
    assert gone.access is not None and gone.access.kind == "refused"
    assert "there is no datastore 'nowhere'" in str(gone.access.options["message"])
    assert there.access is not None and there.access.url == "/mnt/x/a"


def test_a_public_container_is_matched_by_the_narrowest_datastore(context: Context, connection: Connection) -> None:
    for name, path in (("wide", ""), ("narrow", "a/b"), ("other", "a/bc")):
        options = {"account": "acct", "container": "c", **({"path": path} if path else {})}
        row = {"name": name, "kind": "azure-blob", "options": options, "created_at": 0.0}
        connection.execute(insert(tables.datastores).values(**row))
    location = grants.parse_address("https://acct.blob.core.windows.net/c/a/b/x")
    store = grants.find_store(context, connection, location)
    assert store is not None and (store[0].name, store[1]) == ("narrow", "x")


def test_tokens_for_files_are_given_only_where_the_store_signs_file_by_file(
    context: Context, connection: Connection
) -> None:
    register(connection, "nfs", path="/mnt/x")
    spec = job(outputs={"o": {"path": "azureml://datastores/data/paths/out"}})
    with pytest.raises(errors.JobError, match="needs no token for each file"):
        grants.renew(context, connection, spec, HOLDER, {"o": ["a"]})
    with pytest.raises(errors.NotFound, match="no output 'p'"):
        grants.renew(context, connection, spec, HOLDER, {"p": ["a"]})
    assert grants.renew(context, connection, spec, HOLDER, {}).outputs["o"].scope == WRITE


def test_a_grant_of_a_person_holds_until_it_is_revoked(context: Context, connection: Connection) -> None:
    issued = grants.issue(
        context, transaction(connection), NewGrant("azureml://datastores/workspaceblobstore/paths/a"), "ann"
    )
    assert [view.id for view in grants.standing(connection)] == [issued.id]
    grant = verify(issued.token, KEY, issued.created_at)
    grants._check_standing(connection, grant)
    grants.revoke(context, transaction(connection), issued.id, Caller("member", "ann"))
    with pytest.raises(errors.AccessDenied, match="revoked"):
        grants._check_standing(connection, grant)
    with pytest.raises(errors.NotFound):
        grants.revoke(context, transaction(connection), issued.id, Caller("member", "ann"))


def test_a_grant_of_an_attempt_that_is_over_no_longer_holds(context: Context, connection: Connection) -> None:
    grant = grants.Grant("g", "data", "a", True, READ, 0.0, 1.0, HOLDER.subject)
    with pytest.raises(errors.AccessDenied, match="attempt 1 of r, which is over"):
        grants._check_standing(connection, grant)
    with pytest.raises(errors.AccessDenied, match="not on n, or it is over"):
        grants.attempt_of(context, connection, "n", "r", 1)


@pytest.mark.parametrize("address", ["10.1.2.3", "10.1.255.255", "::ffff:10.1.0.1", "127.0.0.1"])
def test_a_grant_opens_from_its_subnet(address: str) -> None:
    context = cast(Context, SimpleNamespace(grants_subnet=grants.read_subnet({"subnet": "10.1.0.0/16"})))
    grants.check_source(context, (address, 1))
    grants.check_source(context, None)


@pytest.mark.parametrize("address", ["10.2.0.1", "192.168.1.1", "::1", "fe80::1", "8.8.8.8", "no address"])
def test_a_grant_opens_from_nowhere_else(address: str) -> None:
    context = cast(Context, SimpleNamespace(grants_subnet=grants.read_subnet({"subnet": "10.1.0.0/16"})))
    with pytest.raises(errors.AccessDenied, match="grants open from"):
        grants.check_source(context, (address, 1))
    context.grants_subnet = None
    grants.check_source(context, (address, 1))


@pytest.mark.parametrize("config", ["10.0.0.0/8", {}, {"subnet": "10.0.0.1/8"}, {"subnet": 8}, {"subnet": "x", "a": 1}])
def test_what_is_no_subnet_is_refused(config: object) -> None:
    with pytest.raises(errors.UserError, match="grants"):
        grants.read_subnet(config)
