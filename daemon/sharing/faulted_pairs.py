"""Whom faults under MPS keep apart: columns of a snapshot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurm_soda.daemon.store import faulted_pairs as stored
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.faulted_pairs import Program
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot


def with_faulted_pairs(store: Store, snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """A snapshot for sharing with the pairs that may not share any more; read anew each time, as admins lift quarantines."""
    if not isinstance(snapshot, SharingSnapshot):
        return snapshot
    with store.read() as session:
        rows = stored.faulted_pairs(session)
    if not rows:
        return snapshot
    listed = set(snapshot.jobs.job_id.tolist())
    faulted = sorted({(row.one, row.other) for row in rows if {row.one, row.other} <= listed})
    quarantined = sorted(stored.quarantined_programs(rows))
    number: dict[Program, int] = {}
    for pair in quarantined:
        for program in pair:
            number.setdefault(program, len(number))
    sharing, jobs = snapshot.sharing, snapshot.jobs
    models = [kind.model for kind in sharing.kinds]
    programs = [
        number.get(Program(jobs.users[user], models[kind]), -1) if kind >= 0 else -1
        for user, kind in zip(jobs.user.tolist(), sharing.kind.tolist(), strict=True)
    ]
    sharing = replace(
        sharing,
        faulted=tuple(faulted),
        program=np.array(programs, dtype=np.int64),
        quarantined=tuple((number[one], number[other]) for one, other in quarantined),
    )
    return replace(snapshot, sharing=sharing)
