"""``sodactl explain``: all about one job, from Slurm, the plan and the audit trail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from slurm_soda.daemon.api import views
from slurm_soda.daemon.api.views import JobDetailView
from slurm_soda.daemon.explanations import job_reasons
from slurm_soda.daemon.store.jobs.finished_jobs import job_usage_totals
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.daemon.store.tables.scheduling import Action, Job, JobRun, Preemption
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmError, SodaError
from slurm_soda.slurm_ext.hints import codec
from slurm_soda.sodactl import output
from slurm_soda.sodactl.control.manual_changes import format_fields
from slurm_soda.sodactl.explain.slowdown_sentences import hint_sentences, list_hints
from slurm_soda.sodactl.live.job_identity import JOB_ID, drop_stored_job_of_reused_id, unknown_job_error
from slurm_soda.sodactl.live.jobs import plan_note_document
from slurm_soda.sodactl.live.view_source import ViewSource, describe_absence, open_view_source
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.site_access import SiteAccess, on_site

_TABLE_ROWS = 20
"""Newest changes that the text shows; --json has all."""


@click.command()
@click.argument("job_id", metavar="JOB", type=JOB_ID)
@click.option(
    "--with",
    "other_id",
    metavar="OTHER",
    type=JOB_ID,
    help="Instead: how much the two jobs would slow each other down on one GPU.",
)
@on_site
def explain(site: SiteAccess, *, as_json: bool, job_id: int, other_id: int | None) -> None:
    """Why a job waits, or what happened to it.

    Shows what Slurm says, what the policy wants and by which numbers, what the job waits for and when it is expected to
    start, its runs, and every change that slurm-soda made to it, with reason and outcome.

    With --with: what is known about two jobs, how much they would slow each other down on one GPU, and whether they would
    end earlier together than one after the other. Nothing is changed.

    \b
    Examples:
      sodactl explain 4711
      sodactl explain 4711 --json | jq -r '.reasons[]'
      sodactl explain 4711 --with 4712
    """  # noqa: D301 - click reads the control character
    document, draw = (describe_job(site, job_id), _draw) if other_id is None else _describe_pair(site, job_id, other_id)
    if as_json:
        output.print_json(document)
    else:
        draw(document)


def _describe_pair(site: SiteAccess, job_id: int, other_id: int) -> tuple[Document, Callable[[Document], None]]:
    if job_id == other_id:
        raise click.UsageError(f"--with: {other_id} is the same job; name another one")
    # Here, as it brings the prediction of slowdowns, which the rest does not need.
    from slurm_soda.sodactl.explain import pair_document, pair_table  # noqa: PLC0415

    return pair_document.describe_pair(site, job_id, other_id), pair_table.print_pair


def describe_job(site: SiteAccess, job_id: int) -> Document:
    """All about one job as plain data.

    Raises:
        SodaError: neither Slurm nor the store knows the job.
    """
    warnings: list[str] = []
    records = _records(site, warnings)
    record = records.get(job_id)
    try:
        with open_view_source(site) as source:
            view = drop_stored_job_of_reused_id(source.job(job_id), record)
            pairs = _describe_pairs(site, source, view, records, warnings)
    except StoreError as error:
        if record is None:
            raise SodaError("; ".join((str(error), *warnings))) from error
        warnings.append(f"without the policy's view and the record of changes: {error}")
        return _document(site, None, record, warnings, [])
    if view.job is None and record is None:
        raise unknown_job_error(job_id, warnings[0] if warnings else "")
    if not view.head.daemon_alive:
        absence = describe_absence(view.head.epoch, view.head.stall, site.now_s())
        warnings.append(f"{absence}: what it says of the job is from when it did")
    return _document(site, view, record, warnings, pairs)


def _records(site: SiteAccess, warnings: list[str]) -> dict[int, SlurmJob]:
    try:
        return {record.job_id: record for record in site.slurm().jobs()}
    except SlurmError as error:
        warnings.append(f"Slurm does not answer: {error}")
        return {}


def _describe_pairs(
    site: SiteAccess,
    source: ViewSource,
    view: JobDetailView,
    records: Mapping[int, SlurmJob],
    warnings: list[str],
) -> list[Document]:
    if not (site.settings.sharing.partitions or any(share.phase != "over" for share in view.shares)):
        return []
    # Here, as it brings the prediction of slowdowns, which the rest does not need.
    from slurm_soda.sodactl.explain.share_arithmetic import describe_pairs  # noqa: PLC0415

    return describe_pairs(site, source, view, records, warnings)


def _document(
    site: SiteAccess,
    stored: JobDetailView | None,
    record: SlurmJob | None,
    warnings: list[str],
    pairs: Sequence[Document],
) -> Document:
    view = stored or JobDetailView(views.view_header(None, {}, site.settings, daemon_alive=False), None)
    job, known = view.job, job_reasons.JobFacts(view, record, site.now_s(), hints=hint_sentences(view))
    return {
        "now_s": known.now_s,
        "warnings": warnings,
        "daemon_alive": None if stored is None else view.head.daemon_alive,
        "mode": view.head.mode,
        "policy": view.head.policy,
        "job": _job_keys(job, record),
        "note": plan_note_document({} if job is None else job.note),
        "not_in_scope": None if job is None else job.note.get("not_in_scope"),
        "numbers": dict(job_reasons.explain_by_policy(known).numbers),
        "attained_gpu_s": None if job is None else job_reasons.compute_attained_gpu_s(job, view.runs, known.until_s),
        "before": {"jobs": view.waiting_before, "gpus": view.gpus_before},
        "reasons": [*job_reasons.list_job_reasons(known), *_pair_sentences(view, pairs)],
        "expected_start": known.start.numbers or None,
        "run_time": known.run_time.numbers or None,
        "runs": [_run_keys(run) for run in view.runs],
        "used": None if job is None else asdict(job_usage_totals(job, view.usage)),
        "preemptions": [_preemption_keys(entry) for entry in view.preemptions],
        "changes": [_action_keys(action) for action in view.actions],
        "cores": known.cores.numbers or None,
        "progress": known.progress.numbers or None,
        "slowdown_hints": [hint.document() for hint in list_hints(view)],
        "sharing": list(pairs),
    }


def _pair_sentences(view: JobDetailView, pairs: Sequence[Document]) -> list[str]:
    if not pairs:
        return []
    from slurm_soda.sodactl.explain.share_arithmetic import list_pair_sentences  # noqa: PLC0415 - as above

    return list_pair_sentences(pairs, view.head.policy)


def _job_keys(job: Job | None, record: SlurmJob | None) -> Document:
    keys = ("job_id", "user", "account", "partition", "name", "state", "reason", "submit_s", "gpus", "nodes", "cpus")
    source: Any = record if record is not None else job
    document = {key: getattr(source, key) for key in keys}
    if job is not None:
        document["submit_s"] = job.submit_s
    hints = codec.hints_to_dict(record.hints) if record is not None else dict(job.hints) if job is not None else {}
    stored = ("first_start_s", "end_s", "exit_code", "preemptions", "promotions")
    return document | {"hints": hints} | {key: None if job is None else getattr(job, key) for key in stored}


def _run_keys(run: JobRun) -> Document:
    return {
        "restart": run.restart,
        "start_s": run.start_s,
        "end_s": run.end_s,
        "node_names": run.node_names,
        "gpus": run.gpus,
    }


def _preemption_keys(entry: Preemption) -> Document:
    return {
        "restart": entry.restart,
        "phase": entry.phase,
        "created_s": entry.created_s,
        "deadline_s": entry.deadline_s,
        "updated_s": entry.updated_s,
        "for_jobs": list(entry.for_jobs),
        "vain_for": list(entry.vain_for),
        "reason": entry.reason,
    }


def _action_keys(action: Action) -> Document:
    return {
        "action_id": action.id,
        "at_s": action.created_s,
        "finished_s": action.finished_s,
        "kind": action.kind,
        "new": dict(action.new),
        "old": dict(action.old),
        "state": action.state,
        "reason": action.reason,
        "error": action.error,
        "epoch": action.epoch_id,
        "by_hand": action.epoch_id is None,
    }


def _draw(document: Document) -> None:
    for line in document["warnings"]:
        output.warn(line)
    job = document["job"]
    count = output.format_count
    asks = f"{count(job['gpus'], 'GPU')}, {count(job['cpus'], 'CPU')} on {count(job['nodes'], 'node')} of {job['partition']}"
    output.print_line(f"Job {job['job_id']} ({job['name']}) of {job['user']}: {asks}")
    if job["hints"]:
        output.print_line(f"Hints: {output.format_hints(job['hints'])}")
    output.print_lines(document["reasons"], indent=2)
    _draw_runs(document["runs"])
    _draw_changes(document["changes"])


def _draw_runs(runs: Sequence[Document]) -> None:
    if not runs:
        return
    output.print_line()
    columns = [Column("run", right=True), Column("start"), Column("end"), Column("nodes"), Column("GPUs", right=True)]
    output.print_table(
        columns,
        [
            (
                str(r["restart"]),
                output.format_instant(r["start_s"]),
                output.format_instant(r["end_s"]),
                r["node_names"],
                str(r["gpus"]),
            )
            for r in runs
        ],
    )


def _draw_changes(changes: Sequence[Document]) -> None:
    if not changes:
        return
    output.print_line()
    columns = [
        Column("action", right=True),
        Column("at"),
        Column("kind"),
        Column("from"),
        Column("to"),
        Column("outcome"),
        Column("reason"),
    ]
    output.print_table(columns, [_change_cells(change) for change in changes[-_TABLE_ROWS:]])
    if len(changes) > _TABLE_ROWS:
        output.print_line(f"the newest {_TABLE_ROWS} of {len(changes)} changes; --json has all")


def _change_cells(change: Document) -> list[str]:
    outcome = f"{change['state']}: {change['error']}" if change["error"] else change["state"]
    who = " (by hand)" if change["by_hand"] else ""
    return [
        str(change["action_id"]),
        output.format_instant(change["at_s"]),
        change["kind"],
        format_fields(change["old"]),
        format_fields(change["new"]),
        outcome,
        f"{change['reason']}{who}",
    ]
