"""``sodactl simulate --explain JOB``: what the policy said of one job, and what became of it."""

from __future__ import annotations

from typing import Any

import click

from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.registry.explain import VERDICTS
from slurm_soda.policies.sharing.arithmetic.sharing_decision import SharingDecision
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.runs.decision_recorder import DecisionRecorder, RecordedDecision
from slurm_soda.simulator.workload import Workload
from slurm_soda.sodactl import output
from slurm_soda.sodactl.explain import sharing_reasons
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
        "position": note.position,
        note.score_name: note.score,
        "run_time_left_s": said.expected_s,
        "sharing": sharing_reasons.sharing_document(said.decision),
    }


def print_job(outcome: SimulationOutcome, row: int, heard: DecisionRecorder) -> None:
    """The same for people."""
    jobs = outcome.workload
    output.print_line()
    gpus = f"{jobs.gpus[row]} GPU{'' if jobs.gpus[row] == 1 else 's'}"
    output.print_line(
        f"Job {jobs.label[row]}: submitted at {jobs.submit_s[row]:,.0f} s, needs {jobs.run_s[row]:,.0f} s alone on {gpus};"
        f" started at {outcome.first_start_s[row]:,.0f} s, ended at {outcome.end_s[row]:,.0f} s."
    )
    if len(heard.said) > _MAX_LINES:
        output.print_line(f"the last {_MAX_LINES} of {len(heard.said)} things that were said of it; --json has all")
    for said in heard.said[-_MAX_LINES:]:
        left = f" {said.expected_s:,.0f} s are expected to be left." if said.expected_s == said.expected_s else ""
        output.print_line(f"  at {said.now_s:,.0f} s: {_verdict(said)}{left}")
        # Jobs of a simulation are numbered from 1, in the order of its workload.
        sharing_reasons.print_sharing_reasons(said.decision, indent=6, name=lambda job_id: jobs.label[job_id - 1])
    shared_periods.print_sharing(outcome, row)


def _verdict(said: RecordedDecision) -> str:
    """A job that leaves GPUs to others, and compares itself with nobody, may well fit; one that gets others only moves."""
    told, verdict = said.decision, said.note.verdict
    if isinstance(told, SharingDecision) and not told.share and len(told.alone_s) == 1:
        return "It waits."
    if verdict == JobVerdict.PREEMPT and told is not None and told.share:
        return "It stops, to start again on other GPUs."
    return VERDICTS[verdict]
