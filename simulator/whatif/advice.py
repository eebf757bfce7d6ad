"""The answer in words: what to turn on, what it brings, who pays, and what to doubt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurm_soda.policies.registry.catalog import find_entry
from slurm_soda.simulator.report.time_text import span_text
from slurm_soda.simulator.whatif.answer import WhatIfAnswer
from slurm_soda.simulator.whatif.candidate_runs import Candidate
from slurm_soda.simulator.whatif.candidates import RESTART_S, lets_jobs_share
from slurm_soda.simulator.whatif.gain_curve import NAMED
from slurm_soda.simulator.whatif.worse_off_jobs import ComparedJobs

TRUSTED_RATIO = 0.15
"""A simulation of the present that is further off is no basis for numbers."""
_GROUP_WORSE_RATIO = 0.05
_GROUPS = 6


def headline(found: WhatIfAnswer) -> str:
    """The result in one sentence."""
    present, best = found.present, found.recommended
    if best is None:
        return (
            f"Nothing that was tried is worth a change: jobs complete in {span_text(found.present.avg_jct_s)} on average,"
            f" at best in {span_text(found.best.avg_jct_s)}"
        )
    line = found.gain[0] if found.gain and found.gain[0].consent is None else None
    parts = [] if line is None else [point for part in NAMED if (point := line.at(part)) is not None]
    if line is None or line.label != best.label or len(parts) < len(NAMED):
        return (
            f"{best.label} would have completed jobs in {span_text(best.avg_jct_s)} on average instead of"
            f" {span_text(present.avg_jct_s)}: {present.avg_jct_s / best.avg_jct_s:.2f} times better"
        )
    nobody, some, everybody = (span_text(point.runs.mean("avg_jct_s")) for point in parts)
    return (
        f"{best.label} would have completed jobs in {nobody} on average if no job could checkpoint, {some} if"
        f" {100 * NAMED[1]:.0f} % could, {everybody} if all could, instead of {span_text(present.avg_jct_s)}"
    )


def list_findings(found: WhatIfAnswer) -> Iterator[str]:
    """What follows from the table, one sentence each."""
    best = found.recommended
    if best is not None:
        yield (
            f"Waiting falls from {_mean(found.present, 'avg_queue_s')} to {_mean(best, 'avg_queue_s')} on average, the 95th"
            f" percentile of completion goes from {_mean(found.present, 'p95_jct_s')} to {_mean(best, 'p95_jct_s')}, GPUs"
            f" in use from {_percent(found.present)} to {_percent(best)}; jobs are preempted"
            f" {best.runs.mean('preemptions'):,.0f} times."
        )
    if found.dearer is not None and best is not None:
        yield (
            f"If a restart costs {span_text(2 * found.restart_s)} instead of {span_text(found.restart_s)}, the average is"
            f" {span_text(found.dearer.avg_jct_s)}: still {found.present.avg_jct_s / found.dearer.avg_jct_s:.2f} times"
            " what it is now."
            if found.dearer.avg_jct_s < found.present.avg_jct_s
            else f"If a restart costs {span_text(2 * found.restart_s)}, nothing is gained any more"
            f" ({span_text(found.dearer.avg_jct_s)})."
        )
    yield from _who_pays(found)
    bound = found.bound.avg_jct_s
    yield f"A scheduler that knew how long every job runs ({found.bound.label}) would reach {span_text(bound)}."


def _who_pays(found: WhatIfAnswer) -> Iterator[str]:
    """If jobs can checkpoint as in the first table; the second has the number of jobs for other parts."""
    whole = found.losers.everybody
    if found.best is found.present:
        return
    if not whole.worse:
        yield f"No job takes more than a tenth longer under {found.best.label}."
        return
    yield (
        f"Under {found.best.label} {whole.worse:,} of {whole.jobs:,} jobs ({100 * whole.worse / whole.jobs:.0f} %) take more"
        f" than a tenth longer, by {span_text(found.losers.worse_extra_s)} on average."
    )
    groups = worse_groups(found)
    if groups:
        yield "Longer on average: " + "; ".join(_told(group) for group in groups) + "."
    else:
        yield "No user, size or length of jobs takes longer on average."


def worse_groups(found: WhatIfAnswer) -> list[ComparedJobs]:
    """Groups whose mean gets worse, the worst first; not more than a page holds."""
    groups = [group for group in found.losers.groups if group.change_ratio > _GROUP_WORSE_RATIO]
    return sorted(groups, key=lambda group: -group.change_ratio)[:_GROUPS]


def _told(group: ComparedJobs) -> str:
    name = f"user {group.name}" if group.kind == "user" else group.name
    return (
        f"{name} ({group.jobs:,} jobs) {span_text(group.before_s)} → {span_text(group.after_s)}"
        f" (+{100 * group.change_ratio:.0f} %)"
    )


def recommended_settings(found: WhatIfAnswer) -> str:
    """Lines for the configuration of sodad; empty if nothing is recommended, or Slurm does it alone."""
    best = found.recommended
    if best is None or best.label == "backfill":
        return ""
    known = {parameter.name for parameter in find_entry(best.choice.name).parameters}
    values = [f"{key} = {_toml(value)}" for key, value in best.choice.parameters.items() if key in known]
    return "\n".join(
        ["[policy]", f'name = "{best.choice.name}"', *(["[policy.parameters]", *values] if values else [])]
    )


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def list_caveats(found: WhatIfAnswer, unused: Mapping[str, int], jobs_in_dump: int) -> Iterator[str]:
    """What to bear in mind, one sentence each."""
    yield _calibration(found)
    if found.members > 1:
        spread = found.present.runs.spread("avg_jct_s")
        yield (
            f"{found.seen.jobs} jobs are few: each figure is the mean over {found.members} workloads that would have left"
            f" the same accounting in whole seconds (standard deviation of the present's average: {span_text(spread)})."
        )
    if found.recommended is not None and found.recommended.runs.mean("preemptions"):
        yield _restart(found)
        yield _checkpoints(found)
    if found.recommended is not None and found.recommended.label != found.recommended.choice.name:
        yield "The thresholds were chosen on these very jobs; another month's gain may be smaller."
    if found.recommended is not None and found.recommended.choice.name == "tiresias-gittins":
        yield "tiresias-gittins knew how the service of these very jobs is distributed; sodad learns it from past ones."
    if sharing := [candidate.label for candidate in found.others if candidate.role == "sharing"]:
        yield (
            f"{', '.join(sharing)}: what jobs do to each other on a GPU is what --pairs or --pair-slowdown says, and nobody"
            " knows yet which users will agree to share; so none is recommended (docs/sharing.md)."
        )
    elif found.recommended is not None and lets_jobs_share(found.recommended.choice.name):
        yield (
            f"No job shares a GPU in these figures of {found.recommended.label}: nobody says what jobs do to each other"
            " there. --pairs or --pair-slowdown adds what sharing would bring, by how many users agree."
        )
    if len(found.site.workload) < jobs_in_dump:
        yield (
            f"Of {jobs_in_dump:,} jobs in the dump the latest {len(found.site.workload):,} were simulated; --jobs takes"
            " more of them, and more time."
        )
    if left := sum(count for name, count in unused.items() if name.startswith(("still", "held"))):
        yield f"{left:,} jobs that waited or ran on, or held parts of GPUs, are missing from the simulated load."


def _calibration(found: WhatIfAnswer) -> str:
    error = found.error_ratio
    said = (
        f"{found.present.label} stands for what the site does now: simulated it gives {span_text(found.present.avg_jct_s)}"
        f" where {span_text(found.seen.avg_jct_s)} was observed ({round(100 * error):+} %)"
    )
    if abs(error) <= TRUSTED_RATIO:
        return f"{said}."
    requeues = found.site.requeues
    preempts = (
        f"; {requeues:,} runs ended in a requeue, so jobs are preempted already, or were for a part of this time"
        if requeues
        else ""
    )
    return (
        f"{said}. That is too far off to trust numbers: the site does something that is not simulated (limits by user or"
        " QOS, fair share, reservations, nodes that were down, another cluster than was concluded: see --cluster"
        f"{preempts}). Take the gain as a direction."
    )


def _restart(found: WhatIfAnswer) -> str:
    if not found.restart_is_guessed:
        return f"Each start after a preemption is taken to cost {span_text(found.restart_s)}."
    return (
        f"The dump does not show what a restart costs; {span_text(found.restart_s)} is assumed (Tiresias measured"
        f" {RESTART_S:.0f} s on its testbed, and a tenth of the mean run time is the most that is taken). --restart-cost-s"
        " says what it is at your site."
    )


def _checkpoints(found: WhatIfAnswer) -> str:
    able = found.site.workload.preemptible
    if able.all():
        return (
            "In the first table every job is taken to be able to checkpoint. Only jobs submitted with --soda-checkpoint are"
            " ever preempted, so the gain comes as far as users say so: the second table says how far."
        )
    return (
        f"{int((~able).sum()):,} of {len(able):,} jobs cannot checkpoint (--soda-checkpoint) and are never preempted"
        " here."
    )


def _mean(candidate: Candidate, key: str) -> str:
    return span_text(candidate.runs.mean(key))


def _percent(candidate: Candidate) -> str:
    return f"{100 * candidate.runs.mean('gpu_util_ratio'):.0f} %"
