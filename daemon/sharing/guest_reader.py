"""What guests carry in Extra, asked where it matters, and guests that the store does not know."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.settings.sharing import SharingSettings
from slurm_soda.daemon.sharing.may_join import partitions_share
from slurm_soda.daemon.sharing.share_state import Share
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.read.hostlist import expand_hosts
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES
from slurm_soda.slurm_ext.read.shown_request import shown_request
from slurm_soda.slurm_ext.sharing.guest_record import GuestRecord
from slurm_soda.slurm_ext.sharing.guest_requests import may_carry_record, read_guest_records
from slurm_soda.slurm_ext.write.guest_release import checked_undo

ASK_STRANGERS_EVERY_S = 60.0
"""A job that may carry a record, but does not, and that no share is of, is asked about again after so long."""

_Asked = tuple[int, int, bool]
"""A job as it was asked about: its id, its restarts, and whether its request was a guest's."""


@dataclass(slots=True)
class GuestReader:
    """Reads records once a cycle, by one process, and only while some guest waits or is not known."""

    client: SlurmClient
    settings: SharingSettings
    records: Mapping[int, GuestRecord | None] = field(default_factory=dict)
    """By guest that was asked about now; ``None``: no record that can be read."""
    _strangers: dict[_Asked, float] = field(default_factory=dict)
    """Jobs without a record, with when they are asked about again, by the steady clock."""
    _left_over: set[tuple[int, int]] = field(default_factory=set)
    """Jobs with plain GPUs and a record, by id and restart count, as they were last seen."""

    def read(
        self, jobs: Mapping[int, SlurmJob], shares: Mapping[int, Share], steady_s: float
    ) -> list[tuple[SlurmJob, GuestRecord]]:
        """Fill :attr:`records`; gives jobs with a record that no share is of: guests, and jobs whose owners made
        them plain ones since.
        """
        ours = [guest for guest, share in shares.items() if _matters(jobs.get(guest), share)]
        present = {_asked(job) for job in jobs.values() if self._may_carry_record(job)}
        self._strangers = {key: again_s for key, again_s in self._strangers.items() if key in present}
        strangers = [job for job in jobs.values() if job.job_id not in shares and self._is_strange(job, steady_s)]
        asked = [*ours, *(job.job_id for job in strangers)]
        self.records = {}
        if not asked:
            return []
        try:
            told = read_guest_records(self.client, asked)
        except SlurmError as error:
            log(logging.WARNING, "guest-records-not-read", error=error)
            return []
        self.records = {
            job_id: record if isinstance(record := told.get(job_id), GuestRecord) else None for job_id in asked
        }
        found = [(job, record) for job in strangers if (record := self.records[job.job_id]) is not None]
        nobodys = {_asked(job) for job in strangers if self.records[job.job_id] is None}
        self._strangers |= dict.fromkeys(nobodys, steady_s + ASK_STRANGERS_EVERY_S)
        # The jobs were read before their records: somebody may have made one a guest in between. The next reading tells.
        seen, self._left_over = self._left_over, {(job.job_id, job.restarts) for job, _ in found if not job.shared_gpus}
        return [(job, record) for job, record in found if job.shared_gpus or (job.job_id, job.restarts) in seen]

    def _is_strange(self, job: SlurmJob, steady_s: float) -> bool:
        if not self._may_carry_record(job) or job.state in ENDED_STATES:
            return False
        return steady_s >= self._strangers.get(_asked(job), float("-inf"))

    def _may_carry_record(self, job: SlurmJob) -> bool:
        """Of plain jobs only where jobs share: elsewhere many may name their nodes."""
        return may_carry_record(job) and (job.shared_gpus > 0 or partitions_share(job, self.settings))


def adopted_share(
    job: SlurmJob,
    record: GuestRecord,
    hosts: Sequence[SlurmJob],
    at: Instant,
    *,
    gres: str,
    submit_s: float,
    deadline_s: float,
) -> Share:
    """What is known of a guest by what Slurm shows and the guest carries; for a store that was lost.

    One that waits for its begin time after a requeue has been a guest before, and gave up its place. A record that would
    give back another request than the job has is not followed: only what may be restored is, and at once. So is that of a
    job whose owner has asked for plain GPUs since: these stay, and so do nodes on which none of its hosts is.

    Args:
        job: the guest.
        record: what it carries.
        hosts: those of its hosts that Slurm still lists.
        at: now.
        gres: the generic resource of guests.
        submit_s: when the guest was first submitted.
        deadline_s: when it is given its own request back if it still waits, by the steady clock.
    """
    undo, counts = checked_undo(job, record.encode(), gres)
    places = [_nodes_of(host) for host in hosts]
    if not job.shared_gpus and len(hosts) == len(record.hosts) and all(places):
        undo = undo if {*itertools.chain(*places)}.issuperset(_nodes_of(job)) else {}
    if not (counts and job.shared_gpus):
        record = replace(record, undo=dict(undo))
    shown = shown_request(job)
    waits = job.state == "PENDING"
    came_back = waits and job.restarts > 0 and job.waits_for_begin_time(at.now_s)
    return Share(
        guest=job.job_id,
        submit_s=submit_s,
        restart=job.restarts - came_back,
        nodes=_nodes_of(job),
        record=record,
        wrote={name: shown.get(name, "") for name in record.undo},
        phase="rewritten" if waits else "started",
        created_s=at.now_s,
        deadline_s=deadline_s,
        started_s=None if waits else job.start_s,
        why="found in Slurm, with its record, by a sodad that did not know of it",
    )


def _matters(guest: SlurmJob | None, share: Share) -> bool:
    """Whether it matters what the guest carries now."""
    return (
        guest is not None and guest.state not in ENDED_STATES and not (guest.shared_gpus and share.phase == "started")
    )


def _asked(job: SlurmJob) -> _Asked:
    return job.job_id, job.restarts, job.shared_gpus > 0


def _nodes_of(job: SlurmJob) -> tuple[str, ...]:
    try:
        return tuple(expand_hosts(job.node_names or job.req_node_names))
    except SlurmError:
        return ()
