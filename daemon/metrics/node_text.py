"""What ``/metrics/nodes`` shows, as Prometheus' text format 0.0.4.

Written here and not by the client library, which takes 12 µs for each of the 30 series of a node with 8 GPUs: a third of
a second at 1000 nodes, in which cycles are slowed down (docs/metrics.md#what-it-costs).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from slurm_soda.daemon.metrics.catalog import NODES
from slurm_soda.daemon.metrics.cycle_figures import GpuCounts
from slurm_soda.daemon.metrics.label_text import label_text
from slurm_soda.daemon.metrics.node_board import AgentSign

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MIB = 1 << 20
_LIMITS = {
    "cores": "jobs_with_fewer_cores",
    "memory_bandwidth": "jobs_with_less_memory_bandwidth",
    "network": "jobs_in_network_classes",
}
"""Values of the label ``by``, and what the agent calls them."""


def node_text(nodes: Mapping[str, GpuCounts], signs: Mapping[str, AgentSign], steady_s: float) -> bytes:
    """All series of all nodes.

    Args:
        nodes: that Slurm has, by name fit for labels; agents of others are left out.
        signs: what agents said last, by node.
        steady_s: now; what a silent agent said of its GPUs and limits is left out.
    """
    lines: dict[str, list[str]] = {metric.name: [] for metric in NODES}
    told = {label_text(node): sign for node, sign in signs.items()}
    for name, gpus in nodes.items():
        node = f'node="{_escape(name)}"'
        for metric, series in _series(gpus, told.get(name), steady_s):
            lines[metric] += [f"{metric}{{{node}{labels}}} {value}\n" for labels, value in series]
    parts = (
        f"# HELP {metric.name} {metric.meaning}\n# TYPE {metric.name} {metric.kind}\n{''.join(lines[metric.name])}"
        for metric in NODES
    )
    return "".join(parts).encode("utf-8")


_Series = Iterable[tuple[str, float]]
"""Labels after the node's, and value."""


def _series(gpus: GpuCounts, sign: AgentSign | None, steady_s: float) -> Iterator[tuple[str, _Series]]:
    yield "soda_node_gpus", (("", gpus.gpus),)
    yield "soda_node_gpus_alloc", (("", gpus.alloc),)
    yield "soda_node_gpus_shared", (("", gpus.shared),)
    yield "soda_node_usable", (("", int(gpus.usable)),)
    if sign is None:
        return
    yield "soda_agent_last_report_timestamp_seconds", (("", round(sign.at_s, 3)),)
    if sign.is_silent(steady_s):
        return
    yield "soda_agent_faults", (("", sign.faults),)
    yield "soda_node_mps_jobs", (("", sign.mps_jobs),)
    use = sign.use
    if use is None:
        return
    # No more than Slurm has there, whatever an agent says: the number of series stays what it is.
    read = {gpu.index: gpu for gpu in use.gpus[: gpus.gpus]}.values()
    yield "soda_node_gpu_util_ratio", [(f',gpu="{gpu.index}"', gpu.util_ratio) for gpu in read]
    yield "soda_node_gpu_memory_used_bytes", [(f',gpu="{gpu.index}"', int(gpu.memory_mib * _MIB)) for gpu in read]
    counts = use.counts
    limits = [(f',by="{by}"', counts[name]) for by, name in _LIMITS.items() if name in counts]
    yield "soda_node_jobs_limited", limits
    for name in ("cores_taken", "mps_daemons"):
        if name in counts:
            yield f"soda_node_{name}", (("", counts[name]),)
    yield "soda_agent_cpu_seconds_total", (("", use.agent_cpu_s),)
    if use.agent_memory_bytes:
        yield "soda_agent_resident_memory_bytes", (("", use.agent_memory_bytes),)


def _escape(value: str) -> str:
    """A label value between its quotes (Prometheus, exposition formats)."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
