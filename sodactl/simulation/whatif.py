"""``sodactl whatif``: a site's own accounting in, a one-page answer out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.report.comparison_table import make_comparison_table, percent_text
from slurm_soda.simulator.report.run_results import times_better
from slurm_soda.simulator.report.time_text import span_text
from slurm_soda.simulator.traces.sacct.cluster_from_dump import cluster_from
from slurm_soda.simulator.traces.sacct.columns import SACCT_COMMAND
from slurm_soda.simulator.traces.sacct.dump import SacctDump, read_sacct_dump
from slurm_soda.simulator.traces.trace import JobTrace
from slurm_soda.simulator.whatif import advice
from slurm_soda.simulator.whatif.answer import WhatIfAnswer, answer_question
from slurm_soda.simulator.whatif.candidate_runs import Candidate, WhatIfQuestion
from slurm_soda.simulator.whatif.candidates import PRESENT_STAND_INS, TRIED_POLICIES
from slurm_soda.simulator.whatif.observed_site import ObservedSite, latest_jobs, make_observed_site
from slurm_soda.simulator.whatif.worse_off_jobs import ComparedJobs
from slurm_soda.sodactl import output
from slurm_soda.sodactl.simulation.inputs.parameter_types import POLICY
from slurm_soda.sodactl.simulation.inputs.policy_parameters import choose_policies, complete_assignment
from slurm_soda.sodactl.simulation.inputs.sharing_options import (
    SharingOptionValues,
    add_sharing_options,
    build_sharing_rules,
    sharing_notes,
)
from slurm_soda.sodactl.simulation.policy_table import print_policy_runs
from slurm_soda.sodactl.simulation.progress_bar import progress_bar

_PATH = click.Path(path_type=Path)
_MAX_LISTED = 20
_DEMO = "the demo of slurm-soda"


@click.command(epilog=f"Make the dump with:  {SACCT_COMMAND} > dump.txt")
@click.option("--sacct", "path", type=_PATH, help="Dump of the site's accounting.  [default: a small example]")
@click.option(
    "--cluster",
    "cluster_text",
    metavar="NxG[:TYPE]",
    help="Nodes x GPUs on each, such as 16x4 or 8x8:a100/128c/1024g+20x0/64c.  [default: what jobs ran on]",
)
@click.option(
    "--restart-cost-s",
    type=click.FloatRange(min=0.0),
    help="What a start after a preemption costs a job."
    "  [default: 62, as Tiresias measured, or a tenth of the mean run time if that is less]",
)
@click.option(
    "--policy", "policies", multiple=True, type=POLICY, metavar="NAME", help="Also try this policy; repeatable."
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="[POLICY.]KEY=VALUE",
    shell_complete=complete_assignment,
    help="A parameter of all policies that have it, or of one; repeatable.",
)
@click.option(
    "--jobs",
    default=5000,
    show_default=True,
    type=click.IntRange(min=1),
    help="Simulate the latest N jobs of the dump.",
)
@add_sharing_options
@click.option("--lenient", is_flag=True, help="Skip and list what cannot be read, instead of stopping.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one per CPU; 1 for little work]")
@click.option("--html", "html_path", type=_PATH, help="Write a page with the answer and charts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def whatif(
    *, path: Path | None, cluster_text: str | None, restart_cost_s: float | None, policies: tuple[str, ...],
    assignments: tuple[str, ...], jobs: int, sharing: SharingOptionValues, lenient: bool, workers: int | None,
    html_path: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """What would another policy do to this site?

    Reads the site's own accounting, simulates what the site does now and what slurm-soda could do, and says which policy,
    what gain, for whom it gets worse, and what to doubt. Nothing is asked of Slurm and nothing is changed.

    The first line of the table is what accounting says. The next one is the simulation of the site as it is: how far the two
    are apart is how far the others can be trusted. JCT, job completion time, is submission to end; the wait is JCT less all
    time on resources.

    \b
    Examples:
      sodactl whatif                                   a look, on 30 jobs of a demo cluster
      sodactl whatif --sacct dump.txt                  the site's own jobs on the nodes that they ran on
      sodactl whatif --sacct dump.txt --cluster 32x8 --restart-cost-s 120
      sodactl whatif --sacct dump.txt --policy gandiva --set tiresias-las.min_run_s=600 --html answer.html
      sodactl whatif --sacct dump.txt --policy sjf-bsbf --pair-slowdown 1.5
      sodactl whatif --sacct dump.txt --json | jq '.recommended'
    """  # noqa: D301 - click reads the control character
    given = _parameters(policies, assignments)
    dump = read_sacct_dump(path or _demo_dump(), lenient)
    site, notes, trace = _site(dump, path, cluster_text, lenient=lenient)
    total = len(site.workload)
    site = latest_jobs(site, jobs)
    rules = build_sharing_rules(sharing, site.cluster)
    notes = (*notes, *sharing_notes(rules, site.workload, site.cluster))
    with progress_bar("runs") as progress:
        found = answer_question(site, WhatIfQuestion(restart_cost_s, given, policies, workers, rules), progress)
    report = _Report(found, path, trace, notes, total, described=cluster_text is not None)
    if html_path is not None:
        _write_page(report, html_path)
    if as_json:
        output.print_json(report.document())
    else:
        report.draw()
    if found.failed:
        raise SimulatorError(f"{len(found.failed):,} of the policies failed; the answer is that of the others")


def _demo_dump() -> Path:
    from slurm_soda.simulator import whatif as package  # noqa: PLC0415 - only without --sacct

    return Path(package.__file__).parent / "demo-stock.txt"


def _parameters(policies: Sequence[str], assignments: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    names = dict.fromkeys((*(choice.name for choice in PRESENT_STAND_INS), *TRIED_POLICIES, *policies))
    return {choice.name: choice.parameters for choice in choose_policies(list(names), assignments)}


def _site(
    dump: SacctDump, path: Path | None, cluster_text: str | None, *, lenient: bool
) -> tuple[ObservedSite, tuple[str, ...], JobTrace]:
    """The site, what was taken for granted, and its trace without jobs that the cluster cannot hold."""
    trace, notes = dump.trace, dump.notes
    if cluster_text is None:
        cluster, concluded = cluster_from(dump)
        notes = (*notes, *concluded)
    else:
        from slurm_soda.simulator.traces.cluster_fit import drop_oversized_jobs  # noqa: PLC0415 - what jobs ran on holds them

        try:
            cluster = parse_cluster(cluster_text, trace.workload.partitions)
        except SimulatorError as error:
            raise click.UsageError(str(error)) from error
        trace = drop_oversized_jobs(trace, cluster, lenient=lenient, path=path or _DEMO)
    return make_observed_site(trace, dump.runs, cluster), notes, trace


class _ReportSection(NamedTuple):
    """Lines under a heading."""

    title: str
    lines: tuple[str, ...]
    code: bool = False
    """They are lines of a file."""


class _Report:
    """An answer with where it comes from, ready to be shown."""

    def __init__(
        self,
        found: WhatIfAnswer,
        path: Path | None,
        trace: JobTrace,
        notes: Sequence[str],
        total: int,
        *,
        described: bool,
    ) -> None:
        self.found, self.path, self.trace, self.notes = found, path, trace, tuple(notes)
        self.described = described
        self.doubts = tuple(advice.list_caveats(found, trace.unused, total))

    @property
    def rows(self) -> tuple[Candidate, ...]:
        """The stand-in for the present first."""
        return (self.found.present, *self.found.others)

    @property
    def about(self) -> str:
        """Workload and cluster in one line."""
        site = self.found.site
        source = _DEMO if self.path is None else str(self.path)
        nodes = f"{len(site.cluster):,} nodes, {site.cluster.total_gpus:,} GPUs"
        where = site.cluster.name if self.described else "what they ran on"
        return f"{len(site.workload):,} jobs of {source} on {where} ({nodes})"

    def table(self) -> tuple[list[str], list[list[str]]]:
        """What was observed, what stands for it, and what was tried."""
        titles, cells = make_comparison_table([candidate.runs for candidate in self.rows])
        seen = self.found.seen
        observed = {
            "policy": "observed",
            "avg JCT": span_text(seen.avg_jct_s),
            "median": span_text(seen.p50_jct_s),
            "p95": span_text(seen.p95_jct_s),
            "avg wait": span_text(seen.avg_queue_s),
            "makespan": span_text(seen.makespan_s),
            "GPUs used": percent_text(seen.gpu_util_ratio),
        }
        named = [[self._name(candidate), *line[1:]] for candidate, line in zip(self.rows, cells, strict=True)]
        return titles, [[observed.get(title, "") for title in titles], *named]

    def _name(self, candidate: Candidate) -> str:
        if candidate is self.found.present:
            return f"{candidate.label} (stands for the present)"
        if candidate is self.found.bound:
            return f"{candidate.label} (knows all run times)"
        return candidate.label

    def draw(self) -> None:
        """The page on the terminal."""
        output.print_line(self.about)
        output.print_line()
        print_policy_runs(*self.table())
        for passage in self.passages():
            output.print_line()
            output.print_line(passage.title)
            for line in passage.lines:
                output.print_line(f"  {line}")

    def passages(self) -> Iterator[_ReportSection]:
        """What is said below the table."""
        yield _ReportSection(f"{advice.headline(self.found)}.", tuple(advice.list_findings(self.found)))
        if settings := advice.recommended_settings(self.found):
            yield _ReportSection("For sodad's configuration:", tuple(settings.splitlines()), code=True)
        yield _ReportSection("What to bear in mind:", self.doubts)
        if self.found.failed:
            yield _ReportSection("Failed, and missing above:", tuple(map(str, self.found.failed)))
        if left := tuple(f"{count:,} {reason}" for reason, count in self.trace.unused.items()):
            yield _ReportSection("Not simulated:", left)
        if self.trace.skipped:
            listed = tuple(f"line {entry.line}: {entry.reason}" for entry in self.trace.skipped[:_MAX_LISTED])
            more = len(self.trace.skipped) - len(listed)
            yield _ReportSection(
                "Left out, because it cannot be used:", (*listed, *((f"and {more:,} more",) if more else ()))
            )
        if self.notes:
            yield _ReportSection("Taken for granted:", self.notes)

    def document(self) -> dict[str, Any]:
        """Everything as plain data."""
        found = self.found
        return {
            "headline": advice.headline(found),
            "recommended": None if found.recommended is None else self._candidate(found.recommended),
            "settings": advice.recommended_settings(found),
            "observed": {name: getattr(found.seen, name) for name in found.seen.__slots__},
            "present": self._candidate(found.present),
            "present_error_ratio": found.error_ratio,
            "policies": [self._candidate(candidate) for candidate in found.others],
            "failed": [{"policy": one.policy, "reason": one.reason} for one in found.failed],
            "twice_the_restart_cost": None if found.dearer is None else self._candidate(found.dearer),
            "worse": {
                "compared": found.best.label,
                "everybody": _group_document(found.losers.everybody),
                "worse_extra_s": found.losers.worse_extra_s,
                "groups": [_group_document(group) for group in found.losers.groups],
            },
            "findings": list(advice.list_findings(found)),
            "doubts": list(self.doubts),
            "restart_s": found.restart_s,
            "restart_is_guessed": found.restart_is_guessed,
            "start_delay_s": found.site.start_delay_s,
            "workloads": found.members,
            "sacct": None if self.path is None else str(self.path),
            "jobs": len(found.site.workload),
            "cluster": found.site.cluster.name,
            "nodes": len(found.site.cluster),
            "gpus": found.site.cluster.total_gpus,
            "unused": dict(self.trace.unused),
            "skipped": [
                {"line": entry.line, "reason": entry.reason, "value": entry.value} for entry in self.trace.skipped
            ],
            "notes": list(self.notes),
        }

    def _candidate(self, candidate: Candidate) -> dict[str, Any]:
        runs = candidate.runs
        figures = (
            "avg_jct_s",
            "p50_jct_s",
            "p95_jct_s",
            "p99_jct_s",
            "avg_queue_s",
            "makespan_s",
            "gpu_util_ratio",
            "preemptions",
            "unfinished",
        )
        return {
            "label": candidate.label,
            "role": candidate.role,
            "policy": candidate.choice.name,
            "parameters": dict(candidate.choice.parameters),
            **{name: runs.mean(name) for name in figures},
            "avg_jct_spread_s": runs.spread("avg_jct_s"),
            "times_better": times_better(self.found.present.runs, runs),
        }


def _group_document(group: ComparedJobs) -> dict[str, Any]:
    return {
        "kind": group.kind,
        "name": group.name,
        "jobs": group.jobs,
        "before_s": group.before_s,
        "after_s": group.after_s,
        "change_ratio": group.change_ratio,
        "worse_jobs": group.worse,
    }


def _write_page(report: _Report, path: Path) -> None:
    from slurm_soda.simulator.report.page import ReportContent, ReportSection  # noqa: PLC0415 - most answers go to the terminal
    from slurm_soda.sodactl.simulation.report_files import write_page  # noqa: PLC0415

    first, *others = report.passages()
    passages = (first._replace(title="What follows"), *others)
    titles, (seen, *_) = report.table()
    shown = ", ".join(f"{name} {cell}" for name, cell in zip(titles, seen, strict=True) if cell and name != "policy")
    content = ReportContent(
        rows=tuple(candidate.runs for candidate in report.rows),
        about=f"{report.about}. Observed: {shown}. {report.rows[0].label} stands for the present.",
        gpus=report.found.site.cluster.total_gpus,
        title=first.title,
        passages=tuple(ReportSection(p.title.removesuffix(":"), p.lines, p.code) for p in passages),
    )
    write_page(content, path)
