"""What to do next about one share: a pure function of its persisted phase and of what Slurm shows now.

A share lets a waiting job start as a guest on GPUs of running hosts. sodad rewrites the request, follows the guest, and
gives it its own request back when it does not start, or has to start again. While the guest runs, three walls on its node
keep others off (``docs/design/0013-a-guest-carries-its-record.md``); nothing here is needed for that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from slurm_soda.slurm_ext.client import SlurmJob, SlurmNode
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.hostlist import expand_hosts
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES, waits_for_resources
from slurm_soda.slurm_ext.read.shown_request import is_same_value, shown_request
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob
from slurm_soda.slurm_ext.sharing.guest_record import GuestRecord
from slurm_soda.slurm_ext.write.job_changes import MAX_REQUEUE_WAIT_S, MIN_RESTART_GAP_S

SharePhase = Literal["intended", "rewritten", "started", "parting", "over"]
ShareCommand = Literal["share", "unshare", "start-now"]
ShareEnd = Literal[
    "",
    "ended",
    "not-started",
    "refused",
    "host-left",
    "node",
    "owner",
    "off",
    "revoked",
    "parted",
    "withdrawn",
    "unshared",
]

PHASES: tuple[str, ...] = get_args(SharePhase)
FAILED_ENDS: frozenset[str] = frozenset({"not-started", "refused", "host-left", "node"})
"""The guest did not start: its pairs wait before they are tried again, longer each time."""

LEAVING_ENDS: frozenset[str] = frozenset({"parted", "unshared"})
"""The guest is made to leave although it runs."""

RUNNING_STATES = frozenset({"RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "RESIZING"})


@dataclass(slots=True)
class Share:
    """One share as the store keeps it; see :class:`slurm_soda.daemon.store.tables.sharing.ShareRow`."""

    guest: int
    submit_s: float
    restart: int
    """Restart count of the run in which it is, or will be, a guest."""
    nodes: tuple[str, ...]
    record: GuestRecord
    wrote: Mapping[str, str]
    """Fields of the request as they were written, in Slurm's words, Extra apart."""
    phase: SharePhase
    created_s: float
    deadline_s: float
    """When a guest that still waits is given its own request back; by the steady clock."""
    users: tuple[str, ...] = ()
    """Owners of the guest and of its hosts, the guest's first; empty where nobody knows."""
    host_restarts: Mapping[int, int] = field(default_factory=dict)
    """Restart counts of its hosts' runs."""
    started_s: float | None = None
    end: ShareEnd = ""
    why: str = ""
    """The end in words for people; before it the reason of the share."""
    ended_s: float | None = None
    pk: int = 0
    failures: int = 0
    """Refusals in a row, in this daemon epoch."""
    retry_s: float = float("-inf")
    """No new attempt before this instant of the steady clock."""

    @property
    def hosts(self) -> tuple[int, ...]:
        """Job ids."""
        return self.record.hosts

    @property
    def changed(self) -> set[str]:
        """Fields that were written with another value than they had."""
        before = self.record.undo
        return {name for name, value in self.wrote.items() if not is_same_value(name, value, before.get(name, ""))}

    @property
    def waits(self) -> bool:
        """Its guest was rewritten, or is to be, and does not run as far as the store knows."""
        return self.phase in ("intended", "rewritten")


@dataclass(frozen=True, slots=True)
class SeenShare:
    """What Slurm shows of a share, and what sodad may do."""

    guest: SlurmJob | None
    hosts: Mapping[int, SlurmJob]
    nodes: Mapping[str, SlurmNode]
    record_known: bool
    """Slurm was asked for the guest's record, and answered."""
    record: GuestRecord | None
    """The record in the guest's Extra; ``None``: none that can be read."""
    now_s: float
    steady_s: float
    off: str = ""
    """Why nobody may wait as a guest here now; empty: he may."""
    unshared: str = ""
    """Why the guest itself is to share no more; empty: it may."""
    leaving: Collection[int] = ()
    """Jobs that are about to leave their GPUs."""
    preempted: bool = False
    """The guest itself is: its preemption ends the wait after the requeue."""
    request: WaitingJob | None = None
    """What else Slurm tells of the guest while it waits; ``None``: nothing."""
    left: bool = True
    """The guest's former run has certainly left its nodes (:mod:`slurm_soda.daemon.preemption.former_runs`)."""


