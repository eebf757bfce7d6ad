"""Two jobs that might share a GPU: who they are, how much work each has left, and why some cannot be looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from slurm_soda.daemon.api.views import JobDetailView
from slurm_soda.daemon.explanations.run_time_reasons import ExpectedRunTime, expected_run_time
from slurm_soda.daemon.learning.job_kinds import gpu_type_of
from slurm_soda.policies.run_times.prediction_sources import (
    IterationWork,
    RunTimeLeft,
    RunTimeSource,
    cap_by_time_limit,
    predict_run_time_left,
)
from slurm_soda.policies.sharing.arithmetic.sharing_decision import Consent
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.snapshot import JobState
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmError, SodaError
from slurm_soda.slurm_ext.hints import codec
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES, policy_state
from slurm_soda.sodactl.live.job_identity import drop_stored_job_of_reused_id, unknown_job_error
from slurm_soda.sodactl.live.view_source import ViewSource
from slurm_soda.sodactl.site_access import SiteAccess


@dataclass(frozen=True, slots=True)
class PairJob:
    """One of the two jobs."""

    job_id: int
    user: str
    name: str
    state: str
    runs: bool
    """It has GPUs now."""
    hints: Hints
    kind: JobKind
    attained_s: float
    """What it has run so far, over all runs."""
    limit_s: float
    """All of its run time, if it ends at its time limit; infinite without one."""
    expected: ExpectedRunTime | None
    """What sodad expects of its run time."""
    site_bound: float | None = None
    """The site's bound on slowdown, where the owner set none."""
    silence_agrees: bool = True
    """Whether a job may share whose owner did not say."""

    @property
    def consent(self) -> Consent:
        """What its owner allows, or the site for him."""
        agrees = self.silence_agrees if self.hints.share is None else self.hints.share
        return Consent(agrees, self.hints.max_slowdown or self.site_bound or math.inf)

    def left(self, iteration_s: Estimate | None) -> RunTimeLeft | None:
        """Work left alone, from the best source: its iterations, like jobs, its time limit; None if nobody knows."""
        count, work = self.hints.iterations, None
        if count and iteration_s is not None and iteration_s.value > 0:
            work = IterationWork(count, iteration_s)
        told = predict_run_time_left(self.attained_s, self.limit_s, iterations=work)
        if (told is None or told.by is RunTimeSource.LIMIT) and self.expected is not None:
            row, error_s = self.expected.prediction, self.expected.error_s
            if row.predicted_by == RunTimeSource.HISTORY:
                left = Estimate(self.expected.left_s, math.inf if error_s is None else error_s, Source.PREDICTED)
                rest_s = max(self.limit_s - self.attained_s, 0.0)
                return cap_by_time_limit(RunTimeLeft(left, RunTimeSource.HISTORY, row.jobs, row.basis), rest_s)
        return told


def read_pair_jobs(
    site: SiteAccess, views: ViewSource, ids: tuple[int, int], listed: SlurmListing, warnings: list[str]
) -> tuple[PairJob, PairJob]:
    """The two jobs, on GPUs of one type; ``listed``: by :func:`list_slurm`.

    Raises:
        SodaError: one of them is not known, ends or has ended, has no GPUs or names no model; or they are on different GPUs.
        StoreError: what sodad knows cannot be read.
    """
    settings = site.settings.sharing
    silence_agrees = settings.consent_by_default or not settings.partitions
    one, other = (
        replace(
            _pair_job(job_id, views.job(job_id), listed, site.now_s()),
            site_bound=settings.max_slowdown,
            silence_agrees=silence_agrees,
        )
        for job_id in ids
    )
    mine, its = one.kind.gpu_type, other.kind.gpu_type
    if mine and its and mine.lower() != its.lower():
        raise SodaError(
            f"job {one.job_id} is for GPUs of type {mine}, job {other.job_id} for {its}: they never meet on one"
        )
    if not mine and not its and len(set(listed.gpu_types.values())) > 1:
        warnings.append(
            "the site has GPUs of several types and neither job says which it is for (--gres=gpu:TYPE:N), so only what is "
            "known of untyped GPUs counts"
        )
    return _with_gpu_type(one, mine or its), _with_gpu_type(other, mine or its)


