"""Jobs for whom no one may be preempted, and nodes that will not do for a waiting job, from what Slurm tells of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot, UnknownNodes
from slurm_soda.slurm_ext.client import SlurmJob, SlurmNode
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.read import node_needs
from slurm_soda.slurm_ext.read.hostlist import expand_hosts
from slurm_soda.slurm_ext.read.node_needs import KeptNodeFlags, with_node_needs
from slurm_soda.slurm_ext.read.slurm_values import parse_other_gres
from slurm_soda.slurm_ext.read.snapshot import build_snapshot
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob
from tests.work import lines_run

from .records import job, node, running

NOW = 100_000.0
TERM = Hints(checkpoint_signal="TERM")
BOB = running(1, "n1", NOW - 9000.0, gpus=4, cpus=4, hints=TERM)
FULL = running(2, "n2", NOW - 9000.0, gpus=4, cpus=4)
NODES = [
    node("n1", gpus_allocated=4, cpus_allocated=4, features=("a", "b"), gres="gpu:a100:4,cog:g0:1", gres_used="cog:g0:0"),
    node("n2", gpus_allocated=4, cpus_allocated=4, features=("c",), gres="gpu:a100:4,cog:g0:1", gres_used="cog:g0:1(IDX:0)"),
]  # fmt: skip


def snapshot_of(
    alice: SlurmJob, *others: SlurmJob, nodes: list[SlurmNode] | None = None, **detail: Any
) -> ClusterSnapshot:
    jobs = {each.job_id: each for each in (BOB, FULL, alice, *others)}
    waiting = {3: WaitingJob(3, batch=True, **{"whole_nodes": False, "least_cpus_per_node": 1, **detail})}
    shown = nodes or NODES
    snapshot = build_snapshot(NOW, list(jobs.values()), shown, {}, {}, {})
    return with_node_needs(snapshot, jobs, shown, waiting)


def decide(alice: SlurmJob, *others: SlurmJob, nodes: list[SlurmNode] | None = None, **detail: Any) -> Plan:
    """Job 3 waits for four GPUs; job 1 on n1 may be preempted, job 2 on n2 may not."""
    policy = make_policy("tiresias-las", {"thresholds_gpu_s": [100.0]})
    return policy.decide(snapshot_of(alice, *others, nodes=nodes, **detail))


def alice(**fields: Any) -> SlurmJob:
    return job(3, **{"gpus": 4, "gpus_per_node": 4, "cpus": 4, "reason": "Resources", **fields})


def test_without_anything_peculiar_the_job_is_preempted() -> None:
    assert [one.job_id for one in decide(alice()).preempts] == [1]


@pytest.mark.parametrize(
    ("fields", "detail", "preempts"),
    [
        ({}, {"excluded_nodes": "n1"}, False),
        ({}, {"excluded_nodes": "n3", "cut": True}, False),
        ({}, {"excluded_nodes": "n2"}, True),
        ({"req_node_names": "n2"}, {}, False),
        ({"req_node_names": "n1"}, {}, True),
        ({}, {"features": "c"}, False),
        ({}, {"features": "a&b"}, True),
        ({}, {"features": "a&c"}, False),
        ({}, {"features": "a|c"}, True),
        ({}, {"features": "[a*1&c*1]"}, False),
        ({"tres_per_node": "gres/gpu:4,gres/cog:g0:1"}, {}, True),
        ({"tres_per_node": "gres/gpu:4,gres/cog:g0:2"}, {}, False),
        ({"tres_per_node": "gres/gpu:4,gres/cog:1", "req_node_names": "n2"}, {}, False),
        ({"tres_per_job": "gres/gpu:4,gres/fpga:1"}, {}, False),
        ({"tres_per_task": "cpu=4"}, {}, True),
        ({"tres_per_task": "cpu=4,gres/fpga=1"}, {}, False),
        ({}, {"least_cpus_per_node": 28}, True),
        ({}, {"least_cpus_per_node": 29}, False),
        ({}, {"whole_nodes": True}, True),
        ({}, {"reservation": "maint"}, False),
    ],
)
def test_others_are_preempted_only_for_a_job_that_these_nodes_will_do_for(
    fields: dict[str, Any], detail: dict[str, Any], preempts: bool
) -> None:
    assert bool(decide(alice(**fields), **detail).preempts) == preempts


@pytest.mark.parametrize("detail", [{"whole_nodes": True}, {"least_cpus_per_node": 28}])
def test_cpus_that_stay_allocated_count(detail: dict[str, Any]) -> None:
    """A job without GPUs on n1 leaves neither a whole node nor all of its CPUs."""
    stays = running(4, "n1", NOW - 9000.0, gpus=0, cpus=2)
    nodes = [replace(NODES[0], cpus_allocated=6), NODES[1]]
    assert not decide(alice(), stays, nodes=nodes, **detail).preempts
    assert decide(alice(), stays, nodes=nodes).preempts


@pytest.mark.parametrize(
    ("reason", "preempts"),
    [
        ("Resources", True),
        ("Priority", True),
        ("None", False),
        ("ReqNodeNotAvail, Reserved for maintenance", False),
        ("ReqNodeNotAvail, UnavailableNodes:n3", False),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", False),
        ("QOSMaxGRESPerUser", False),
        ("AssocGrpGRES", False),
        ("Licenses", False),
        ("Reservation", False),
        ("JobHeldUser", False),
        ("Dependency", False),
        ("BeginTime", False),
    ],
)
def test_others_are_preempted_only_for_a_job_that_lacks_nothing_but_resources(reason: str, preempts: bool) -> None:
    eligible_s = NOW + 100.0 if reason == "BeginTime" else NOW - 60.0
    assert bool(decide(alice(reason=reason, eligible_s=eligible_s)).preempts) == preempts


def test_a_job_about_which_slurm_says_nothing_more_waits() -> None:
    jobs = {each.job_id: each for each in (BOB, FULL, alice())}
    snapshot = build_snapshot(NOW, list(jobs.values()), NODES, {}, {}, {})
    assert with_node_needs(snapshot, jobs, NODES, {}).jobs.may_preempt.tolist() == [True, True, False]
    assert not len(with_node_needs(snapshot, jobs, NODES, None).jobs.may_preempt), "nobody asked"


def test_a_job_starts_on_the_nodes_that_will_do_and_leaves_the_others() -> None:
    nodes = [*NODES, node("n3")]
    snapshot = snapshot_of(alice(), nodes=nodes, excluded_nodes="n3")
    plan = make_policy("tiresias-las", {}).decide(snapshot)
    assert 3 not in plan.starts
    assert snapshot.nodes.node_sets[:, 0].tolist() == [True, True, False]
    verdict = plan.notes.of(3).verdict
    assert verdict != JobVerdict.START
    free = make_policy("tiresias-las", {}).decide(snapshot_of(alice(), nodes=nodes, excluded_nodes="n1"))
    assert free.places[3][0].node == 2
    assert not free.preempts


def test_ordinary_jobs_leave_the_snapshot_as_it_is() -> None:
    snapshot = snapshot_of(alice())
    assert not len(snapshot.jobs.node_set) + len(snapshot.jobs.whole_nodes) + len(snapshot.jobs.least_cpus)
    assert snapshot.nodes.node_sets.shape == (0, 0)
    assert not np.array(snapshot.jobs.may_preempt).size


def test_other_generic_resources_are_read() -> None:
    text = "gres/gpu:a100:2,gres/cog:g0:1,cog:g1,fpga:2(IDX:0,1),shard"
    assert parse_other_gres("cpu=4,mem=2000M,gres/gpu=1,gres/cog:g0=2") == {"cog:g0": 2}
    assert parse_other_gres(text) == {"cog:g0": 1, "cog:g1": 1, "fpga": 2, "shard": 1}


@pytest.mark.parametrize(
    ("fields", "detail", "stays_on_n2", "preempted"),
    [
        ({"nodes": 2, "gpus": 8}, {"whole_nodes": True}, False, [1, 2]),
        ({"nodes": 2, "gpus": 8}, {"whole_nodes": True}, True, []),
        ({"gpus": 6, "gpus_per_node": 0, "cpus": 6}, {"least_cpus_per_node": 25}, False, [1, 2]),
        ({"gpus": 6, "gpus_per_node": 0, "cpus": 6}, {"least_cpus_per_node": 28}, True, []),
        ({"gpus": 6, "gpus_per_node": 0, "cpus": 6}, {"whole_nodes": True}, False, [1, 2]),
        ({"gpus": 6, "gpus_per_node": 0, "cpus": 6}, {"whole_nodes": True}, True, []),
        ({"gpus": 6, "gpus_per_node": 0, "cpus": 6}, {"excluded_nodes": "n2"}, False, []),
        ({"nodes": 2, "gpus": 8, "req_node_names": "n1"}, {}, False, []),
        ({"nodes": 2, "gpus": 8, "req_node_names": "n[1-2]"}, {}, True, [1, 2]),
    ],
)
def test_jobs_on_several_nodes(
    fields: dict[str, Any], detail: dict[str, Any], stays_on_n2: bool, preempted: list[int]
) -> None:
    other = replace(FULL, hints=TERM)
    stays = running(4, "n2", NOW - 9000.0, gpus=0, cpus=2)
    nodes = [NODES[0], replace(NODES[1], cpus_allocated=6 if stays_on_n2 else 4)]
    plan = decide(alice(**fields), other, *([stays] if stays_on_n2 else []), nodes=nodes, **detail)
    assert sorted(one.job_id for one in plan.preempts) == preempted


@pytest.mark.parametrize(
    "fields",
    [{"tres_per_node": "gres/cog:99999999999"}, {"tres_per_job": "gres/cog:99999999999"}],
)
def test_numbers_that_cannot_be_read_bar_that_job_alone(fields: dict[str, Any]) -> None:
    other = job(4, gpus=4, gpus_per_node=4, cpus=4, reason="Resources")
    jobs = {each.job_id: each for each in (BOB, FULL, alice(**fields), other)}
    waiting = {number: WaitingJob(number, True, False, 1) for number in (3, 4)}
    snapshot = build_snapshot(NOW, list(jobs.values()), NODES, {}, {}, {})
    table = with_node_needs(snapshot, jobs, NODES, waiting).jobs
    assert dict(zip(table.job_id.tolist(), table.may_preempt.tolist(), strict=True))[3] is False
    assert dict(zip(table.job_id.tolist(), table.may_preempt.tolist(), strict=True))[4] is True


def test_requests_beyond_the_bound_preempt_no_one_and_the_others_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_needs, "MAX_REQUESTS", 2)
    urgency = {3: 10, 4: 40, 5: 30, 6: 5}
    waits = [job(n, gpus=4, gpus_per_node=4, reason="Resources", priority=urgent) for n, urgent in urgency.items()]
    jobs = {each.job_id: each for each in (BOB, FULL, *waits)}
    waiting = {n: WaitingJob(n, True, False, 1, excluded_nodes=f"n{n}" if n < 6 else "") for n in urgency}
    snapshot = build_snapshot(NOW, list(jobs.values()), NODES, {}, {}, {})
    kept = KeptNodeFlags()
    seen: list[str] = []

    def counted(hosts: str) -> tuple[str, ...]:
        seen.append(hosts)
        return expand_hosts(hosts)

    monkeypatch.setattr(node_needs, "expand_hosts", counted)
    for _ in range(2):
        table = with_node_needs(snapshot, jobs, NODES, waiting, kept).jobs
        barred = [n for n, may in zip(table.job_id.tolist(), table.may_preempt.tolist(), strict=True) if not may]
        assert barred == [3], "the least urgent that names nodes; 6 takes any"
    assert [hosts for hosts in seen if hosts] == ["n4", "n5"]
    with_node_needs(snapshot, jobs, [replace(NODES[0], features=("z",)), NODES[1]], waiting, kept)
    assert [hosts for hosts in seen if hosts] == ["n4", "n5"] * 2, "the nodes changed"


def test_a_request_is_read_once_of_however_many_jobs() -> None:
    def lines(count: int) -> int:
        waits = [
            job(n, gpus=4, gpus_per_node=4, reason="Resources", tres_per_node="gres/gpu:4") for n in range(3, count)
        ]
        jobs = {each.job_id: each for each in (BOB, FULL, *waits)}
        waiting = {each.job_id: WaitingJob(each.job_id, True, False, 1) for each in waits}
        snapshot = build_snapshot(NOW, list(jobs.values()), NODES, {}, {}, {})
        return lines_run(lambda: with_node_needs(snapshot, jobs, NODES, waiting))

    assert (lines(300) - lines(100)) / 200 < 30


def limited(
    monkeypatch: pytest.MonkeyPatch, waits: dict[int, tuple[str, str, str]], most: int
) -> dict[int, UnknownNodes]:
    """Which requests, by job id as (owner, features, reason) with the most urgent first, are not worked out, and why."""
    monkeypatch.setattr(node_needs, "MAX_REQUESTS", most)
    jobs = [BOB, FULL]
    for n, (user, _, reason) in waits.items():
        jobs.append(job(n, user=user, gpus=4, gpus_per_node=4, reason=reason, priority=1000 - n))
    waiting = {n: WaitingJob(n, True, False, 1, features=features) for n, (_, features, _) in waits.items()}
    table = with_node_needs(
        build_snapshot(NOW, jobs, NODES, {}, {}, {}), {j.job_id: j for j in jobs}, NODES, waiting
    ).jobs
    codes = table.unknown_nodes if len(table.unknown_nodes) else np.zeros(len(table), dtype=np.int64)
    found = {n: UnknownNodes(code) for n, code in zip(table.job_id.tolist(), codes.tolist(), strict=True) if code}
    assert not len(table.may_preempt) or not table.may_preempt[codes > 0].any()
    return found


def test_owners_take_turns_when_there_are_too_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    alices = {n: ("alice", f"f{n}", "Resources") for n in range(10, 20)}
    others = {20: ("bob", "a", "Resources"), 21: ("carol", "b", "Priority"), 22: ("bob", "c", "Resources")}
    found = limited(monkeypatch, alices | others, 5)
    assert found == dict.fromkeys(range(12, 20), UnknownNodes.TOO_MANY)


def test_a_job_for_which_no_one_may_be_preempted_takes_no_turn_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = {10: ("alice", "a", "None"), 11: ("alice", "[a*1]", "Resources"), 12: ("alice", "b", "Resources")}
    assert limited(monkeypatch, waits, 1) == {10: UnknownNodes.TOO_MANY, 11: UnknownNodes.FEATURES}


def test_features_of_one_meaning_are_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["a&b", "b&a", "a&b&a"], ["a", "a&a", "a|a"], ["a|c", "c|a|c"]
    waits = {n: ("alice", text, "Resources") for n, text in enumerate((t for same in texts for t in same), 10)}
    assert not limited(monkeypatch, waits, 3)
    assert len(limited(monkeypatch, waits, 2)) == 2
