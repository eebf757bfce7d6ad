"""Every policy, with other parameters than its defaults, where pools and CPU fit are in force: one file, one decision."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.cpu_fit.fit import CpuFitCandidate, EarlierChange, EarlierResize, RequestDetail
from slurm_soda.policies.cpu_fit.requests import CpuRequests, EarlierResizes, RequestDetails
from slurm_soda.policies.cpu_fit.start_cores import FitHistory, NodeCapacity, PastFit
from slurm_soda.policies.pools.kinds import NodeClass, PoolShare, choose_pool_kind
from slurm_soda.policies.pools.layout.partitions import plan_pool_partitions
from slurm_soda.policies.pools.layout.routing import SubmittedRequest
from slurm_soda.policies.pools.stages.in_force import PoolsInForce, WaitingPoolJob
from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState
from slurm_soda.policies.snapshot_file.document import SnapshotDump, plan_bytes, read_dump, write_dump
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.deciders.snapshot_decider import SnapshotDecider
from slurm_soda.simulator.generators.registry import generate_workload
from slurm_soda.sodactl.bench.synthetic_cluster import CPUS_PER_NODE, GPUS_PER_NODE, busy_cluster

PARAMETERS: dict[str, dict[str, Any]] = {
    "backfill": {"estimate": "predicted", "depth": 3, "reservations": 2, "whole_nodes": True, "interval_s": 30},
    "multifactor": {"depth": 7, "reservations": 3},
    "gandiva": {"quantum_s": 7},
    "coda": {"cpu_cores": 0.3, "large_nodes": 2, "max_aborts": 1, "shares": ["8x96=32/3"]},
    "tiresias-las": {
        "thresholds_gpu_s": [100, 3200.25],
        "within_queue": "submit",
        "promote_knob": 0.5,
        "packlimit": 0.2,
    },
    "tiresias-gittins": {"samples_gpu_s": [9, 60.0, 7200.5], "min_run_s": 0, "thresholds_gpu_s": []},
    "srtf": {"min_run_s": float("inf")},
    "srsf": {"min_run_s": 0},
    "sjf-bsbf": {"jobs_per_gpu": 3, "caution": 0.5},
    "ojpap": {"strategy": "greedy", "order": "paper", "interference": float("inf")},
    "colocation": {"speedup_model": "linear", "limit": 0.5, "mps": False},
    "srsf-share": {"change_s": 5.5},
}
NODE = NodeClass("", GPUS_PER_NODE, CPUS_PER_NODE)


def with_pools(snapshot: ClusterSnapshot, rng: np.random.Generator) -> ClusterSnapshot:
    """A third of the waiting jobs need no GPU; a third were aborted, or list a partition that goes."""
    jobs, names = snapshot.jobs, snapshot.nodes.name
    table = plan_pool_partitions("main", 10, 1, [(name, NODE) for name in names], {NODE: PoolShare(32, 3)})
    lists = (
        "main",
        "old,main_cpu",
        *(part.name for part in table),
        "main_cpu,main_cpu_lend",
        "main_small,main_small_lend",
    )
    waits = jobs.state == JobState.PENDING
    gpus = np.where(waits & (rng.random(len(jobs)) < 1 / 3), 0, jobs.gpus)
    code = np.zeros(len(jobs), dtype=np.int64)
    for row, kind in enumerate(choose_pool_kind(size).value for size in gpus.tolist()):
        fitting = [name for name in lists if kind in name and (bool(waits[row]) or "," not in name)]
        code[row] = lists.index(fitting[rng.integers(len(fitting))])
    waiting = tuple(
        WaitingPoolJob(
            int(jobs.job_id[row]),
            aborts=int(rng.integers(0, 5)),
            startable_s=snapshot.now_s + float(rng.choice([-1.0, 5.0, np.nan])),
            refused=("main_cpu",) if rng.random() < 0.2 else (),
            request_known=True,
            request=SubmittedRequest(gpus=int(gpus[row]), cores=4, cores_per_node=4),
        )
        for row in np.flatnonzero(waits & (rng.random(len(jobs)) < 1 / 3)).tolist()
    )
    return replace(
        snapshot,
        jobs=jobs.with_columns(
            gpus=gpus, gpus_per_node=np.minimum(gpus, jobs.gpus_per_node), partition=code, partitions=lists
        ),
        nodes=replace(snapshot.nodes, in_partition=np.ones((len(names), len(lists)), dtype=np.bool_)),
        partitions=lists,
        pools=PoolsInForce(table, {NODE: PoolShare(32, 3)}, {"old": "main"}, waiting, reserve_after_s=600.0),
    )


def with_cpu_requests(snapshot: ClusterSnapshot, rng: np.random.Generator) -> ClusterSnapshot:
    jobs = snapshot.jobs
    rows = np.flatnonzero((jobs.state == JobState.PENDING) & (jobs.gpus > 0)).tolist()
    ids, distinct, details, earlier = [], [], {}, {}
    for row in rows:
        job_id, nodes, cpus = int(jobs.job_id[row]), int(jobs.nodes[row]), int(rng.integers(1, 30))
        job = CpuFitCandidate(
            int(jobs.gpus[row]), nodes, nodes, cpus, nodes * cpus, category=str(rng.choice(["cv", "ours"]))
        )
        ids.append(job_id)
        distinct.append((f"user{row % 3}", NodeCapacity(int(rng.integers(8, 97)), 64_000), job))
        details[job_id] = None if row % 7 == 0 else RequestDetail(nodes, 1, nodes * cpus, cpus, cpus, 1000 * (row % 2))
        if row % 5 == 0:
            outcome = EarlierResize(int(rng.integers(4)))
            earlier[job_id] = EarlierChange(outcome, nodes * cpus, cpus, cpus, error=f"no: job {job_id}")
    histories = {"user1": FitHistory((PastFit("ours", "vgg16", 9, 2), PastFit("cv", None, 30, 1)))}
    requests = CpuRequests.build(ids, range(len(ids)), distinct, histories)
    told = {"details": RequestDetails.build(details), "earlier": EarlierResizes.build(earlier)}
    return replace(snapshot, cpu_requests=replace(requests, **told))


def made_read_only(value: Any) -> Any:
    """A policy that wrote into the snapshot would raise an error."""
    for part in fields(value):
        column = getattr(value, part.name)
        if isinstance(column, np.ndarray):
            column.flags.writeable = False
        elif is_dataclass(column):
            made_read_only(column)
    return value


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", policy_names())
def test_the_same_is_decided_whatever_the_policy_and_its_parameters(name: str) -> None:
    workload, cluster = generate_workload("tiresias480", 1, jobs=5), parse_cluster("1x4")
    kinds: Counter[str] = Counter()
    for seed, parameters in enumerate(({}, PARAMETERS.get(name, {}))):
        rng = np.random.default_rng(seed)
        policy = make_policy(name, parameters)
        world = made_read_only(with_cpu_requests(with_pools(busy_cluster(60, 8, seed), rng), rng))
        dump = SnapshotDump(world, policy)
        dump = replace(dump, plan=dump.decide())
        assert dump.plan is not None
        kinds.update(type(action).__name__ for action in dump.plan.actions)
        raw = write_dump(dump)
        back = read_dump(raw)
        assert write_dump(back) == raw
        hidden = dump.with_stand_ins()
        assert hidden.plan is not None
        decided = SnapshotDecider(back.policy, workload, cluster, at_once=False).plan(back.snapshot)
        assert plan_bytes(decided) == plan_bytes(back.decide()) == plan_bytes(dump.decide()) == plan_bytes(dump.plan)
        assert plan_bytes(read_dump(write_dump(hidden)).decide()) == plan_bytes(hidden.plan)
    assert kinds.keys() >= {"OrderJobs", "RouteJob", "ResizeRequest"}
