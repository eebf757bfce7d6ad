"""The answer of ``sodactl whatif``: on the terminal, as one JSON document, and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from slurm_soda.simulator.report.comparison_table import make_comparison_table, percent_text
from slurm_soda.simulator.report.run_results import times_better
from slurm_soda.simulator.report.time_text import span_text
from slurm_soda.simulator.site_plan.scope_gain import ScopeGain
from slurm_soda.simulator.traces.trace import JobTrace
from slurm_soda.simulator.whatif import advice
from slurm_soda.simulator.whatif.answer import WhatIfAnswer
from slurm_soda.simulator.whatif.candidate_runs import Candidate
from slurm_soda.simulator.whatif.gain_curve import make_gain_table
from slurm_soda.simulator.whatif.worse_off_jobs import ComparedJobs
from slurm_soda.sodactl import output
from slurm_soda.sodactl.simulation.policy_table import print_policy_runs

_MAX_LISTED = 20
DEMO = "the demo of slurm-soda"
"""Where jobs are from when no dump was named."""


class _ReportSection(NamedTuple):
    """Lines under a heading."""

    title: str
    lines: tuple[str, ...]
    code: bool = False
    """They are lines of a file."""
    ratios: Mapping[str, Sequence[tuple[float, float]]] = {}
    """Drawn below them on a page."""


class WhatIfReport:
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
        gain: ScopeGain | None = None,
    ) -> None:
        """``gain``: within a scope that somebody asked for."""
        self.found, self.path, self.trace, self.notes = found, path, trace, tuple(notes)
        self.described, self.gain = described, gain
        self.doubts = tuple(advice.list_caveats(found, trace.unused, total))

    @property
    def rows(self) -> tuple[Candidate, ...]:
        """The stand-in for the present first."""
        return (self.found.present, *self.found.others)

    @property
    def about(self) -> str:
        """Workload and cluster in one line."""
        site = self.found.site
        source = DEMO if self.path is None else str(self.path)
        gpus = output.format_count(site.cluster.total_gpus, "GPU")
        nodes = f"{output.format_count(len(site.cluster), 'node')}, {gpus}"
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
        yield from self._gain()
        if settings := advice.recommended_settings(self.found):
            yield _ReportSection("For sodad's configuration:", tuple(settings.splitlines()), code=True)
        if self.gain is not None:
            title = f"{self.gain.policy} for jobs in scope alone, beside Slurm (multifactor):"
            yield _ReportSection(title, tuple(self.gain.sentences()))
        yield from self._services()
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

    def _gain(self) -> Iterator[_ReportSection]:
        """What is gained, by who can checkpoint and who consents."""
        if not self.found.gain:
            return
        title = f"Average JCT over that of {self.found.present.label}, with 95 % intervals; below 1 is better:"
        curves = {
            line.name: [(point.can_checkpoint, point.ratio.value) for point in line.points] for line in self.found.gain
        }
        yield _ReportSection(title, tuple(_aligned(*make_gain_table(self.found.gain))), code=True, ratios=curves)

    def _services(self) -> Iterator[_ReportSection]:
        """What services hold now and would hold, and whether they answer."""
        lines = [
            f"{name}: {found['gpus_held']:.1f} GPUs (at most {found['gpus_held_most']}), {found['cpu_instances']:.1f}"
            f" instances on cores; {found['over_target']:,.0f} of {found['queries']:,.0f} queries later than their target,"
            f" {found['lost']:,.0f} not answered"
            for name, found in self._served().items()
        ]
        if lines:
            yield _ReportSection("Services hold on average:", tuple(lines))

    def _served(self) -> dict[str, dict[str, Any]]:
        """Figures of services by candidate: the present and the best; of the first workload."""
        shown = {self.found.present.label: self.found.present, self.found.best.label: self.found.best}
        records = {name: one.runs.runs[0].services for name, one in shown.items()}
        return {name: record.document() for name, record in records.items() if record is not None}

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
            "gain": [line.document() for line in found.gain],
            "services": self._served(),
            "scope": None if self.gain is None else {"policy": self.gain.policy} | self.gain.document(),
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


def _aligned(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows of a table as lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    for line in (titles, *cells):
        first, *others = (
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield "  ".join((first, *others))


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


def write_report_page(report: WhatIfReport, path: Path) -> None:
    """The same as an HTML page with charts.

    Raises:
        SimulatorError: the page cannot be written.
    """
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
        passages=tuple(ReportSection(p.title.removesuffix(":"), p.lines, p.code, p.ratios) for p in passages),
    )
    write_page(content, path)
