"""Lists of partitions, as users combine them: who competes with whom, at what cost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.engine.lift_bounds import JobKeys, find_bounds
from slurm_soda.policies.engine.shared_nodes import SharedNodes
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, NodeTable
from slurm_soda.slurm_ext.write.lifts import WaitingQueue
from slurm_soda.slurm_ext.write.site_factors import compute_site_factors
from tests.sampling import examples
from tests.work import lines_run

JOBS = 360


def test_lists_of_partitions_cost_no_work_by_pair() -> None:
    """Subsets of nine partitions: each list competes with most of the others."""
    order_jobs_in(9)  # what Python does only once
    few, many = lines_run(lambda: order_jobs_in(90)), lines_run(lambda: order_jobs_in(360))
    assert many < 3 * few


def order_jobs_in(lists: int) -> None:
    """The jobs wait in the reverse order of their priorities."""
    names = "abcdefghi"
    subsets = [",".join(subset) for size in range(1, 10) for subset in combinations(names, size)]
    rows = [
        {"job_id": i + 1, "priority": 1000 - i, "gpus": 1, "partition": subsets[i % lists], "waited_s": 9.0}
        for i in range(JOBS)
    ]
    jobs = build_job_table(rows)
    nodes = NodeTable.uniform(50, 8, cpus=64, partitions=len(jobs.partitions))
    snapshot = ClusterSnapshot(0.0, jobs, nodes, jobs.partitions, tiers=dict.fromkeys(names, 1))
    nobody = np.zeros(0, dtype=np.int64)
    queue = WaitingQueue(nobody, jobs.job_id[::-1], nobody, nobody, nobody, np.arange(JOBS))
    compute_site_factors(queue, snapshot, depth=8, skipping_limit_s=0.0)


@st.composite
def queues(draw: st.DrawFn) -> tuple[ClusterSnapshot, IntColumn]:
    """Nodes in any of four partitions, lists of them of which some have no node, and tiers of which some are unknown."""
    nodes = draw(st.lists(st.sets(st.sampled_from("abcd")), min_size=1, max_size=5))
    subsets = [",".join(names) for size in range(1, 5) for names in combinations("abcd", size)]
    partitions = tuple(
        draw(st.lists(st.sampled_from([*subsets, "e", "a,e", "e,f"]), min_size=1, max_size=9, unique=True))
    )
    tiers = draw(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3)))
    member = np.array([[bool(node & set(names.split(","))) for names in partitions] for node in nodes])
    table = replace(NodeTable.uniform(len(nodes), 8, partitions=len(partitions)), in_partition=member)
    codes = draw(st.sets(st.sampled_from(range(len(partitions))), min_size=1))
    snapshot = ClusterSnapshot(0.0, build_job_table([]), table, partitions, tiers=tiers)
    return snapshot, np.array(sorted(codes))


@given(queues(), st.data())
@settings(max_examples=examples(400), deadline=None)
def test_groups_of_nodes_find_the_rivals_and_bounds_that_pairs_of_lists_do(
    queue: tuple[ClusterSnapshot, IntColumn], data: st.DataObject
) -> None:
    snapshot, partitions = queue
    rivals, groups = find_rivals(partitions, snapshot), SharedNodes.of(partitions, snapshot)
    assert {code: np.flatnonzero(groups.rivals(code)).tolist() for code in partitions.tolist()} == rivals
    jobs = data.draw(
        st.lists(st.tuples(st.sampled_from(partitions.tolist()), st.integers(0, 9)), min_size=1, max_size=12)
    )
    at = np.arange(len(jobs))
    partition, priority = np.array(jobs).T
    keys = JobKeys.of(priority, at, partition, np.arange(len(jobs)))
    flags = st.lists(st.booleans(), min_size=len(jobs), max_size=len(jobs)).map(
        lambda one: np.array(one, dtype=np.bool_)
    )
    ranks = st.lists(st.integers(-2, 5), min_size=len(jobs), max_size=len(jobs)).map(np.array)
    asked = {
        "asking": data.draw(flags),
        "rank": data.draw(ranks),
        "bounding": data.draw(flags),
        "bounding_rank": data.draw(ranks),
    }
    assert find_bounds(keys, groups, **asked).tolist() == find_bounds_by_pair(keys, rivals, **asked).tolist()


def find_rivals(partitions: IntColumn, snapshot: ClusterSnapshot) -> dict[int, list[int]]:
    """Which lists of partitions share a node and a tier, by pair of lists."""
    members = snapshot.nodes.in_partition[:, partitions].astype(np.float32)
    share = (members.T @ members > 0) | np.eye(len(partitions), dtype=np.bool_)
    tiers = [_tiers(snapshot.partitions[code], snapshot) for code in partitions.tolist()]
    return {
        code: [
            other
            for at_other, other in enumerate(partitions.tolist())
            if share[at, at_other] and (not tiers[at] or not tiers[at_other] or tiers[at] & tiers[at_other])
        ]
        for at, code in enumerate(partitions.tolist())
    }


def _tiers(partitions: str, snapshot: ClusterSnapshot) -> set[int]:
    """Tiers of a list of partitions; empty where one is unknown."""
    tiers = [snapshot.tiers.get(name) for name in partitions.split(",")]
    return set() if None in tiers else {tier for tier in tiers if tier is not None}


def find_bounds_by_pair(
    jobs: JobKeys,
    rivals: Mapping[int, Sequence[int]],
    *,
    asking: BoolColumn,
    rank: IntColumn,
    bounding: BoolColumn,
    bounding_rank: IntColumn,
) -> IntColumn:
    """As :func:`find_bounds`, with what was seen of each list of partitions."""
    bounds = np.full(len(jobs.keys), np.iinfo(np.int64).max)
    at = np.flatnonzero(asking | bounding)
    seen: dict[int, tuple[list[int], list[int]]] = {}
    for job in at[np.argsort(-jobs.keys[at])].tolist():
        partition = int(jobs.partition[job])
        for rival in rivals[partition] if asking[job] else ():
            ranks, keys = seen.get(rival, ((), ()))
            if place := bisect_left(ranks, rank[job]):
                bounds[job] = min(int(bounds[job]), keys[place - 1])
        if bounding[job]:
            ranks, keys = seen.setdefault(partition, ([], []))
            while ranks and ranks[-1] >= bounding_rank[job]:
                ranks.pop()
                keys.pop()
            ranks.append(bounding_rank[job])
            keys.append(int(jobs.keys[job]))
    return bounds
