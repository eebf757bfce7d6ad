"""One job: why it is where it is, what it used, and what happened to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from slurm_soda.daemon.api.viewers import Viewer
from slurm_soda.daemon.api.views import JobDetailView, ViewHeader, job_detail_view, shown_to
from slurm_soda.daemon.explanations.job_reasons import JobFacts, list_job_reasons
from slurm_soda.daemon.job_reports.build import read_job_report
from slurm_soda.daemon.job_reports.model import JobReport, NodeFigures
from slurm_soda.daemon.page.change_view import ShownChange, shown_change
from slurm_soda.daemon.store.queries import find_job
from slurm_soda.daemon.store.tables.scheduling import Job

MAX_CHANGES_OF_JOB = MAX_SHARES_OF_JOB = 200
"""The newest."""
NEWEST_RUNS, MAX_GPUS_OF_NEWEST = 5, 256
"""Runs of which the page tells GPU by GPU, and GPUs of each: a job of 500 nodes that was requeued has 13 MB of them."""
DRAWN_RUNS, MAX_GPUS_DRAWN = 100, 32
"""The same of runs that are only in the timeline, the newest included; of those before there are totals alone."""


@dataclass(frozen=True, slots=True)
class ShownRun:
    """One run, from a start to the end or the requeue."""

    restart: int
    start_s: float
    end_s: float | None
    node_names: str
    gpus: int
    shared: bool
    gpus_measured: int
    """Of these the report may have fewer."""


@dataclass(frozen=True, slots=True)
class ShownPreemption:
    """One time that it gave way."""

    phase: str
    created_s: float
    updated_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class ShownShare:
    """One time that it was on GPUs together with others."""

    as_guest: bool
    others: Sequence[int]
    nodes: Sequence[str]
    gpus: Sequence[int]
    phase: str
    reason: str
    start_s: float | None
    end_s: float | None


@dataclass(frozen=True, slots=True)
class ShownJob:
    """All of it."""

    job_id: int
    user: str
    account: str
    partition: str
    name: str
    state: str
    gpus: int
    nodes: int
    cpus: int
    submit_s: float
    end_s: float | None
    hints: Mapping[str, str]
    reasons: Sequence[str]
    """Sentences, most important first; those of `sodactl explain` without what Slurm would have to be asked for."""
    report: JobReport | None
    """``None``: what others used is private from the viewer. Without some of the GPUs where there are many."""
    runs: Sequence[ShownRun]
    preemptions: Sequence[ShownPreemption]
    shares: Sequence[ShownShare]
    changes: Sequence[ShownChange]
    """Oldest first."""


def read_shown_job(session: Session, head: ViewHeader, viewer: Viewer, job_id: int, now_s: float) -> ShownJob | None:
    """The newest job of this id; ``None`` if there is none, or none that this viewer may see."""
    job = find_job(session, job_id)
    if job is None or not viewer.may_see(job):  # before anything takes longer where there is a job
        return None
    view = shown_to(job_detail_view(session, head, job_id), viewer)
    if view.job is None:
        return None
    return _shown(view, view.job, read_job_report(session, job, now_s) if viewer.may_see_use(job) else None, now_s)


def without_many_gpus(report: JobReport) -> JobReport:
    """The report with as many of the GPUs of each run as the page shows."""
    newest = len(report.runs)
    return replace(
        report, runs=[replace(run, nodes=_first(run.nodes, newest - at)) for at, run in enumerate(report.runs)]
    )


def _first(nodes: Sequence[NodeFigures], place: int) -> Sequence[NodeFigures]:
    """The first nodes of a run, which is the newest at ``place`` 1, with as many of their GPUs as are shown of it."""
    left = MAX_GPUS_OF_NEWEST if place <= NEWEST_RUNS else MAX_GPUS_DRAWN if place <= DRAWN_RUNS else 0
    kept: list[NodeFigures] = []
    for node in nodes:
        if left <= 0:
            break
        kept.append(replace(node, gpus=node.gpus[:left]))
        left -= max(len(node.gpus), 1)
    return kept


def _shown(view: JobDetailView, job: Job, report: JobReport | None, now_s: float) -> ShownJob:
    measured = {run.restart: sum(len(node.gpus) for node in run.nodes) for run in (report.runs if report else ())}
    return ShownJob(
        job_id=job.job_id,
        user=job.user,
        account=job.account,
        partition=job.partition,
        name=job.name,
        state=job.state,
        gpus=job.gpus,
        nodes=job.nodes,
        cpus=job.cpus,
        submit_s=job.submit_s,
        end_s=job.end_s,
        hints={key: str(value) for key, value in job.hints.items()},
        reasons=list(list_job_reasons(JobFacts(view, None, now_s, asked_slurm=False))),
        report=None if report is None else without_many_gpus(report),
        runs=[
            ShownRun(
                run.restart, run.start_s, run.end_s, run.node_names, run.gpus, run.shared, measured.get(run.restart, 0)
            )
            for run in view.runs
        ],
        preemptions=[
            ShownPreemption(entry.phase, entry.created_s, entry.updated_s, entry.reason) for entry in view.preemptions
        ],
        shares=[
            ShownShare(
                as_guest=share.guest == job.job_id,
                others=share.hosts if share.guest == job.job_id else [share.guest],
                nodes=share.nodes,
                gpus=share.gpus,
                phase=share.end or share.phase,
                reason=share.why,
                start_s=share.started_s,
                end_s=share.ended_s,
            )
            for share in view.shares[-MAX_SHARES_OF_JOB:]
        ],
        changes=[shown_change(action, job.user, job.name) for action in view.actions[-MAX_CHANGES_OF_JOB:]],
    )
