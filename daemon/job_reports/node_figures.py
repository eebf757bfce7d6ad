"""What runs used on their nodes, and what of it nobody measured; pure functions of the store's rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from typing import TypeVar

from slurm_soda.daemon.job_reports.model import GpuFigures, GpuTimeline, IdleTime, NodeFigures, RunFigures
from slurm_soda.daemon.job_reports.stored_facts import StoredFacts
from slurm_soda.daemon.readable import format_duration, format_instant, format_percent
from slurm_soda.daemon.store.agent_reports import NODE_SILENT_S
from slurm_soda.daemon.store.gpu_uses import gpu_use_of
from slurm_soda.daemon.store.queries import CLOCK_SLACK_S
from slurm_soda.daemon.store.tables.job_reports import JobGpuUseRow
from slurm_soda.daemon.store.tables.scheduling import Job, JobNodeUsage, JobRun
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.read.hostlist import expand_hosts
from slurm_soda.wire.gpu_use import GpuUse, timeline_ratios

Row = TypeVar("Row", JobNodeUsage, JobGpuUseRow)

NEVER_USED_AFTER_S = 60.0
"""A GPU that was measured for less may still have had its work before it."""
NEVER_USED_READINGS = 20
TOLD_WITHIN_S = 120.0
"""What happened so long ago has reached sodad: agents tell of GPUs once a minute."""
WHOLE_RATIO = 0.9
"""GPUs of which less of the run was measured are told as measured in part."""
MAX_MISSING, NODES_NAMED = 10, 3
MAX_NODES = 1024
"""Of one run that are told one by one."""
_SECONDS_OF_HOUR = 3600.0


def run_figures(facts: StoredFacts, now_s: float) -> list[RunFigures]:
    """Every run of the job, first to last."""
    usage, uses = _newest_by_run(facts.usage), _newest_by_run(facts.gpu_uses)

    def figures_of(run: JobRun) -> list[NodeFigures]:
        told, told_of_gpus = usage.get(run.restart, {}), uses.get(run.restart, {})
        nodes = _nodes_of(run, told.keys() | told_of_gpus.keys())
        return [_node_figures(facts, run, node, (told.get(node), told_of_gpus.get(node)), now_s) for node in nodes]

    return [
        RunFigures(run.restart, run.start_s, _end_s(facts.job, run), run.shared, figures_of(run)) for run in facts.runs
    ]


def _end_s(job: Job, run: JobRun) -> float | None:
    return job.end_s if run.end_s is None else run.end_s


def _nodes_of(run: JobRun, reported: Set[str]) -> list[str]:
    """As Slurm listed them, and any other that reported."""
    try:
        listed = list(expand_hosts(run.node_names)[:MAX_NODES]) if run.node_names else []
    except SlurmError:
        listed = []
    return [*listed, *sorted(reported - set(listed))]


def _node_figures(
    facts: StoredFacts, run: JobRun, node: str, found: tuple[JobNodeUsage | None, JobGpuUseRow | None], now_s: float
) -> NodeFigures:
    job, (usage, uses) = facts.job, found
    end_s = _end_s(job, run)
    told_s = now_s - TOLD_WITHIN_S if end_s is None else end_s
    gpus = [] if uses is None else [_gpu_figures(gpu_use_of(gpu), uses.first_s, told_s) for gpu in uses.gpus]
    ran_s = (now_s if end_s is None else end_s) - run.start_s
    # A node's clock that was set ahead makes the time that its agent saw longer than the run, and cores fewer.
    lasted_s = 0.0 if usage is None else min(usage.last_s - usage.first_s, ran_s + CLOCK_SLACK_S)
    return NodeFigures(
        node=node,
        opened_s=None if usage is None else usage.first_s,
        last_s=None if usage is None else max(usage.last_s, 0.0 if uses is None else uses.last_s),
        cpus=facts.cpus_on.get((run.restart, node)) or (job.cpus if job.nodes == 1 else None) or None,
        cpu_s=None if usage is None else usage.cpu_s,
        cores_used=usage.cpu_s / lasted_s if usage is not None and usage.cpu_source and lasted_s > 0 else None,
        memory_peak_mib=usage.memory_peak_mib if usage is not None and usage.cpu_source else None,
        memory_mib=memory_asked_mib(job),
        gpu_util_ratio=usage.gpu_util_ratio if usage is not None and usage.gpu_count and _has_gpu_sums(usage) else None,
        gpu_memory_peak_mib=usage.gpu_memory_peak_mib if usage is not None and _has_gpu_sums(usage) else None,
        gpus=gpus,
        missing=list(_missing(facts, run, node, found, now_s)),
    )


def memory_asked_mib(job: Job) -> float | None:
    """On each node."""
    return job.memory_mib / max(job.nodes, 1) if job.memory_mib else None


def _has_gpu_sums(usage: JobNodeUsage) -> bool:
    return usage.gpu_count > 0 and usage.gpu_memory_peak_mib > 0  # a GPU that was read has some of the driver's


def _newest_by_run(rows: Sequence[Row]) -> dict[int, dict[str, Row]]:
    """By restart and node. Sums are cumulative: the newest record of a run has those of the others in it."""
    found: dict[int, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        before = found[row.restart].get(row.node)
        if before is None or row.last_s > before.last_s:
            found[row.restart][row.node] = row
    return found


def _gpu_figures(use: GpuUse, opened_s: float, told_s: float) -> GpuFigures:
    """``told_s``: what came before it would be known, if somebody had measured it."""
    seen = use.readings >= NEVER_USED_READINGS
    seen = seen and use.covered_s >= max(NEVER_USED_AFTER_S, WHOLE_RATIO * (told_s - opened_s))
    return GpuFigures(
        index=use.index,
        measured_s=use.covered_s,
        util_ratio=use.util_ratio,
        util_max_ratio=use.util_max_ratio,
        memory_peak_mib=use.memory_peak_mib,
        memory_mib=use.memory_mib or None,
        power_w=use.power_w or None,
        power_max_w=use.power_max_w or None,
        energy_wh=use.power_w * use.covered_s / _SECONDS_OF_HOUR or None,
        idle_s=use.idle_s,
        idle_spans=use.idle_spans,
        idle_spans_s=use.idle_spans_s,
        longest_idle=[IdleTime(opened_s + span.from_s, span.length_s) for span in use.spans],
        first_use_s=None if use.busy_from_s < 0 else opened_s + use.busy_from_s,
        last_use_s=None if use.busy_until_s < 0 else opened_s + use.busy_until_s,
        never_used=seen and use.busy_from_s < 0,
        timeline=GpuTimeline(opened_s, use.step_s, timeline_ratios(use.timeline)),
    )


def missing_in(run: RunFigures) -> list[str]:
    """What was not measured on which nodes, those that lack the same together; :data:`MAX_MISSING` sentences at most."""
    by_sentence: dict[str, list[str]] = {}
    for node in run.nodes:
        for sentence in node.missing:
            by_sentence.setdefault(sentence, []).append(node.node)
    told = [f"{_named(nodes)}: {sentence}" for sentence, nodes in by_sentence.items()]
    left = len(told) - MAX_MISSING
    return told if left <= 0 else [*told[:MAX_MISSING], f"{left} more; each node has its own (--json)."]


def _named(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - NODES_NAMED} more nodes" if len(nodes) > NODES_NAMED else ""
    return ", ".join(nodes[:NODES_NAMED]) + more


def _missing(
    facts: StoredFacts, run: JobRun, node: str, found: tuple[JobNodeUsage | None, JobGpuUseRow | None], now_s: float
) -> Iterator[str]:
    """Why figures of this node are not there or not whole."""
    usage, uses = found
    end_s = _end_s(facts.job, run)
    seen_s = facts.seen_s.get(node)
    silent = end_s is None and seen_s is not None and now_s - seen_s > NODE_SILENT_S
    if usage is None:
        why = "no agent ever reported from there" if seen_s is None else "its agent told nothing of this run"
        yield f"not measured: {why}."
        return
    if silent:
        yield f"nothing has come from its agent since {format_instant(seen_s)}."
    until_s = max(usage.last_s, 0.0 if uses is None else uses.last_s)
    if end_s is not None and end_s - until_s > NODE_SILENT_S:
        yield f"not measured after {format_instant(until_s)}, {format_duration(end_s - until_s)} before the end."
    if not usage.gpu_count:
        return
    if uses is None:
        why = (
            "its agent does not tell them (an older version, or they are no longer kept)"
            if _has_gpu_sums(usage)
            else "its driver told nothing of them (in MIG mode a GPU has no utilisation)"
        )
        yield f"figures of single GPUs are not measured: {why}."
        return
    if len(uses.gpus) < usage.gpu_count:
        yield f"{len(uses.gpus)} of its {usage.gpu_count} GPUs were measured (in MIG mode a GPU has no utilisation)."
    lasted_s = uses.last_s - uses.first_s
    covered_s = min((gpu_use_of(gpu).covered_s for gpu in uses.gpus), default=0.0)
    if lasted_s > NODE_SILENT_S and covered_s < WHOLE_RATIO * lasted_s:
        part = format_percent(covered_s / lasted_s)
        yield f"its GPUs were measured for {part} of the run, as its agent or its driver was away meanwhile."
