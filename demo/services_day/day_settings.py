"""What a run of the day is asked to do, and what follows from it for the service, its load and sodad."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurm_soda.containers.cluster import SERVING_PYTHON
from slurm_soda.containers.cluster_spec import DEFAULT_SLURM
from slurm_soda.demo.accounting import DemoError
from slurm_soda.demo.services_day.owner_commands import OWNER
from slurm_soda.policies.services.settings import ServiceSettings

NODES, GPUS_PER_NODE, CORES_PER_NODE = 2, 4, 28
CLUSTER_GPUS = NODES * GPUS_PER_NODE

SERVICE = "classify"
MODEL, WIDTH = "transformer", 512
"""The example server's encoder, wide enough that few queries a second are much for one core."""
GPU_SPEEDUP = 8.0
"""The emulated GPU answers so many times as fast as one core."""
GPU_NICE = 10
"""An instance on the emulated GPU needs little CPU time, but at its start."""
TARGET_MS, WINDOW_MS = 1000.0, 50.0
"""Long, for everything shares one machine, whose cores may be few and slow."""
MOST_BATCH = {"cpu": 2, "gpu": 8}
"""Small on cores: few queries a second are then much for one instance, and load and router take little of the machine."""
FOLDER = f"/home/{OWNER}/day"
SERVICE_FILE, QUERY_FILE = f"{FOLDER}/{SERVICE}.toml", f"{FOLDER}/query.json"
TOKENS = 64
ROUTER_PORT = 8080

NIGHT_PART, PEAK_PART = 0.15, 1.4
"""Load at night and at noon, as parts of what one instance on CPU cores is counted on for."""
MOST_PEAK_QPS = 150.0
"""Load generator, router and instances share the machine."""
HEADROOM = ServiceSettings().headroom
"""Part of an instance's capacity that slurm-soda counts on, its default."""


@dataclass(frozen=True, slots=True)
class DaySettings:
    """One invocation."""

    seed: int = 1
    minutes: float = 10.0
    """How long the day lasts."""
    out: Path = Path("build/services")
    keep: bool = False
    """Leave the cluster up afterwards."""
    cluster: str = "demo"
    slurm: str = DEFAULT_SLURM

    @property
    def day_s(self) -> float:
        """The day in seconds."""
        return 60.0 * self.minutes


@dataclass(frozen=True, slots=True)
class DayRates:
    """The load at its lowest and highest, queries per second."""

    night_qps: float
    peak_qps: float
    cpu_qps: float
    """What one instance on CPU cores answers, as profiled: from that the others follow, so that every machine has a night
    that cores can serve and a noon that they cannot."""


def rates_of(cpu_qps: float) -> DayRates:
    """The rates that follow from the profile.

    Raises:
        DemoError: the profile found nothing on CPU cores.
    """
    if not cpu_qps > 0:
        raise DemoError(
            f"the service does not meet {TARGET_MS:g} ms on this machine's cores, so it cannot leave its GPU;"
            " try again on a machine that does less"
        )
    counted = HEADROOM * cpu_qps
    peak = min(PEAK_PART * counted, MOST_PEAK_QPS)
    return DayRates(round(NIGHT_PART * peak / PEAK_PART, 3), round(peak, 3), round(cpu_qps, 3))


def service_file(*, cores: bool = True) -> str:
    """The service as its owner describes it: one instance, on a GPU, or with ``cores`` also on one core."""
    # All nodes share one machine's cores: what starts for an emulated GPU, on a node of its own elsewhere, yields to them.
    command = (
        f"exec nice -n $([ {{device}} = gpu ] && echo {GPU_NICE} || echo 0) {SERVING_PYTHON} {FOLDER}/serving/serve.py"
        f" --model {MODEL} --width {WIDTH} --port {{port}} --device {{device}} --batch {{batch}}"
        f" --window-ms {{window_ms}} --cores {{cores}} --gpu-speedup {GPU_SPEEDUP:g}"
    )
    return f"""\
name = "{SERVICE}"
command = "{command}"
target_ms = {TARGET_MS:g}
window_ms = {WINDOW_MS:g}
query = "{QUERY_FILE}"
folder = "{FOLDER}/services"
[replicas]
least = 1
most = 1
[gpu]
cores = 1
{"[cpu]" + chr(10) + "cores = 1" + chr(10) if cores else ""}"""


def daemon_configuration(day_s: float, *, places: bool) -> str:
    """Sodad's configuration: training jobs by submission, its own times compressed like the day.

    Both phases differ in ``places`` alone: whether it places services.
    """
    hour_s = day_s / 24
    return f"""\
# Hours pass in seconds, so the daemon's intervals are shorter than a site's.
mode = "enforce"
[policy]
name = "fifo"
[cycle]
interval_s = 1.0
[change_limits]
min_change_interval_s = 0.2
[cpu_fit]
rewrite = "off"
[slurm]
accounting_past_days = 0
[services]
enabled = {"true" if places else "false"}
cool_down_s = {max(5.0, hour_s / 2):.0f}
min_run_s = {max(1.0, hour_s / 10):.0f}
horizon_s = 60
first_in = ["*"]
"""
