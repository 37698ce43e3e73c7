"""The engine's methods on Slurm: gangs go to its queue, and one call asks about all of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from muster import errors
from muster.defaults import SLURM_POLL_S
from muster.engines.agents import Collectors, contact_of, last_lines
from muster.engines.base import (
    Allocation,
    AllocationState,
    Cluster,
    Connection,
    Ending,
    Gang,
    GangRequest,
    NodeLife,
    NodeOffer,
    QueueEngine,
)
from muster.engines.slurm import explanations
from muster.engines.slurm.arrays import JobArray, Lists, Task, alike
from muster.engines.slurm.asking import Asker
from muster.engines.slurm.commands import Busy, Commands, Later, Refused, require_installed
from muster.engines.slurm.names import allocation_of, attempt_of, doubles, job_name, of_job
from muster.engines.slurm.options import WITHOUT_EFFECT, SlurmOptions
from muster.engines.slurm.parsing import Job, NodeInfo, host_names
from muster.engines.slurm.partitions import Partitions
from muster.engines.slurm.script import gpus_per_node, kept_off, kind_of, make_array_script, make_script
from muster.engines.slurm.site_check import check_container, check_mpi, check_site
from muster.engines.slurm.submission import Submitter
from muster.wire.node.agents import ServerContact
from muster.wire.queue_jobs import JobUsage, QueueJob

log = logging.getLogger("muster.server")

_START_PATIENCE_S = 60.0
_REQUEUE_S = 4.0
_COMES_BACK = ("NODE_FAIL", "PREEMPTED")
"""Ended for a moment, until Slurm requeues the job."""
_GONE_AFTER_S = 30.0
_LAUNCHES = 3
_FORGOTTEN_S = 10.0
_ROUTES_TRIED = 8
_all = AllocationState.of_all
_STATES_OF_WORK = ("RUNNING", "COMPLETING", "SIGNALING", "RESIZING", "STAGE_OUT", "STOPPED")


class SlurmEngine(QueueEngine):
    """Jobs outlive the server; their names say which attempt they are."""

    name = "slurm"

    def __init__(self, commands: Commands | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.commands = commands or Commands()
        self._clock = clock
        self._lock = threading.RLock()
        self._jobs: dict[str, Job] = {}
        """By the allocations in their names."""
        self._hosts: dict[tuple[str, int], list[str]] = {}
        """The nodes on which each start of a job was seen."""
        self._reached: set[str] = set()
        """Nodes whose agents have reached the server."""
        self._avoiding: dict[str, Gang] = {}
        """Allocations whose jobs avoid nodes that failed them."""
        self._asker = Asker(self._look, "squeue", clock)
        self._answered_at = float("-inf")
        self._over_since: dict[str, float] = {}
        self._unlisted: dict[str, float] = {}
        """Allocations that Slurm accepted and has not listed, with the time."""
        self._launched_again: dict[str, int] = {}
        """How often jobs that Slurm could not launch were released."""
        self._trouble = ""
        self._released: dict[str, float] = {}
        """Names of jobs that are no longer needed, with the time."""
        self._last: set[str] = set()
        """Those of them whose run has ended: if requeued, they belong to no attempt."""
        self.partitions = Partitions(self.commands, clock)
        self._lists = Lists()
        self._submitter = Submitter(self.commands, self._find_jobs)
        self._collectors = Collectors()

    def check(self, cluster: Cluster) -> list[str]:
        SlurmOptions.refuse_unknown(cluster.options)
        chosen = SlurmOptions.parse(cluster.options)
        if not chosen.ssh:
            require_installed()
        try:
            known = self.commands.partitions()
            missing = [name for name in (chosen.partition or "").split(",") if name and name not in known]
            if missing:
                raise errors.JobError(
                    f"Slurm has no partition {missing[0]!r}", f"Its partitions: {', '.join(known) or 'none'}."
                )
            self.partitions.refresh(chosen.partition)
            check_mpi(self.commands, chosen)
            check_container(self.commands, chosen)
            said = check_site(self.commands, chosen, self.partitions.nodes(chosen.partition))
        except Busy as error:
            if chosen.ssh and "Unable to establish a connection" in str(error):
                raise errors.JobError(
                    f"ssh: {error}",
                    f"`ssh -o BatchMode=yes {chosen.ssh} squeue --version` must work here, without a password.",
                ) from error
            return [f"Slurm does not answer now, so the settings are not checked ({error})"]
        except Refused as error:
            there = f"`ssh {chosen.ssh} sinfo`" if chosen.ssh else "`sinfo`"
            raise errors.JobError(f"Slurm refuses to answer: {error}", f"Try {there} in this shell.") from error
        given = [key for key in WITHOUT_EFFECT if cluster.options.get(key)]
        said += [f"{key} means nothing on Slurm: {WITHOUT_EFFECT[key]}" for key in given]
        if chosen.cpus is None and not chosen.exclusive and self._gpus(chosen):
            said.append("each rank gets one CPU; --cpus says how many CPUs a node gives (data loaders want some)")
        if chosen.vm_size and chosen.hourly_price is None:
            said.append(f"vm_size {chosen.vm_size} has no known price")
        return said

    def nodes(self, cluster: Cluster) -> Sequence[NodeOffer]:
        return self.partitions.offers(cluster.name, SlurmOptions.parse(cluster.options))

    def trouble(self, cluster: Cluster, patience_s: float = 0.0) -> str:
        if patience_s:
            self.partitions.ask(SlurmOptions.parse(cluster.options).partition, patience_s)
        trouble = self.commands.trouble
        return f"Slurm does not answer: {trouble}" if trouble else ""

    def about(self, cluster: Cluster) -> str:
        try:
            version = ".".join(f"{part:02}" for part in self.commands.version)
            return f"Slurm {version}; {self.commands.call('scontrol', 'ping').strip().splitlines()[0]}"
        except (Busy, Refused, IndexError) as error:
            return f"Slurm: {error}"

    def connection(self, cluster: Cluster) -> Connection:
        chosen = SlurmOptions.parse(cluster.options)
        near = tuple(node.address for node in self.partitions.nodes(chosen.partition, wait=False)[:_ROUTES_TRIED])
        return Connection(chosen.connection, chosen.server_address, chosen.server_port, chosen.linger_seconds, near)

    def script(self, request: GangRequest) -> str:
        chosen = SlurmOptions.parse(request.cluster.options)
        if request.gang.excluded:
            # Slurm's current nodes show whether enough others are left.
            self._lost_nodes(chosen)
        return make_script(request, chosen, self.partitions.nodes(chosen.partition))

    def submit(self, request: GangRequest) -> None:
        if self._live_job(request.id) is not None:
            return
        try:
            text = self.script(request)
        except errors.JobError as error:
            self._submitter.refuse(request.id, f"{error.message}. {error.hint}")
            return
        if request.gang.excluded:
            with self._lock:
                self._avoiding[request.id] = request.gang
        Path(request.gang.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._submitter.put(request.id, text, _mark(request))

    def submit_many(self, requests: Sequence[GangRequest]) -> Mapping[str, str]:
        """Gangs with equal requests become tasks of one array, which is submitted with one call."""
        new = [item for item in requests if self._live_job(item.id) is None and not self._submitter.has(item.id)]
        handed_on: dict[str, str] = {}
        for group in alike(new, self._kind):
            if len(group) > 1:
                array = self._array(group)
                handed_on |= dict.fromkeys((item.id for item in group), array.script)
            else:
                self.submit(group[0])
        return handed_on

    def _kind(self, request: GangRequest) -> Hashable:
        """A gang's request, for grouping; one that avoids nodes, or can never be submitted, stays alone."""
        chosen = SlurmOptions.parse(request.cluster.options)
        try:
            kind = kind_of(request, chosen, self.partitions.nodes(chosen.partition))
        except errors.JobError:
            return request.id
        return request.id if request.gang.excluded else kind

    def _array(self, requests: Sequence[GangRequest]) -> JobArray:
        """Submit gangs as one array."""
        chosen = SlurmOptions.parse(requests[0].cluster.options)
        nodes = self.partitions.nodes(chosen.partition)
        bare = JobArray.of(requests, chosen.array_limit)
        array = replace(bare, script=make_array_script(requests[0], bare, chosen, nodes))
        self._lists.folder = array.folder
        array.write()
        items = {
            request.id: (make_script(request, chosen, nodes), _mark(request), Task(array, number))
            for number, request in enumerate(requests)
        }
        self._submitter.put_all(items)
        return array

    def poll(self, allocations: Sequence[Allocation]) -> Mapping[str, AllocationState]:
        if allocations:
            self._lists.folder = _handed_on(allocations[0])
        chosen = {item.cluster.name: SlurmOptions.parse(item.cluster.options) for item in allocations}
        self._asker.ask(min((item.poll_seconds for item in chosen.values()), default=SLURM_POLL_S))
        return {item.id: self._state(item, chosen[item.cluster.name]) for item in allocations}

    def job(self, allocation: Allocation) -> QueueJob | None:
        with self._lock:
            job = self._job_of(allocation.id)
        if job is not None:
            return QueueJob(
                job.id, job.name, job.state, job.reason, job.partition, job.account, job.qos, job.nodes, job.starts_at
            )
        try:
            return QueueJob(_mark(allocation).read_text().strip(), job_name(allocation.id))
        except OSError:
            return None

    def usage(self, cluster: Cluster, jobs: Sequence[str]) -> Mapping[str, JobUsage] | str:
        try:
            return self.commands.usage(jobs)
        except Busy:
            return {}
        except (Later, Refused) as error:
            if "disabled" in str(error):
                return f"this site's accounting does not answer ({error})"
            # The database may be down for a moment; the caller gives up after some minutes.
            log.warning("Slurm's accounting was asked in vain: %s", error)
            return {}

    def release(self, allocation: Allocation, followed: bool) -> None:
        """Agents leave by themselves; a job that still waits, or stays, is cancelled."""
        self._submitter.drop(allocation.id)
        with self._lock:
            self._avoiding.pop(allocation.id, None)
            job = self._job_of(allocation.id)
            self._lists.forget(job.id if job else "")
        unreached = self._unreached(allocation)
        self._reached -= allocation.nodes.keys()
        comes_back = job is not None and job.state in _COMES_BACK and not followed
        if job is None or (job.is_over and not comes_back):
            return
        is_back = self._attempt_now(job) != attempt_of(allocation.id)
        if followed and is_back:
            # Slurm has requeued it: it belongs to the next attempt.
            return
        with self._lock:
            self._released[job.name] = self._clock()
            if not followed:
                self._last.add(job.name)
        # Slurm's list may be old; whether an agent came, and its order to leave, are in the shared folder.
        stays = comes_back or is_back or bool(unreached)
        self._submitter.cancel(job.id, at_once=stays or not _has_agents(allocation))

    def close(self) -> None:
        self._submitter.close()
        self._collectors.close()

    def _gpus(self, chosen: SlurmOptions) -> int:
        return max((gpus_per_node(chosen, node) for node in self.partitions.nodes(chosen.partition)), default=0)

    # Slurm's answers

    def _look(self) -> None:
        try:
            self._take(self.commands.jobs())
        except (Busy, Refused) as error:
            log.warning("Slurm was asked about its jobs in vain: %s", error)
            with self._lock:
                self._trouble = str(error)

    def _take(self, all_jobs: Sequence[Job]) -> None:
        listed = [job for job in map(self._lists.named, all_jobs) if allocation_of(job.name) is not None]
        with self._lock:
            before = [job for job in self._jobs.values() if job.name not in self._released]
            jobs = self._lists.with_cancelled(before, listed)
        for job in doubles(jobs):
            log.warning("Slurm job %s came back although its run goes on in another: it is cancelled", job.id)
            self._submitter.cancel(job.id, at_once=True)
        for job in self._risen(jobs):
            log.warning("Slurm job %s goes on although its run does not need it: it is cancelled again", job.id)
            self._submitter.cancel(job.id, at_once=True)
        with self._lock:
            # Names are unique; of several jobs the one that has not ended counts, otherwise the last.
            self._jobs = {of_job(job): job for job in sorted(jobs, key=lambda item: (not item.is_over, item.id))}
            ids = {job.id for job in jobs}
            self._hosts = {key: hosts for key, hosts in self._hosts.items() if key[0] in ids}
            self._launched_again = {job: times for job, times in self._launched_again.items() if job in ids}
            # For a completing job, Slurm lists only the nodes that still answer.
            whole = [job for job in jobs if job.nodes and job.state != "COMPLETING"]
            self._hosts |= {(job.id, job.restarts): host_names(job.nodes) for job in whole}
            self._trouble = ""
            self._answered_at = self._clock()

    def _risen(self, jobs: Sequence[Job]) -> list[Job]:
        """Jobs that should have ended long ago: a controller that crashed may have forgotten their cancel, and one that
        was over when its run ended may have been put back into the queue."""
        names = {job.name for job in jobs}
        with self._lock:
            self._released = {name: at for name, at in self._released.items() if name in names}
            late = {name for name, at in self._released.items() if self._clock() - at > _GONE_AFTER_S}
            self._last &= names
            back = {job.name for job in jobs if job.name in self._last and job.waits and job.restarts}
        return [job for job in jobs if job.name in late | back and not job.is_over and job.state != "COMPLETING"]

    def _find_jobs(self, allocation_ids: Collection[str]) -> dict[str, str]:
        """For the submitter: the jobs of allocations, after a fresh query."""
        self._take(self.commands.jobs())
        with self._lock:
            found = {name: self._live_job(name) for name in allocation_ids}
        return {name: job.id for name, job in found.items() if job is not None}

    def _live_job(self, allocation_id: str) -> Job | None:
        """The job that is this attempt now, submitted for it or requeued into it; None where it has ended."""
        job = self._job_of(allocation_id)
        is_now = job is not None and not job.is_over and self._attempt_now(job) == attempt_of(allocation_id)
        return job if is_now else None

    def _job_of(self, allocation_id: str) -> Job | None:
        """The job that is this attempt, or was until Slurm requeued it."""
        stem, number = allocation_id.rpartition(".")[0], attempt_of(allocation_id)
        for earlier in range(number, 0, -1):
            job = self._jobs.get(f"{stem}.{earlier}")
            if job is not None:
                return job if self._attempt_now(job) >= number else None
        return None

    @staticmethod
    def _attempt_now(job: Job) -> int:
        return attempt_of(of_job(job)) + job.restarts

    def _state(self, allocation: Allocation, chosen: SlurmOptions) -> AllocationState:
        refused = self._submitter.refusal(allocation.id)
        if refused:
            return _all(allocation, "gone", refused, Ending("bad_input", refused))
        with self._lock:
            job = self._job_of(allocation.id)
            trouble = self._trouble
        if job is None:
            return self._unknown(allocation, chosen, trouble)
        if self._attempt_now(job) != attempt_of(allocation.id):
            start = attempt_of(allocation.id) - attempt_of(of_job(job))
            lost = self._lost_nodes(chosen, self._hosts.get((job.id, start)))
            return self._collected(allocation, explanations.how_it_was_requeued(job, lost))
        self._submitter.done(allocation.id, job.id, _mark(allocation))
        if job.is_over and chosen.requeue and self._may_come_back(job):
            return _all(
                allocation, "starting", f"Slurm job {job.id} is {job.state}, and may be put back into the queue"
            )
        if job.is_over:
            return self._collected(allocation, self._ending(allocation, job, chosen))
        if trouble:
            return _all(allocation, "starting", f"Slurm does not answer: {trouble}")
        if job.waits:
            self._let_go(job)
            self._ease(allocation, job, chosen)
            return replace(_all(allocation, "starting", explanations.why_it_waits(job)), starts_at=job.starts_at)
        if job.state in _STATES_OF_WORK and job.used_s > _START_PATIENCE_S:
            return AllocationState(self._alive(allocation), unreached=self._unreached(allocation))
        why = f"Slurm job {job.id} is {job.state.lower()}" + (f" on {job.nodes}" if job.nodes else "")
        lives: dict[str, NodeLife] = {
            name: life if allocation.nodes[name].log.exists() else "starting"
            for name, life in self._alive(allocation).items()
        }
        return AllocationState(lives, f"{why}; its agents are on their way", unreached=self._unreached(allocation))

    def _may_come_back(self, job: Job) -> bool:
        """A job whose node failed, or was reclaimed, counts as ended for a moment before Slurm requeues it."""
        if job.state not in _COMES_BACK:
            return False
        # By Slurm's answers, not by the clock: they come only from time to time.
        return self._answered_at - self._over_since.setdefault(job.id, self._answered_at) < _REQUEUE_S

    def _let_go(self, job: Job) -> None:
        """A job that could not be launched is retried some times before it is left to a person."""
        tried = self._launched_again.get(job.id, 0)
        if not job.failed_to_launch or tried >= _LAUNCHES:
            return
        self._launched_again[job.id] = tried + 1
        try:
            self.commands.let_go(job.id)
            log.warning("Slurm job %s could not be launched and was held: it is released", job.id)
        except (Busy, Refused) as error:
            log.warning("Slurm job %s is held and cannot be released: %s", job.id, error)

    def _ease(self, allocation: Allocation, job: Job, chosen: SlurmOptions) -> None:
        """A waiting gang stops avoiding nodes that failed it once too few others are left."""
        with self._lock:
            gang = self._avoiding.get(allocation.id)
        nodes = self.partitions.nodes(chosen.partition) if gang is not None else []
        if gang is None or not nodes or kept_off(gang.excluded, chosen, nodes, len(allocation.nodes)):
            return
        try:
            self.commands.keep_off(job.id, chosen.exclude or "")
        except (Busy, Refused) as error:
            log.warning("Slurm job %s still keeps off %s: %s", job.id, ", ".join(gang.excluded), error)
            return
        with self._lock:
            self._avoiding.pop(allocation.id, None)

    def _unknown(self, allocation: Allocation, chosen: SlurmOptions, trouble: str) -> AllocationState:
        """Slurm has no job of this attempt: it is being submitted, ended long ago, or nobody has asked yet."""
        waiting = self._submitter.waiting(allocation.id)
        if waiting is not None:
            self._send_again_if_forgotten(allocation.id)
            return _all(allocation, "starting", waiting)
        if trouble or self._answered_at == float("-inf"):
            return _all(allocation, "starting", f"Slurm does not answer{f': {trouble}' if trouble else ' yet'}")
        mark = _mark(allocation)
        if not mark.exists():
            return _all(allocation, "gone", "it was not handed to Slurm")
        past = self.commands.finished(job_name(allocation.id), mark.read_text())
        if past is not None and past.is_over:
            return self._collected(allocation, self._ending(allocation, past, chosen))
        why = f"Slurm no longer knows job {mark.read_text()}, which ended while nobody looked"
        return self._collected(allocation, Ending("", why))

    def _send_again_if_forgotten(self, allocation_id: str) -> None:
        """Resubmit what Slurm accepted and has not listed for a while, according to its own answers."""
        if not self._submitter.is_sent(allocation_id):
            self._unlisted.pop(allocation_id, None)
        elif self._answered_at - self._unlisted.setdefault(allocation_id, self._answered_at) > _FORGOTTEN_S:
            log.warning("Slurm took the job of %s and does not have it: it is submitted again", allocation_id)
            del self._unlisted[allocation_id]
            self._submitter.again(allocation_id)

    def _ending(self, allocation: Allocation, job: Job, chosen: SlurmOptions) -> Ending:
        failed = job.state in ("NODE_FAIL", "BOOT_FAIL")
        lost = self._lost_nodes(chosen, self._hosts.get((job.id, job.restarts))) if failed else []
        ending = explanations.how_it_ended(job, chosen.chain, chosen.signal_seconds, lost)
        if ending.code or _has_agents(allocation):
            return ending
        last = _last_words(allocation)
        return Ending("", f"{ending.message} before its agents came" + (f": {last}" if last else ""))

    def _alive(self, allocation: Allocation) -> dict[str, NodeLife]:
        """The nodes of a running job; what a dead agent left is delivered from here."""
        return {
            name: "starting" if self._collectors.finds_dead(paths) and self._collectors.work_on(paths) else "up"
            for name, paths in allocation.nodes.items()
        }

    def _collected(self, allocation: Allocation, ending: Ending) -> AllocationState:
        """It has ended; what its agents could not deliver is delivered from here, out of the shared folder."""
        lives: dict[str, NodeLife] = {
            name: "starting" if self._collectors.work_on(paths) else "gone" for name, paths in allocation.nodes.items()
        }
        return AllocationState(lives, ending.message, ending)

    def _unreached(self, allocation: Allocation) -> dict[str, ServerContact]:
        """Errors of agents that cannot reach the server, from the shared folder."""
        new = [(name, paths) for name, paths in allocation.nodes.items() if name not in self._reached]
        found = {name: contact for name, paths in new if (contact := contact_of(paths)) is not None}
        self._reached |= {name for name, contact in found.items() if contact.reached}
        return {name: contact for name, contact in found.items() if contact.trouble}

    def _lost_nodes(self, chosen: SlurmOptions, hosts: Sequence[str] | None = None) -> list[NodeInfo]:
        """The nodes of the partition that Slurm reports as lost, among these hosts where they are known."""
        try:
            self.partitions.refresh(chosen.partition)
        except (Busy, Refused) as error:
            log.warning("Slurm was asked about its nodes in vain: %s", error)
        lost = [node for node in self.partitions.nodes(chosen.partition) if node.is_lost]
        return lost if hosts is None else [node for node in lost if node.name in hosts]


def _mark(allocation: Allocation) -> Path:
    """The file with the id of the allocation's job."""
    return _first_folder(allocation) / "slurm.job"


def _first_folder(allocation: Allocation) -> Path:
    return next(iter(allocation.nodes.values())).root


def _handed_on(allocation: Allocation) -> Path:
    """The folder of the script and its output."""
    return _first_folder(allocation).parent.parent / "handed-on"


def _has_agents(allocation: Allocation) -> bool:
    """Whether agents started, according to the shared folder."""
    return any(paths.log.exists() for paths in allocation.nodes.values())


def _last_words(allocation: Allocation) -> str:
    """The end of the job's output: why no agent started."""
    lines = last_lines(_handed_on(allocation) / f"{allocation.id}.out")
    own = [line for line in lines if not line.startswith(("srun:", "slurmstepd:"))]
    return (own or lines or [""])[-1]
