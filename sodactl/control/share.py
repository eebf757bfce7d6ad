"""``sodactl share``: an admin lets a waiting job join a running one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from slurm_soda.daemon.sharing.may_join import why_pools_exclude
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.manual_shares import ManualKind, manual_shares, put_manual_share
from slurm_soda.daemon.store.shares import parted_pairs
from slurm_soda.policies.explanation.sharing import explain_sharing
from slurm_soda.policies.pipeline.actions import JoinGpus
from slurm_soda.policies.pipeline.stages import pipeline_of
from slurm_soda.policies.pools.stages.membership import members_of
from slurm_soda.policies.sharing.arithmetic.sharing_decision import SharingDecision
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot_file.document import SnapshotDump
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmError, SodaError
from slurm_soda.slurm_ext.sharing.guest_requests import why_not_guest
from slurm_soda.sodactl import output
from slurm_soda.sodactl.control import manual_changes
from slurm_soda.sodactl.control.share_objections import ShareObjection, find_remedy, list_objections
from slurm_soda.sodactl.control.snapshot import ask_for_snapshot
from slurm_soda.sodactl.live.job_identity import JOB_ID, unknown_job_error
from slurm_soda.sodactl.output import Document
from slurm_soda.sodactl.site_access import SiteAccess, on_site, wake_daemon

NOTHING_DONE = {
    "observe": "sodad only observes: nothing is done, this is what would be. `sodactl mode enforce` lets it act",
    "advise": "sodad only advises: nothing is done, this is what would be. `sodactl mode enforce` lets it act",
}
"""By mode."""


@click.command()
@click.argument("job_id", metavar="JOB", type=JOB_ID)
@click.option(
    "--with",
    "host_ids",
    metavar="HOST",
    type=JOB_ID,
    multiple=True,
    required=True,
    help="The running job that JOB is to join; repeat it for GPUs of several.",
)
@click.option("--yes", "-y", "acts", is_flag=True, help="Do it; without this it is only shown.")
@on_site
def share(site: SiteAccess, *, as_json: bool, job_id: int, host_ids: tuple[int, ...], acts: bool) -> int:
    """Let a waiting job join a running one on its GPUs.

    Shows where the job would start, how much both would be slowed and by which source that is known, who is expected to end
    first, what is gained, and all that speaks against it. Nothing is done without --yes. Then sodad's next cycle makes it
    a guest, by the same checks as a plan of its own, whatever the policy; only whether it pays is your business. What is not
    possible yet is tried for an hour. `sodactl explain JOB` tells how far it is. For root and SlurmUser, on the controller.
    Exit status: 0 if it can be done, else 1.

    \b
    Examples:
      sodactl share 17 --with 12             what would happen
      sodactl share 17 --with 12 --yes       do it
      sodactl share 17 --with 12 --json | jq '.objections[].remedy'
    """  # noqa: D301 - click reads the control character
    if job_id in host_ids:
        raise click.UsageError(f"--with: {job_id} is the same job; name another one")
    document = _share(site, job_id, tuple(dict.fromkeys(host_ids)), acts=acts)
    if as_json:
        output.print_json(document)
    else:
        _draw_share(document)
    return 0 if document["possible"] and not (acts and not document["asked"]) else 1


def _share(site: SiteAccess, guest: int, hosts: Sequence[int], *, acts: bool) -> Document:
    records = {record.job_id: record for record in site.slurm().jobs()}
    for job_id in (guest, *hosts):
        if job_id not in records:
            raise unknown_job_error(job_id, "")
    dump = ask_for_snapshot(site)
    snapshot = _sharing_snapshot(site, dump)
    with site.store() as store:
        plan = pipeline_of(dump.policy).decide(_as_if_asked(store, snapshot, guest, hosts))
        told = plan if isinstance(plan, SharingPlan) else None
        decision = None if told is None else told.decisions.get(guest)
        decision = decision if isinstance(decision, SharingDecision) else None
        join = next((one for one in plan.actions if isinstance(one, JoinGpus) and one.job_id == guest), None)
        refused = "" if told is None else told.refused_joins.get(guest, "")
        if records[guest].shared_gpus:
            refused = "it is a guest already, or waits to start as one"
        objections = list_objections(
            snapshot,
            guest,
            hosts,
            records,
            site.settings.sharing.partitions,
            joins=join is not None,
            refused=refused,
            decision=decision,
        )
        if join is not None and (why := _why_not_in_detail(site, records[guest])):
            objections.append(ShareObjection(why, find_remedy(f"it cannot be a guest: {why}"), forbids=True))
        possible = join is not None and not any(one.forbids for one in objections)
        asked = acts and possible and dump.mode == "enforce"
        if asked:
            ask_sodad(site, store, "share", records[guest], hosts)
    explanation = explain_sharing(decision)
    return {
        "now_s": site.now_s(),
        "mode": dump.mode,
        "policy": dump.policy.name,
        "job_id": guest,
        "hosts": list(hosts),
        "possible": possible,
        "asked": asked,
        "place": None if join is None else _place_document(join),
        "arithmetic": list(explanation.sentences),
        "decision": explanation.numbers or None,
        "objections": objection_documents(objections),
    }


def _sharing_snapshot(site: SiteAccess, dump: SnapshotDump) -> SharingSnapshot:
    if isinstance(dump.snapshot, SharingSnapshot):
        return dump.snapshot
    settings = site.settings.sharing
    if not settings.partitions:
        raise SodaError(
            "sharing.partitions is empty, so no GPUs are shared here; name the partition in [sharing] of soda.toml and "
            "reload sodad: docs/sharing.md"
        )
    pools = why_pools_exclude(settings, pools_in_force=members_of(dump.snapshot) is not None)
    raise SodaError(pools or "sodad cannot tell which GPUs could be shared; its log says why (sharing-not-seen)")


def _as_if_asked(store: Store, snapshot: SharingSnapshot, guest: int, hosts: Sequence[int]) -> SharingSnapshot:
    """The snapshot of the next cycle, were this recorded: an earlier word of an admin's about this job holds no more."""
    with store.read() as session:
        rows, parted = manual_shares(session), parted_pairs(session)
    lifted = {
        (min(guest, host), max(guest, host))
        for row in rows
        if row.guest == guest and row.kind == "unshare"
        for host in row.hosts
    } - parted
    sharing = snapshot.sharing
    others = tuple(pair for pair in sharing.manual_joins if pair[0] != guest)
    return replace(
        snapshot,
        sharing=replace(
            sharing,
            apart=tuple(pair for pair in sharing.apart if pair not in lifted),
            manual_joins=(*others, *((guest, host) for host in hosts)),
            manual_partings=tuple(one for one in sharing.manual_partings if one != guest),
        ),
    )


