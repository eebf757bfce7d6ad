"""Tasks of services that go before others: past whom Slurm's order may put them, and what is said of it."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.pipeline.actions import OrderJobs
from slurm_soda.policies.plan import JobNotes, JobVerdict, Plan
from slurm_soda.policies.snapshot import ClusterSnapshot, NodeTable
from slurm_soda.slurm_ext.write.job_changes import order_changes

WAIT, START = JobVerdict.WAIT, JobVerdict.START


def order(rows: list[dict[str, object]], *first: int, starts: tuple[int, ...] = (), unranked: int = 0) -> list[int]:
    """Waiting jobs as Slurm tries them, after the changes of a plan that ranks them as listed, the last ones not at all."""
    jobs = build_job_table(rows)
    ids = np.array([row["job_id"] for row in rows], dtype=np.int64)
    ranked = len(ids) - unranked
    verdicts = np.where(np.isin(jobs.job_id, starts), np.int8(START), np.int8(WAIT))
    verdicts[jobs.gpus > 4] = JobVerdict.TOO_LARGE
    position = np.full(len(ids), -1)
    position[np.searchsorted(jobs.job_id, ids[:ranked])] = np.arange(ranked)
    notes = JobNotes(jobs.job_id, verdicts, np.zeros_like(ids), np.zeros(len(ids)), position)
    orders = OrderJobs("soda", job_ids=ids[:ranked], unranked=ids[ranked:])
    plan = Plan("soda", ids, np.array(starts, dtype=np.int64), notes, (orders,)).led_by(first)
    changes = order_changes(plan, ClusterSnapshot(0.0, jobs, NodeTable.uniform(1, 4)), skipping_limit_s=1e9)
    factor = dict(zip(jobs.job_id.tolist(), jobs.site_factor.tolist(), strict=True))
    factor |= {one.job_id: int(one.new["SiteFactor"]) for one in changes}
    natural = dict(zip(jobs.job_id.tolist(), (jobs.priority - jobs.site_factor).tolist(), strict=True))
    return sorted(factor, key=lambda one: (-natural[one] - factor[one], one))


def test_a_task_goes_before_all_others_of_its_queue() -> None:
    rows: list[dict[str, object]] = [{"job_id": at, "priority": 100 * (6 - at), "gpus": 1} for at in range(1, 6)]
    assert order(rows, 5) == [5, 1, 2, 3, 4]
    assert order(rows, 5, starts=(1,)) == [5, 1, 2, 3, 4]
    assert order(rows, 5, unranked=2) == [5, 1, 2, 3, 4]


def test_no_task_of_a_service_passes_a_job_that_is_overdue() -> None:
    """docs/policies/waiting.md: places are kept for it, and a task of a service would hold them for days."""
    for gpus in (1, 4):
        rows: list[dict[str, object]] = [{"job_id": at, "priority": 100 * (6 - at), "gpus": 1} for at in range(1, 6)]
        rows[1] |= {"overdue": True, "waited_s": 90_000.0, "gpus": gpus}
        found = order(rows, 5)
        assert found.index(2) < found.index(5) < found.index(3), gpus
        found = order(rows, 5, starts=(2,))
        assert found.index(2) < found.index(5) < found.index(3), gpus
    cores = [dict(row, gpus=0, cpus=4) for row in rows]
    found = order(cores, 5, unranked=4)
    assert found.index(2) < found.index(5) < found.index(3), "jobs on cores are not ranked outside pools"


def test_a_task_passes_jobs_of_better_bands_and_none_that_is_less_nice() -> None:
    rows: list[dict[str, object]] = [
        {"job_id": at, "priority": 100 * (6 - at), "gpus": 4, "band": 2 * (at == 5)} for at in range(1, 6)
    ]
    assert order(rows, 5) == [5, 1, 2, 3, 4]
    nicer = [dict(row, nice=100 * (row["job_id"] == 5)) for row in rows]
    assert order(nicer, 5) == [1, 2, 3, 4, 5]


def test_a_task_that_no_node_can_hold_goes_before_nobody() -> None:
    rows: list[dict[str, object]] = [{"job_id": at, "priority": 100 * (6 - at), "gpus": 1} for at in range(1, 6)]
    rows[4]["gpus"] = 5
    assert order(rows, 5) == [1, 2, 3, 4, 5]
    rows[4]["site_factor"], rows[4]["priority"] = 900, 1000
    assert order(rows, 5) == [1, 2, 3, 4, 5]
