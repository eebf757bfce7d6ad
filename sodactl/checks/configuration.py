"""Checks of soda.toml on the controller: what lets sodad end at its start, so that systemd starts it again for ever."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

from slurm_soda.daemon.cycle.lease import SEND_WITHIN
from slurm_soda.daemon.settings.config_file import CONFIG_FILE
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig, runs_slurmctld, slurm_user_id
from slurm_soda.sodactl.checks.check_result import CheckResult
from slurm_soda.sodactl.checks.file_rights import first_closed
from slurm_soda.sodactl.site_access import SiteAccess

SODADS_WORDS = "journalctl -u sodad -o cat | grep '^sodad:'"
"""Shows why sodad ended at its start."""
_CHECK = "configuration"
_CONNECT_S = 1.0


def check_configuration(site: SiteAccess, config: SlurmConfig) -> Iterator[CheckResult]:
    """What is wrong with it; nothing elsewhere than on the controller."""
    slurm_user = slurm_user_id(config)
    if not runs_slurmctld(config, site.context.host()) or site.context.uid() not in (0, slurm_user):
        return
    path, policy = site.config_path or Path(CONFIG_FILE), site.settings.policy
    try:
        make_policy(policy.name, policy.parameters)
    except PolicyError as error:
        yield CheckResult(_CHECK, "fail", f"{path}: policy: {error}", f"correct it; {SODADS_WORDS}")
    if slurm_user is not None and (closed := first_closed(path, slurm_user)):
        remedy = f"chown {config['SlurmUser'].partition('(')[0]} {closed}, or chmod go+rX {closed}; {SODADS_WORDS}"
        yield CheckResult(_CHECK, "fail", f"SlurmUser, as whom sodad runs, may not read {path}: see {closed}", remedy)
    cycle, slurm = site.settings.cycle, site.settings.slurm
    if slurm.read_timeout_s >= SEND_WITHIN * cycle.lease_s:
        found = f"slurm.read_timeout_s {slurm.read_timeout_s:g} is no less than 5/6 of cycle.lease_s {cycle.lease_s:g}"
        remedy = "shorten the first or lengthen the other: of a command that takes so long sodad drops what it has read"
        yield CheckResult(_CHECK, "warn", found, remedy)
    api = site.settings.api
    if site.local_daemon_pid() is None and _answers(api.host, api.port):
        found = f"no sodad runs here, and another program has api.port {api.port}"
        yield CheckResult(_CHECK, "fail", found, f"end it (ss -ltnp), or set another api.port; {SODADS_WORDS}")


def _answers(host: str, port: int) -> bool:
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared
    try:
        socket.create_connection((here, port), _CONNECT_S).close()
    except OSError:
        return False
    return True
