"""Reads the events of prolog and epilog: bounded, typed, with the hints validated by the one codec."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.hints import codec
from slurm_soda.slurm_ext.read import hostlist
from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.event_delivery import MAX_EVENT_BYTES
from slurm_soda.wire.json_fields import decode_json
from slurm_soda.wire.records import MAX_FAULT_LENGTH, MAX_NODES, JobClosed, JobOpened
from slurm_soda.wire.run_fields import MAX_CPUS, RunFields


@dataclass(frozen=True, slots=True)
class RunKey:
    """Names a run on a node: a job, and when Slurm started it."""

    job_id: int
    start_s: int


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event: a run opened or closed."""

    key: RunKey
    record: JobOpened | JobClosed
    faults: tuple[str, ...] = ()
    """What went wrong on the way here."""
    cpu_s: float = 0.0
    """The epilog's own last reading, 0 where it had none."""
    memory_mib: float = 0.0


def parse_run_event(line: bytes) -> RunEvent:
    """Take one event.

    Raises:
        RecordError: it is no event.
    """
    data = decode_json(line, MAX_EVENT_BYTES, "event")
    read = RunFields("event", data)
    kind = read.text("kind", 16)
    start_s = read.start_s()
    fault = read.text("fault", MAX_FAULT_LENGTH, "")
    faults: tuple[str, ...] = (f"{'prolog' if kind == 'open' else 'epilog'}: {fault}",) if fault else ()
    if kind == "close":
        closed = JobClosed.from_dict(data)
        cpu_s, memory_mib = read.number("cpu_s", default=0.0), read.number("memory_mib", default=0.0)
        return RunEvent(RunKey(closed.job_id, start_s), closed, faults, cpu_s, memory_mib)
    if kind != "open" or not isinstance(data, dict):
        raise RecordError(f"event: kind is {kind!a}; allowed is open or close")
    names = _node_names(read.text("node_names", 8192, ""))
    counts = _cpus_per_node(read.text("cpus_per_node", 4096, ""))
    nodes = read.whole("nodes", 0, MAX_NODES, 0) or len(names) or len(counts)
    problems: list[str] = []
    hints = codec.hints_from_env(read.text_map("env", 32, 256), "SPANK_", problems)
    cpus = _cpus_on_node(counts, names, read.name("node"))
    found = {"cpus": cpus, "hints": codec.hints_to_dict(hints), "nodes": nodes}
    opened = JobOpened.from_dict({**data, **found})
    faults += tuple(f"job {opened.job_id}: {problem}"[:MAX_FAULT_LENGTH] for problem in problems[:8])
    return RunEvent(RunKey(opened.job_id, start_s), opened, faults)


def _node_names(node_list: str) -> tuple[str, ...]:
    """The nodes of SLURM_JOB_NODELIST; none where it cannot be read."""
    try:
        return hostlist.expand_hosts(node_list)
    except SlurmError:
        return ()


def _cpus_per_node(text: str) -> list[int]:
    """The CPUs on each node by SLURM_JOB_CPUS_PER_NODE, such as ``28(x2),4``; none where it cannot be read."""
    counts: list[int] = []
    for item in text.split(","):
        count, _, times = item.partition("(x")
        repeat = times.removesuffix(")") or "1"
        if not (count.isascii() and count.isdigit() and repeat.isascii() and repeat.isdigit()):
            return []
        if len(count) > 6 or len(repeat) > 6 or len(counts) > MAX_CPUS:
            return []
        counts.extend([int(count)] * int(repeat))
    return counts


def _cpus_on_node(counts: list[int], names: tuple[str, ...], node: str) -> int:
    """This node's CPUs, or 0 where they are not known."""
    if len(set(counts)) == 1:
        return counts[0]
    return counts[names.index(node)] if node in names and len(names) == len(counts) else 0
