"""Plans that cannot be: a policy's mistakes are reported, not simulated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.sharing.engine.gpu_holders import GpuHolders
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.sharing.co_runner_slowdowns import GpuPlacement


@dataclass(slots=True)
class SharingPlanCheck:
    """Who would be on which GPU after a plan; only the GPUs that it touches are copied."""

    policy: str
    now_s: float
    devices: GpuHolders
    most: int
    """Jobs on one GPU."""
    usable: Sequence[bool]
    """By node."""
    label: Callable[[int], str]
    _holders: dict[int, list[int]] = field(default_factory=dict)

    def vacate(self, rows: Sequence[int]) -> None:
        """These jobs leave first."""
        for row in rows:
            for device in self.devices.of(row):
                self.on(device).remove(row)

    def on(self, device: int) -> list[int]:
        """Rows of the jobs on a GPU."""
        if device not in self._holders:
            self._holders[device] = list(self.devices.holders(device))
        return self._holders[device]

    def idle(self, pieces: Sequence[NodeAllocation]) -> tuple[int, ...]:
        """For a plan that does not say which GPUs: the first ones of each node that nobody would have."""
        chosen: list[int] = []
        first = self.devices.first
        for piece in pieces:
            free = [at for at in range(int(first[piece.node]), int(first[piece.node + 1])) if not self.on(at)]
            chosen += free[: piece.gpus]
        return tuple(sorted(chosen))

    def add(self, row: int, pieces: Sequence[NodeAllocation], place: GpuPlacement) -> set[int]:
        """A job starts; its partners.

        Raises:
            SimulatorError: it cannot start there.
        """
        devices = place.devices
        if len(set(devices)) < len(devices) or not all(0 <= device < len(self.devices) for device in devices):
            raise self.fault(row, f"GPUs {list(devices)} are not different ones of the {len(self.devices)}")
        counted = Counter(self.devices.node[device] for device in devices)
        wanted: Counter[int] = Counter()
        for piece in pieces:
            if piece.gpus:
                wanted[piece.node] += piece.gpus
            if not self.usable[piece.node]:
                raise self.fault(row, f"node row {piece.node} is down")
        if counted != wanted:
            raise self.fault(row, f"it gets {dict(counted)} GPUs by node, but its places are {dict(wanted)}")
        partners: set[int] = set()
        for device in devices:
            there = self.on(device)
            partners.update(there)
            if len(there) >= self.most:
                raise self.fault(
                    row, f"GPU {device} would have {len(there) + 1} jobs, and at most {self.most} are allowed"
                )
            there.append(row)
        return partners

    def fault(self, row: int, problem: str) -> SimulatorError:
        """What is wrong with the start of a job."""
        return SimulatorError(
            f"policy {self.policy} at {self.now_s:g} s starts job {self.label(row)} where it cannot: {problem}"
        )


def check_cpus_and_memory(
    draft: SharingPlanCheck, starts: Mapping[int, Sequence[NodeAllocation]], free: Mapping[int, list[int]]
) -> None:
    """CPUs and memory: what starting jobs take of ``free``, by node, [CPUs, MiB] with those of leaving jobs in it.

    Raises:
        SimulatorError: something would be given twice.
    """
    for row, pieces in starts.items():
        for piece in pieces:
            left = free[piece.node]
            left[0] -= piece.cpus
            left[1] -= piece.memory_mib
            if min(left) < 0:
                what = "CPUs" if left[0] < 0 else "MiB of memory"
                raise draft.fault(row, f"{-min(left)} {what} of node row {piece.node} would be given twice")
