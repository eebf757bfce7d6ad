"""The proposed stages as a document and as text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from slurm_soda.policies.scope.scope import Scope
from slurm_soda.simulator.report.time_text import span_text
from slurm_soda.simulator.runs.policy_choice import PolicyChoice
from slurm_soda.simulator.site_plan.scope_gain import ScopeGain
from slurm_soda.simulator.site_plan.stages import ProposedStages
from slurm_soda.simulator.whatif.advice import TRUSTED_RATIO
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.site.roll_out import Standing, describe_standing
from slurm_soda.sodactl.site.stage_texts import GO_BACK, LEAST_DAYS, TITLES, WATCH, StageName, scope_lines


@dataclass(frozen=True, slots=True)
class PlanReport:
    """Everything that is told."""

    stages: ProposedStages
    choice: PolicyChoice
    jobs: int
    source: str
    present_jct_s: float
    """Mean of the simulation without slurm-soda."""
    observed_jct_s: float
    """Mean at the site itself; NaN where nobody says."""
    restart_s: float
    restart_is_guessed: bool
    notes: tuple[str, ...]
    standing: Standing | None
    """``None``: the store cannot be asked."""


@dataclass(frozen=True, slots=True)
class _Stage:
    name: StageName
    mode: str
    scope: Scope | None
    gain: ScopeGain | None


def _all_stages(report: PlanReport) -> Iterator[_Stage]:
    yield _Stage("observe", "observe", None, None)
    yield _Stage("advise", "advise", None, None)
    for one in report.stages.enforced:
        yield _Stage("all" if one.scope.whole else "part", "enforce", one.scope, one.gain)


def plan_document(report: PlanReport) -> Document:
    """As plain data."""
    return {
        "policy": report.choice.name,
        "parameters": dict(report.choice.parameters),
        "jobs": report.jobs,
        "source": report.source,
        "present_jct_s": report.present_jct_s,
        "observed_jct_s": report.observed_jct_s if math.isfinite(report.observed_jct_s) else None,
        "restart_s": report.restart_s,
        "partitions": [asdict(use) for use in report.stages.partitions],
        "tried": [{"name": name, "gain": gain.document()} for name, gain in report.stages.tried],
        "stages": [_stage(number, one) for number, one in enumerate(_all_stages(report), 1)],
        "standing": None if report.standing is None else asdict(report.standing) | {"ready": report.standing.ready},
        "notes": list(_notes(report)),
    }


def _stage(number: int, stage: _Stage) -> Document:
    lists = (stage.scope or Scope()).lists
    return {
        "number": number,
        "stage": stage.name,
        "title": TITLES[stage.name],
        "mode": stage.mode,
        "scope": {key: sorted(names) for key, names in lists.items()},
        "lines": scope_lines(stage.scope),
        "least_days": LEAST_DAYS[stage.name],
        "gain": None if stage.gain is None else stage.gain.document(),
        "watch": list(WATCH[stage.name]),
        "go_back": list(GO_BACK[stage.name]),
    }


def _notes(report: PlanReport) -> Iterator[str]:
    """What to bear in mind."""
    if math.isfinite(report.observed_jct_s) and report.observed_jct_s > 0:
        off = report.present_jct_s / report.observed_jct_s - 1.0
        said = (
            f"simulated without slurm-soda, jobs take {span_text(report.present_jct_s)} on average; observed were"
            f" {span_text(report.observed_jct_s)} ({round(100 * off):+} %)"
        )
        doubt = ": too far off to trust numbers, take the gains as directions (sodactl whatif says more)"
        yield said + (doubt if abs(off) > TRUSTED_RATIO else "")
    if report.restart_is_guessed:
        yield f"a start after a preemption is taken to cost {span_text(report.restart_s)}; --restart-cost-s says what it is"
    if report.standing is not None and report.standing.stage in ("part", "all") and report.source == "the store":
        yield "sodad enforces already, so a part of the gain is in what was observed"
    yield from report.notes


def print_plan(report: PlanReport) -> None:
    """As text."""
    jobs = f"{report.jobs:,} jobs of {report.source}"
    output.print_line(f"Stages for policy {report.choice.name}, from {jobs}, simulated with Slurm alone and beside it.")
    if report.standing is not None:
        output.print_line(f"This site stands at: {describe_standing(report.standing)}")
    if report.stages.tried:
        output.print_line()
        columns = [
            Column("alone in scope"), Column("jobs", right=True), Column("now", right=True), Column("then", right=True),
            Column("gain", right=True), Column("others", right=True),
        ]  # fmt: skip
        output.print_table(columns, [_cells(name, gain) for name, gain in report.stages.tried])
    for number, stage in enumerate(_all_stages(report), 1):
        output.print_line()
        _print_stage(number, stage)
    if not report.stages.enforced:
        output.print_line()
        output.print_line(
            f"No stage with mode enforce is proposed: {report.choice.name} brings jobs less than 5 % here. sodactl whatif"
            " tries other policies."
        )
    output.print_line()
    for note in _notes(report):
        output.print_line(f"Note: {note}.")


def _cells(name: str, gain: ScopeGain) -> tuple[str, ...]:
    inside, outside = gain.inside, gain.outside
    return (
        name, f"{inside.jobs:,}", span_text(inside.before_s), span_text(inside.after_s), f"{inside.ratio:.2f}x",
        f"{outside.ratio:.2f}x" if outside.jobs else "-",
    )  # fmt: skip


def _print_stage(number: int, stage: _Stage) -> None:
    days = LEAST_DAYS[stage.name]
    lasts = f", at least {days:g} days" if days else ""
    output.print_line(f"{number}. {TITLES[stage.name]}: sodactl mode {stage.mode}{lasts}")
    lines = scope_lines(stage.scope)
    if lines:
        output.print_line("   in soda.toml, then systemctl reload sodad:")
        output.print_lines(lines.split("\n"), indent=6)
    if stage.gain is not None:
        output.print_lines(stage.gain.sentences(), indent=3)
    output.print_lines((f"watch: {line}" for line in WATCH[stage.name]), indent=3)
    output.print_lines((f"go back: {line}" for line in GO_BACK[stage.name]), indent=3)
