"""A process that changes the workspace's keys over and over, until it is killed; started with the workspace's folder.

First it does what a server does at its start, and reads everything: it says `whole` when nothing was lost.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from muster.engines.registry import Engines
from muster.paths import WorkspacePaths
from muster.server.context import Context
from muster.server.data import encryption
from muster.server.data.state import WorkspaceFiles
from muster.server.database.connection import Database
from muster.server.hub import Hub
from muster.server.nodes.state import NodesState
from muster.server.people import secrets
from muster.server.people.access import Tokens
from muster.server.people.vault import load_vault
from muster.store.backend import Store
from muster.store.keyring import load_keyring, new_key, read_config
from muster.store.snapshots import Snapshots
from muster.store.streams import Streams
from muster.wire.encryption import NewKey
from muster.wire.node.agents import Chunk
from muster.wire.people import ADMIN
from muster.wire.secrets import NewSecret

FILES, LOGS, SECRETS = 120, 40, 30


async def context_of(paths: WorkspacePaths) -> Context:
    ring = load_keyring(read_config(json.loads(paths.config.read_text())), paths.root)
    store, database = Store(str(paths.store), ring=ring), Database(f"sqlite:///{paths.database}")
    return Context(
        workspace_id="w",
        paths=paths,
        database=database,
        hub=Hub(),
        files=WorkspaceFiles(store, Snapshots(store), Streams(paths.store / "runs", ring), ring),
        tokens=Tokens(database),
        vault=load_vault(paths, {}),
        nodes=NodesState(Engines({}), ()),
    )


def fill(context: Context) -> None:
    from muster.control.access import Caller

    owner = Caller(ADMIN, context.tokens.people.owner)
    for number in range(FILES):
        context.files.store.put(f"runs/r/outputs/{number}", [f"file {number}".encode() * 100])
    for number in range(LOGS):
        context.files.streams.append([Chunk("r", 1, f"user_logs/{number}", 0, f"log {number}".encode())])
    context.files.streams.finish("r", 1)
    for number in range(SECRETS):
        given = NewSecret(f"value of {number}")
        context.database.submit(lambda t, n=number, g=given: secrets.put(context, t, f"S{n}", g, owner)).result()


def check(context: Context) -> None:
    encryption.check_key(context.files.store)
    for number in range(FILES):
        assert context.files.store.read(f"runs/r/outputs/{number}") == f"file {number}".encode() * 100
    for number in range(LOGS):
        assert context.files.streams.read("r", 1, f"user_logs/{number}", 0, 99) == f"log {number}".encode()
    names = [f"S{number}" for number in range(SECRETS)]
    found = context.database.read_now(lambda c: secrets.values(context, c, names, context.tokens.people.owner))
    assert found == {f"S{number}": f"value of {number}" for number in range(SECRETS)}


def main() -> None:
    paths = WorkspacePaths(Path(sys.argv[1]))
    context = asyncio.run(context_of(paths))
    if not context.files.store.exists("encryption/check"):
        encryption.check_key(context.files.store)
        fill(context)
    check(context)
    encryption.finish_rotation(context)
    check(context)
    assert len(context.vault.file.read_text().split()) == 1 if context.vault.file else False
    keys = len(list(paths.root.glob("key-*")))
    print("whole", keys, flush=True)
    while len(sys.argv) == 2:
        keys += 1
        (paths.root / f"key-{keys}").write_text(new_key())
        encryption.rotate(context, NewKey(key_file=f"key-{keys}"))
        encryption.rotate_secrets(context)


if __name__ == "__main__":
    main()
