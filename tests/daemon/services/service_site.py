"""Services for tests: their files, and reports of their routers."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_soda.wire.services.router_report import ReportedInstance, RouterReport
from slurm_soda.wire.services.service_profile import ProfiledDevice, ServiceProfile

FILE = """
name = "{name}"
command = "serve --port {{port}}"
target_ms = 200
window_ms = 50
[replicas]
least = {least}
most = {most}
[cpu]
cores = 1
[gpu]
gpus = 1
"""

PROFILE = ServiceProfile(
    200.0,
    50.0,
    0.0,
    (ProfiledDevice("cpu", 1, 50.0, cores=1, bandwidth_gb_s=1.0), ProfiledDevice("gpu", 16, 40.0, cores=1)),
)
"""An instance on the CPU answers 20 queries in a second, one on a GPU 400."""


def report(
    *,
    name: str = "answers",
    load_qps: float = 0.0,
    least: int = 1,
    most: int = 4,
    instances: Sequence[tuple[int, str, str] | ReportedInstance] = (),
    endpoint: str = "login1:80",
    at_s: float = 1_700_000_000.0,
) -> RouterReport:
    """A router's report; an instance is its job, device and state."""
    listed = [
        one if isinstance(one, ReportedInstance) else ReportedInstance(*one, since_s=at_s, host="n1", port=9000)
        for one in instances
    ]
    return RouterReport(
        service_file=FILE.format(name=name, least=least, most=most),
        at_s=at_s,
        load_qps=load_qps,
        p99_ms=100.0,
        queries=int(load_qps),
        profile=PROFILE,
        instances=tuple(listed),
        endpoint=endpoint,
    )
