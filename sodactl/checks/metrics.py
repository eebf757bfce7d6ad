"""The check of metrics: where an address for Prometheus is configured, this sodad answers there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig
from slurm_soda.sodactl.checks.check_result import CheckResult
from slurm_soda.sodactl.checks.local_http import ask_own_address, is_loopback
from slurm_soda.sodactl.site_access import SiteAccess

_CHECK = "metrics"
_LOG = "journalctl -u sodad | grep metrics"
_FAILED = re.compile(rb'^soda_metrics_section_failed\{section="([a-z]{1,40})"\} 1(?:\.0)?$', re.MULTILINE)


def check_metrics(site: SiteAccess, config: SlurmConfig) -> Iterator[CheckResult]:
    """Nothing where none are configured, or where no sodad runs: that is told of already, or is on another host."""
    metrics = site.settings.metrics
    if metrics.address is None or site.local_daemon_pid() is None:
        return
    shown = f"http://{metrics.listen}/metrics"
    text = ask_own_address(_CHECK, metrics.address, shown, path="/metrics", mark=b"\nsoda_build_info{")
    if isinstance(text, CheckResult):
        yield text
        return
    if failed := [name.decode() for name in _FAILED.findall(text)]:
        yield CheckResult(_CHECK, "warn", f"{shown} lacks {', '.join(failed)}", f"report it; {_LOG}")
        return
    private = config.get("PrivateData", "").lower().split(",")
    if "nodes" in private and metrics.nodes and not is_loopback(metrics.address[0]):
        found = f"{shown} shows nodes to all who reach it, and PrivateData keeps them private"
        yield CheckResult(_CHECK, "warn", found, "set metrics.nodes = false, or let a firewall admit Prometheus alone")
        return
    series = sum(not line.startswith(b"#") for line in text.splitlines())
    yield CheckResult(_CHECK, "ok", f"{shown} answers with {series} series")
