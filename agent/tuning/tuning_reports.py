"""What sodad is told of a search: the same for the same progress, however often it is sent."""

from __future__ import annotations

from slurm_soda.agent.tuning.search_progress import CoreSearchProgress
from slurm_soda.policies.cpu_fit.core_search import bound_utilisation_below
from slurm_soda.wire.core_tuning import CoreFit, CoreMeasurement
from slurm_soda.wire.records import JobOpened


def report_measurement(opened: JobOpened, progress: CoreSearchProgress) -> CoreMeasurement:
    """The newest measurement of a search that has one."""
    last = progress.measured[-1]
    return CoreMeasurement(
        job_id=opened.job_id,
        restart=opened.restart,
        node=opened.node,
        at_s=progress.at_s,
        search=progress.number,
        step=progress.step,
        cores=last.cores,
        limit=progress.limit,
        gpus=len(opened.gpus),
        utilisation_ratio=round(last.utilisation_ratio, 6),
        spread_ratio=round(min(last.spread_ratio, 1.0), 6),
        samples=last.samples,
    )


def report_fit(opened: JobOpened, progress: CoreSearchProgress) -> CoreFit:
    """How a search ended."""
    measured = progress.measured
    return CoreFit(
        job_id=opened.job_id,
        restart=opened.restart,
        node=opened.node,
        at_s=progress.at_s,
        search=progress.number,
        start_cores=progress.start,
        limit=progress.limit,
        cores=progress.cores,
        gpus=len(opened.gpus),
        steps=max(len(measured) - 1, 0),
        start_ratio=round(measured[0].utilisation_ratio, 6) if measured else 0.0,
        utilisation_ratio=round(min(bound_utilisation_below(measured, progress.cores), 1.0), 6) if measured else 0.0,
        reason=progress.settled,
    )
