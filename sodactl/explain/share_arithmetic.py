"""The arithmetic behind a share, for ``sodactl explain``: of a guest and its host, and of whom a waiting job could join."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice

from slurm_soda.daemon.api.views import JobDetailView
from slurm_soda.daemon.settings.sharing import SharingSettings
from slurm_soda.daemon.sharing.may_join import all_listed, consents, partitions_share
from slurm_soda.policies.explanation.sharing import explain_sharing
from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.sharing.snapshot import SharingPolicy
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl.explain import pair_document, pair_jobs
from slurm_soda.sodactl.live.view_source import ViewSource
from slurm_soda.sodactl.output import Document
from slurm_soda.sodactl.site_access import SiteAccess

MOST_HOSTS = 3
"""Running jobs that a waiting one is compared with."""


def describe_pairs(
    site: SiteAccess, source: ViewSource, view: JobDetailView, records: Mapping[int, SlurmJob], warnings: list[str]
) -> list[Document]:
    """Of a guest or a host each pair that it is in; of a job that waits and could share, the best pair that it could be in.

    Each has ``guest``, ``host``, ``now`` (it is a pair), ``trouble`` (why there is no arithmetic), ``decision`` and
    ``arithmetic`` as for ``--with``, and ``forbidden`` (sentences).
    """
    record = None if view.job is None else records.get(view.job.job_id)
    if record is None:
        return []
    pairs = [(share.guest, host) for share in view.shares if share.phase != "over" for host in share.hosts]
    own = [pair for pair in pairs if record.job_id in pair]
    hosts = [] if own else list(islice(_possible_hosts(record, records, site.settings.sharing), MOST_HOSTS))
    asked = own or [(record.job_id, host) for host in hosts]
    if not asked:
        return []
    listed = pair_jobs.list_slurm(site, warnings)
    found = [_describe(site, source, pair, listed, now=bool(own)) for pair in asked]
    return found if own else [max(found, key=_gained_s)]


def _possible_hosts(job: SlurmJob, records: Mapping[int, SlurmJob], settings: SharingSettings) -> Sequence[int]:
    """Running jobs that a waiting one might join by consent, users and partitions; those with as many GPUs first."""
    if job.state != "PENDING" or job.shared_gpus or not (partitions_share(job, settings) and consents(job, settings)):
        return []

    def may_meet(other: SlurmJob) -> bool:
        both = (job.partition, other.partition)
        return other.user == job.user or all(all_listed(one, settings.different_users) for one in both)

    able = [
        other
        for other in records.values()
        if other.state == "RUNNING" and not other.shared_gpus and consents(other, settings)
        if partitions_share(other, settings) and may_meet(other)
    ]
    return [other.job_id for other in sorted(able, key=lambda one: (abs(one.gpus - job.gpus), -one.start_s))]


def _describe(
    site: SiteAccess, source: ViewSource, pair: tuple[int, int], listed: pair_jobs.SlurmListing, *, now: bool
) -> Document:
    document: Document = {"guest": pair[0], "host": pair[1], "now": now, "trouble": ""}
    try:
        new, running = pair_jobs.read_pair_jobs(site, source, pair, listed, [])
        found = pair_document.read_assessment(source, new, running, as_guest=True)
    except SodaError as error:
        return document | {"trouble": str(error), "decision": None, "arithmetic": [], "forbidden": []}
    explanation = explain_sharing(found.decision)
    return document | {
        "decision": explanation.numbers or None,
        "arithmetic": list(explanation.sentences),
        "forbidden": list(pair_document.list_forbidden(found)),
    }


def _gained_s(pair: Document) -> float:
    gained_s = (pair["decision"] or {}).get("gained_s")
    return -math.inf if gained_s is None else float(gained_s)


def list_pair_sentences(pairs: Sequence[Document], policy: str) -> list[str]:
    """For people, after the job's other reasons."""
    policy_shares = policy not in policy_names() or isinstance(make_policy(policy), SharingPolicy)
    sentences: list[str] = []
    for pair in pairs:
        guest, host = pair["guest"], pair["host"]
        if pair["now"]:
            sentences.append(
                f'Job {guest} beside job {host}, by what is known now, as if it came anew ("it" is job {guest}):'
            )
        else:
            sentences.append(f"It could join job {host}, as far as consent goes:")
        if pair["trouble"] or not pair["decision"]:
            sentences.append(f"There is no arithmetic: {pair['trouble'] or 'it is not known how long both will run'}.")
        sentences += [*pair["arithmetic"], *pair["forbidden"]]
        if not pair["now"] and not policy_shares:
            sentences.append(
                "The policy never shares GPUs; an admin can: "
                f"`sodactl share {guest} --with {host}` shows what speaks against it."
            )
    return sentences
