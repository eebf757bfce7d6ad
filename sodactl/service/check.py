"""``sodactl service check``: whether a service file is right, and what each device can do."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.service.assessment import ArrayPlan, Assessment, assess, check_target
from slurm_soda.sodactl.service.service_on_disk import ServiceOnDisk, read_profile, read_service
from slurm_soda.sodactl.service.submission import plan_submission
from slurm_soda.sodactl.site_access import SiteAccess, on_any_site

SERVICE_PATH = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("file", type=SERVICE_PATH)
@on_any_site
def check(_site: SiteAccess, *, as_json: bool, file: Path) -> int:
    """Check a service file, and say what each device can do.

    Says which key is unknown or has a value that is not allowed, where the service's files are, and, if it was profiled
    (`sodactl service profile`), how many queries a second one instance answers on each device and how long the slowest of
    them takes: window_ms + 2 x batch_ms x (1 + error). A target that no device meets is refused. Neither Slurm nor sodad is
    asked.
    Exit status: 0 if it can be started, 1 if not.

    \b
    Examples:
      sodactl service check chat.toml
      sodactl service check chat.toml --json | jq .devices
    """  # noqa: D301 - click reads the control character
    found = read_service(file)
    assessment = assess(found.service, read_profile(found))
    for plan in assessment.plans:
        plan_submission(found, plan, found.service.replicas.most)  # refuses arguments of sbatch that do not work
    if as_json:
        output.print_json(_document(found, assessment))
        return 1 if assessment.refusal else 0
    _draw(found, assessment)
    check_target(assessment, found.service)
    return 0


def _document(found: ServiceOnDisk, assessment: Assessment) -> Document:
    return {
        "service": asdict(found.service),
        "file": str(found.path),
        "directory": str(found.directory),
        "devices": [asdict(row) for row in assessment.measured],
        "arrays": [asdict(plan) for plan in assessment.plans],
        "refused": assessment.refusal,
        "warnings": list(assessment.remarks),
    }


def _draw(found: ServiceOnDisk, assessment: Assessment) -> None:
    service = found.service
    output.print_fields(
        (
            ("service", service.name),
            ("target", f"99 % of the queries within {service.target_ms:g} ms, collected for {service.window_ms:g} ms"),
            ("instances", f"{service.replicas.least} to {service.replicas.most}"),
            ("directory", str(found.directory)),
        )
    )
    output.print_line()
    columns = ["on", "cores", "GPUs", "batch", "queries a second", "slowest query", "within target"]
    rows = [row for plan in assessment.plans for row in _rows(plan, assessment)]
    output.print_table([Column(title, right=at > 0) for at, title in enumerate(columns)], rows)
    for remark in assessment.remarks:
        output.warn(remark)


def _rows(plan: ArrayPlan, assessment: Assessment) -> list[tuple[str, ...]]:
    any_type = ("", plan.gpu_type)
    measured = [
        row
        for row in assessment.measured
        if row.device == plan.device and (not plan.gpu_type or row.gpu_type in any_type)
    ]
    gpus = str(plan.gpus or "")
    if not measured:
        return [
            (
                f"{plan.device} {plan.gpu_type}".rstrip(),
                str(plan.cores),
                gpus,
                str(plan.batch),
                "unknown",
                "unknown",
                "unknown",
            )
        ]
    return [
        (
            row.label,
            str(row.cores),
            gpus,
            str(row.batch),
            f"{row.capacity_qps:,.0f}" if row.meets_target else "-",
            f"{row.slowest_ms:,.0f} ms",
            "yes" if row.meets_target else "no",
        )
        for row in measured
    ]
