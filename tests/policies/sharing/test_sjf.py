"""SJF-FFS and SJF-BSBF on hand-made clusters: the rules of Algorithms 1 and 2, and what always holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.sharing.arithmetic.sharing_decision import Footprint
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.engine.plan_check import SharingPlanError, check_sharing_plan
from slurm_soda.policies.sharing.job_kinds import JobKind, Source
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.sjf.policy import SJF_BSBF, SJF_FFS, SharingSjf
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState, NodeTable
from tests.policies.cases import NOW_S, cluster, mixed_nodes, running, verdicts, waiting
from tests.policies.sharing.scenes import Table, scene

MILD = Table(else_xi=1.2)
HARSH = Table(else_xi=1.9)


def job(job_id: int, left_s: float, gpus: int = 1, **more: Any) -> dict[str, Any]:
    return {"job_id": job_id, "gpus": gpus, "cpus": gpus, "remaining_s": left_s, **more}


def on(job_id: int, left_s: float, *devices: int, **more: Any) -> dict[str, Any]:
    return {"job_id": job_id, "remaining_s": left_s, "on": devices, **more}


def decide(snapshot: SharingSnapshot, name: str = SJF_BSBF, **settings: Any) -> SharingPlan:
    plan = SharingSjf(name, **settings).decide(snapshot)
    assert isinstance(plan, SharingPlan)
    return plan


@pytest.mark.parametrize("name", [SJF_BSBF, SJF_FFS])
def test_is_a_policy(name: str) -> None:
    assert isinstance(SharingSjf(name), Policy)


@pytest.mark.parametrize("name", [SJF_BSBF, SJF_FFS])
def test_shortest_first_and_the_most_consolidated_free_gpus(name: str) -> None:
    jobs = [on(1, 900.0, 4), job(2, 50.0, 3), job(3, 20.0, 3), job(4, 30.0, 3)]
    plan = decide(scene(jobs, NodeTable.uniform(2, 4), MILD), name)
    assert plan.starts.tolist()[0] == 3
    # The shortest takes the node with the fewest GPUs to spare, the next one the other node.
    assert plan.devices[3] == (5, 6, 7)
    assert plan.devices[4] == (0, 1, 2)


def test_ranks_partners_by_the_mean_completion_time_of_the_pair() -> None:
    known = Table({("new", "loud"): (1.9, 1.9), ("new", "calm"): (1.1, 1.05)})
    jobs = [on(1, 900.0, 0, model="loud"), on(2, 900.0, 1, model="calm"), job(3, 100.0, model="new")]
    snapshot = scene(jobs, NodeTable.uniform(1, 2), known)
    assert decide(snapshot).devices == {3: (1,)}
    assert decide(snapshot, SJF_FFS).devices == {3: (0,)}


def test_waits_where_the_overlap_ends_later_on_average() -> None:
    snapshot = scene([on(1, 100.0, 0), job(2, 100.0)], NodeTable.uniform(1, 1), HARSH)
    best, first = decide(snapshot), decide(snapshot, SJF_FFS)
    assert not best.devices
    assert not best.decisions
    assert verdicts(best) == {1: "RUN", 2: "WAIT"}
    assert first.devices == {2: (0,)}
    assert first.decisions[2].chosen is not None
    # 100 x 1.9 for both, against 100 and 200 one after the other.
    assert first.decisions[2].chosen.together is not None
    assert first.decisions[2].chosen.together.mean_s == pytest.approx(190.0)
    assert first.decisions[2].sequential.mean_s == pytest.approx(150.0)


def test_shares_what_it_can_before_it_takes_free_gpus() -> None:
    jobs = [on(1, 900.0, 0, 1), job(2, 50.0, 4)]
    plan = decide(scene(jobs, mixed_nodes(2, 3), MILD))
    # Two are joined, and as many free ones as are missing.
    assert plan.devices[2] == (0, 1, 2, 3)
    assert [piece.gpus for piece in plan.places[2]] == [2, 2]


def test_several_partners_and_parts_of_them() -> None:
    """Joining both would delay both: job 1 has enough GPUs for it alone."""
    jobs = [on(1, 900.0, 0, 1, 2), on(2, 800.0, 3), job(3, 50.0, 3)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 4), MILD))
    assert plan.devices[3] == (0, 1, 2)
    larger = decide(scene([*jobs[:2], job(3, 50.0, 4)], NodeTable.uniform(1, 4), MILD))
    assert larger.devices[3] == (0, 1, 2, 3)
    assert larger.decisions[3].alone_s == pytest.approx((50.0, 900.0, 800.0))


def test_joins_where_all_jobs_together_end_soonest() -> None:
    """The paper would take GPU 0, as the pair there ends first; but job 1 ends late by that, and job 2 hardly does."""
    known = Table({("new", "loud"): (1.3, 1.9), ("new", "calm"): (1.3, 1.05)})
    jobs = [on(1, 200.0, 0, model="loud"), on(2, 900.0, 1, model="calm"), job(3, 100.0, model="new")]
    snapshot = scene(jobs, NodeTable.uniform(1, 2), known)
    assert decide(snapshot).devices == {3: (1,)}
    alone = decide(scene([jobs[0], jobs[2]], NodeTable.uniform(1, 1), known))
    assert alone.devices == {3: (0,)}, "it would gain there as well"


def test_of_equal_costs_whoever_ends_soonest_is_joined() -> None:
    """Both outlast the new job, so both lose the same seconds."""
    jobs = [on(1, 900.0, 0), on(2, 800.0, 1), job(3, 50.0)]
    assert decide(scene(jobs, NodeTable.uniform(1, 2), MILD)).devices == {3: (1,)}


@pytest.mark.parametrize(("most", "expected"), [(1, None), (2, None), (3, (0,))])
def test_at_most_so_many_jobs_on_a_gpu(most: int, expected: tuple[int, ...] | None) -> None:
    jobs = [on(1, 900.0, 0), on(2, 900.0, 0), job(3, 10.0)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 1), MILD), jobs_per_gpu=most)
    assert plan.devices.get(3) == expected


def test_a_third_one_counts_by_summed_pairs() -> None:
    jobs = [on(1, 900.0, 0), on(2, 900.0, 0), job(3, 10.0)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 1), MILD), jobs_per_gpu=3)
    trial = plan.decisions[3].trials[0]
    assert trial.slowdowns[0] == pytest.approx(1.4)
    # They run at 1.2 already, so what the third one does to them is 1.4 / 1.2.
    assert trial.slowdowns[1:] == pytest.approx((1.4 / 1.2, 1.4 / 1.2))


def test_a_gang_is_as_slow_as_on_its_worst_gpu_already() -> None:
    """Job 1 runs at 1.5 because of job 2, so job 3 on its other GPU does not slow it further."""
    known = Table({("a", "b"): (1.5, 1.5), ("a", "c"): (1.3, 1.1)})
    jobs = [on(1, 900.0, 0, 1, model="a"), on(2, 900.0, 0, model="b"), job(3, 500.0, model="c")]
    plan = decide(scene(jobs, NodeTable.uniform(1, 2), known))
    assert plan.devices[3] == (1,)
    assert plan.decisions[3].trials[0].slowdowns == pytest.approx((1.1, 1.0))
    assert plan.decisions[3].alone_s[1] == pytest.approx(1350.0)


@pytest.mark.parametrize("name", [SJF_BSBF, SJF_FFS])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"shares": False}, {}), ({}, {"shares": False}), ({"max_slowdown": 1.1}, {}), ({}, {"max_slowdown": 1.1}),
        ({"model": ""}, {}), ({}, {"model": ""}), ({"model": "odd"}, {}), ({"model": "big"}, {"model": "big2"}),
    ],
)  # fmt: skip
def test_nobody_shares_against_bounds_consent_or_knowledge(name: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    known = Table(
        {("m", "m"): (1.2, 1.2), ("big", "big2"): (1.1, 1.1)}, misfits=frozenset([frozenset(["big", "big2"])])
    )
    snapshot = scene([on(1, 900.0, 0, **old), job(2, 10.0, **new)], NodeTable.uniform(1, 1), known)
    assert not decide(snapshot, name).devices
    willing = scene([on(1, 900.0, 0), job(2, 10.0)], NodeTable.uniform(1, 1), known)
    assert decide(willing, name).devices == {2: (0,)}


def test_bounds_of_a_job_that_is_slowed_already() -> None:
    """Job 1 bears 1.4 and runs at 1.2: a third one would make it 1.4, a fourth one 1.6."""
    jobs = [on(1, 900.0, 0, max_slowdown=1.41), on(2, 900.0, 0), job(3, 10.0)]
    snapshot = scene(jobs, NodeTable.uniform(1, 1), MILD)
    assert decide(snapshot, jobs_per_gpu=4).devices == {3: (0,)}
    fuller = scene([*jobs[:2], on(3, 900.0, 0), job(4, 10.0)], NodeTable.uniform(1, 1), MILD)
    assert not decide(fuller, jobs_per_gpu=4).devices


def test_sub_batches_keep_the_batch_and_fit_the_memory() -> None:
    known = Table(
        else_xi=1.1,
        throughputs={"m": Throughput(0.01, 0.001)},
        footprints={"m": Footprint(1000.0, 100.0)},
    )
    jobs = [on(1, 9000.0, 0, batch=32), job(2, 100.0, batch=64)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 1), known, memory_mib=8000.0))
    # 4200 MiB are held: 38 samples less 10 of the weights fit, so half of the half.
    assert plan.sub_batches == {2: 16}
    chosen = plan.decisions[2].chosen
    assert chosen is not None
    assert (chosen.steps, chosen.memory_mib) == (4, 2600.0)
    assert [trial.sub_batch for trial in plan.decisions[2].trials] == [64, 32, 16, 8, 4, 2, 1]
    assert plan.decisions[2].alone_s[0] == pytest.approx(100.0)
    roomy = decide(scene(jobs, NodeTable.uniform(1, 1), known, memory_mib=16000.0))
    assert roomy.devices == {2: (0,)}
    assert not roomy.sub_batches


def test_a_program_that_does_not_accumulate_keeps_its_batch() -> None:
    known = Table(
        else_xi=1.1,
        throughputs={"m": Throughput(0.01, 0.001)},
        footprints={"m": Footprint(1000.0, 100.0)},
    )
    jobs = [on(1, 9000.0, 0, batch=32), job(2, 100.0, batch=64, accumulates=False)]
    tight = scene(jobs, NodeTable.uniform(1, 1), known, memory_mib=8000.0)
    assert not decide(tight).devices
    roomy = decide(scene(jobs, NodeTable.uniform(1, 1), known, memory_mib=16000.0))
    assert (roomy.devices, roomy.sub_batches) == ({2: (0,)}, {})
    assert [trial.sub_batch for trial in roomy.decisions[2].trials] == [64]
    cut = decide(scene([jobs[0], jobs[1] | {"accumulates": True}], NodeTable.uniform(1, 1), known, memory_mib=8000.0))
    with pytest.raises(SharingPlanError, match="does not accumulate"):
        check_sharing_plan(tight, cut, {2: [NodeAllocation(0, 1, 1, 0)]}, 2)


def test_a_partner_that_accumulates_is_slowed_already() -> None:
    known = Table(else_xi=1.3, throughputs={"m": Throughput(1.0, 0.0)}, footprints={"m": Footprint(1.0, 1.0)})
    refuses = on(1, 900.0, 0, batch=8, sub_batch=4, max_slowdown=2.5)
    # Two passes take twice as long: with 1.3 more, 2.6 times.
    assert not decide(scene([refuses, job(2, 10.0, batch=8)], NodeTable.uniform(1, 1), known)).devices
    bears = refuses | {"max_slowdown": 2.7}
    assert decide(scene([bears, job(2, 10.0, batch=8)], NodeTable.uniform(1, 1), known)).devices


def test_caution_counts_errors() -> None:
    jobs = [on(1, 200.0, 0), job(2, 100.0)]
    snapshot = scene(jobs, NodeTable.uniform(1, 1), Table(else_xi=1.3, error=0.5))
    assert decide(snapshot).devices
    assert not decide(snapshot, caution=2.0).devices


@pytest.mark.parametrize("name", [SJF_BSBF, SJF_FFS])
@pytest.mark.parametrize("bounded", [0, 1])
def test_a_bound_holds_also_where_a_slowdown_is_worse_than_expected(name: str, bounded: int) -> None:
    unsure = Table(else_xi=1.2, error=0.2, source=Source.PREDICTED)
    jobs = [on(1, 900.0, 0), job(2, 100.0)]
    jobs[bounded]["max_slowdown"] = 1.5
    tight = scene(jobs, NodeTable.uniform(1, 1), unsure)
    jobs[bounded]["max_slowdown"] = 1.99
    wide = scene(jobs, NodeTable.uniform(1, 1), unsure)
    assert not decide(tight, name).devices
    assert decide(wide, name).devices
    assert decide(tight, name, bound_caution=1.4).devices
    assert not decide(wide, name, caution=4.0).devices


def test_cpus_and_memory_of_nodes_are_taken_by_each_job() -> None:
    nodes = NodeTable.uniform(2, 1, cpus=2)
    jobs = [on(1, 900.0, 0), on(2, 900.0, 1), job(3, 10.0), job(4, 11.0), job(5, 12.0)]
    plan = decide(scene(jobs, nodes, MILD), jobs_per_gpu=3)
    assert plan.devices == {3: (0,), 4: (1,)}
    wide = [on(1, 900.0, 0), job(3, 10.0, cpus=2)]
    assert not decide(scene(wide, NodeTable.uniform(1, 1, cpus=2), MILD)).devices


def test_an_exact_number_a_node_and_at_least_so_many_nodes() -> None:
    jobs = [on(1, 900.0, 0, 1, 2, 3), on(2, 950.0, 4, 5, 6, 7)]
    exact = [*jobs, job(3, 10.0, 4, nodes=2, gpus_per_node=2)]
    assert decide(scene(exact, NodeTable.uniform(2, 4), MILD)).devices[3] == (0, 1, 4, 5)
    spread = [*jobs, job(3, 10.0, 3, nodes=2)]
    assert decide(scene(spread, NodeTable.uniform(2, 4), MILD)).devices[3] == (0, 1, 4)
    one_node_of_four = [on(1, 900.0, 0, 1), on(2, 950.0, 4, 5, 6, 7), job(3, 10.0, 4, gpus_per_node=4)]
    assert decide(scene(one_node_of_four, NodeTable.uniform(2, 4), MILD)).devices[3] == (4, 5, 6, 7)


def test_whoever_completes_or_is_on_a_bad_node_has_no_company() -> None:
    nodes = NodeTable.uniform(2, 1)
    down = replace(nodes, usable=np.array([False, True]))
    jobs = [on(1, 900.0, 0), on(2, 900.0, 1, state=JobState.COMPLETING), job(3, 10.0)]
    assert not decide(scene(jobs, down, MILD)).devices


def test_a_job_of_unknown_length_takes_only_free_gpus() -> None:
    jobs = [on(1, 900.0, 0), job(2, float("nan"))]
    assert not decide(scene(jobs, NodeTable.uniform(1, 1), MILD)).devices
    assert decide(scene(jobs, NodeTable.uniform(1, 2), MILD)).devices == {2: (1,)}
    unknown_partner = [on(1, float("nan"), 0), job(2, 10.0)]
    assert not decide(scene(unknown_partner, NodeTable.uniform(1, 1), MILD)).devices


def test_those_who_start_alone_may_be_joined_in_the_next_decision() -> None:
    jobs = [job(1, 10.0), job(2, 500.0)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 1), MILD))
    assert plan.devices == {1: (0,)}
    assert plan.next_event_s == NOW_S
    settled = decide(scene([on(1, 10.0, 0), job(2, 500.0)], NodeTable.uniform(1, 1), HARSH))
    assert settled.next_event_s == float("inf")


@pytest.mark.parametrize("name", [SJF_BSBF, SJF_FFS])
def test_without_single_gpus_it_is_sjf_and_says_so(name: str) -> None:
    rows = [running(1, (0, 1)), waiting(2, remaining_s=10.0), waiting(3, remaining_s=5.0)]
    snapshot: ClusterSnapshot = cluster(rows, mixed_nodes(2))
    plan = SharingSjf(name).decide(snapshot)
    assert plan.starts.tolist() == [3]
    assert (plan.policy, plan.facts["sharing_known"]) == (name, 0.0)


def test_jobs_without_gpus_run_beside() -> None:
    jobs = [on(1, 900.0, 0), job(2, 10.0, gpus=0, cpus=1, model=""), job(3, 20.0)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 1), MILD))
    assert plan.devices == {3: (0,)}
    assert sorted(plan.starts.tolist()) == [2, 3]


def test_without_footprints_whoever_knows_tells_which_sub_batch_fits() -> None:
    class Sizes(Table):
        def fits(self, together: Sequence[JobKind]) -> bool | None:
            return sum(one.batch for one in together) <= 48

    known = Sizes(else_xi=1.1, throughputs={"m": Throughput(0.01, 0.001)})
    plan = decide(scene([on(1, 9000.0, 0, batch=32), job(2, 100.0, batch=64)], NodeTable.uniform(1, 1), known))
    assert plan.sub_batches == {2: 16}
    assert [bool(trial.refused) for trial in plan.decisions[2].trials] == [
        True,
        True,
        False,
        False,
        False,
        False,
        False,
    ]
