"""Bands where jobs share GPUs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.bands.decision import decide_in_bands
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import JobState
from tests.policies.sharing.test_sharing_properties import on_some_worlds, scenes

NAMES = ("sjf-ffs", "ojpp", "ojpap", "colocation", "srsf-share", "tiresias-las")


def decide(name: str, snapshot: SharingSnapshot) -> Plan:
    policy = make_policy(name)
    return decide_in_bands(policy, snapshot, policy.decide)


@st.composite
def banded(draw: st.DrawFn) -> SharingSnapshot:
    snapshot = draw(scenes())
    bands = draw(st.lists(st.integers(0, 2), min_size=len(snapshot.jobs), max_size=len(snapshot.jobs)))
    return replace(snapshot, jobs=snapshot.jobs.with_columns(band=np.array(bands, dtype=np.int64)))


@on_some_worlds
@given(snapshot=banded(), name=st.sampled_from(NAMES))
def test_what_a_better_band_gets_does_not_depend_on_worse_ones_that_wait(snapshot: SharingSnapshot, name: str) -> None:
    plan, jobs = decide(name, snapshot), snapshot.jobs
    for band in (0, 1):
        hidden = (jobs.state == JobState.PENDING) & (jobs.band > band)
        state = np.where(hidden, np.int8(JobState.BLOCKED), jobs.state)
        alone = decide(name, replace(snapshot, jobs=jobs.with_columns(state=state)))
        better = set(jobs.job_id[jobs.band <= band].tolist())
        assert better & set(plan.starts.tolist()) == set(alone.starts.tolist()), name


@on_some_worlds
@given(snapshot=banded(), name=st.sampled_from(NAMES))
def test_nobody_is_preempted_for_worse_bands_that_wait(snapshot: SharingSnapshot, name: str) -> None:
    plan, jobs = decide(name, snapshot), snapshot.jobs
    for one in plan.preempts:
        rows = np.array([jobs.row(other) for other in one.for_jobs], dtype=np.int64)
        if len(rows) and not one.parted_from and (jobs.state[rows] == JobState.PENDING).all():
            assert jobs.band[rows].min() <= jobs.band[jobs.row(one.job_id)]