def _with_gpu_type(side: PairJob, gpu_type: str) -> PairJob:
    return replace(side, kind=replace(side.kind, gpu_type=gpu_type))


@dataclass(frozen=True, slots=True)
class SlurmListing:
    """What Slurm lists."""

    jobs: Mapping[int, SlurmJob]
    gpu_types: Mapping[str, str]
    """Of each node with GPUs."""
    trouble: str = ""
    """Why there is nothing."""


def list_slurm(site: SiteAccess, warnings: list[str]) -> SlurmListing:
    """Jobs and GPU types as Slurm tells them now; a warning where it does not answer."""
    try:
        slurm = site.slurm()
        jobs = {record.job_id: record for record in slurm.jobs()}
        return SlurmListing(jobs, {node.name: node.gpu_type for node in slurm.nodes() if node.gpus})
    except SlurmError as error:
        warnings.append(f"Slurm does not answer: {error}")
        return SlurmListing({}, {}, warnings[-1])


def _pair_job(job_id: int, view: JobDetailView, listed: SlurmListing, now_s: float) -> PairJob:
    record = listed.jobs.get(job_id)
    view = drop_stored_job_of_reused_id(view, record)
    source = record if record is not None else view.job
    if source is None:
        raise unknown_job_error(job_id, listed.trouble)
    hints = (
        record.hints if record is not None else codec.hints_from_dict(view.job.hints if view.job is not None else {})
    )
    _check_can_share(job_id, source.state, source.gpus, hints, ended=record is None and _has_ended(view))
    runs = _runs(record, view)
    attained_s, here_s = _attained(view, record, now_s, runs=runs)
    return PairJob(
        job_id=job_id,
        user=source.user,
        name=source.name,
        state=source.state,
        runs=runs,
        hints=hints,
        kind=JobKind(
            hints.model or "",
            hints.batch_size or 0,
            "" if record is None else gpu_type_of(record, listed.gpu_types),
            source.gpus,
        ),
        attained_s=attained_s,
        # Each run has the whole limit for itself.
        limit_s=math.inf if record is None else record.time_limit_s + attained_s - here_s,
        expected=expected_run_time(view.run_time, view.runs, now_s),
    )


def _has_ended(view: JobDetailView) -> bool:
    return view.job is not None and view.job.end_s is not None


def _check_can_share(job_id: int, state: str, gpus: int, hints: Hints, *, ended: bool) -> None:
    if ended or state in ENDED_STATES:
        raise SodaError(f"job {job_id} has ended ({state}) and cannot share a GPU; `sodactl explain {job_id}` shows it")
    if state == "COMPLETING":
        raise SodaError(f"job {job_id} is about to end ({state}) and cannot share a GPU")
    if not gpus:
        raise SodaError(f"job {job_id} asks for no GPUs, so it has none to share")
    if not hints.model:
        raise SodaError(
            f"job {job_id} names no model, so its effect on another job is unknown; "
            "submit it with --soda-model=NAME, better also with --soda-batch-size=N and --soda-iterations=N"
        )


def _runs(record: SlurmJob | None, view: JobDetailView) -> bool:
    if record is None:
        return any(run.end_s is None for run in view.runs)
    return policy_state(record.state, record.reason) in (JobState.RUNNING, JobState.SUSPENDED)


def _attained(view: JobDetailView, record: SlurmJob | None, now_s: float, *, runs: bool) -> tuple[float, float]:
    """Run time so far over all runs, and that of the present one."""
    ended_s = math.fsum(max(run.end_s - run.start_s, 0.0) for run in view.runs if run.end_s is not None)
    starts = [run.start_s for run in view.runs if run.end_s is None]
    if runs and not starts and record is not None and math.isfinite(record.start_s):
        starts = [record.start_s]  # sodad has not seen this run yet
    here_s = max((now_s - start_s for start_s in starts), default=0.0)
    return ended_s + max(here_s, 0.0), max(here_s, 0.0)
