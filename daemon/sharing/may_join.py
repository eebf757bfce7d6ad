"""Whether a job that a plan lets join others may: by consent, its way of asking, and limits of accounting."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from slurm_soda.daemon.cpu_fit.limits_lookup import LimitsLookup
from slurm_soda.daemon.settings.sharing import SharingSettings
from slurm_soda.policies.cpu_fit.limits import AccountingLimits, binding_limit
from slurm_soda.policies.pipeline.actions import JoinGpus
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.sharing.guest_requests import why_not_guest


def partitions_share(job: SlurmJob, settings: SharingSettings) -> bool:
    """Whether all partitions in which a job may run let jobs share."""
    return all_listed(job.partition, settings.partitions)


def all_listed(partition: str, allowed: Collection[str]) -> bool:
    """Whether each of a job's partitions, as Slurm lists them, is one of these."""
    return set(partition.split(",")) <= set(allowed)


def consents(job: SlurmJob, settings: SharingSettings) -> bool:
    """By its owner's word, or the site's, which does not count for instances of services: they have a latency to keep."""
    said = job.hints.share
    by_default = settings.consent_by_default and job.hints.service is None
    return job.gpus > 0 and (by_default if said is None else said)


def why_pools_exclude(settings: SharingSettings, *, pools_in_force: bool) -> str:
    """Why nothing is shared where the site has set up sharing, and after a semicolon what to do; empty: it may be."""
    if not (settings.partitions and pools_in_force):
        return ""
    return (
        f"sharing.partitions = {', '.join(settings.partitions)} has no effect: pools are in force, and in them no GPUs are "
        "shared; take back the pools (sodactl pools revert) or empty sharing.partitions"
    )


@dataclass(slots=True)
class JoinChecks:
    """What is asked of Slurm about a job before it becomes a guest."""

    client: SlurmClient
    limits: LimitsLookup
    _known: AccountingLimits | None = None
    _bound: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """By user, account and QOS, what :attr:`_known` says of their jobs."""

    def why_not(
        self, action: JoinGpus, job: SlurmJob, hosts: Sequence[SlurmJob], settings: SharingSettings, steady_s: float
    ) -> str:
        """Why it does not join these hosts, whatever it asks for; empty: it may."""
        for each in (job, *hosts):
            if not (partitions_share(each, settings) and consents(each, settings)):
                return f"job {each.job_id} has not agreed to share" if each is not job else "it has not agreed to share"
        for host in hosts:
            if host.exclusive.whole_nodes or (host.exclusive.keeps_off and host.user != job.user):
                return f"job {host.job_id} keeps its nodes from others (--exclusive)"
        return self.why_bound(job, steady_s)

    def why_not_as_it_asks(self, job: SlurmJob) -> str:
        """What in its whole request, for which Slurm is asked, a guest cannot have; empty: nothing."""
        try:
            return why_not_guest(job, self.client.request(job.job_id))
        except SlurmError as error:
            return f"Slurm does not tell what it asks for: {error}"

    def why_bound(self, job: SlurmJob, steady_s: float) -> str:
        """What Slurm lacks to guard guests, or a limit of accounting that would not stop it as one; empty: neither."""
        known = self.limits.current(steady_s)  # asks beside the cycle
        if known is None:
            return "limits of accounting are not known now"
        if known is not self._known:
            self._known, self._bound = known, {}
        if known.unguarded:
            return known.unguarded
        whose = (job.user, job.account, job.qos)
        if whose not in self._bound:
            self._bound[whose] = binding_limit(known, *whose, gpus=True)
        limit = self._bound[whose]
        return f"as a guest it would pass a limit: {limit}" if limit else ""
