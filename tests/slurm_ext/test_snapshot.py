from __future__ import annotations

import math

import numpy as np
import pytest

from slurm_soda.policies.snapshot import UNKNOWN_SITE_FACTOR, JobState
from slurm_soda.slurm_ext.client import HeldOnNode
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES, KNOWN_STATES, policy_state
from slurm_soda.slurm_ext.read.snapshot import JobRunHistory, build_snapshot, is_preemptible, needs_allocation
from tests.slurm_ext.records import job, node, running

NOW = 1000.0
CHECKPOINTS = Hints(checkpoint_signal="USR1")


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("PENDING", "Priority", JobState.PENDING),
        ("PENDING", "Resources", JobState.PENDING),
        ("PENDING", "None", JobState.PENDING),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:n4", JobState.PENDING),
        ("PENDING", "ReqNodeNotAvail, May be reserved for other job", JobState.PENDING),
        ("PENDING", "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
         JobState.PENDING),
        ("PENDING", "Dependency", JobState.BLOCKED),
        ("PENDING", "DependencyNeverSatisfied", JobState.BLOCKED),
        ("PENDING", "JobHeldUser", JobState.BLOCKED),
        ("PENDING", "JobHeldAdmin", JobState.BLOCKED),
        ("PENDING", "BeginTime", JobState.BLOCKED),
        ("PENDING", "Reservation", JobState.BLOCKED),
        ("PENDING", "QOSMaxGRESPerUser", JobState.BLOCKED),
        ("PENDING", "AssocGrpGRES", JobState.BLOCKED),
        ("PENDING", "PartitionDown", JobState.BLOCKED),
        ("PENDING", "JobArrayTaskLimit", JobState.BLOCKED),
        ("PENDING", "SomethingNewInSlurm", JobState.BLOCKED),
        ("RUNNING", "None", JobState.RUNNING),
        ("CONFIGURING", "None", JobState.RUNNING),
        ("SUSPENDED", "None", JobState.SUSPENDED),
        ("COMPLETING", "None", JobState.COMPLETING),
        ("REQUEUE_HOLD", "JobHeldAdmin", JobState.BLOCKED),
    ],
)  # fmt: skip
def test_what_a_policy_may_do_with_a_job(state: str, reason: str, expected: JobState) -> None:
    assert policy_state(state, reason) is expected


def test_every_known_state_is_either_live_or_ended() -> None:
    for state in KNOWN_STATES - ENDED_STATES:
        policy_state(state, "None")
    for state in ENDED_STATES:
        with pytest.raises(KeyError):
            policy_state(state, "None")


def test_ended_jobs_are_left_out_and_rows_are_in_order_of_ids() -> None:
    jobs = [job(9), job(3, state="COMPLETED"), running(4, "n1"), job(1)]
    snapshot = build_snapshot(NOW, jobs, [node("n1")], {}, {}, {})
    assert snapshot.jobs.job_id.tolist() == [1, 4, 9]


def test_a_job_that_we_requeued_is_not_blocked_by_slurms_wait() -> None:
    waits = job(1, reason="BeginTime", eligible_s=NOW + 100, restarts=1)
    states = [build_snapshot(NOW, [waits], [], {}, {}, {}, requeued=r).jobs.state[0] for r in ((), {1})]
    assert states == [JobState.BLOCKED, JobState.PENDING]


def test_a_begin_time_that_is_over_blocks_nothing() -> None:
    jobs = [job(1, reason="BeginTime", eligible_s=NOW), job(2, reason="BeginTime", eligible_s=NOW + 1)]
    assert build_snapshot(NOW, jobs, [], {}, {}, {}).jobs.state.tolist() == [JobState.PENDING, JobState.BLOCKED]


def test_a_job_that_insists_on_a_node_that_is_down_is_left_alone() -> None:
    why = "ReqNodeNotAvail, UnavailableNodes:n4"
    jobs = [job(1, reason=why, req_node_names="n4"), job(2, reason=why)]
    assert build_snapshot(NOW, jobs, [], {}, {}, {}).jobs.state.tolist() == [JobState.BLOCKED, JobState.PENDING]


def test_the_site_factor_of_a_job_that_waits_out_a_requeue_is_unknown() -> None:
    jobs = [job(1, reason="BeginTime", restarts=1), job(2), job(3)]
    snapshot = build_snapshot(NOW, jobs, [], {3: 7}, {}, {}, requeued={1})
    assert snapshot.jobs.site_factor.tolist() == [UNKNOWN_SITE_FACTOR, 0, 7]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"hints": CHECKPOINTS}, True),
        ({"hints": CHECKPOINTS, "requeue": False}, False),
        ({"hints": CHECKPOINTS, "het_job_id": 5}, False),
        ({"hints": CHECKPOINTS, "array_task": "3"}, True),
        ({"hints": CHECKPOINTS, "array_task": "3-4"}, False),
    ],
)
def test_who_may_be_requeued(fields: dict[str, object], *, expected: bool) -> None:
    assert is_preemptible(running(1, "n1", **fields)) is expected


@pytest.mark.parametrize(
    ("hints", "skew"),
    [
        (Hints(), math.nan),
        (Hints(model="vgg16"), 392.0 / 527.8),
        (Hints(model="torchvision/ResNet-50", large_weights=True), 9.0 / 97.7),
        (Hints(model="bert-large", large_weights=True), 1.0),
        (Hints(model="bert-large"), math.nan),
    ],
)
def test_skew_comes_from_the_model_or_else_from_large_weights(hints: Hints, skew: float) -> None:
    known = build_snapshot(NOW, [job(1, hints=hints)], [], {}, {}, {}).jobs.skew
    assert known.tolist() == pytest.approx([skew], nan_ok=True)


