"""``sodactl simulate --explain JOB``: what the policy said of one job, and what became of it."""

from __future__ import annotations

from typing import Any

import click

from slurm_soda.policies.explanation.sharing import describe_verdict, explain_sharing
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.runs.decision_recorder import DecisionRecorder, RecordedDecision
from slurm_soda.simulator.workload import Workload
from slurm_soda.sodactl import output
from slurm_soda.sodactl.simulation import shared_periods

_MAX_LINES = 20
"""Things said that a terminal shows; --json has all."""


def find_job_row(workload: Workload, label: str) -> int:
    """Row of the job that the trace calls this.

    Raises:
        click.UsageError: there is none.
    """
    if label not in workload.label:
        raise click.UsageError(
            f"--explain: the trace has no job {label!r}; its jobs are called such as {workload.label[0]!r}"
        )
    return workload.label.index(label)


def job_document(outcome: SimulationOutcome, row: int, heard: DecisionRecorder) -> dict[str, Any]:
    """What was said and what came of it, as plain data. Seconds of the simulation."""
    workload = outcome.workload
    return {
        "job": workload.label[row],
        "submit_s": float(workload.submit_s[row]),
        "run_s": float(workload.run_s[row]),
        "first_start_s": float(outcome.first_start_s[row]),
        "end_s": float(outcome.end_s[row]),
        "said": [_plan_note_document(one) for one in heard.said],
        "shared": shared_periods.sharing_document(outcome, row),
    }


def _plan_note_document(said: RecordedDecision) -> dict[str, Any]:
    note = said.note
    return {
        "at_s": said.now_s,
        "verdict": note.verdict.name.lower(),
        "position": note.position + 1 if note.position >= 0 else None,
        note.score_name: note.score,
        "run_time_left_s": said.expected_s,
        "sharing": explain_sharing(said.decision).numbers or None,
    }


def print_job(outcome: SimulationOutcome, row: int, heard: DecisionRecorder) -> None:
    """Print what was decided on one job, and why."""
    jobs = outcome.workload
    output.print_line()
    gpus = output.format_count(int(jobs.gpus[row]), "GPU")
    output.print_line(
        f"Job {jobs.label[row]}: submitted at {jobs.submit_s[row]:,.0f} s, needs {jobs.run_s[row]:,.0f} s alone on {gpus};"
        f" started at {outcome.first_start_s[row]:,.0f} s, ended at {outcome.end_s[row]:,.0f} s."
    )
    if len(heard.said) > _MAX_LINES:
        output.print_line(f"the last {_MAX_LINES} of {len(heard.said)} things that were said of it; --json has all")
    for said in heard.said[-_MAX_LINES:]:
        left = f" {said.expected_s:,.0f} s are expected to be left." if said.expected_s == said.expected_s else ""
        output.print_line(f"  at {said.now_s:,.0f} s: {describe_verdict(said.note.verdict, said.decision)}{left}")
        # Jobs of a simulation are numbered from 1, in the order of its workload.
        sharing = explain_sharing(said.decision, lambda job_id: jobs.label[job_id - 1])
        output.print_lines(sharing.sentences, indent=6)
    shared_periods.print_sharing(outcome, row)
