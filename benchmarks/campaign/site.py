"""A cluster set up for the campaign, and what is asked of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.campaign import faults
from benchmarks.campaign.observation import AccountedRun, Seen, parse_accounting
from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.cluster_spec import CONTROLLER

LEASE_S = 12.0
PYTHON = "/opt/slurm-soda/bin/python"
_SHARE = "/usr/local/share/campaign"
_SLURM_CONF = "/etc/slurm/slurm.conf"
_LIBRARY = "/usr/lib/*/faketime/libfaketimeMT.so.1"

SODAD = f"""
mode = "enforce"
[policy]
name = "tiresias-las"
[policy.parameters]
thresholds_gpu_s = [32.0]
min_run_s = 3.0
[cycle]
interval_s = 1
retry_s = 0.5
lease_s = {LEASE_S:g}
[change_limits]
breaker_failures = 1000
"""
"""Seconds stand for hours; every cycle shall try, also while Slurm is killed."""

AGENT = """
lost_after_s = 20.0
[cores]
enabled = true
step_s = 2.0
settle_s = 1.5
sample_s = 0.2
warm_up_s = 1.0
[network]
gpu_interface = "eth0"
link_mbit = 1000
"""
"""A run whose epilog was killed ends after 20 s without a process, not after a day."""

# sodad and sodactl with the clock that the campaign sets: a step of the host's clock concerns both.
_WRAP_CLOCK = f"""
set -e
(apt-get update && apt-get install -y libfaketime) >/dev/null 2>&1
library=$(ls {_LIBRARY})
mkdir -p /opt/slurm-soda/campaign/bin
for name in sodad sodactl; do
    mv /opt/slurm-soda/bin/$name /opt/slurm-soda/campaign/bin/$name
    printf '%s\\n' '#!/bin/sh' "export LD_PRELOAD=$library FAKETIME_TIMESTAMP_FILE={faults.CLOCK}" \\
        'export FAKETIME_CACHE_DURATION=1 FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1' \\
        "exec /opt/slurm-soda/campaign/bin/$name \\"\\$@\\"" >/opt/slurm-soda/bin/$name
    chmod 755 /opt/slurm-soda/bin/$name
done
"""


@dataclass(slots=True)
class CampaignSite:
    """One cluster, with sodad enforcing, agents that set cores and share the network, and hooks that can be hit."""

    cluster: ContainerCluster
    has_clock: bool = False
    """sodad's clock can be stepped: libfaketime could be installed."""
    before: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By host: what was there when no job had run; under ``slurm`` what Slurm had."""

    @classmethod
    def up(cls, name: str, say: Callable[[str], None]) -> CampaignSite:
        """Bring a cluster up."""
        site = cls(ContainerCluster.up(name, progress=say))
        try:
            site._set_up(say)
        except BaseException:
            site.cluster.down()
            raise
        return site

    def shell(self, script: str, host: str = CONTROLLER, user: str = "root", timeout_s: float = 60.0) -> int:
        """The status of a script; what it says is not wanted."""
        return self.cluster.exec(user, ("sh", "-s"), input=script, node=host, timeout_s=timeout_s).status

    def seen(self) -> Seen:
        return Seen.parse(self._inside("seen"))

    def accounting(self, since_s: float) -> tuple[dict[str, Any], list[AccountedRun]]:
        """What Slurm has now, and every run since then."""
        found = self._inside("last", _slurm_time(since_s))
        return found, parse_accounting(found["sacct"]["stdout"])

    def left(self) -> dict[str, dict[str, Any]]:
        """What is on every host."""
        return {host: self._inside("left", host=host) for host in self.cluster.spec.hosts}

    def _inside(self, *words: str, host: str = CONTROLLER) -> dict[str, Any]:
        argv = (PYTHON, f"{_SHARE}/inside.py", *words)
        found: dict[str, Any] = json.loads(self.cluster.exec("root", argv, node=host, timeout_s=90).check().stdout)
        return found

    def _set_up(self, say: Callable[[str], None]) -> None:
        cluster, here = self.cluster, Path(__file__).parent
        text = cluster.copy_out(_SLURM_CONF).decode()
        text = re.sub(r"^(Prolog|Epilog)=.*/(\w+)$", r"\1=/usr/local/sbin/campaign-\2", text, flags=re.M)
        for host in cluster.spec.hosts:
            self.shell(f"mkdir -p {_SHARE}; install -d -m 755 /run/campaign; echo +0 >{faults.CLOCK}", host)
            for name in ("inside.py", "impostor.py", "hit_hook.py"):
                cluster.copy_in((here / name).read_bytes(), f"{_SHARE}/{name}", node=host)
            for hook in ("prolog", "epilog"):
                cluster.copy_in(faults.HOOK_WRAPPER.encode(), f"/usr/local/sbin/campaign-{hook}", node=host, mode=0o755)
            cluster.copy_in(text.encode(), _SLURM_CONF, node=host)
        cluster.copy_in(faults.MEND_STORE.encode(), f"{_SHARE}/mend-store", mode=0o755)
        cluster.exec("root", ("scontrol", "reconfigure")).check()
        self.has_clock = self.shell(_WRAP_CLOCK, timeout_s=120) == 0
        if not self.has_clock:
            say("libfaketime cannot be installed: no steps of the clock")
        if not cluster.create_net_cls():
            say("net_cls is not to be had: the network is not shared out")
        for node in cluster.spec.node_names:
            cluster.stop("soda-agent", node=node)
            cluster.copy_in(AGENT.encode(), "/etc/slurm-soda/agent.toml", node=node)
            cluster.start("soda-agent", node=node)
        cluster.start_daemon(SODAD)
        cluster.exec("alice", ("srun", "--nodes=2", "--ntasks=2", "true"), timeout_s=60).check()
        cluster.wait_until(lambda: bool(self.seen().store.get("cycle")), "sodad has run a cycle")
        self.before = self.left()
        self.before["slurm"] = self._inside("last", "now-1hour")


def _slurm_time(unix_s: float) -> str:
    """As sacct takes it; the containers' clocks are in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(unix_s))
