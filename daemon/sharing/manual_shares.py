"""What admins want shared, as a cycle takes it in: into the snapshot, and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurm_soda.daemon.sharing.share_state import RUNNING_STATES, Share
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.manual_shares import manual_shares
from slurm_soda.daemon.store.tables.sharing import ManualShareRow
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingJobs
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES

SHARE_WITHIN_S = 3600.0
"""For so long sodad tries to carry out a share that an admin wants."""
MOST_AHEAD_S = 60.0
"""What is dated later than a cycle by more than this was written before the clock was set back."""
STAYS = (
    "it cannot be made to leave now: it cannot save its state, has a guest itself, others get its GPUs in this cycle, Slurm "
    "refused its requeue, or it was preempted preemption.max_per_job times"
)
NOT_SEEN = (
    "sodad sends no running guest back now: pools are in force (sodactl pools status), or who is on which GPU is not known "
    "(sharing-not-seen in its log); scontrol requeue Incomplete {guest} sends it back all the same"
)
UNSHARED = "an admin wants it to share no more"


@dataclass(slots=True)
class ManualShares:
    """Those that hold: the store is asked in each cycle, as ``sodactl`` writes it."""

    rows: Sequence[ManualShareRow] = ()
    _before: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Phase and reason by key, as the store has them."""
    _begun: set[int] = field(default_factory=set)
    """Keys of those whose share is on its way: of an array no second task joins meanwhile."""

    def read(self, store: Store, now_s: float) -> None:
        """As the store had them when the cycle began: what it begins is not older than the word that it follows."""
        with store.read() as session:
            self.rows = [row for row in manual_shares(session) if not 0.0 < row.asked_s - now_s < MOST_AHEAD_S]
        self._before = {row.id: (row.phase, row.why) for row in self.rows}

    @property
    def unshared(self) -> set[int]:
        """Guests that are to be given their own requests back."""
        return {row.guest for row in self.rows if row.kind == "unshare" and row.phase == "asked"}

    def mark(self, sharing: SharingJobs, job_ids: Sequence[int], now_s: float) -> SharingJobs:
        """The columns with what is wanted now of these jobs, which are those of the snapshot."""
        listed = set(job_ids)
        pairs = [(row, host) for row in self.rows if row.guest in listed for host in row.hosts if host in listed]
        joins = tuple((row.guest, host) for row, host in pairs if self._is_to_begin(row, now_s))
        apart = {(min(row.guest, host), max(row.guest, host)) for row, host in pairs if row.kind == "unshare"}
        partings = tuple(sorted(self.unshared & listed))
        return replace(
            sharing, manual_joins=joins, manual_partings=partings, apart=tuple(sorted({*sharing.apart, *apart}))
        )

    def _is_to_begin(self, row: ManualShareRow, now_s: float) -> bool:
        return row.kind == "share" and row.id not in self._begun and not _is_stale(row, now_s)

    def conclude(
        self,
        plan: Plan | None,
        *,
        parts: bool,
        refusals: Mapping[int, str],
        shares: Mapping[int, Share],
        jobs: Mapping[int, SlurmJob],
        job_cache: JobCache,
        now_s: float,
    ) -> list[ManualShareRow]:
        """How far each has come; gives those of which something changed.

        Args:
            plan: of this cycle; ``None``: sodad only observes.
            parts: the plan could make guests leave.
            refusals: why jobs that the plan lets join do not, by id.
            shares: those that are not over, by guest.
        """
        refused = {**(plan.refused_joins if isinstance(plan, SharingPlan) else {}), **refusals}
        for row in self.rows:
            job = jobs.get(row.guest)
            if job is None or job.state in ENDED_STATES or job_cache.submit_s(row.guest) != row.submit_s:
                row.phase, row.why = "over", f"job {row.guest} has ended"
            elif row.kind == "share":
                share = shares.get(row.guest) or _share_of_task(row, job, shares, jobs)
                row.why = refused.get(row.guest, "") if share is None else ""
                (self._begun.discard if share is None else self._begun.add)(row.id)
                self._conclude_share(row, job, share, jobs, now_s)
            else:
                leaves = plan is None or any(one.job_id == row.guest for one in plan.preempts)
                stays = "" if leaves else STAYS if parts else NOT_SEEN.format(guest=job.address)
                self._conclude_unshare(row, shares.get(row.guest), jobs, stays)
        return [row for row in self.rows if self._before.get(row.id) != (row.phase, row.why)]

    @staticmethod
    def _conclude_share(
        row: ManualShareRow,
        job: SlurmJob,
        share: Share | None,
        jobs: Mapping[int, SlurmJob],
        now_s: float,
    ) -> None:
        left = [host for host in row.hosts if host not in jobs or jobs[host].state not in RUNNING_STATES]
        if share is not None and share.phase == "started":
            row.phase, row.why = "over", f"it started beside job {', '.join(map(str, share.hosts))}"
        elif job.state in RUNNING_STATES:
            row.phase, row.why = "over", "it started on GPUs of its own"
        elif left:
            row.phase, row.why = "over", f"job {left[0]} no longer runs"
        elif _is_stale(row, now_s):
            last = row.why or "it did not start"
            row.phase, row.why = "over", f"given up after {SHARE_WITHIN_S / 60:.0f} min; {last}"

    @staticmethod
    def _conclude_unshare(row: ManualShareRow, share: Share | None, jobs: Mapping[int, SlurmJob], stays: str) -> None:
        hosts = [host for host in row.hosts if host in jobs and jobs[host].state not in ENDED_STATES]
        if share is None:
            row.phase, row.why = ("kept", "") if hosts else ("over", "its hosts have ended")
        else:
            row.why = stays if share.phase == "started" else ""


def _is_stale(row: ManualShareRow, now_s: float) -> bool:
    """Whether a share is not tried any more."""
    return now_s - row.asked_s > SHARE_WITHIN_S


def _share_of_task(
    row: ManualShareRow, job: SlurmJob, shares: Mapping[int, Share], jobs: Mapping[int, SlurmJob]
) -> Share | None:
    """Of an array one task is meant, which becomes a job of its own before it joins."""
    if not job.array_rest:
        return None
    # One of an earlier word is another task's.
    since = (share for share in shares.values() if share.created_s >= row.asked_s)
    tasks = (share for share in since if share.guest in jobs and set(share.hosts) & set(row.hosts))
    return next((share for share in tasks if jobs[share.guest].array_job_id == job.array_job_id), None)
