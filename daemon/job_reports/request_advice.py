"""What the job might have asked for instead: cores, memory, time; each function gives one sentence, or an empty text."""

from __future__ import annotations

import math

from slurm_soda.daemon.job_reports.gpu_advice import LOW_GPU_RATIO, used_gpus_ratio
from slurm_soda.daemon.job_reports.model import JobReport, NodeFigures, RunFigures
from slurm_soda.daemon.job_reports.node_figures import WHOLE_RATIO
from slurm_soda.daemon.readable import format_count, format_duration, format_memory, format_percent
from slurm_soda.daemon.store.agent_reports import NODE_SILENT_S

BUSY_CORES_RATIO = 0.9
"""From here on cores are what a job waits for."""
LOW_RATIO = 0.5
"""Of cores or memory: who needs less asks for too much."""
HEADROOM = 1.25
"""Advised over what was used: means and readings hide short peaks."""
LEAST_SPARE_CORES, LEAST_SPARE_MIB = 2, 1024.0
TIGHT_MEMORY_RATIO = 0.95
TIME_LIMIT_RATIO, LEAST_LIMIT_S, TIME_HEADROOM = 0.25, 3600.0, 1.5
LEAST_LOST_S, LEAST_LOST_RATIO = 60.0, 0.05

_GIB = 1024.0


def advise_more_cores(run: RunFigures, best_cores: int | None) -> str:
    """GPUs that wait for cores; ``best_cores``: on one node, as a search found them."""
    util = used_gpus_ratio(run)
    if util is None or util >= LOW_GPU_RATIO:
        return ""
    for node in run.nodes:
        if node.cpus and (node.cores_used or 0.0) >= BUSY_CORES_RATIO * node.cpus:
            measured = f": {best_cores} were measured to be enough" if (best_cores or 0) > node.cpus else ""
            return (
                f"GPUs were busy for {format_percent(util)} of the time, and {node.cores_used:.1f} of {node.cpus} cores of "
                f"{node.node}: ask for more cores (--cpus-per-task){measured}."
            )
    return ""


def _is_judged(report: JobReport) -> bool:
    """Whether it would need no more another time: it came to its end, and each node was measured until then.

    A job that failed or was cancelled may have been about to load its data.
    """
    run = report.runs[-1]
    return (
        report.job.state in ("COMPLETED", "TIMEOUT")
        and bool(run.nodes)
        and all(_is_whole(run, one) for one in run.nodes)
    )


def _is_whole(run: RunFigures, node: NodeFigures) -> bool:
    if node.memory_peak_mib is None or node.opened_s is None or node.last_s is None or run.end_s is None:
        return False
    watched_s = WHOLE_RATIO * (node.last_s - node.opened_s)
    return run.end_s - node.last_s <= NODE_SILENT_S and all(gpu.measured_s >= watched_s for gpu in node.gpus)


def advise_cores(report: JobReport, best_cores: int | None) -> str:
    """Cores that were asked for and not used."""
    nodes = report.runs[-1].nodes
    judged = [node for node in nodes if node.cores_used is not None and node.cpus]
    if not judged or len(judged) < len(nodes) or not _is_judged(report):
        return ""
    busiest = max(judged, key=_cores_used)
    used, cpus = _cores_used(busiest), busiest.cpus or 0
    processes = max(len(node.gpus) for node in judged)  # each GPU's own keeps a core
    needed = max(math.ceil(used * HEADROOM), processes, best_cores or 1)
    if needed > LOW_RATIO * cpus or cpus - needed < LEAST_SPARE_CORES:
        return ""
    on = "" if len(judged) == 1 else " a node"
    return f"It used {used:.1f} of {cpus} cores{on} on average: {needed} would do (--cpus-per-task)."


def _cores_used(node: NodeFigures) -> float:
    return node.cores_used or 0.0


def advise_memory(report: JobReport) -> str:
    """Memory on its fullest node against what it asked for there."""
    used, asked = report.used.memory_peak_mib, report.used.memory_asked_mib
    if report.job.state == "OUT_OF_MEMORY":
        limit = "" if asked is None else f" of {format_memory(asked)} on a node"
        seen = "" if used is None else f"; at most {format_memory(used)} were seen"
        return f"It ran out of memory{limit}{seen}: ask for more (--mem)."
    if not used or asked is None:
        return ""
    part = f"It used up to {format_memory(used)} of {format_memory(asked)} of memory on a node"
    if used > TIGHT_MEMORY_RATIO * asked:
        return f"{part}: with little more it would have been ended; ask for more (--mem)."
    needed_mib = math.ceil(used * HEADROOM / _GIB) * _GIB
    if not _is_judged(report) or needed_mib > LOW_RATIO * asked or asked - needed_mib < LEAST_SPARE_MIB:
        return ""
    return f"{part}: --mem={needed_mib / _GIB:.0f}G would do."


def advise_time_limit(report: JobReport) -> str:
    """A limit that keeps backfill from finding the job a place.

    Against all runs together: the next job may have to do all of it in one run.
    """
    limit_s, ran_s = report.job.time_limit_s, report.used.run_s
    if limit_s is None or limit_s < LEAST_LIMIT_S or report.job.state != "COMPLETED":
        return ""
    if ran_s > TIME_LIMIT_RATIO * limit_s:
        return ""
    hours, minutes = divmod(max(math.ceil(ran_s * TIME_HEADROOM / 60), 5), 60)
    ran = f"It ran for {format_duration(ran_s)} of the {format_duration(limit_s)} that it asked for"
    return f"{ran}: with --time={hours}:{minutes:02d}:00 backfill finds it a place more easily."


def advise_saving(report: JobReport) -> str:
    """Work that it did again after it gave way."""
    lost_s, requeues = report.preemptions.lost_s, format_count(report.preemptions.requeues, "requeue")
    if lost_s is None or lost_s < max(LEAST_LOST_S, LEAST_LOST_RATIO * report.used.run_s):
        return ""
    return f"It did {format_duration(lost_s)} of work again after {requeues}: save on the signal of --soda-checkpoint."