@dataclass(frozen=True, slots=True)
class ShareDecision:
    """What to record at once, and what to send to Slurm."""

    phase: SharePhase
    send: ShareCommand | None = None
    end: ShareEnd = ""
    why: str = ""
    restore: Mapping[str, str] = field(default_factory=dict)
    """Of an ``unshare``: the fields that go back."""
    clear_record: bool = True
    """Of an ``unshare``: Extra is ours, and goes too."""


def decide_share_step(share: Share, seen: SeenShare) -> ShareDecision:
    """The next step of one share that is not over."""
    guest = seen.guest
    if guest is None or guest.restarts < share.restart or guest.submit_s < share.submit_s:
        return _over(share, "ended", "Slurm no longer lists the guest")
    if guest.state in ENDED_STATES:
        return _over(share, "ended", f"the guest ended: {guest.state}")
    if guest.state in RUNNING_STATES:
        return _running(share, guest, seen)
    if guest.state != "PENDING":
        return ShareDecision(share.phase)
    return _waiting(share, guest, seen)


def _running(share: Share, guest: SlurmJob, seen: SeenShare) -> ShareDecision:
    if guest.shared_gpus:
        return ShareDecision("parting" if share.end in LEAVING_ENDS else "started")
    if seen.record is not None:
        return ShareDecision("parting", end=share.end or "withdrawn", why=share.why)
    if _lost_its_place(share, guest):
        return _over(share, "revoked", _why_lost(share, seen))
    return _over(share, "withdrawn", "it was started with its own request")


def _waiting(share: Share, guest: SlurmJob, seen: SeenShare) -> ShareDecision:
    ours = still_ours(share, guest)
    has_record = seen.record is not None if seen.record_known else bool(ours)
    if not ours and not has_record:
        return _restored(share, guest, seen)
    if guest.restarts > share.restart:
        return _undo(share, guest, seen, "revoked", _why_lost(share, seen))
    if share.phase == "parting":
        return _undo(share, guest, seen, share.end or "withdrawn", share.why)
    if ours != share.changed or not guest.requeue or (seen.record_known and seen.record != share.record):
        return _not_whole(share, guest, seen)
    end, why = _cause_to_undo(share, guest, seen)
    return _undo(share, guest, seen, end, why) if end else ShareDecision("rewritten")


def _not_whole(share: Share, guest: SlurmJob, seen: SeenShare) -> ShareDecision:
    """Only a part of what was written stands: Slurm refused the rest, or the owner wrote since."""
    if share.phase == "intended":
        return _undo(share, guest, seen, "refused", "Slurm took only a part of the new request")
    return _undo(share, guest, seen, "owner", "somebody else changed the request: it is the owner's again")


def _restored(share: Share, guest: SlurmJob, seen: SeenShare) -> ShareDecision:
    """Nothing of ours is left in the request."""
    if share.phase == "intended":
        return _over(share, "refused", "Slurm did not take the new request")
    end, why = share.end, share.why
    if not end and _lost_its_place(share, guest):
        end, why = "revoked", _why_lost(share, seen)
    elif not end:
        end, why = "withdrawn", "the request was given back by somebody else"
    if guest.restarts > share.restart and guest.waits_for_begin_time(seen.now_s) and not seen.preempted:
        if guest.eligible_s - guest.submit_s > MAX_REQUEUE_WAIT_S:
            return _over(share, end, why)
        ready = seen.left and not -MIN_RESTART_GAP_S <= seen.now_s - guest.submit_s < MIN_RESTART_GAP_S
        return ShareDecision("parting", send="start-now" if ready else None, end=end, why=why)
    return _over(share, end, why)


def _lost_its_place(share: Share, guest: SlurmJob) -> bool:
    """Whether it was there, and was put back into the queue since."""
    return share.phase == "started" and guest.restarts > share.restart


