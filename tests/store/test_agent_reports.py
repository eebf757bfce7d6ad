"""Reports of agents in the store, on each database."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import select

from slurm_soda.daemon.store.agent_reports import is_stored, store_report
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.tables.scheduling import JobNodeUsage, NodeEvent
from slurm_soda.wire.core_tuning import CoreFit, CoreMeasurement
from slurm_soda.wire.records import JobClosed, JobOpened, JobUsage, NodeReport


@pytest.mark.parametrize("job_id", [7, 0xFFFF_FFFF])
def test_a_report_is_kept_once_whatever_the_jobs_id_and_however_often_it_comes(store: Store, job_id: int) -> None:
    usage = JobUsage(job_id, 0, "n1", 100.0, 120.0, 5, 0.5, 0.6, 2000.0, 2, 18.0, 300.0, "cgroup/v1")
    report = NodeReport(
        "n1",
        "a",
        1,
        1.0,
        (JobOpened(job_id, 0, "n1", 1000, "alice", "main", 100.0, (0,), 4),),
        (JobClosed(job_id, 0, "n1", 160.0, "0:0"),),
        (usage,),
        core_measurements=(CoreMeasurement(job_id, 0, "n1", 110.0, 0, 0, 3, 8, 1, 0.5, 0.01, 60),),
        core_fits=(CoreFit(job_id, 0, "n1", 120.0, 0, 8, 8, 4, 1, 3, 0.5, 0.5, "best_fit"),),
    )
    older, newer = replace(usage, last_s=110.0, cpu_s=9.0), replace(usage, last_s=130.0, cpu_s=27.0)
    for told in (report, report, replace(report, seq=2, usage=(newer, older))):
        with store.write() as session:
            assert not is_stored(session, replace(report, seq=2))
            store_report(session, told, 1.0)
            assert is_stored(session, told)
    with store.read() as session:
        assert sorted(session.scalars(select(NodeEvent.kind).where(NodeEvent.job_id == job_id))) == ["close", "open"]
        assert [(row.last_s, row.cpu_s) for row in session.scalars(select(JobNodeUsage))] == [(130.0, 27.0)]
