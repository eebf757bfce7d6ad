"""What the agent has to report of NVIDIA MPS."""

from __future__ import annotations

from collections import deque

from slurm_soda.wire.mps import MAX_MPS_FAULTS, MpsFault, MpsJob


class MpsNews:
    """News of one agent; a report that fails takes nothing out."""

    def __init__(self) -> None:
        self.jobs: tuple[MpsJob, ...] = ()
        """Under MPS now."""
        self.faults: deque[MpsFault] = deque(maxlen=MAX_MPS_FAULTS)

    def __bool__(self) -> bool:
        """Whether a report is due: a fault does not wait."""
        return bool(self.faults)

    def mark_sent(self, faults: tuple[MpsFault, ...]) -> None:
        """The controller has these; by value, as more may have come meanwhile."""
        for fault in faults:
            if fault in self.faults:
                self.faults.remove(fault)
