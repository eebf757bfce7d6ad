"""Whether GPU jobs wait for what comes in. Pure: no file, no clock.

What comes in has crossed the link already, so it cannot be shared out as what goes out: it can only be dropped, so that its
senders slow down (TCP does). That costs, and it borrows nothing; so it is done only while the link is full and GPU jobs
receive by it too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

OVER_RATIO, RELEASE_RATIO = 0.75, 0.6
LEAST_GPU_RATIO = 0.02
"""GPU jobs that receive less of the link than this are not waiting for it: that much are acknowledgements."""
RELEASE_SAMPLES = 5
MOST_RELAPSES = 4
"""A link that fills up again after a release is left full twice as long before the next one, this many times."""
LEAST_INTERVAL_S = 1.0


@dataclass(slots=True)
class IncomingCongestion:
    """Follows the bytes received on one link."""

    link_bytes_per_s: float
    full: bool = False
    """CPU jobs' incoming packets are to be limited."""
    _at_s: float = field(default=0.0)
    _bytes: int | None = None
    _gpu_bytes: int | None = None
    """GPU jobs' share of it at the reading before, if that was a full one."""
    _under: int = 0
    _relapses: int = -1

    def observe(self, now_s: float, received: int, gpu_received: Callable[[], int | None]) -> bool:
        """Take a reading of the bytes received; says whether CPU jobs are to be limited. ``now_s`` never goes back.

        They are from the second reading in a row over 75 % of the link on, if GPU jobs receive too; until the link has
        been below 60 % for five readings, or longer where it fills up again each time. ``gpu_received`` gives what the GPU
        jobs have of the bytes, None: not known; it is asked only when the link is full.
        """
        if self._bytes is not None and now_s - self._at_s < LEAST_INTERVAL_S:
            return self.full
        before, seconds = self._bytes, now_s - self._at_s
        self._bytes, self._at_s = received, now_s
        if before is None or received < before:  # the first one, or the counter started anew
            return self.full
        ratio = (received - before) / seconds / self.link_bytes_per_s
        self._under = self._under + 1 if ratio < RELEASE_RATIO else 0
        if not self.full and self._waits(gpu_received() if ratio > OVER_RATIO else None, seconds):
            self.full = True
            self._relapses = min(self._relapses + 1, MOST_RELAPSES)
        elif self.full and self._under >= RELEASE_SAMPLES * 2**self._relapses:
            self.full = False
        return self.full

    def _waits(self, gpu_bytes: int | None, seconds: float) -> bool:
        """GPU jobs received something since the reading before, which was a full one too."""
        before, self._gpu_bytes = self._gpu_bytes, gpu_bytes
        if before is None or gpu_bytes is None:
            return False
        return (gpu_bytes - before) / seconds >= LEAST_GPU_RATIO * self.link_bytes_per_s
