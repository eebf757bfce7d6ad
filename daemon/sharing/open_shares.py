"""All shares that are not over: following each, and giving requests back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.preemption.active_preemptions import ActivePreemptions
from slurm_soda.daemon.settings.sharing import SharingSettings
from slurm_soda.daemon.sharing.guest_reader import GuestReader, adopted_share
from slurm_soda.daemon.sharing.manual_shares import UNSHARED, ManualShares
from slurm_soda.daemon.sharing.may_join import JoinChecks, partitions_share
from slurm_soda.daemon.sharing.pair_pauses import PairPauses
from slurm_soda.daemon.sharing.share_state import (
    LEAVING_ENDS,
    RUNNING_STATES,
    SeenShare,
    Share,
    ShareCommand,
    ShareDecision,
    decide_share_step,
    reduced,
)
from slurm_soda.daemon.store.audit_log import ChangeOutcome
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.shares import (
    add_users,
    count_revocations,
    ended_shares,
    load_shares,
    parted_pairs,
)
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob
from slurm_soda.slurm_ext.sharing.guest_requests import why_not_guest
from slurm_soda.slurm_ext.write import job_changes
from slurm_soda.slurm_ext.write.job_changes import JobChange

RETRY_AFTER_S = 1.0
"""Pause after Slurm refused a step; doubles up to :data:`MAX_RETRY_S`."""
MAX_RETRY_S = 60.0
PAUSES_FOR_S = 86_400.0
"""A share that failed longer ago makes no pause longer."""


@dataclass(frozen=True, slots=True)
class ShareStep:
    """One step to send."""

    share: Share
    send: ShareCommand
    change: JobChange


@dataclass(slots=True)
class OpenShares:
    """The shares that are not over, by guest: one a job."""

    settings: SharingSettings
    client: SlurmClient
    checks: JoinChecks
    by_guest: dict[int, Share] = field(default_factory=dict)
    pauses: PairPauses = field(default_factory=PairPauses)
    manual: ManualShares = field(default_factory=ManualShares)
    """What admins want."""
    refusals: dict[int, str] = field(default_factory=dict)
    """Why jobs that the last plan would let join did not, by id."""
    unguarded: str = ""
    """Nodes whose hosts can have no guests, and why, for people."""
    _reader: GuestReader = field(init=False)
    _steady_s: float = 0.0
    """Of the last reading of Slurm."""
    _running: set[int] = field(default_factory=set)
    """Guests that run, as far as a share of them is not over: one with its own request may run for hours."""

    def __post_init__(self) -> None:
        self._reader = GuestReader(self.client, self.settings)

    @property
    def under_way(self) -> bool:
        """Some share changes within seconds."""
        return any(
            share.phase != "started" and not (share.phase == "parting" and share.guest in self._running)
            for share in self.by_guest.values()
        )

    @property
    def waiting(self) -> set[int]:
        """Guests whose place in the queue nobody is to change: they start within seconds."""
        return {share.guest for share in self.by_guest.values() if share.waits}

    @property
    def unshared(self) -> set[int]:
        """Guests of whom an admin said that they shall share no more."""
        return self.manual.unshared & self.by_guest.keys()

    @property
    def unrecorded(self) -> list[Share]:
        """Those that the store does not have."""
        return [share for share in self.by_guest.values() if not share.pk]

    def observe(self, jobs: Mapping[int, SlurmJob], at: Instant, job_cache: JobCache) -> None:
        """Read what guests carry where it matters, and take up those of which no share is known."""
        self.pauses.keep(jobs)
        self._steady_s = at.steady_s
        for job, record in self._reader.read(jobs, self.by_guest, at.steady_s):
            log(logging.WARNING, "guest-adopted", job=job.job_id, hosts=record.hosts)
            deadline_s = at.steady_s + self.settings.start_within_s
            submit_s = job_cache.submit_s(job.job_id)
            self.by_guest[job.job_id] = adopted_share(
                job,
                record,
                [jobs[host] for host in record.hosts if host in jobs],
                at,
                gres=self.settings.gres,
                submit_s=submit_s,
                deadline_s=deadline_s,
            )

    def why_not_guest(self, job: SlurmJob, request: WaitingJob | None) -> str:
        """Why a waiting job's request is not made that of a guest, whoever its host would be; empty if it may be."""
        if why := self.pauses.why_no_guest(job.job_id, self._steady_s):
            return why
        told = why_not_guest(job, request) or self.checks.why_bound(job, self._steady_s)
        return told or self.pauses.why_refused(job, self._steady_s)

    def keep_apart(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """The snapshot, which knows who does not share: parted pairs, and for a while those that came to nothing; and what
        admins want.
        """
        if not isinstance(snapshot, SharingSnapshot):
            return snapshot
        apart = tuple(self.pauses.standing(snapshot, self._steady_s))
        sharing = self.manual.mark(
            replace(snapshot.sharing, apart=apart), snapshot.jobs.job_id.tolist(), snapshot.now_s
        )
        return replace(snapshot, sharing=sharing)

    def advance(
        self,
        slurm_state: SlurmState,
        *,
        acts: bool,
        preemptions: ActivePreemptions,
        left: Collection[int],
        out_of_scope: Callable[[int], str] = lambda _job_id: "",
    ) -> tuple[list[ShareStep], list[Share]]:
        """One step of each: what to send, and the shares of which something changed.

        Args:
            slurm_state: as Slurm shows itself.
            acts: sodad enforces; otherwise nobody goes on waiting as a guest.
            preemptions: whose hosts leave, and who is released from its wait after a requeue by them.
            left: requeued jobs whose former run has certainly left its nodes.
            out_of_scope: why a job is not in scope, empty if it is: such a job does not go on waiting as a guest, nor does
                one for the GPUs of such a job.
        """
        jobs, at = slurm_state.jobs, Instant(slurm_state.now_s, slurm_state.steady_s)
        nodes = {node.name: node for node in slurm_state.nodes} if self.by_guest else {}
        unshared = self.unshared
        steps: list[ShareStep] = []
        changed: list[Share] = []
        self._running = {guest for guest in self.by_guest if guest in jobs and jobs[guest].state in RUNNING_STATES}
        for share in self.by_guest.values():
            guest = jobs.get(share.guest)
            seen = SeenShare(
                guest=guest,
                hosts={host: jobs[host] for host in share.hosts if host in jobs},
                nodes=nodes,
                record_known=share.guest in self._reader.records,
                record=self._reader.records.get(share.guest),
                now_s=at.now_s,
                steady_s=at.steady_s,
                off=self._why_off(guest, acts=acts) or _first_outside((share.guest, *share.hosts), out_of_scope),
                unshared=UNSHARED if share.guest in unshared else "",
                leaving=preemptions.leaving,
                request=(slurm_state.waiting or {}).get(share.guest),
                preempted=share.guest in preemptions.by_job,
                left=share.guest in left,
            )
            decision = decide_share_step(share, seen)
            if self._take_in(share, decision, guest, at):
                changed.append(share)
            if decision.send is not None and guest is not None and at.steady_s >= share.retry_s:
                steps.append(ShareStep(share, decision.send, _change(share, decision)))
        return steps, changed

    def _why_off(self, guest: SlurmJob | None, *, acts: bool) -> str:
        if not acts:
            return "sodad does not enforce now"
        if guest is not None and not partitions_share(guest, self.settings):
            return f"jobs of {guest.partition} do not share now"
        return ""

    def _take_in(self, share: Share, decision: ShareDecision, guest: SlurmJob | None, at: Instant) -> bool:
        before = (share.phase, share.end, share.why, share.restart)
        share.phase = decision.phase
        if decision.end:
            share.end, share.why = decision.end, decision.why
        if decision.phase == "started" and guest is not None and guest.state in RUNNING_STATES:
            share.restart = guest.restarts
            share.started_s = guest.start_s
            if share.end:  # it started in the moment in which it was to be given its request back
                share.end, share.why = "", "it started after all"
        if decision.phase == "over":
            share.ended_s = at.now_s
            self.pauses.note(share, at.steady_s)
        return before != (share.phase, share.end, share.why, share.restart)

    def adopt(self, begun: Iterable[Share]) -> None:
        """Follow these from now on."""
        self.by_guest |= {share.guest: share for share in begun}

    def part(self, guests: Mapping[int, str]) -> list[Share]:
        """These guests are made to leave for what was observed, with the reason; gives their shares."""
        parted = [
            share for job_id, share in self.by_guest.items() if job_id in guests and share.end not in LEAVING_ENDS
        ]
        unshared = self.unshared
        for share in parted:
            share.phase, share.why = "parting", guests[share.guest]
            share.end = "unshared" if share.guest in unshared else "parted"
        return parted

    def note(self, step: ShareStep, outcome: ChangeOutcome, steady_s: float) -> None:
        """Take in what became of a step that was sent."""
        share = step.share
        if outcome.state == "failed":
            share.failures += 1
            share.retry_s = steady_s + min(RETRY_AFTER_S * 2.0 ** min(share.failures - 1, 30), MAX_RETRY_S)
            if step.send == "share":
                share.phase, share.end, share.why = "parting", "refused", f"Slurm refused it: {outcome.error}"
                share.retry_s = float("-inf")  # a part of it may stand
        if outcome.state == "done":
            share.failures = 0
            if step.send == "share":
                share.phase = "rewritten"

    def recall(self, session: Session, at: Instant, before: OpenShares | None) -> None:
        """As the store has it; ``before`` is what this process knew until now."""
        self.adopt(load_shares(session, at, self.settings.start_within_s))
        self.pauses.apart |= parted_pairs(session)
        ended = ended_shares(session, at.now_s - PAUSES_FOR_S)
        add_users(session, [*self.by_guest.values(), *(share for share, _ in ended)])
        for share, ended_s in ended:
            self.pauses.note(share, at.steady_since(ended_s, PAUSES_FOR_S))
        self.pauses.revoked = count_revocations(session)
        if before is None:
            return
        for guest, known in before.by_guest.items():
            read = self.by_guest.get(guest)
            if read is not None and read.pk == known.pk:
                read.deadline_s, read.retry_s = known.deadline_s, known.retry_s

    def drop_over(self) -> None:
        """Stop following those that are over."""
        self.by_guest = {guest: share for guest, share in self.by_guest.items() if share.phase != "over"}


def _first_outside(job_ids: Iterable[int], out_of_scope: Callable[[int], str]) -> str:
    return next((f"job {job_id} is {why}" for job_id in job_ids if (why := out_of_scope(job_id))), "")


def _change(share: Share, decision: ShareDecision) -> JobChange:
    if decision.send == "start-now":
        return job_changes.start_now_change(share.guest, f"its share is over: {share.why}")
    record = reduced(share.record, decision.restore)
    change = job_changes.unshare_change(share.guest, record, f"its own request again: {share.why}")
    if decision.clear_record:
        return change
    new, old = ({k: v for k, v in fields.items() if k != "Extra"} for fields in (change.new, change.old))
    return replace(change, new=new, old=old)
