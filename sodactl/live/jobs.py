"""``sodactl jobs``: what waits and runs, as Slurm says it, with hints and what the policy thinks of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.hints import codec
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES
from slurm_soda.sodactl import output
from slurm_soda.sodactl.live.job_identity import find_stored_job
from slurm_soda.sodactl.live.view_source import describe_absence, open_view_source
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.site_access import SiteAccess, on_site

JOB_STATES = ("pending", "running", "suspended", "completing")
MOST_SHOWN = 40
"""Characters of a name, and of the tasks of an array, in the table."""


@click.command()
@click.option("--user", "-u", metavar="NAME", help="Only jobs of this user.")
@click.option("--state", "-t", type=click.Choice(JOB_STATES, case_sensitive=False), help="Only jobs in this state.")
@on_site
def jobs(site: SiteAccess, *, as_json: bool, user: str | None, state: str | None) -> None:
    """Waiting and running jobs, with hints and verdicts.

    State, GPUs and hints are what Slurm says now; queue, position and verdict are from sodad's last plan. Jobs are in the
    policy's order; those that it has not seen yet come last.

    \b
    Examples:
      sodactl jobs
      sodactl jobs --user alice --state pending
      sodactl jobs --json | jq '.jobs[] | {job_id, hints}'
    """  # noqa: D301 - click reads the control character
    document = list_jobs(site)
    document["jobs"] = [
        row
        for row in document["jobs"]
        if (user is None or row["user"] == user) and (state is None or row["state"] == state.upper())
    ]
    if as_json:
        output.print_json(document)
        return
    for line in document["warnings"]:
        output.warn(line)
    _draw(document["jobs"], " of " + user if user is not None else "")


@dataclass(frozen=True, slots=True)
class _StoredJobs:
    """What the store adds to Slurm's word."""

    jobs: Mapping[int, Sequence[Job]]
    """Live ones by id; Slurm gives ids anew after a reset."""
    daemon_alive: bool
    judges: bool
    """sodad decides, so its verdicts are of now and not of an earlier mode."""

    def of(self, record: SlurmJob) -> Job | None:
        return find_stored_job(self.jobs.get(record.job_id, ()), record)

    def note(self, job: Job | None) -> Document:
        return plan_note_document(job.note if job is not None and self.judges else {})


def list_jobs(site: SiteAccess) -> Document:
    """Live jobs from Slurm joined with the store; either may be missing, but not both.

    Raises:
        SlurmError: neither Slurm nor the store can be read.
    """
    warnings: list[str] = []
    known = _from_store(site, warnings)
    stored = known or _StoredJobs({}, daemon_alive=False, judges=False)
    try:
        records = [record for record in site.slurm().jobs() if record.state not in ENDED_STATES]
    except SlurmError as error:
        if known is None:
            raise
        warnings.append(f"Slurm does not answer, so this is what the store last saw: {error}")
        rows = [_stored_row(job, known) for same_id in known.jobs.values() for job in same_id]
    else:
        rows = [_live_row(record, stored.of(record), stored) for record in records]
    rows.sort(key=_policy_order)
    alive = None if known is None else known.daemon_alive
    return {"now_s": site.now_s(), "daemon_alive": alive, "warnings": warnings, "jobs": rows}


def _from_store(site: SiteAccess, warnings: list[str]) -> _StoredJobs | None:
    found: dict[int, list[Job]] = {}
    try:
        with open_view_source(site) as source:
            known = source.live_jobs()
    except StoreError as error:
        warnings.append(f"without verdicts: {error}")
        return None
    for job in known.jobs:
        found.setdefault(job.job_id, []).append(job)
    if known.more:
        warnings.append(f"sodad lists {len(known.jobs)} jobs only: the others are without verdicts")
    alive = known.head.daemon_alive
    if not alive:
        absence = describe_absence(known.head.epoch, known.head.stall, site.now_s())
        warnings.append(f"{absence}: states are what Slurm says, verdicts are its last ones")
    return _StoredJobs(found, daemon_alive=alive, judges=known.head.mode != "observe")