def _why_not_in_detail(site: SiteAccess, record: SlurmJob) -> str:
    """What sodad asks last, before it sends: the request in detail."""
    try:
        return why_not_guest(record, site.slurm().request(record.job_id))
    except SlurmError as error:
        return f"Slurm does not tell what it asks for: {error}"


def _place_document(join: JoinGpus) -> Document:
    return {
        "nodes": list(join.nodes),
        "gpus": list(join.gpus),
        "own_gpus": join.own,
        "sub_batch": join.sub_batch or None,
        "steps": join.steps,
    }


def ask_sodad(site: SiteAccess, store: Store, kind: ManualKind, record: SlurmJob, hosts: Sequence[int]) -> None:
    """Record what the admin wants, and let sodad look at once."""
    submit_s = manual_changes.first_submit_times(store, [record])[record.job_id]
    with store.write() as session:
        put_manual_share(session, kind, record.job_id, submit_s, hosts, now_s=site.now_s(), by=site.context.who())
    wake_daemon(site)


def objection_documents(objections: Sequence[ShareObjection]) -> list[Document]:
    """As plain data."""
    return [{"reason": one.why, "remedy": one.remedy, "forbids": one.forbids} for one in objections]


def draw_objections(objections: Sequence[Document]) -> None:
    """Each with its remedy."""
    for one in objections:
        output.print_line(f"{'Not possible' if one['forbids'] else 'Against it'}: {one['reason']}.")
        output.print_line(f"  Remedy: {one['remedy']}.")


def draw_outcome(document: Document, asked: str) -> None:
    """What was done, or why nothing was."""
    if document["asked"]:
        output.print_line(asked)
    elif document["mode"] in NOTHING_DONE:
        output.print_line(f"{NOTHING_DONE[document['mode']]}.")
    elif document["possible"]:
        output.print_line("Nothing is done yet: --yes does it.")
    else:
        output.print_line("Nothing is done.")


def _draw_share(document: Document) -> None:
    guest, hosts, place = document["job_id"], ", ".join(map(str, document["hosts"])), document["place"]
    if place is None:
        output.print_line(f"Job {guest} cannot join job {hosts} now.")
    else:
        gpus, nodes = ", ".join(map(str, place["gpus"])), ", ".join(place["nodes"])
        own = (
            f", with {output.format_count(place['own_gpus'], 'GPU')} of its own on each node"
            if place["own_gpus"]
            else ""
        )
        output.print_line(f"Job {guest} would start on GPU {gpus} of {nodes}, beside job {hosts}{own}.")
    if document["arithmetic"]:
        output.print_line(f'The arithmetic ("it" is job {guest}):')
        output.print_lines(document["arithmetic"], indent=2)
    draw_objections(document["objections"])
    draw_outcome(
        document, f"sodad does it in its next cycle, by its own checks; `sodactl explain {guest}` tells how far it is."
    )
