"""Check of SiteFactors: each is a lift that sodad has recorded."""

from __future__ import annotations

from sqlalchemy.orm import Session

from slurm_soda.daemon.store import queries
from slurm_soda.slurm_ext.client import site_factors_if_any
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig, list_config_values
from slurm_soda.sodactl import output
from slurm_soda.sodactl.checks.check_result import CheckResult
from slurm_soda.sodactl.site_access import SiteAccess


def check_site_factors(session: Session | None, site: SiteAccess, config: SlurmConfig) -> CheckResult:
    """Every SiteFactor is explained by the record of changes; ``session`` is ``None`` where there is no store.

    A lift that nobody remembers is ended by nobody while sodad only observes: it may as well be the site's own.
    """
    if list_config_values(config, "PrioritySiteFactorPlugin"):
        return CheckResult("lifts", "skip", "a plugin of this site sets SiteFactors")
    try:
        found = {job_id: factor for job_id, factor in site_factors_if_any(site.slurm()).items() if factor}
    except SlurmError:
        return CheckResult("lifts", "skip", "Slurm does not tell SiteFactors")
    recorded = {} if session is None else queries.last_site_factors(session, list(found))
    unexplained = sorted(job_id for job_id, factor in found.items() if recorded.get(job_id) != str(factor))
    if not unexplained and found and session is not None and not _enforces(session, site):
        remedy = "end them: sodactl release-all"
        return CheckResult("lifts", "fail", f"{len(found)}, and in this mode sodad ends none of them", remedy)
    if not unexplained:
        return CheckResult("lifts", "ok", f"{len(found)}, all of them recorded")
    return CheckResult(
        "lifts",
        "warn",
        f"no record explains the SiteFactor of {output.format_first(unexplained)}",
        "if the site does not set SiteFactors itself, they are lifts of a sodad whose store was lost: "
        "`sodactl release-all` resets them, and so does a sodad that enforces",
    )


def _enforces(session: Session, site: SiteAccess) -> bool:
    return queries.setting_values(session).get("mode", site.settings.mode) == "enforce"
