"""``sodactl doctor``: what is wrong with this site, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import click
from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.pools.configured_nodes import check_configured
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.pools.pools_record import read_record
from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig, ask_config, config_of
from slurm_soda.sodactl import output
from slurm_soda.sodactl.checks import (
    access,
    daemon_and_agents,
    prolog_on_nodes,
    scope,
    services,
    sharing,
    slurm_conf,
    slurm_hooks,
)
from slurm_soda.sodactl.checks.check_result import CHECK_TIMEOUT_S, CheckResult, CommandProbe
from slurm_soda.sodactl.checks.clusters import check_federation
from slurm_soda.sodactl.checks.configuration import check_configuration
from slurm_soda.sodactl.checks.installation import check_installation
from slurm_soda.sodactl.checks.metrics import check_metrics
from slurm_soda.sodactl.checks.page import check_page
from slurm_soda.sodactl.checks.reader import check_reader
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.site.roll_out import read_standing
from slurm_soda.sodactl.site_access import SiteAccess, on_site


@click.command()
@on_site
def doctor(site: SiteAccess, *, as_json: bool) -> int:
    """Check this site and say what to fix.

    Checks Slurm's versions and settings, the SPANK plugin, job_submit.lua, prolog and epilog, rights, MUNGE and
    associations, what sharing GPUs needs where it is on, store, daemon, agents and clocks, and the metrics where they
    are on. Changes nothing. Best run as root on the controller.
    Exit status: 1 if a check fails, else 0.

    \b
    Examples:
      sodactl doctor
      sodactl doctor --json | jq '.findings[] | select(.state != "ok")'
    """  # noqa: D301 - click reads the control character
    findings = list(run_checks(site))
    counts = Counter(finding.state for finding in findings)
    document: Document = {
        "findings": [asdict(finding) for finding in findings],
        "counts": {state: counts[state] for state in ("ok", "warn", "fail", "skip")},
        "roll_out": describe_roll_out(site),
    }
    if as_json:
        output.print_json(document)
    else:
        _draw(findings, document)
    return 1 if counts["fail"] else 0


def describe_roll_out(site: SiteAccess) -> Document | None:
    """At which stage the site stands, for programs; ``None`` where the store cannot be asked."""
    with suppress(StoreError, SQLAlchemyError), site.store() as store, store.read() as session:
        standing = read_standing(session, site.settings, site.now_s())
        return asdict(standing) | {"ready": standing.ready}
    return None


def run_checks(site: SiteAccess) -> Iterator[CheckResult]:
    """Every check, Slurm's first; without slurmctld those that need it are left out."""
    probe = CommandProbe(site.context.runner())
    first = slurm_conf.check_contact(probe)
    yield first
    config = config_of(ask_config(probe.runner, CHECK_TIMEOUT_S)) if first.state == "ok" else {}
    nodes_text = probe.text("scontrol", "-o", "show", "nodes") if config else None
    if config:
        yield from _checks_of_config(site, probe, config, nodes_text)
        yield from check_reader(site)
    else:
        yield CheckResult("settings", "skip", "slurmctld does not tell its settings", "see slurmctld")
        yield from slurm_hooks.check_start(site.context.host())
    yield from check_installation()
    yield from check_configuration(site, config)
    yield from _checks_of_pools(site, config)
    if config and site.settings.sharing.partitions:
        yield from _checks_of_sharing(site, probe, config, nodes_text or "")
    if config:
        yield from scope.check_scope_names(site.settings.scope, probe, config, site.partitions().partitions)
        yield from services.check_first_in(site.settings.services, site.partitions().partitions)
    yield slurm_hooks.check_flags(probe)
    yield access.check_munge(probe)
    yield from daemon_and_agents.check_store_parts(site, config, nodes_text or "")
    yield from check_metrics(site, config)
    yield from check_page(site)


def _checks_of_pools(site: SiteAccess, config: SlurmConfig) -> Iterator[CheckResult]:
    """What keeps slurmctld from starting where pools are applied; by files, so that it is told then too."""
    with suppress(SlurmError):  # `sodactl pools` says what is wrong with the record
        record = read_record(Path(site.settings.state_dir))
        for obstacle in check_configured(record, config) if record is not None else ():
            yield CheckResult(obstacle.check, "fail", obstacle.found, obstacle.remedy)
        gone = sorted(set(record.sent) - set(site.partitions().partitions())) if record is not None and config else []
        if gone:
            found = f"Slurm does not have {', '.join(gone)}, of pools that were applied: no job is sent there"
            remedy = "make them again: sodactl pools apply; or take the pools back: sodactl pools revert"
            yield CheckResult("pool partitions", "fail", found, remedy)


def _checks_of_sharing(
    site: SiteAccess, probe: CommandProbe, config: SlurmConfig, nodes_text: str
) -> Iterator[CheckResult]:
    settings, pools = site.settings.sharing, False
    with suppress(SlurmError):
        pools = read_record(Path(site.settings.state_dir)) is not None
    hooks = daemon_and_agents.reported_hook_settings(site)
    every = site.partitions().partitions
    yield from sharing.check_sharing(settings, config, nodes_text, every, hooks=hooks, pools=pools)
    script = slurm_hooks.job_submit_path(config)
    yield from sharing.check_guard(probe, config, settings.gres, script, uid=site.context.uid())


def _checks_of_config(
    site: SiteAccess, probe: CommandProbe, config: SlurmConfig, nodes_text: str | None
) -> Iterator[CheckResult]:
    yield slurm_conf.check_versions(probe, config)
    yield from slurm_conf.check_capabilities(probe, shares=bool(site.settings.sharing.partitions))
    yield from slurm_conf.check_slurm_conf(config)
    if (federated := check_federation(config)) is not None:
        yield federated
    yield slurm_conf.check_kill_wait(config, site.settings.preemption.default_grace_s)
    yield slurm_conf.check_gpu_types(nodes_text)
    yield slurm_conf.check_drained_nodes(nodes_text, site.settings.sharing.gres)
    yield slurm_hooks.check_plugin_stack(config)
    yield slurm_hooks.check_job_submit(config, site.context.host())
    yield from slurm_hooks.check_hook_scripts(config)
    yield from prolog_on_nodes.check_drained_for_prolog(config, nodes_text or "")
    yield access.check_rights(probe, config, uid=site.context.uid(), user=site.context.who())
    yield access.check_associations(probe, config)
    yield access.check_limits(probe, config, rewrites=site.settings.cpu_fit.rewrite != "off")


def _draw(findings: Sequence[CheckResult], document: Document) -> None:
    rows = [(finding.state, finding.check, finding.found) for finding in findings]
    output.print_table([Column(""), Column("check"), Column("found")], rows)
    wrong = [finding for finding in findings if finding.state in ("fail", "warn") and finding.remedy]
    if wrong:
        output.print_line()
        output.print_line("What to do:")
        for finding in sorted(wrong, key=lambda finding: finding.state):
            output.print_line(f"  {finding.check}: {finding.remedy}")
    output.print_line()
    output.print_line(", ".join(f"{count} {state}" for state, count in document["counts"].items() if count))
