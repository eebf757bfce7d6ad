"""What speaks against a share that an admin wants, each with its remedy; by the snapshot on which sodad would decide."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slurm_soda.policies.engine.free_capacity import FreeCapacity
from slurm_soda.policies.explanation.sharing import select_trial
from slurm_soda.policies.sharing.arithmetic.sharing_decision import SharingDecision
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.sodactl.output import format_duration

_CONSENT = (
    "its owner submits it with --soda-share=yes; or the site says consent_by_default = true in [sharing] of soda.toml"
)
_COUNTS_SOON = "; what was set a moment ago counts within a minute: ask again then"
_REMEDIES = (
    (
        "was parted from job",
        "name another host: what was observed of this pair broke a bound, or an admin parted it, or its last attempts "
        "failed and are repeated after a pause (sodactl shares)",
    ),
    ("are in quarantine", "sodactl quarantine shows the fault, and --lift ID ends it"),
    ("slowed beyond its bound", "name another host, or ask again when it has made up for that"),
    ("places are taken", "name another host, or send its guest back first (sodactl unshare)"),
    ("in the same decision", "ask again in the next cycle"),
    ("nobody can join others on GPU", "the node must be up, and sharedgpu of that GPU free (scontrol show node)"),
    (
        "cannot be requeued",
        "only a batch job of one piece can be a guest; with --no-requeue: scontrol update Requeue=1",
    ),
    ("pass a limit", "raise or remove the limit on gres/gpu or billing (sacctmgr)"),
    ("its request was changed", "wait for an hour from the edit, or submit it anew"),
    ("limits of accounting are not known now", "ask again in a minute: sodad asks slurmdbd for them (sacctmgr ping)"),
    ("nobody can be one now", "do that; sodad looks again within two minutes"),
    ("it cannot be a guest", "submit it with --gres=gpu:N or --gpus=N, and without what is named here"),
    (
        "a job of another user is there",
        "add the partition to different_users in [sharing] of soda.toml, or name a host of its user",
    ),
    ("is a guest itself", "name its host instead"),
    ("it is a guest already", "sodactl unshare sends it back first"),
    ("nobody knows the model", "submit it with --soda-model=NAME"),
    (
        "nobody knows how long",
        "submit it with --soda-iterations, and tell its model's time (sodactl profiles set MODEL iteration_s SECONDS); of a "
        f"new job it is known a cycle later{_COUNTS_SOON}",
    ),
    ("is slowed already", f"name another host{_COUNTS_SOON}"),
    (
        "how much they would slow",
        f"sodactl profiles set MODEL xi VALUE --with OTHER, or wait until it is learned{_COUNTS_SOON}",
    ),
    ("MiB where", "name a host that leaves more GPU memory; --soda-accumulates lets its batch be cut"),
    ("slows a job", "its owner allows more by --soda-max-slowdown; the site's bound is max_slowdown in [sharing]"),
    (
        "slow a job",
        "its owner allows more by --soda-max-slowdown; better knowledge of the pair narrows what is expected",
    ),
    (
        "too few GPUs",
        "name a host with as many GPUs, or several (--with repeated); set DefMemPerCPU where jobs name no memory",
    ),
    ("will not do for it", "the host runs outside its partition, features or node list: name another"),
    ("make way for others", "the policy preempts the host: name another"),
    ("that nobody may pass", "let it share all its GPUs, or ask again when the job that is due has started"),
    ("something else of its request", "ask again in the next cycle"),
    ("on GPUs of its own", "nothing: it starts without sharing"),
    (
        "does not wait for GPUs",
        "name a job that is PENDING with GPUs, not held, and whose dependencies are fulfilled (squeue)",
    ),
    ("does not run on GPUs", "name a job that is RUNNING with GPUs (squeue)"),
    ("not everybody allows sharing", _CONSENT),
)
"""By words of a clause of the checks; the first that is found counts."""
_OTHERWISE = "docs/sharing.md says what sharing needs"


@dataclass(frozen=True, slots=True)
class ShareObjection:
    """One thing that speaks against it."""

    why: str
    remedy: str
    forbids: bool
    """Whether it cannot be; otherwise it is only worse."""


def list_objections(
    snapshot: SharingSnapshot,
    guest: int,
    hosts: Sequence[int],
    records: dict[int, SlurmJob],
    partitions: Sequence[str],
    *,
    joins: bool,
    refused: str,
    decision: SharingDecision | None,
) -> list[ShareObjection]:
    """All of them, once each.

    Args:
        snapshot: sodad's.
        guest: who would join.
        hosts: whom.
        records: Slurm's jobs by id.
        partitions: those whose jobs may share.
        joins: the plan does it.
        refused: why the plan does not do it; empty if it does.
        decision: the arithmetic, if there is one.
    """
    told = list(_not_agreed(snapshot, (guest, *hosts), records, partitions))
    seen = {} if joins else dict.fromkeys(_refusals(snapshot, guest, hosts))
    if refused and not (told and refused == "not everybody allows sharing"):
        seen[refused] = None
    told += [ShareObjection(why, find_remedy(why), forbids=True) for why in seen]
    told += _untimed(snapshot, (guest, *hosts))
    trial = None if decision is None else select_trial(decision)
    if decision is not None and trial is not None and trial.together is not None:
        later_s = trial.together.mean_s - decision.sequential.mean_s
        if later_s >= 0:
            why = f"one after the other they would end {format_duration(later_s)} earlier on average"
            told.append(ShareObjection(why, "leave it to the policy, or name a host that runs longer", forbids=False))
        if trial.together.lost_s > 0:
            why = f"the host is expected to end first; job {guest} would do {format_duration(trial.together.lost_s)} again"
            told.append(ShareObjection(why, "name a host that runs longer", forbids=False))
    return told


def find_remedy(why: str) -> str:
    """What to do about a clause of the checks."""
    return next((remedy for words, remedy in _REMEDIES if words in why), _OTHERWISE)


def _not_agreed(
    snapshot: SharingSnapshot, ids: Sequence[int], records: dict[int, SlurmJob], partitions: Sequence[str]
) -> Iterator[ShareObjection]:
    shares = dict(zip(snapshot.jobs.job_id.tolist(), snapshot.sharing.shares.tolist(), strict=True))
    for job_id in ids:
        record = records.get(job_id)
        if record is None or shares.get(job_id, True):
            continue
        foreign = sorted(set(record.partition.split(",")) - set(partitions))
        if foreign:
            why = f"jobs of partition {', '.join(foreign)} do not share, and job {job_id} may run there"
            yield ShareObjection(why, "add it to partitions in [sharing] of soda.toml", forbids=True)
        if not foreign or record.hints.share is False:
            yield ShareObjection(f"job {job_id} has not agreed to share", _CONSENT, forbids=True)


def _untimed(snapshot: SharingSnapshot, ids: Sequence[int]) -> Iterator[ShareObjection]:
    left_s = dict(zip(snapshot.jobs.job_id.tolist(), snapshot.jobs.remaining_s.tolist(), strict=True))
    for job_id in ids:
        if not math.isfinite(left_s.get(job_id, math.inf)) and job_id in left_s:
            why = f"nobody knows how long job {job_id} will run, so nobody can tell what is gained"
            yield ShareObjection(why, find_remedy(why), forbids=False)


def _refusals(snapshot: SharingSnapshot, guest: int, hosts: Sequence[int]) -> Iterator[str]:
    """By the mechanism, of each GPU of the hosts that has a place left, or of all where these are too few."""
    occupancy = GpuOccupancy(snapshot, FreeCapacity(snapshot))
    rows = dict(zip(snapshot.jobs.job_id.tolist(), range(len(snapshot.jobs)), strict=True))
    if guest not in rows:
        return
    devices = [device for host in hosts if host in rows for device in snapshot.devices.of(rows[host]).tolist()]
    for device in occupancy.open_devices(rows[guest], devices):
        yield from occupancy.guest_rules.refusals(rows[guest], device, occupancy.jobs_on[device])