def test_components_of_heterogeneous_jobs_are_left_alone() -> None:
    assert build_snapshot(NOW, [job(5, het_job_id=5)], [], {}, {}, {}).jobs.state[0] == JobState.BLOCKED


def test_service_counts_ended_runs_and_the_present_one() -> None:
    jobs = [running(1, "n1", start_s=900.0, gpus=2), job(2, gpus=4), running(3, "n1", start_s=900.0, gpus=2)]
    memory = {
        1: JobRunHistory(first_start_s=300.0, executed_s=50.0, preemptions=1),
        2: JobRunHistory(first_start_s=100.0, executed_s=30.0),
        3: JobRunHistory(run_since_s=960.0),
    }
    table = build_snapshot(NOW, jobs, [node("n1")], {}, memory, {}).jobs
    assert table.executed_s.tolist() == [150.0, 30.0, 40.0]
    assert table.attained_gpu_s.tolist() == [300.0, 120.0, 80.0]
    assert table.first_start_s.tolist() == [300.0, 100.0, 900.0]
    assert table.preemptions.tolist() == [1, 0, 0]
    assert math.isnan(table.start_s[1])


def test_waiting_counts_from_the_latest_of_submission_run_end_and_promotion() -> None:
    jobs = [
        job(1, submit_s=400.0, eligible_s=400.0),
        job(2, submit_s=400.0, eligible_s=700.0),
        job(3, submit_s=400.0, eligible_s=NOW + 121, reason="BeginTime"),
        job(4, submit_s=400.0),
        running(5, "n1"),
        job(6, reason="JobHeldUser"),
    ]
    memory = {4: JobRunHistory(waiting_since_s=950.0)}
    table = build_snapshot(NOW, jobs, [node("n1")], {}, memory, {}, requeued={3}).jobs
    assert table.waited_s.tolist() == [600.0, 300.0, 600.0, 50.0, 100.0, 0.0]


def test_the_first_submission_is_remembered() -> None:
    snapshot = build_snapshot(
        NOW, [job(1, submit_s=900.0), job(2, submit_s=5.0)], [], {}, {1: JobRunHistory(submit_s=7.0)}, {}
    )
    assert snapshot.jobs.submit_s.tolist() == [7.0, 5.0]


def test_what_running_jobs_hold() -> None:
    jobs = [
        running(1, "n2", gpus=2, cpus=8),
        running(2, "n[1-2]", gpus=3, cpus=4, nodes=2),
        running(3, "n[1-3]", gpus=5, cpus=6, nodes=3),
        job(4),
        running(5, "gone", gpus=1),
    ]
    nodes = [node("n1"), node("n2"), node("n3")]
    snapshot = build_snapshot(NOW, jobs, nodes, {}, {}, {2: [HeldOnNode("n1", 1, 2), HeldOnNode("n2", 2, 2)]})
    assert [snapshot.jobs.alloc(row) for row in range(5)] == [
        [(1, 2, 8)], [(0, 1, 2), (1, 2, 2)], [(0, 2, 2), (1, 2, 2), (2, 1, 2)], [], [],
    ]  # fmt: skip
    assert [needs_allocation(j) for j in jobs] == [False, True, True, False, False]


def test_nodes_keep_their_order_and_unusable_ones_have_nothing_free() -> None:
    nodes = [
        node("b", gpus_allocated=3, cpus_allocated=8, memory_allocated_mib=64_000),
        node("a", usable=False, state="IDLE+DRAIN", partitions=("main", "debug")),
        node("c", gpus=0, gpu_type="", partitions=()),
    ]
    snapshot = build_snapshot(NOW, [job(1, partition="late,main")], nodes, {}, {}, {})
    table = snapshot.nodes
    assert table.name == ("b", "a", "c")
    assert (table.gpus_free.tolist(), table.cpus_free.tolist()) == ([1, 0, 0], [20, 0, 28])
    assert table.memory_free_mib.tolist() == [0, 0, 64_000]
    assert snapshot.partitions == ("debug", "late,main", "main")  # a list is a partition with the nodes of all in it
    assert table.in_partition.tolist() == [[False, True, True], [True, True, True], [False, False, False]]
    assert snapshot.partitions[snapshot.jobs.partition[0]] == "late,main"
    assert table.gpu_type.tolist() == [0, 0, -1]


def test_gpu_types_have_one_numbering() -> None:
    jobs = [job(1, gpu_type="v100"), job(2), job(3, gpu_type="a100")]
    snapshot = build_snapshot(NOW, jobs, [node("n1")], {}, {}, {})
    assert snapshot.jobs.gpu_types == snapshot.nodes.gpu_types == ("a100", "v100")
    assert snapshot.jobs.gpu_type.tolist() == [1, -1, 0]


def test_an_empty_cluster_is_a_snapshot_too() -> None:
    snapshot = build_snapshot(NOW, [], [], {}, {}, {})
    assert len(snapshot.jobs) == len(snapshot.nodes) == 0
    assert snapshot.jobs.alloc_start.tolist() == [0]
    assert snapshot.jobs.executed_s.dtype == np.float64