def _why_lost(share: Share, seen: SeenShare) -> str:
    requeued = "it was preempted" if seen.preempted else "Slurm put it back into the queue"
    return f"the guest gave up its place: {_why_hosts_left(share, seen) or requeued}"


def _cause_to_undo(share: Share, guest: SlurmJob, seen: SeenShare) -> tuple[ShareEnd, str]:
    """Why a guest that waits does not start as one; empty while it may."""
    causes: tuple[tuple[ShareEnd, str], ...] = (
        ("off", seen.off),
        ("unshared", seen.unshared),
        ("owner", _why_owner_waits(share, guest, seen)),
        ("host-left", _why_hosts_left(share, seen)),
        ("node", _why_node_takes_none(share, seen)),
        ("not-started", _why_not_started(share, guest, seen)),
    )
    return next(((end, why) for end, why in causes if why), ("", ""))


def _why_node_takes_none(share: Share, seen: SeenShare) -> str:
    for name in share.nodes:
        node = seen.nodes.get(name)
        if node is None or not node.usable:
            return f"node {name} takes no jobs" + (f" ({node.state})" if node else "")
    return ""


def _why_not_started(share: Share, guest: SlurmJob, seen: SeenShare) -> str:
    if guest.reason != "BeginTime" and not waits_for_resources(guest.reason):
        return f"Slurm does not start it now ({guest.reason})"
    return "it did not start in time" if seen.steady_s >= share.deadline_s else ""


def _why_owner_waits(share: Share, guest: SlurmJob, seen: SeenShare) -> str:
    """What its owner, or an admin, has said since, by which it does not start in its place; empty: nothing."""
    if guest.reason.startswith("JobHeld"):
        return "it is held"
    if guest.dependency:
        return "it waits for other jobs"
    # Slurm's reason may be older than the begin time, and Slurm's clock another one than sodad's.
    wait_s, left_s = guest.eligible_s - seen.now_s, share.deadline_s - seen.steady_s
    if wait_s > 0 and (guest.reason == "BeginTime" or wait_s > left_s):
        return "it waits for its begin time"
    if guest.exclusive.whole_nodes:
        return "it keeps its nodes from others (--exclusive)"
    avoided = _avoided_nodes(seen.request).intersection(share.nodes)
    return f"it must not run on {', '.join(sorted(avoided))} (--exclude)" if avoided else ""


def _avoided_nodes(request: WaitingJob | None) -> set[str]:
    try:
        return set(expand_hosts(request.excluded_nodes if request else ""))
    except SlurmReplyError:
        return set()  # a long list that was cut


def _why_hosts_left(share: Share, seen: SeenShare) -> str:
    for host in share.hosts:
        job = seen.hosts.get(host)
        if (
            job is None
            or job.state not in RUNNING_STATES
            or job.restarts != share.host_restarts.get(host, job.restarts)
        ):
            return f"its host {host} no longer runs"
        if host in seen.leaving:
            return f"its host {host} is being preempted"
    return ""


def _undo(share: Share, guest: SlurmJob, seen: SeenShare, end: ShareEnd, why: str) -> ShareDecision:
    """Give back what is still as we wrote it; what the owner wrote since stays."""
    ours = still_ours(share, guest)
    restore = {name: value for name, value in share.record.undo.items() if name in ours}
    foreign = seen.record_known and seen.record is None
    return ShareDecision(
        "parting",
        send="unshare",
        end=share.end or end,
        why=share.why if share.end else why,
        restore=restore,
        clear_record=not foreign,
    )


def _over(share: Share, end: ShareEnd, why: str) -> ShareDecision:
    return ShareDecision("over", end=share.end or end, why=share.why if share.end else why)


def still_ours(share: Share, guest: SlurmJob) -> set[str]:
    """Changed fields that Slurm shows as they were written. Those that it does not show go with the others."""
    shown = shown_request(guest)
    told = {name for name in share.changed if name in shown and is_same_value(name, share.wrote[name], shown[name])}
    return told | (share.changed.difference(shown) if told else set())


def reduced(record: GuestRecord, restore: Mapping[str, str]) -> GuestRecord:
    """A record that gives back only these fields."""
    return replace(record, undo=dict(restore))