def _live_row(record: SlurmJob, job: Job | None, stored: _StoredJobs) -> Document:
    return {
        "job_id": record.job_id,
        "array_job_id": record.array_job_id,
        "array_task": record.array_task,
        "user": record.user,
        "account": record.account,
        "partition": record.partition,
        "name": record.name,
        "state": record.state,
        "reason": record.reason,
        "gpus": record.gpus,
        "shared_gpus": record.shared_gpus,
        "nodes": record.nodes,
        "cpus": record.cpus,
        "node_names": record.node_names,
        "submit_s": record.submit_s if job is None else job.submit_s,
        "start_s": None if record.state == "PENDING" else record.start_s,
        "priority": record.priority,
        "restarts": record.restarts,
        "preemptions": 0 if job is None else job.preemptions,
        "hints": codec.hints_to_dict(record.hints),
        **stored.note(job),
        "source": "slurm",
    }


def _stored_row(job: Job, stored: _StoredJobs) -> Document:
    return {
        "job_id": job.job_id,
        "array_job_id": None,
        "array_task": "",
        "user": job.user,
        "account": job.account,
        "partition": job.partition,
        "name": job.name,
        "state": job.state,
        "reason": job.reason,
        "gpus": job.gpus,
        "shared_gpus": None,
        "nodes": job.nodes,
        "cpus": job.cpus,
        "node_names": "",
        "submit_s": job.submit_s,
        "start_s": None,
        "priority": None,
        "restarts": None,
        "preemptions": job.preemptions,
        "hints": dict(job.hints),
        **stored.note(job),
        "source": "store",
    }


def plan_note_document(note: Mapping[str, Any]) -> Document:
    """What the last plan said of a job; every value ``None`` where it said nothing."""
    document = {key: note.get(key) for key in ("verdict", "queue", "position", "score", "score_name")}
    return document | {key: count_from_one(note.get(key)) for key in ("queue", "position")}


def count_from_one(number: Any) -> int | None:
    """A queue or position of a plan, which counts from 0, as people count; ``None`` where there is none."""
    return number + 1 if isinstance(number, int) and number >= 0 else None


def _policy_order(row: Document) -> tuple[int, int, int]:
    position = row["position"]
    return (1, 0, row["job_id"]) if position is None else (0, position, row["job_id"])


def _draw(rows: Sequence[Document], whose: str) -> None:
    if not rows:
        output.print_line(f"no job{whose} waits or runs")
        return
    columns = [
        Column("job", right=True),
        Column("user"),
        Column("name"),
        Column("state"),
        Column("GPUs", right=True),
        Column("queue", right=True),
        Column("position", right=True),
        Column("verdict"),
        Column("hints"),
    ]
    output.print_table(columns, [_cells(row) for row in rows])


def _cells(row: Document) -> list[str]:
    waits = f" ({row['reason']})" if row["state"] == "PENDING" and row["reason"] not in ("", "None") else ""
    return [
        format_job_id(row),
        row["user"],
        _shown(row["name"]),
        f"{row['state'].lower()}{' as guest' if row['shared_gpus'] else ''}{waits}",
        str(row["gpus"]),
        "-" if row["queue"] is None else str(row["queue"]),
        "-" if row["position"] is None else str(row["position"]),
        format_verdict(row["verdict"]),
        output.format_hints(row["hints"]),
    ]


def _shown(text: str) -> str:
    """Texts of any length in a table that everybody reads."""
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"


def format_job_id(row: Document) -> str:
    """A job's id as Slurm's own commands show it: ``12_[3-9]`` for the waiting rest of an array."""
    task = row["array_task"]
    if not task:
        return str(row["job_id"])
    return f"{row['array_job_id']}_{task if task.isdigit() else f'[{_shown(task)}]'}"


def format_verdict(verdict: str | None) -> str:
    """A verdict for people: ``wait for preemption``."""
    return "-" if verdict is None else str(verdict).lower().replace("_", " ")
