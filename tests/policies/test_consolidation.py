"""Skew, and where jobs go by it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from benchmarks.packlimit import PAPER_PACKLIMIT
from slurm_soda.policies.engine.demand import group_snapshot_requests
from slurm_soda.policies.engine.placement import FreeNodes, NodeGroups
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.policies.tiresias.consolidation import place_by_skew
from slurm_soda.policies.tiresias.model_skews import MODELS, find_model_skew
from tests.policies.cases import cluster, mixed_nodes, preempted, running, verdicts, waiting
from tests.policies.worlds import on_some_worlds, worlds

VGG, RESNET, UNKNOWN = 0.743, 0.092, math.nan

PRINTED_PERCENT = {
    "VGG19": 71.5, "VGG16": 74.3, "VGG11": 77.3, "AlexNet": 61.0, "ResNet152": 3.9, "ResNet101": 5.3, "ResNet50": 9.2,
    "Inception4": 3.6, "Inception3": 8.6, "GoogleNet": 14.6,
}  # fmt: skip
"""Table 6, last column."""


def test_skews_are_those_of_the_paper() -> None:
    assert {model.name: round(100 * model.skew, 1) for model in MODELS} == PRINTED_PERCENT


@pytest.mark.parametrize(
    ("name", "model"),
    [("VGG16", "VGG16"), ("vgg-16", "VGG16"), ("torchvision/resnet50", "ResNet50"), ("inception_v3", "Inception3"),
     ("Inception4", "Inception4"), ("googlenet", "GoogleNet")],
)  # fmt: skip
def test_models_by_name(name: str, model: str) -> None:
    assert round(100 * find_model_skew(name), 1) == PRINTED_PERCENT[model]


@pytest.mark.parametrize("name", ["bert", "vgg", "", "resnet50x"])
def test_other_models_are_unknown(name: str) -> None:
    assert math.isnan(find_model_skew(name))


# name, GPUs of the nodes, free GPUs, request, skew, (node, GPUs) taken
PLACES: list[tuple[str, list[int], list[int], dict[str, Any], float, list[tuple[int, int]] | None]] = [
    ("skewed: waits for one node", [4, 4], [2, 2], {"gpus": 4}, VGG, None),
    ("skewed: one node", [4, 4], [3, 4], {"gpus": 4}, VGG, [(1, 4)]),
    ("skewed: two nodes where it takes two", [4, 4, 4], [4, 2, 3], {"gpus": 6}, VGG, [(0, 4), (1, 2)]),
    ("skewed: not three", [4, 4, 4], [2, 2, 2], {"gpus": 6}, VGG, None),
    ("skewed: as many as it asked for", [4, 4, 4], [2, 2, 2], {"gpus": 4, "nodes": 2}, VGG, [(0, 2), (1, 2)]),
    ("not skewed: the smallest holes", [4, 4, 4], [1, 4, 3], {"gpus": 4}, RESNET, [(2, 3), (0, 1)]),
    ("not skewed: no more pieces than the holes take", [4, 4, 4], [1, 2, 4], {"gpus": 2}, RESNET, [(1, 2)]),
    ("not skewed: a whole node where holes do not do", [4, 4, 4], [1, 4, 1], {"gpus": 4}, RESNET, [(1, 4)]),
    ("not skewed: as many nodes as it asked for", [4, 4, 4], [4, 1, 3], {"gpus": 3, "nodes": 2}, RESNET,
     [(2, 2), (1, 1)]),
    ("not skewed: no room", [4, 4], [1, 2], {"gpus": 4}, RESNET, None),
    ("unknown: whole nodes first, as ever", [4, 4, 4], [1, 4, 3], {"gpus": 4}, UNKNOWN, [(1, 4)]),
    ("unknown: spread rather than wait, as ever", [4, 4], [2, 2], {"gpus": 4}, UNKNOWN, [(0, 2), (1, 2)]),
    ("what Slurm was told holds", [4, 4, 4], [2, 4, 2], {"gpus": 4, "nodes": 2, "gpus_per_node": 2}, VGG,
     [(0, 2), (2, 2)]),
    ("one GPU has nothing to be spread", [4, 4], [4, 1], {"gpus": 1}, VGG, [(1, 1)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("gpus", "free", "request_", "skew", "places"), [case[1:] for case in PLACES], ids=[case[0] for case in PLACES]
)
def test_places(
    gpus: list[int], free: list[int], request_: dict[str, Any], skew: float, places: list[tuple[int, int]] | None
) -> None:
    nodes = mixed_nodes(*gpus)
    snapshot = cluster([waiting(1, skew=skew, **request_)], nodes)
    shape = place_by_skew(group_snapshot_requests(snapshot), snapshot.jobs, nodes, PAPER_PACKLIMIT).shapes[0]
    pieces = FreeNodes(NodeGroups(nodes), np.array(free), nodes.cpus, nodes.memory_mib).find(shape)
    assert (pieces and [(piece.node, piece.gpus) for piece in pieces]) == places


def plan_of(jobs: list[dict[str, Any]], *gpus: int, packlimit: float = PAPER_PACKLIMIT) -> Plan:
    policy = make_policy("tiresias-las", {"thresholds_gpu_s": [3200], "packlimit": packlimit})
    return policy.decide(cluster(jobs, mixed_nodes(*gpus)))


def test_a_skewed_job_waits_where_one_that_is_not_starts() -> None:
    jobs = [running(1, (0, 2)), running(2, (1, 2)), waiting(3, 4, skew=VGG, submit_s=1), waiting(4, 4, skew=RESNET)]
    assert verdicts(plan_of(jobs, 4, 4)) == {1: "RUN", 2: "RUN", 3: "WAIT", 4: "START"}
    alike = plan_of(jobs[:3], 4, 4, packlimit=math.inf)
    assert verdicts(alike) == {1: "RUN", 2: "RUN", 3: "START"}


def test_a_skewed_job_preempts_for_a_whole_node_where_others_take_what_is_free() -> None:
    old = {"attained_gpu_s": 5000.0}
    jobs = [running(1, (0, 2), since_s=900, **old), running(2, (1, 2), since_s=800, **old)]
    skewed = plan_of([*jobs, waiting(3, 4, skew=VGG)], 4, 4)
    assert preempted(skewed) == {2: (3,)}
    assert [piece.node for piece in skewed.places[3]] == [1]
    assert preempted(plan_of([*jobs, waiting(3, 4, skew=RESNET)], 4, 4)) == {}


def test_large_gangs_of_different_skew_are_told_apart() -> None:
    """Three jobs that ask for the same and are placed in three ways."""
    jobs = [running(1, (0, 3)), waiting(2, 5, skew=VGG, submit_s=1), waiting(3, 5, skew=RESNET, submit_s=2),
            waiting(4, 5, submit_s=3)]  # fmt: skip
    places = plan_of(jobs, 4, 4, 4, 4, 4).places
    assert {job_id: [(p.node, p.gpus) for p in pieces] for job_id, pieces in places.items()} == {
        2: [(1, 4), (0, 1)], 3: [(2, 4), (3, 1)], 4: [(4, 4), (3, 1)],
    }  # fmt: skip


@on_some_worlds
@given(snapshot=worlds())
def test_skewed_jobs_are_on_as_few_nodes_as_on_an_idle_cluster(snapshot: ClusterSnapshot) -> None:
    jobs, nodes = snapshot.jobs, snapshot.nodes
    demand = group_snapshot_requests(snapshot)
    idle = FreeNodes(NodeGroups(nodes), nodes.gpus, nodes.cpus, nodes.memory_mib)
    plan = make_policy("tiresias-las", {"packlimit": 0.4, "min_run_s": 0}).decide(snapshot)
    for job_id, pieces in plan.places.items():
        row = jobs.row(job_id)
        if jobs.skew[row] > 0.4:
            assert len(pieces) == len(idle.find(demand.shapes[int(demand.code[row])]) or ())
