"""Reports, put together from the rows of the store."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from slurm_soda.daemon.job_reports.advice import advise
from slurm_soda.daemon.job_reports.history_figures import preemptions_of, run_time_s, sharing_of, waiting_of
from slurm_soda.daemon.job_reports.model import JobLine, JobLines, JobReport, ReportedJob
from slurm_soda.daemon.job_reports.node_figures import missing_in, run_figures
from slurm_soda.daemon.job_reports.stored_facts import StoredFacts, read_facts, read_facts_of
from slurm_soda.daemon.job_reports.totals import use_totals
from slurm_soda.daemon.store.tables.scheduling import Job

MAX_LINES = 200
"""Jobs in one list."""


def read_job_report(session: Session, job: Job, now_s: float) -> JobReport:
    """All about one job, as the store has it now."""
    return build_report(read_facts(session, job), now_s)


def read_job_lines(
    session: Session, now_s: float, limit: int, *, user: str | None = None, visible: ColumnElement[bool] | None = None
) -> JobLines:
    """The newest jobs, oldest first, that have begun or ended.

    Args:
        session: reads.
        now_s: running jobs are told up to now.
        limit: so many, :data:`MAX_LINES` at most.
        user: of this user alone.
        visible: only jobs for which this holds.
    """
    query = select(Job).order_by(Job.submit_s.desc(), Job.id.desc())
    if user is not None:
        query = query.where(Job.user == user)
    if visible is not None:
        query = query.where(visible)
    most = min(max(limit, 1), MAX_LINES)
    found = session.scalars(query.limit(most + 1)).all()
    lines = [_line(build_report(facts, now_s)) for facts in read_facts_of(session, found[:most][::-1])]
    return JobLines(now_s, lines, more=len(found) > most)


def build_report(facts: StoredFacts, now_s: float) -> JobReport:
    """A pure function of the rows."""
    job, runs = _job_facts(facts.job), run_figures(facts, now_s)
    run_s = run_time_s(facts.job, facts.runs, now_s)
    report = JobReport(
        as_of_s=now_s,
        job=job,
        used=use_totals(facts, job, runs, run_s),
        waiting=waiting_of(facts, now_s),
        preemptions=preemptions_of(facts),
        sharing=sharing_of(facts, now_s),
        runs=runs,
        advice=(),
        missing=missing_in(runs[-1]) if runs else [],
    )
    return replace(report, advice=advise(report, facts.fits))


def _job_facts(job: Job) -> ReportedJob:
    return ReportedJob(
        job_id=job.job_id,
        user=job.user,
        account=job.account,
        name=job.name,
        partition=job.partition,
        state=job.state,
        exit_code=job.exit_code,
        submit_s=job.submit_s,
        start_s=job.first_start_s,
        end_s=job.end_s,
        time_limit_s=job.time_limit_s,
        nodes=job.nodes,
        gpus=job.gpus,
        cpus=job.cpus,
        memory_mib=job.memory_mib,
    )


def _line(report: JobReport) -> JobLine:
    return JobLine(
        job=report.job,
        used=report.used,
        waiting=report.waiting,
        preempted=report.preemptions.times,
        shared=any(run.shared for run in report.runs),
        missing=bool(report.missing),
        advice=report.advice,
    )
