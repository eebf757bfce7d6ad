"""One sentence for each thing that would be better another time, with its figure; a pure function of the other figures.

Nothing is advised by what was not measured, and no figure is told that nobody knows, such as how much earlier a smaller
request would have started. The bounds are round numbers, chosen so that advice is worth a change of a script.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from slurm_soda.daemon.job_reports.gpu_advice import advise_idle, advise_idle_end, advise_idle_start, advise_unused_gpus
from slurm_soda.daemon.job_reports.model import TOPICS, Advice, JobReport
from slurm_soda.daemon.job_reports.request_advice import (
    advise_cores,
    advise_memory,
    advise_more_cores,
    advise_saving,
    advise_time_limit,
)
from slurm_soda.daemon.job_reports.totals import each_gpu
from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow

LEAST_RUN_S = 60.0
"""Runs that are shorter are not judged."""


def advise(report: JobReport, fits: Sequence[CpuFitRow] = ()) -> list[Advice]:
    """What stands out in the newest run, most important first; ``fits``: how searches for its cores ended."""
    last = report.runs[-1] if report.runs else None
    if last is None or (report.as_of_s if last.end_s is None else last.end_s) - last.start_s < LEAST_RUN_S:
        return []
    best_cores = max((fit.cores for fit in fits), default=None)
    # A GPU that was not measured may have been used all the time.
    gpus = last if sum(1 for _ in each_gpu([last])) >= report.job.gpus else replace(last, nodes=())
    judges: Mapping[str, Callable[[], str]] = {
        "unused-gpus": lambda: advise_unused_gpus(gpus),
        "start": lambda: advise_idle_start(gpus, report.as_of_s),
        "end": lambda: advise_idle_end(gpus),
        "cpu-bound": lambda: advise_more_cores(gpus, best_cores),
        "idle": lambda: advise_idle(gpus),
        "memory": lambda: advise_memory(report),
        "cpus": lambda: advise_cores(report, best_cores),
        "time-limit": lambda: advise_time_limit(report),
        "preemption": lambda: advise_saving(report),
    }
    found = {topic: text for topic in TOPICS if (text := judges[topic]())}
    if "cpu-bound" in found:
        found.pop("idle", None)  # that is why
    return [Advice(topic, text) for topic, text in found.items()]
