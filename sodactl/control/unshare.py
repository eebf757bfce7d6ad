"""``sodactl unshare``: an admin sends a guest back into the queue, with its own request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click
from sqlalchemy.orm import Session

from slurm_soda.daemon.explanations.share_reasons import unsaved_s
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.manual_shares import manual_shares
from slurm_soda.daemon.store.shares import open_shares
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmError, SodaError
from slurm_soda.slurm_ext.pools.pools_record import read_table
from slurm_soda.slurm_ext.read.snapshot import can_be_parted, is_revocable
from slurm_soda.sodactl import output
from slurm_soda.sodactl.control.share import ask_sodad, draw_objections, draw_outcome, objection_documents
from slurm_soda.sodactl.control.share_objections import ShareObjection
from slurm_soda.sodactl.control.snapshot import check_daemon
from slurm_soda.sodactl.live.job_identity import JOB_ID, unknown_job_error
from slurm_soda.sodactl.live.view_source import open_view_source
from slurm_soda.sodactl.output import Document
from slurm_soda.sodactl.site_access import SiteAccess, on_site


@click.command()
@click.argument("job_id", metavar="JOB", type=JOB_ID)
@click.option("--yes", "-y", "acts", is_flag=True, help="Do it; without this it is only shown.")
@on_site
def unshare(site: SiteAccess, *, as_json: bool, job_id: int, acts: bool) -> int:
    """Send a guest back, with its own request.

    A guest that waits gets its request back at once; one that runs saves its state first and is requeued. It is not put
    beside the same hosts again, until `sodactl share` says so. A `sodactl share` that is not carried out yet is taken back,
    too. Nothing is done without --yes. For root and SlurmUser, on the controller. Exit status: 0 if it can be done, else 1.

    \b
    Examples:
      sodactl unshare 17           what would happen, and what job 17 may lose
      sodactl unshare 17 --yes     do it
    """  # noqa: D301 - click reads the control character
    document = _unshare(site, job_id, acts=acts)
    if as_json:
        output.print_json(document)
    else:
        _draw(document)
    return 0 if document["possible"] and not (acts and not document["asked"]) else 1


@dataclass(frozen=True, slots=True)
class _Pair:
    """What is to be taken back."""

    hosts: list[int]
    phase: str
    """Of the share; ``asked``: it is not begun yet."""


def _unshare(site: SiteAccess, job_id: int, *, acts: bool) -> Document:
    record = next((one for one in site.slurm().jobs() if one.job_id == job_id), None)
    if record is None:
        raise unknown_job_error(job_id, "")
    with site.store() as store:
        with store.read() as session:
            pair, mode = _find_pair(session, job_id), _mode(session, site)
            if acts:
                check_daemon(session, site)
        with open_view_source(site) as source:
            lost_s = None if record.state == "PENDING" else unsaved_s(source.job(job_id), record, site.now_s())
        objections = [] if record.state == "PENDING" else list(_obstacles(site, record, lost_s))
        possible = not objections
        asked = acts and possible and mode == "enforce"
        if asked:
            ask_sodad(site, store, "unshare", record, pair.hosts)
    return {
        "now_s": site.now_s(),
        "mode": mode,
        "job_id": job_id,
        "hosts": pair.hosts,
        "phase": pair.phase,
        "state": record.state,
        "possible": possible,
        "asked": asked,
        "unsaved_s": lost_s,
        "reasons": list(_what_becomes_of(record, pair, lost_s)),
        "objections": objection_documents(objections),
    }


def _find_pair(session: Session, job_id: int) -> _Pair:
    shares = open_shares(session)
    found = next((share for share in shares if share.guest == job_id), None)
    if found is not None:
        return _Pair(list(found.hosts), found.phase)
    wanted = next((row for row in manual_shares(session) if row.guest == job_id and row.kind == "share"), None)
    if wanted is not None:
        return _Pair(list(wanted.hosts), wanted.phase)
    guests = [str(share.guest) for share in shares if job_id in share.hosts]
    if guests:
        raise SodaError(f"job {job_id} is a host; name its guest: sodactl unshare {guests[0]}")
    raise SodaError(
        f"job {job_id} is nobody's guest, so there is nothing to take back; `sodactl shares --open` lists guests"
    )


def _mode(session: Session, site: SiteAccess) -> str:
    """Sodad's own, as far as the store tells."""
    last = next(iter(queries.recent_cycles(session, 1)), None)
    return queries.setting_values(session).get("mode", site.settings.mode if last is None else last.mode)


def _obstacles(site: SiteAccess, record: SlurmJob, lost_s: float | None) -> Iterator[ShareObjection]:
    """Why sodad would not make a running guest leave."""
    loses = f", and it loses {output.format_duration(lost_s)} of work" if lost_s else ""
    requeue = f"scontrol requeue Incomplete {record.address} sends it back all the same{loses}"
    if not record.shared_gpus:
        gres = site.settings.sharing.gres
        why = f"Slurm shows it on no gres/{gres}: sharing.gres in soda.toml has another name now than when it started"
        yield ShareObjection(why, f"{requeue}; or give sharing.gres its name back until no guest is left", forbids=True)
    elif not can_be_parted(record):
        why = (
            f"job {record.job_id} cannot save its state when it is asked to (it names no --soda-checkpoint), and sodad "
            "makes no job lose work"
            if is_revocable(record)
            else f"job {record.job_id} cannot be requeued"
        )
        yield ShareObjection(why, f"{requeue}; or let it be until its host ends", forbids=True)
    with suppress(SlurmError):  # `sodactl pools` says what is wrong with the record
        if read_table(Path(site.settings.state_dir)).bases:
            why = "pools are in force, and sodad sends no running guest back there"
            yield ShareObjection(why, f"{requeue}; or take the pools back (sodactl pools revert)", forbids=True)


def _what_becomes_of(record: SlurmJob, pair: _Pair, lost_s: float | None) -> list[str]:
    hosts = ", ".join(map(str, pair.hosts))
    if pair.phase == "asked":
        told = f"sodad would try no longer to put job {record.job_id} beside job {hosts}."
    elif record.state == "PENDING":
        told = f"Job {record.job_id} waits to start beside job {hosts}; it would wait with its own request again."
    else:
        told = (
            f"Job {record.job_id} runs beside job {hosts}. It would be asked to save its state, be requeued, and wait with "
            "its own request again."
        )
    reasons = [told]
    if lost_s is not None:
        reasons.append(f"What it has not saved yet: {output.format_duration(lost_s)} of its run.")
    return [*reasons, f"It would not be put beside job {hosts} again, until `sodactl share` says so."]


def _draw(document: Document) -> None:
    output.print_lines(document["reasons"])
    draw_objections(document["objections"])
    draw_outcome(
        document, f"sodad does it in its next cycle; `sodactl explain {document['job_id']}` tells how far it is."
    )
