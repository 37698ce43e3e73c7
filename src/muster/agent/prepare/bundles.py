"""Code, checkpoints and environments, fetched from other nodes where they have them.

They travel like inputs: through the cache, block by block. Runs in worker threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from muster.agent.link import Link
from muster.agent.mover import Failed, Mover, Rate
from muster.agent.peers import Peers, Shared
from muster.storage.staging.messages import Done, Offer, ProgressReport, Stage
from muster.wire.data.access import PEERS, Access, FileEntry
from muster.wire.node.agents import AttemptKey
from muster.wire.node.builds import PACKED_NAME, PackedEnvironment
from muster.wire.node.peers import BlocksAnswer, BlocksReport, SharedKind, place_name
from muster.wire.states import Level

LEAST_BYTES = 16 << 20
"""Smaller bundles come from the server in one response."""
_LEAST_MEAN_BYTES = 64 << 10
"""Each file is a request: many small files arrive faster as one stream."""


@dataclass(frozen=True)
class Bundles:
    """Fetches bundles for one attempt, or for a build."""

    key: AttemptKey
    own_cache: bool
    link: Link
    mover: Mover
    peers: Peers
    doing: Callable[[str], None]
    note: Callable[[Level, str], None]

    @contextmanager
    def staged(self, kind: SharedKind, name: str, access: Access, what: str) -> Iterator[Path]:
        """The folder of the bundle's files, kept while the `with` block lasts; raises Failed."""
        request = Stage(
            what,
            access,
            str(self.peers.cache(self.own_cache)),
            self.link.address,
            shared=True,
            node=self.peers.node,
            place=place_name(kind, name),
        )
        with self._run(request, kind, name, f"fetching {what}") as done:
            yield Path(done.data)

    def offer(self, key: str, folder: Path, what: str) -> PackedEnvironment:
        """Pack an environment that was built here, and serve it to others; raises Failed."""
        cache, folder_name = str(self.peers.cache(self.own_cache)), place_name("environment", key)
        with self._run(Offer(what, str(folder), cache, self.peers.node, folder_name), "environment", key, "") as done:
            return PackedEnvironment(done.bytes, done.digest)

    @contextmanager
    def _run(self, request: Stage | Offer, kind: SharedKind, name: str, what: str) -> Iterator[Done]:
        rate, shared = Rate(what), Shared(kind, name, self.own_cache)

        def tell(progress: ProgressReport) -> None:
            if what:
                self.doing(rate.text(progress))

        def exchange(report: BlocksReport) -> BlocksAnswer | None:
            answer = self.peers.exchange(self.key, shared, report)
            for text in answer.notices if answer else ():
                self.note("warning", text)
            return answer

        try:
            with self.mover.run(request, tell, _no_token, exchange) as done:
                yield done
        finally:
            if what:
                self.doing("")


def packed_access(found: PackedEnvironment, what: str) -> Access:
    """Access to an environment that only other nodes have."""
    return Access(PEERS, "", label=what, manifest=(FileEntry(PACKED_NAME, found.size, found.sha256),))


def worth_sharing(sizes: list[int]) -> bool:
    """Whether files are fetched from other nodes, rather than in one response of the server."""
    return sum(sizes) >= max(LEAST_BYTES, _LEAST_MEAN_BYTES * len(sizes))


def _no_token(paths: tuple[str, ...]) -> NoReturn:
    raise Failed("platform", "the server refused what the node's own token opens")
