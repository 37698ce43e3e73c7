"""Named storage: `muster datastore …`."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace as changed
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.console import notice, say
from muster.cli.options import Json, argument, option, print_json, print_result, seconds_of, switch
from muster.cli.overrides import parse_pairs
from muster.cli.text import duration, table, time_text
from muster.client.connect import connect, connect_to_read
from muster.client.storage import Storage
from muster.defaults import GRANT_S
from muster.errors import NotFound, UserError
from muster.job.assets.datastore import read_datastore_file
from muster.wire.codec import Json as Value
from muster.wire.data.datastores import DatastoreView, NewDatastore

Name = Annotated[str, argument("NAME", "The datastore's name.")]
Secret = "a file that holds it, or - for standard input"


def create(
    name: Annotated[str | None, argument("NAME", "The datastore's name.")] = None,
    file: Annotated[
        str | None, option("FILE", "A datastore's file (.yml), with all its settings.", "-f", "--file")
    ] = None,
    path: Annotated[str | None, option("FOLDER", "A folder of the server's machine.")] = None,
    nfs: Annotated[str | None, option("FOLDER", "A share that all nodes mount at this path.")] = None,
    url: Annotated[str | None, option("URL", "An address that fsspec knows: s3://…, sftp://….")] = None,
    account: Annotated[str | None, option("ACCOUNT", "An Azure storage account.")] = None,
    container: Annotated[str | None, option("CONTAINER", "Its blob container.")] = None,
    share: Annotated[str | None, option("SHARE", "Its file share.")] = None,
    below: Annotated[str | None, option("PATH", "Only what is below this path.")] = None,
    endpoint: Annotated[str | None, option("URL", "The service's address, if not Azure's.")] = None,
    hierarchical: Annotated[
        bool, switch("The account has a hierarchical namespace (Data Lake).", "--hierarchical")
    ] = False,
    encrypted: Annotated[bool, switch("Encrypt what is written to --path.", "--encrypted")] = False,
    identity: Annotated[bool, switch("Use the server's own Azure identity.", "--identity")] = False,
    account_key: Annotated[str | None, option("FILE", f"The account's key: {Secret}.")] = None,
    sas: Annotated[str | None, option("FILE", f"A shared access signature: {Secret}.")] = None,
    secret_options: Annotated[
        str | None, option("FILE", f"Credentials of a URL, as JSON (key, secret, …): {Secret}.")
    ] = None,
    option: Annotated[
        list[str] | None, option("KEY=VALUE", "Of the fsspec filesystem; no secrets.", "--option")
    ] = None,
    replace: Annotated[bool, switch("Replace a datastore of that name.", "--replace")] = False,
    create: Annotated[
        bool, switch("Make the container, share, bucket or folder where it is missing.", "--create")
    ] = False,
    description: Annotated[str | None, option("TEXT", "A description.")] = None,
    as_json: Json = False,
) -> None:
    """Register a datastore. Credentials are read from a file or standard input, sealed, and never shown.

    \b
    Examples:
      muster datastore create scratch --path ./images
      muster datastore create blob --account mydata --container images --sas sas.txt
      muster datastore create logs --url s3://bucket/logs --secret-options keys.json
      muster datastore create --file datastore.yml
    """
    if file is not None:
        _say_made(_of_file(file, name, replace, create), as_json)
        return
    if name is None:
        raise UserError("a name is missing", "`muster datastore create NAME …`, or --file FILE.")
    kind = _kind(path=path, nfs=nfs, url=url, container=container, share=share)
    options: dict[str, Value] = {
        "path": str(Path(path).expanduser().absolute()) if path else nfs or below,
        "url": url,
        "account": account,
        "container": container,
        "share": share,
        "endpoint": endpoint,
        "hierarchical": hierarchical or None,
        "encrypted": encrypted or None,
        "identity": identity or None,
        "options": parse_pairs("--option", option) if option else None,
    }
    files = {"account_key": account_key, "sas": sas, "secret_options": secret_options}
    secrets = {key: _read_secret(file, key) for key, file in files.items() if file}
    credential: dict[str, Value] = {**secrets}
    if "secret_options" in secrets:
        try:
            credential["secret_options"] = json.loads(secrets["secret_options"])
        except ValueError:
            raise UserError("--secret-options is not JSON.", 'Write {"key": "…", "secret": "…"}.') from None
    given = {key: value for key, value in options.items() if value is not None}
    _say_made(_registered(NewDatastore(name, kind, given, credential, description, create), replace), as_json)


def _of_file(file: str, name: str | None, replace: bool, create: bool) -> DatastoreView:
    datastore_file = read_datastore_file(Path(file), name)
    wanted = NewDatastore(
        datastore_file.name,
        datastore_file.kind,
        datastore_file.options,
        datastore_file.credential,
        datastore_file.description,
        create,
    )
    return _registered(wanted, replace)


def _say_made(made: DatastoreView, as_json: bool) -> None:
    say(f"datastore {made.name}: {made.location}, credential: {made.credential}")
    if made.notice:
        notice(made.notice)
    say(f"azureml://datastores/{made.name}/paths/… is its address; `muster datastore test {made.name}` tries it")
    if as_json:
        print_json(made)


def _registered(wanted: NewDatastore, replace: bool) -> DatastoreView:
    """Register; on a terminal, ask whether to create a missing folder."""
    storage = Storage(connect().calls)
    try:
        return storage.create_datastore(wanted, replace)
    except NotFound as error:
        if wanted.create or wanted.kind != "local" or not sys.stdin.isatty():
            raise
        if not typer.confirm(f"{error.message}. Make it?", default=False, err=True):
            raise
        return storage.create_datastore(changed(wanted, create=True), replace)


def list_(as_json: Json = False) -> None:
    """List the datastores of this workspace.

    \b
    Examples:
      muster datastore list
    """
    found = Storage(connect_to_read().calls).datastores()
    rows = [[item.name, item.kind, item.credential, item.location] for item in found]
    print_result(found, table(["NAME", "KIND", "CREDENTIAL", "LOCATION"], rows), as_json)


def show(name: Name, as_json: Json = False) -> None:
    """Show one datastore without its credentials.

    \b
    Examples:
      muster datastore show workspaceblobstore
    """
    found = Storage(connect_to_read().calls).datastore(name)
    keys = ("name", "kind", "location", "credential", "description")
    lines = [f"{key:<12} {getattr(found, key)}" for key in keys if getattr(found, key)]
    print_result(found, [*lines, f"{'address':<12} azureml://datastores/{found.name}/paths/…"], as_json)


def test(
    name: Name,
    read_only: Annotated[bool, switch("Write nothing there.", "--read-only")] = False,
    as_json: Json = False,
) -> None:
    """Test a datastore: say what its credential may do, list it, write a small file, read it back, remove it.

    Use --read-only for one that is only read.

    \b
    Examples:
      muster datastore test scratch
      muster datastore test scratch --read-only
    """
    works = list(Storage(connect().calls).test_datastore(name, write=not read_only))
    for text in works:
        say(f"{name}: {text}")
    if as_json:
        print_json({"name": name, "works": works})


def delete(name: Name, as_json: Json = False) -> None:
    """Unregister a datastore that no data asset uses; its content stays.

    \b
    Examples:
      muster datastore delete blob
    """
    Storage(connect().calls).delete_datastore(name)
    say(f"datastore {name} is unregistered; its content stays")
    if as_json:
        print_json({"unregistered": name})


def grant(
    address: Annotated[str, argument("ADDRESS", "azureml://datastores/NAME/paths/…")],
    write: Annotated[bool, switch("To write, not only to read.", "--write")] = False,
    file: Annotated[bool, switch("The one file, not a folder.", "--file")] = False,
    lasts: Annotated[str, option("TIME", "How long it is valid, such as 15m or 2h.", "--for")] = time_text(GRANT_S),
    as_json: Json = False,
) -> None:
    """Create a signed grant to one file or folder, for somebody without a token of the workspace.

    The token is printed once; its holder sends it as the header Muster-Grant.

    \b
    Examples:
      muster datastore grant azureml://datastores/workspaceblobstore/paths/results --for 15m
    """
    lifetime_s = seconds_of("--for", lasts)
    client = connect()
    made = Storage(client.calls).grant(address, "write" if write else "read", not file, lifetime_s)
    # A socket's path is useless to others.
    server = client.address.url if client.address.url.startswith("http") else ""
    say(
        f"grant {made.id}: to {made.scope} {server}{made.url} for {duration(lifetime_s)}; "
        f"`muster datastore revoke {made.id}` ends it"
    )
    if not server:
        say("others reach it where the server listens for them: `muster up --help`")
    print_result(made, [made.token], as_json)


def grants(as_json: Json = False) -> None:
    """List the grants that are still valid.

    \b
    Examples:
      muster datastore grants
    """
    found = Storage(connect_to_read().calls).grants()
    now = time.time()
    rows = [
        [item.id, item.scope, f"{item.store}/{item.path}", item.subject, duration(item.expires_at - now)]
        for item in found
    ]
    print_result(found, table(["ID", "SCOPE", "WHAT", "FROM", "LEFT"], rows), as_json)


def revoke(
    ids: Annotated[list[str] | None, argument("ID", "Ids of grants.")] = None,
    every: Annotated[bool, switch("All that are still valid.", "--all")] = False,
    as_json: Json = False,
) -> None:
    """Revoke grants at once.

    \b
    Examples:
      muster datastore revoke --all
    """
    storage = Storage(connect().calls)
    chosen = [item.id for item in storage.grants()] if every else ids or []
    if not chosen and not every:
        raise UserError("no grant is named.", "Give ids (`muster datastore grants` lists them), or --all.")
    for grant_id in chosen:
        storage.revoke(grant_id)
        say(f"grant {grant_id} is revoked")
    if as_json:
        print_json({"revoked": chosen})


def _kind(**given: str | None) -> str:
    kinds = {"path": "local", "nfs": "nfs", "url": "fsspec", "container": "azure-blob", "share": "azure-file"}
    found = [kinds[key] for key, value in given.items() if value]
    if len(found) != 1:
        given_options = " and ".join(f"--{key}" for key, value in given.items() if value) or "none of them"
        raise UserError(
            f"it is not clear what kind of datastore it is: {given_options} given.",
            "Give one of --path, --nfs, --url, --container (with --account) or --share (with --account).",
        )
    return found[0]


def _read_secret(file: str, what: str) -> str:
    """A secret from a file or standard input, never from the command line."""
    if file == "-":
        text = sys.stdin.read()
    else:
        try:
            text = Path(file).expanduser().read_text()
        except OSError as error:
            hint = f"--{what.replace('_', '-')} takes the name of a file that holds it, or - for standard input."
            raise UserError(f"the file given for {what} cannot be read: {error.strerror}.", hint) from error
    if not text.strip():
        raise UserError(f"nothing was given for {what}.", "Write it into the file, or to standard input.")
    return text.strip()


COMMANDS = (create, list_, show, test, delete, grant, grants, revoke)
