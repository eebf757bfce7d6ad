"""What the agent tells for the site's monitoring: readings that it has anyway, and its own share of the node."""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from slurm_soda.agent.sampling.gpus import GpuReading
from slurm_soda.wire.node_use import MAX_COUNT, GpuUse, NodeUse

_PAGE_BYTES = resource.getpagesize()


@dataclass(slots=True)
class NodeUseReader:
    """Puts together what one report tells; costs less than a tenth of a millisecond."""

    counts: Callable[[], Iterable[Mapping[str, int]]] = tuple
    """What each controller limits now."""
    gpus: Mapping[int, GpuReading] = field(default_factory=dict)
    """The newest readings by index; the agent replaces them with each sample."""

    def read(self) -> NodeUse:
        """The node now."""
        total: Counter[str] = Counter()
        for counts in self.counts():
            total.update(counts)
        used = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return NodeUse(
            gpus=tuple(
                GpuUse(index, round(gpu.util_ratio, 4), round(gpu.memory_mib, 1))
                for index, gpu in sorted(self.gpus.items())
            ),
            counts={name: min(count, MAX_COUNT) for name, count in total.items()},
            agent_cpu_s=round(sum(each.ru_utime + each.ru_stime for each in used), 3),
            agent_memory_bytes=_resident_bytes(),
        )


def _resident_bytes() -> int:
    """Memory of this process that is in RAM (proc(5), statm); 0 where the kernel does not tell."""
    try:
        with open("/proc/self/statm", "rb", buffering=0, opener=_open_close_on_exec) as file:  # noqa: PTH123 - unbuffered
            return int(file.read(256).split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def _open_close_on_exec(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC)
