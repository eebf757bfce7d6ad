"""``sodactl snapshot dump``: one decision of a site as a file, which decides the same elsewhere."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

import click
from sqlalchemy import delete
from sqlalchemy.orm import Session

from slurm_soda.daemon.cycle.snapshot_requests import REFUSAL, SETTING, answer_path
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.tables.scheduling import AdminSetting
from slurm_soda.policies.snapshot_file.document import SnapshotDump, compressed, plan_bytes, write_dump
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl import output
from slurm_soda.sodactl.control.snapshot_files import parsed
from slurm_soda.sodactl.live.view_source import describe_absence, find_stall, is_daemon_alive
from slurm_soda.sodactl.simulation.inputs.parameter_types import FiniteRange
from slurm_soda.sodactl.site_access import SiteAccess, on_site, wake_daemon

WAIT_S = 60.0
_LOOK_EVERY_S = 0.05
_OWNER_ONLY = 0o600


@click.group()
def snapshot() -> None:
    """Write one decision of sodad to a file.

    \b
    Examples:
      sodactl snapshot dump site.json.gz      with stand-ins for names, to pass on
      sodactl decide site.json.gz             what sodad decided
    """  # noqa: D301 - click reads the control character


@snapshot.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--names", is_flag=True, help="Keep the names of users, partitions, nodes and GPU types, and job ids.")
@click.option(
    "--wait",
    "wait_s",
    default=WAIT_S,
    show_default=True,
    type=FiniteRange(min=0.0),
    help="Seconds to wait for sodad's next cycle.",
)
@on_site
def dump(site: SiteAccess, *, as_json: bool, file: Path, names: bool, wait_s: float) -> None:
    """Write the snapshot and the plan of sodad's next cycle to FILE, for `sodactl decide` and for those who help you.

    Names and job ids are replaced by stand-ins. Equal names get equal stand-ins, and stand-ins sort as the names do, so the
    decision is the same. Needs the rights of root or of sodad's user, on sodad's host. Only its owner may read FILE; an
    existing file is never replaced. FILE.gz is compressed.

    \b
    Examples:
      sodactl snapshot dump site.json.gz      with stand-ins, to pass on
      sodactl snapshot dump --names all.json  with all names, to look at here
      sodactl decide site.json.gz             what sodad decided
    """  # noqa: D301 - click reads the control character
    if os.path.lexists(file):
        raise SodaError(f"{file} is there already and is not replaced; name another file, or remove it")
    found = ask_for_snapshot(site, wait_s)
    chosen = found if names else found.with_stand_ins()
    same = None if chosen.plan is None else plan_bytes(chosen.decide()) == plan_bytes(chosen.plan)
    raw = write_dump(chosen)
    _write_new(file, compressed(raw) if file.suffix == ".gz" else raw)
    document = {
        "file": str(file),
        "now_s": chosen.snapshot.now_s,
        "mode": chosen.mode,
        "policy": chosen.policy.name,
        "jobs": len(chosen.snapshot.jobs),
        "nodes": len(chosen.snapshot.nodes),
        "stand_ins": chosen.stand_ins,
        "recorded_plan": same is not None,
        "decides_the_same": same,
    }
    if as_json:
        output.print_json(document)
    else:
        words = "with stand-ins for names" if chosen.stand_ins else "with all names"
        output.print_line(f"{file}: {document['jobs']} jobs, {document['nodes']} nodes, {words}")
    if same is None:
        output.warn(f"there is no plan in it: sodad decides nothing in mode {chosen.mode}")
    elif not same:
        output.warn(f"from this file something else is decided than sodad's plan; compare with sodactl decide {file}")


def ask_for_snapshot(site: SiteAccess, wait_s: float = WAIT_S) -> SnapshotDump:
    """What sodad writes for us in its next cycle, with all names.

    Raises:
        SodaError: no sodad lives on this host, or it does not answer in time.
    """
    request = secrets.token_hex(8)
    answer = answer_path(Path(site.settings.state_dir), request)
    with site.store() as store:
        with store.write() as session:
            check_daemon(session, site)
            queries.put_admin_setting(session, SETTING, request, now_s=site.now_s(), by=site.context.who())
        wake_daemon(site)
        raw = _awaited(answer, store, request, wait_s)
    return parsed(raw, answer)


def check_daemon(session: Session, site: SiteAccess) -> None:
    """Whether a sodad cycles on this host.

    Raises:
        SodaError: none does; says what to do.
    """
    epoch = queries.latest_epoch(session)
    if stall := find_stall(session, epoch, site):
        raise SodaError(describe_absence(epoch, stall, site.now_s()))
    if epoch is None or not is_daemon_alive(session, epoch, site):
        raise SodaError("sodad is not running; start it (systemctl start sodad), and look at sodactl status")
    if epoch.host != site.context.host():
        raise SodaError(f"sodad runs on {epoch.host} and leaves the snapshot there; run this on {epoch.host}")


def _awaited(answer: Path, store: Store, request: str, wait_s: float) -> bytes:
    until_s = time.monotonic() + wait_s
    while True:
        try:
            raw = _read(answer)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise SodaError(f"{answer}: {error.strerror}; run this as root or as sodad's user") from error
        else:
            answer.unlink()
            return raw
        if reason := _refusal(store, request):
            raise SodaError(f"sodad could not write the snapshot: {reason}")
        if time.monotonic() >= until_s:
            with store.write() as session:
                session.execute(delete(AdminSetting).where(AdminSetting.key == SETTING, AdminSetting.value == request))
            raise SodaError(f"sodad has written no snapshot within {wait_s:g} s; see its log, and sodactl status")
        time.sleep(_LOOK_EVERY_S)


def _refusal(store: Store, request: str) -> str:
    """Why sodad does not answer this request; empty as long as it may."""
    with store.read() as session:
        setting = session.get(AdminSetting, REFUSAL)
    refused, _, reason = ("" if setting is None else setting.value).partition(" ")
    return reason if refused == request else ""


def _read(file: Path) -> bytes:
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
        return stream.read()


def _write_new(file: Path, raw: bytes) -> None:
    """Write a file that nobody else may read; what is there is left alone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(file, flags, _OWNER_ONLY), "wb") as stream:
            try:
                stream.write(raw)
                stream.flush()
            except OSError:
                file.unlink()
                raise
    except FileExistsError as error:
        raise SodaError(f"{file} is there already and is not replaced; name another file, or remove it") from error
    except OSError as error:
        raise SodaError(f"{file} cannot be written: {error.strerror}") from error
