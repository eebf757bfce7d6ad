"""``sodactl shares``: which jobs are, or were, guests on GPUs of others, and why that ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import click

from slurm_soda.daemon.store.faulted_pairs import faulted_pairs
from slurm_soda.daemon.store.shares import listed_shares
from slurm_soda.daemon.store.tables.sharing import ShareRow
from slurm_soda.sodactl import output
from slurm_soda.sodactl.live.history import DEFAULT_ROWS
from slurm_soda.sodactl.live.job_identity import JOB_ID
from slurm_soda.sodactl.live.slowdown_hints import SlowdownHint, hints_of_jobs
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.simulation.inputs.parameter_types import MOST_ROWS
from slurm_soda.sodactl.site_access import SiteAccess, on_site


@click.command()
@click.option("--job", "-j", "job_id", type=JOB_ID, help="Only those in which this job is a guest or a host.")
@click.option("--open", "only_open", is_flag=True, help="Only those that are not over.")
@click.option(
    "--limit",
    type=click.IntRange(0, MOST_ROWS),
    help=f"The newest N; 0: all.  [default: {DEFAULT_ROWS}, with --json 0]",
)
@on_site
def shares(site: SiteAccess, *, as_json: bool, job_id: int | None, only_open: bool, limit: int | None) -> None:
    """Which jobs share GPUs, and why they stopped.

    For root and SlurmUser, on the controller: it reads the store itself. Users see their own with `sodactl explain JOB`.

    A host holds its GPUs as any job does; a guest joined it there. A share is intended, rewritten (the guest waits for its
    start), started, parting (the guest is given its own request back, or made to leave) and over.

    \b
    Examples:
      sodactl shares --open
      sodactl shares --job 4711
      sodactl shares --json | jq '[.shares[] | select(.end == "parted")] | length'
    """  # noqa: D301 - click reads the control character
    keep = (0 if as_json else DEFAULT_ROWS) if limit is None else limit
    with site.store() as store, store.read() as session:
        # One more than asked for shows whether something was left out.
        found = listed_shares(session, job_id=job_id, only_open=only_open, limit=keep + 1 if keep else 0)
        faults = {(fault.one, fault.other) for fault in faulted_pairs(session)}
        kept = found[-keep:] if keep else found
        hints = hints_of_jobs(session, sorted({job_id for row in kept for job_id in (row.guest, *row.hosts)}))
        rows = [_document(row, faults) | {"slowdown_hints": _hints(row, hints)} for row in kept]
    document: Document = {"now_s": site.now_s(), "more": len(found) > len(rows), "shares": rows}
    if as_json:
        output.print_json(document)
        return
    _draw(rows, "no such share is known" if job_id is not None or only_open else "nobody shares GPUs, or has done so")
    if document["more"]:
        output.print_line(f"the newest {len(rows)}; --limit 0 shows all")


def _document(row: ShareRow, faults: Collection[tuple[int, int]]) -> Document:
    concerned = [host for host in row.hosts if (min(row.guest, host), max(row.guest, host)) in faults]
    told = f"a fatal fault under MPS concerned it and job {concerned[0]}" if concerned else ""
    return {
        "job_id": row.guest,
        "restart": row.restart,
        "hosts": list(row.hosts),
        "nodes": list(row.nodes),
        "gpus": list(row.gpus),
        "phase": row.phase,
        "end": row.end,
        "reason": "; ".join(filter(None, (row.why, told if row.phase == "over" and row.end != "parted" else ""))),
        "created_s": row.created_s,
        "started_s": row.started_s,
        "ended_s": row.ended_s,
    }


def _hints(row: ShareRow, hints: Mapping[int, Sequence[SlowdownHint]]) -> list[Document]:
    """Of the guest beside its hosts, and of each host beside this guest alone."""
    pairs = [(row.guest, tuple(sorted(row.hosts))), *((host, (row.guest,)) for host in row.hosts)]
    return [
        {"job_id": job_id, **hint.document()}
        for job_id, beside in pairs
        for hint in hints.get(job_id, ())
        if hint.co_runners == beside
    ]


def _draw(rows: Sequence[Document], without: str) -> None:
    if not rows:
        output.print_line(without)
        return
    columns = [
        Column("guest", right=True),
        Column("hosts"),
        Column("nodes"),
        Column("GPUs"),
        Column("phase"),
        Column("since"),
        Column("slowdown (hint)"),
        Column("why"),
    ]
    output.print_table(columns, [_cells(row) for row in rows])


def _cells(row: Document) -> list[str]:
    since_s = row["ended_s"] or row["started_s"] or row["created_s"]
    return [
        str(row["job_id"]),
        ", ".join(map(str, row["hosts"])),
        ", ".join(row["nodes"]),
        ", ".join(map(str, row["gpus"])),
        row["phase"] if not row["end"] else f"{row['phase']}: {row['end']}",
        output.format_instant(since_s),
        ", ".join(f"{hint['job_id']}: {hint['slowdown']:.2f}" for hint in row["slowdown_hints"]),
        row["reason"],
    ]
