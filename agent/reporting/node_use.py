"""What the agent tells for the site's monitoring: readings that it has anyway, and its own share of the node."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurm_soda.agent.resource_controller import NodeSample
from slurm_soda.agent.sampling.gpus import GpuReading
from slurm_soda.wire.node_use import MAX_COUNT, HeldGpu, NodeUse

_PAGE_BYTES = resource.getpagesize()


@dataclass(slots=True)
class NodeUseReader:
    """Puts together what one report tells; costs a tenth of a millisecond."""

    counts: Callable[[], Iterable[Mapping[str, int]]] = tuple
    """What each controller limits now."""
    gpus: Mapping[int, GpuReading] = field(default_factory=dict)
    """The newest readings by index, of GPUs that some run holds."""

    def note(self, sample: NodeSample, *, whole: bool) -> None:
        """Take the readings of a sample; one that is not ``whole`` has only those of runs that had none yet."""
        held = {index for run in sample.runs if run.opened is not None for index in run.opened.gpus}
        before = {} if whole else {index: gpu for index, gpu in self.gpus.items() if index in held}
        self.gpus = before | {index: gpu for index, gpu in sample.gpus.items() if index in held}

    def read(self) -> NodeUse:
        """The node now."""
        total: Counter[str] = Counter()
        for counts in self.counts():
            total.update(counts)
        used = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return NodeUse(
            gpus=tuple(
                HeldGpu(index, round(gpu.util_ratio, 4), round(gpu.memory_mib, 1))
                for index, gpu in sorted(self.gpus.items())
            ),
            counts={name: min(count, MAX_COUNT) for name, count in total.items()},
            agent_cpu_s=round(sum(each.ru_utime + each.ru_stime for each in used), 3),
            agent_memory_bytes=_resident_bytes(),
        )


def _resident_bytes() -> int:
    """Memory of this process that is in RAM (proc(5), statm); 0 where the kernel does not tell."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0
