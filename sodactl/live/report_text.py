"""Reports of jobs as text, for terminals of any kind: nothing but words, numbers and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slurm_soda.daemon.job_reports.model import (
    GpuFigures,
    IdleTime,
    JobLine,
    JobLines,
    JobReport,
    NodeFigures,
    RunFigures,
)
from slurm_soda.daemon.readable import format_count, format_duration, format_instant, format_memory, format_percent
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Column

TIMELINE_WIDTH = 30
MOST_PAUSES = 5
MOST_NODES = 32
"""Nodes of one run that the text shows; --json has all."""


def print_report(report: JobReport) -> None:
    """All of it, the newest run in detail."""
    job = report.job
    exit_code = f", exit code {job.exit_code}" if job.end_s is not None and job.exit_code not in ("", "0:0") else ""
    output.print_line(f"Job {job.job_id} ({job.name}) of {job.user}: {job.state}{exit_code}")
    output.print_fields(_fields(report), indent=2)
    if report.runs:
        _print_run(report.runs[-1])
    if report.missing:
        output.print_line()
        output.print_line("Not measured:")
        output.print_lines(report.missing, indent=2)
    output.print_line()
    if report.advice:
        output.print_line("Advice:")
        output.print_lines((one.text for one in report.advice), indent=2)
    else:
        output.print_line(
            "Nothing stands out." if report.runs and not report.missing else "No advice: too little is known."
        )


def _fields(report: JobReport) -> Iterator[tuple[str, str]]:
    job, used = report.job, report.used
    asked = [format_count(job.gpus, "GPU"), format_count(job.cpus, "CPU")]
    asked += [format_memory(job.memory_mib)] if job.memory_mib else []
    limit = "unlimited" if job.time_limit_s is None else format_duration(job.time_limit_s)
    yield "asked for", f"{', '.join(asked)} on {format_count(job.nodes, 'node')} of {job.partition}, time limit {limit}"
    yield "waited", _waited(report)
    if report.runs:
        yield "ran", _ran(report)
    if job.gpus and report.runs:
        yield "GPU use", _gpu_use(report)
        if used.gpu_memory_peak_mib is not None:
            yield "GPU memory", f"{_of(used.gpu_memory_peak_mib, used.gpu_memory_mib)} on the fullest GPU"
        if used.energy_wh is not None:
            yield "GPU energy", _energy(used.energy_wh)
    if report.runs:
        yield "CPU cores", _cores(report)
        yield "memory", f"{_of(used.memory_peak_mib, used.memory_asked_mib)} on the fullest node"
    if report.preemptions.times or report.preemptions.requeues:
        yield "gave way", _gave_way(report)
    if report.sharing is not None:
        yield "shared", _shared(report)


def _waited(report: JobReport) -> str:
    waiting = report.waiting
    later = f", and {format_duration(waiting.later_s)} between runs" if waiting.later_s >= 1 else ""
    reasons = ", ".join(f"{one.reason} {format_duration(one.waited_s)}" for one in waiting.reasons[:4])
    return f"{format_duration(waiting.first_s)}{later}{f': {reasons}' if reasons else ''}"


def _ran(report: JobReport) -> str:
    first, last = report.runs[0], report.runs[-1]
    runs = f" in {len(report.runs)} runs" if len(report.runs) > 1 else ""
    until = "until now" if last.end_s is None else f"to {format_instant(last.end_s)}"
    return f"{format_duration(report.used.run_s)}{runs}, from {format_instant(first.start_s)} {until}"


def _gpu_use(report: JobReport) -> str:
    used = report.used
    if used.gpu_util_ratio is None:
        return f"not measured; {used.gpu_hours:.1f} GPU hours held"
    idle = "" if used.gpu_idle_ratio is None else f", idle {format_percent(used.gpu_idle_ratio)} of the time"
    never = f"; {format_count(used.gpus_never_used, 'GPU')} never used" if used.gpus_never_used else ""
    return f"{format_percent(used.gpu_util_ratio)} of {used.gpu_hours:.1f} GPU hours{idle}{never}"


def _energy(energy_wh: float) -> str:
    return f"{energy_wh / 1000:.2f} kWh" if energy_wh >= 100 else f"{energy_wh:.1f} Wh"


def _cores(report: JobReport) -> str:
    used = report.used.cores_used
    return "not measured" if used is None else f"{used:.1f} of {report.job.cpus} on average"


def _of(used: float | None, whole: float | None) -> str:
    if used is None:
        return f"not measured{'' if whole is None else f' of {format_memory(whole)}'}"
    return format_memory(used) if not whole else f"{format_memory(used)} of {format_memory(whole)}"


def _gave_way(report: JobReport) -> str:
    gave_way = report.preemptions
    told = f"{format_count(gave_way.times, 'time')}, {format_count(gave_way.requeues, 'requeue')} in all"
    if gave_way.lost_s is None:
        return f"{told}; what that lost is not known, as the job does not tell its progress"
    reload = "" if gave_way.reload_s is None else f", {format_duration(gave_way.reload_s)} to load again"
    return f"{told}; {format_duration(gave_way.lost_s)} of work done again{reload}"


def _shared(report: JobReport) -> str:
    sharing = report.sharing
    assert sharing is not None
    slower = "" if sharing.slowdown_ratio is None else f", {sharing.slowdown_ratio:.2f} times as slow as alone"
    beside = f"GPUs with {format_count(sharing.other_jobs, 'other job')} for {format_duration(sharing.shared_s)}"
    return f"{beside}{slower}; figures of its GPUs are of all jobs on them"


def _print_run(run: RunFigures) -> None:
    nodes = run.nodes[:MOST_NODES]
    rows = [row for node in nodes for row in _node_rows(node)]
    if rows:
        _print_gpus(nodes, rows)
    if len(run.nodes) > 1:
        _print_nodes(nodes)
    if len(run.nodes) > len(nodes):
        output.print_line(f"the first {len(nodes)} of {len(run.nodes)} nodes; --json has all")


def _print_gpus(nodes: Sequence[NodeFigures], rows: Sequence[Sequence[str]]) -> None:
    titles = ("use", "most", "idle", "memory", "power", "pauses", "in all", "longest")
    columns = [Column("node"), Column("GPU", right=True), *(Column(title, right=True) for title in titles)]
    output.print_line()
    output.print_table([*columns, Column("use over time, in tenths")], rows)
    pauses = sorted(_pauses(nodes), key=lambda pause: -pause[0])[:MOST_PAUSES]
    if pauses:
        output.print_line()
        output.print_line("Longest pauses:")
        output.print_lines((text for _, text in pauses), indent=2)


def _node_rows(node: NodeFigures) -> Iterator[Sequence[str]]:
    for gpu in node.gpus:
        longest_s = max((span.length_s for span in gpu.longest_idle), default=None)
        yield (
            node.node,
            str(gpu.index),
            "never" if gpu.never_used else format_percent(gpu.util_ratio),
            format_percent(gpu.util_max_ratio),
            format_percent(gpu.idle_s / gpu.measured_s if gpu.measured_s > 0 else None),
            _of(gpu.memory_peak_mib, gpu.memory_mib),
            output.format_amount(gpu.power_w, "W"),
            str(gpu.idle_spans),
            format_duration(gpu.idle_spans_s) if gpu.idle_spans else "-",
            format_duration(longest_s),
            shown_timeline(gpu),
        )


def _pauses(nodes: Sequence[NodeFigures]) -> Iterator[tuple[float, str]]:
    """Length and words of each; GPUs that paused together are told together, those that were never used are left out."""
    paused: dict[tuple[str, int, int], list[tuple[int, IdleTime]]] = {}
    for node in nodes:
        for gpu in node.gpus:
            for span in () if gpu.never_used else gpu.longest_idle:
                paused.setdefault((node.node, round(span.start_s), round(span.length_s)), []).append((gpu.index, span))
    for (name, _, _), spans in paused.items():
        gpus, span = ", ".join(str(index) for index, _ in spans), spans[0][1]
        where = f"GPU {gpus} of {name}"
        yield span.length_s, f"{where}: {format_duration(span.length_s)} from {format_instant(span.start_s)}"


def _print_nodes(nodes: Sequence[NodeFigures]) -> None:
    columns = [
        Column("node"),
        Column("CPU cores", right=True),
        Column("memory", right=True),
        Column("GPU use", right=True),
    ]
    output.print_line()
    output.print_table(
        columns,
        [
            (
                node.node,
                "-" if node.cores_used is None else f"{node.cores_used:.1f} of {node.cpus or '?'}",
                _of(node.memory_peak_mib, node.memory_mib),
                format_percent(node.gpu_util_ratio),
            )
            for node in nodes
        ],
    )


def shown_timeline(gpu: GpuFigures) -> str:
    """Utilisation over time as digits, 0 to 9 tenths; ``.``: not measured."""
    points = gpu.timeline.util_ratios
    parts = -(-len(points) // TIMELINE_WIDTH) or 1
    shown = ""
    for at in range(0, len(points), parts):
        known = [ratio for ratio in points[at : at + parts] if ratio is not None]
        shown += str(min(int(10 * sum(known) / len(known)), 9)) if known else "."
    return shown


def print_job_lines(lines: JobLines, *, with_users: bool) -> None:
    """One job a line."""
    if not lines.jobs:
        output.print_line("no such job is known, or none that you may see")
        return
    titles = ("waited", "ran", "GPUs", "GPU use", "idle", "GPU memory", "CPU cores", "memory", "gave way")
    columns = [
        Column("job", right=True),
        *([Column("user")] if with_users else []),
        Column("name"),
        Column("state"),
        *(Column(title, right=True) for title in titles),
        Column("advice"),
    ]
    output.print_table(columns, [_line_cells(line, with_users=with_users) for line in lines.jobs])
    if any(line.missing for line in lines.jobs):
        output.print_line("* something was not measured; `sodactl report JOB` says what")
    if lines.more:
        output.print_line(f"the newest {len(lines.jobs)}; --limit shows more")


def _line_cells(line: JobLine, *, with_users: bool) -> list[str]:
    job, used = line.job, line.used
    unused = f" ({used.gpus_never_used} unused)" if used.gpus_never_used else ""
    return [
        f"{job.job_id}{'*' if line.missing else ''}",
        *([job.user] if with_users else []),
        job.name,
        job.state.lower(),
        format_duration(line.waiting.first_s + line.waiting.later_s),
        format_duration(used.run_s) if used.run_s else "-",
        f"{job.gpus}{unused}",
        format_percent(used.gpu_util_ratio),
        format_percent(used.gpu_idle_ratio),
        _short_of(used.gpu_memory_peak_mib, used.gpu_memory_mib),
        "-" if used.cores_used is None else f"{used.cores_used:.1f} of {job.cpus}",
        _short_of(used.memory_peak_mib, used.memory_asked_mib),
        str(line.preempted or "-"),
        ", ".join(one.topic for one in line.advice) or "-",
    ]


def _short_of(used: float | None, whole: float | None) -> str:
    return "-" if used is None else _of(used, whole)
