"""``sodactl doctor``: what is wrong with this site, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from slurm_soda.sodactl import output
from slurm_soda.sodactl.checks import access, hooks, slurm, soda
from slurm_soda.sodactl.checks.finding import Config, Finding, Probe, parse_config
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.site import Site, on_site


@click.command()
@on_site
def doctor(site: Site, *, as_json: bool) -> int:
    """Check this site and say what to mend.

    Looks at Slurm's versions and settings, at the SPANK plugin, job_submit.lua, prolog and epilog, at rights, MUNGE and
    associations, and at store, daemon, agents and clocks. Changes nothing. Best run as root on the controller.
    Exit status: 1 if a check fails, else 0.

    \b
    Examples:
      sodactl doctor
      sodactl doctor --json | jq '.findings[] | select(.state != "ok")'
    """  # noqa: D301 - click reads the control character
    findings = list(examine(site))
    counts = Counter(finding.state for finding in findings)
    document: Document = {
        "findings": [asdict(finding) for finding in findings],
        "counts": {state: counts[state] for state in ("ok", "warn", "fail", "skip")},
    }
    if as_json:
        output.print_json(document)
    else:
        _draw(findings, document)
    return 1 if counts["fail"] else 0


def examine(site: Site) -> Iterator[Finding]:
    """Every check, Slurm's first; without slurmctld those that need it are left out."""
    probe = Probe(site.outside.runner())
    first = slurm.contact(probe)
    yield first
    config = parse_config(probe.text("scontrol", "show", "config") or "") if first.state == "ok" else {}
    nodes_text = probe.text("scontrol", "-o", "show", "nodes") if config else None
    if config:
        yield from _with_config(site, probe, config, nodes_text)
    else:
        yield Finding("settings", "skip", "slurmctld does not tell its settings", "see slurmctld")
    yield hooks.flags(probe)
    yield access.munge(probe)
    gpu_nodes = [name for name, gres in slurm.node_gres(nodes_text or "") if "gpu" in gres]
    yield from soda.everything(site, gpu_nodes)


def _with_config(site: Site, probe: Probe, config: Config, nodes_text: str | None) -> Iterator[Finding]:
    yield slurm.versions(probe, config)
    yield from slurm.settings(config)
    yield slurm.kill_wait(config, site.settings.preemption.default_grace_s)
    yield slurm.privacy(config, public=site.settings.api.public)
    yield slurm.gpu_types(nodes_text)
    yield hooks.plugin_stack(config)
    yield hooks.job_submit(config)
    yield from hooks.scripts(config)
    yield access.rights(probe, config, uid=site.outside.uid(), user=site.outside.who())
    yield access.associations(probe, config)


def _draw(findings: Sequence[Finding], document: Document) -> None:
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
