"""What a job tells of its progress, in sentences: iterations, checkpoints, and how much others slow it down."""

from __future__ import annotations

from slurm_soda.daemon import readable
from slurm_soda.daemon.api.views import JobDetailView
from slurm_soda.daemon.store.progress import runs_of_name
from slurm_soda.daemon.store.tables.progress import JobPaceRow, JobProgressRow
from slurm_soda.policies.explanation.explanation import Explanation


def explain_progress(view: JobDetailView, now_s: float, *, ended: bool) -> Explanation:
    """How far it is, and its slowdown beside others; empty where it tells nothing."""
    if not view.progress:
        return Explanation()
    told = max(view.progress, key=lambda row: (row.restart, row.at_s))
    paces = [pace for pace in view.paces if pace.iteration_s]
    of_run = [pace for pace in paces if pace.restart == told.restart]
    last = max(of_run, key=lambda pace: pace.at_s, default=None)
    numbers = {
        "iterations": told.iterations,
        "of": told.total or None,
        "iterations_per_s": None if last is None else last.iterations / last.clock_s,
        "batch": told.batch or None,
        "saved": told.saved if told.saved >= 0 else None,
        "saved_s": told.saved_s,
        "told_s": told.at_s + told.idle_s,
        "alone_iteration_s": None if view.alone is None else view.alone.iteration_s,
        "alone_by": None if view.alone is None else view.alone.by,
        "beside": [_beside(view, pace) for pace in paces if pace.co_runners],
    }
    sentences = [_so_far(told, last, now_s, ended=ended)]
    if last is not None and last.co_runners:
        sentences.append(_slowdown(view, last))
    return Explanation(tuple(sentences), numbers)


def _beside(view: JobDetailView, pace: JobPaceRow) -> dict[str, object]:
    return {
        "jobs": [run.job_id for run in runs_of_name(pace.co_runners)],
        "mps": pace.mps,
        "together_s": pace.clock_s,
        "iteration_s": pace.iteration_s,
        "slowdown": _ratio(view, pace),
    }


def _ratio(view: JobDetailView, pace: JobPaceRow) -> float | None:
    if view.alone is None or pace.iteration_s is None:
        return None
    return pace.iteration_s / view.alone.iteration_s


def _so_far(told: JobProgressRow, last: JobPaceRow | None, now_s: float, *, ended: bool) -> str:
    total = f" of {told.total:,.0f}" if told.total else ""
    rate = "" if last is None else f", {last.iterations / last.clock_s:.3g} a second"
    saved = "not saved yet"
    if told.saved >= 0:
        ago = (
            "" if ended or told.saved_s is None else f" {readable.format_duration(max(now_s - told.saved_s, 0.0))} ago"
        )
        saved = f"last saved at iteration {told.saved:,.0f}{ago}"
    return f"It says that it has done {told.iterations:,.0f}{total} iterations{rate}; {saved}."


def _slowdown(view: JobDetailView, pace: JobPaceRow) -> str:
    jobs = ", ".join(str(run.job_id) for run in runs_of_name(pace.co_runners))
    beside = f"Beside job {jobs}, for {readable.format_duration(pace.clock_s)}{'' if pace.mps else ' in turns'}"
    ratio = _ratio(view, pace)
    if view.alone is None or ratio is None:
        return f"{beside}, an iteration takes {pace.iteration_s:.3g} s; how long it takes alone nobody knows."
    alone_s = view.alone.iteration_s
    by = "as it did itself" if view.alone.by == "itself" else f"as jobs of its kind do ({view.alone.by})"
    each = f"{pace.iteration_s:.3g} s an iteration, alone {alone_s:.3g} s"
    return f"{beside}, it is {ratio:.2f} times as slow as alone: {each}, {by}."
