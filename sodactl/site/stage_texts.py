"""What each stage of a roll-out is: what to set, what to watch there, and when to go back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from slurm_soda.policies.scope.scope import Scope

StageName = Literal["observe", "advise", "part", "all"]

LEAST_DAYS: Mapping[StageName, float] = {"observe": 7.0, "advise": 2.0, "part": 7.0, "all": 0.0}
"""So long a stage lasts at least: a week has a site's working days and its weekend."""
TITLES: Mapping[StageName, str] = {
    "observe": "observe",
    "advise": "advise",
    "part": "enforce on a part",
    "all": "enforce on all jobs",
}
WATCH: Mapping[StageName, tuple[str, ...]] = {
    "observe": (
        "sodactl doctor: no check fails",
        "sodactl status: the last cycle went well; soda_cycles_total{result=\"failed\"} stands still",
        "soda_agents{state=\"silent\"} is 0",
    ),
    "advise": (
        "sodactl status: changes planned, and none sent",
        "sodactl explain JOB of some that wait: what the policy would do, and why, is what the site wants",
        "soda_cycle_duration_seconds: a cycle takes less than cycle.interval_s",
    ),
    "part": (
        "sodactl status: jobs in scope and others, and what would have been done to the others",
        "soda_job_wait_seconds by partition: shorter in scope, as before elsewhere",
        "soda_preemptions_total grows by no more than the jobs of a day; sodactl status shows none in vain",
        "soda_changes_total{result=\"failed\"} stands still, soda_breaker_open is 0",
    ),
    "all": (
        "soda_job_wait_seconds by partition against the weeks before",
        "soda_changes_total{result=\"failed\"} stands still, soda_breaker_open is 0",
    ),
}  # fmt: skip
GO_BACK: Mapping[StageName, tuple[str, ...]] = {
    "observe": ("nothing is changed: systemctl stop sodad ends it",),
    "advise": ("sodactl mode observe, if a cycle takes longer than cycle.interval_s or the breaker opens",),
    "part": (
        "jobs out of scope wait a tenth longer than in the weeks before, or jobs in scope gain nothing in a week",
        "a job is preempted that should not be, Slurm refuses changes, or the breaker opens",
        "then: sodactl mode advise, or the [scope] of the stage before and systemctl reload sodad; sodad takes back what it"
        " had changed of jobs that leave the scope",
    ),
    "all": ("the same; then the [scope] of the stage before, or sodactl mode advise and sodactl release-all",),
}


def scope_lines(scope: Scope | None) -> str:
    """Lines for soda.toml; ``None``: no scope is named, and none needs to be."""
    if scope is None:
        return ""
    if scope.whole:
        return "# no [scope]: all jobs"
    lists = scope.lists.items()
    named = [f"{key} = [{', '.join(_quoted(name) for name in sorted(names))}]" for key, names in lists if names]
    return "\n".join(("[scope]", *named))


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
