"""No one is preempted for a job that has to stay behind another one for which Slurm keeps the nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, NodeTable

BOB = {
    "state": JobState.RUNNING,
    "gpus": 4,
    "gpus_per_node": 4,
    "attained_gpu_s": 1e6,
    "start_s": 0.0,
    "preemptible": True,
}
K, J = 3, 4
"""The job that waits for nodes, and the one that others could leave for."""


def decide(
    kept: dict[str, Any] | None = None, *, free: bool = False, on: str = "", alike: int = 0, **wants: Any
) -> Plan:
    """Bob's jobs 1 and 2 hold n1 and n2 (with ``free`` nobody holds n1); Slurm tries job 3 before job 4.

    Args:
        kept: columns of job 3, which wants both nodes.
        free: only job 2 runs.
        on: the nodes that will do for job 3; empty: all.
        alike: so many more jobs as job 4, behind it.
        wants: columns of job 4, which wants one node.
    """
    bobs = [{**BOB, "job_id": i, "alloc": [(i - 1, 4, 1)]} for i in (1, 2) if i == 2 or not free]
    wide = {"job_id": K, "gpus": 8, "nodes": 2, "gpus_per_node": 4, "priority": 9, "may_preempt": False}
    narrow = {"job_id": J, "gpus": 4, "gpus_per_node": 4, "priority": 5, **wants}
    more = [{**narrow, "job_id": J + n + 1} for n in range(alike)]
    jobs = build_job_table([*bobs, {**wide, **({"node_set": 0} if on else {}), **(kept or {})}, narrow, *more])
    nodes = NodeTable.uniform(2, 4, partitions=len(jobs.partitions))
    names = [[name in on] for name in nodes.name]
    held = np.array([0 if free else 4, 4])
    nodes = replace(nodes, gpus_free=nodes.gpus - held, node_sets=np.array(names))
    snapshot = ClusterSnapshot(1e5, jobs, nodes, jobs.partitions, tiers={"main": 1, "above": 2})
    return make_policy("tiresias-las", {"thresholds_gpu_s": [100.0]}).decide(snapshot)


LESS_NICE = {"nice": -1}


@pytest.mark.parametrize(
    ("kept", "wants"),
    [
        ({}, {}),
        (LESS_NICE, {"priority": 10}),
        (LESS_NICE, {"priority": 5, "site_factor": -9}),
        (LESS_NICE, {"partition": "above"}),
        ({"nice": 7}, {"nice": 7}),
        ({**LESS_NICE, "state": JobState.BLOCKED}, {}),
        ({**LESS_NICE, "nodes": 3, "gpus": 12}, {}),
        ({**LESS_NICE, "site_factor": 8}, {}),
    ],
)
def test_others_are_preempted_for_a_job_that_may_pass_all_that_wait(
    kept: dict[str, Any], wants: dict[str, Any]
) -> None:
    plan = decide(kept, **wants)
    assert [one.for_jobs for one in plan.preempts] == [(J,)]
    assert not plan.notes.of(J).behind


@pytest.mark.parametrize(
    ("kept", "wants"),
    [
        (LESS_NICE, {}),
        (LESS_NICE, {"priority": 9}),
        (LESS_NICE, {"priority": 50, "site_factor": 45}),
        ({"nice": 6}, {"nice": 7}),
        ({**LESS_NICE, "gpus": 0, "gpus_per_node": 0, "cpus": 56}, {}),
    ],
)
def test_no_one_is_preempted_for_a_job_that_may_not_pass_one_that_waits(
    kept: dict[str, Any], wants: dict[str, Any]
) -> None:
    plan = decide(kept, **wants)
    assert not plan.preempts
    assert (plan.notes.of(J).verdict, plan.notes.of(J).behind) == (JobVerdict.WAIT, K)


@pytest.mark.parametrize("on", ["n1", "n2"])
def test_only_nodes_that_will_do_for_the_other_one_are_kept(on: str) -> None:
    plan = decide(LESS_NICE, on=on)
    other = {"n1": 2, "n2": 1}[on]
    assert [(one.job_id, one.for_jobs) for one in plan.preempts] == [(other, (J,))]
    assert [piece.node for piece in plan.places[J]] == [other - 1]


def test_a_job_that_gets_its_places_by_preemption_keeps_nobody_from_it() -> None:
    """Job 3 is before job 4 in the policy's order, and wants one node."""
    plan = decide({**LESS_NICE, "may_preempt": True, "nodes": 1, "gpus": 4})
    assert sorted(one.for_jobs for one in plan.preempts) == [(K,), (J,)]


def test_what_is_free_but_kept_may_be_taken() -> None:
    """By Slurm's backfill, or not at all."""
    plan = decide(LESS_NICE, free=True)
    assert plan.starts.tolist() == [J]
    assert plan.notes.of(J).behind == K
    assert not plan.preempts


def test_as_many_may_start_in_what_is_kept_as_fit_there() -> None:
    assert decide(LESS_NICE, free=True, alike=2).starts.tolist() == [J]
