"""Whether a link's incoming side is full. Pure: no file, no clock.

What comes in has crossed the link already, so it cannot be shared out as what goes out: it can only be dropped, so that its
senders slow down (TCP does). That costs, and it borrows nothing; so it is done only while the link is full.
"""

from __future__ import annotations

from dataclasses import dataclass, field

OVER_RATIO, RELEASE_RATIO = 0.75, 0.6
RELEASE_SAMPLES = 5
MOST_RELAPSES = 4
"""A link that fills up again after a release is left full twice as long before the next one, this many times."""
LEAST_INTERVAL_S = 1.0


@dataclass(slots=True)
class Incoming:
    """Follows the bytes received on one link."""

    link_bytes_per_s: float
    full: bool = False
    """CPU jobs' incoming packets are to be limited."""
    _at_s: float = field(default=0.0)
    _bytes: int | None = None
    _under: int = 0
    _relapses: int = -1

    def see(self, now_s: float, received_bytes: int) -> bool:
        """Take a reading; says whether the link is full: from the first second over 75 % of it, until it has been below
        60 % for five readings, or longer where it fills up again each time.
        """
        if self._bytes is not None and now_s - self._at_s < LEAST_INTERVAL_S:
            return self.full
        before, at_s = self._bytes, self._at_s
        self._bytes, self._at_s = received_bytes, now_s
        if before is None or received_bytes < before:  # the first one, or the counter started anew
            return self.full
        ratio = (received_bytes - before) / (now_s - at_s) / self.link_bytes_per_s
        self._under = self._under + 1 if ratio < RELEASE_RATIO else 0
        if ratio > OVER_RATIO and not self.full:
            self.full = True
            self._relapses = min(self._relapses + 1, MOST_RELAPSES)
        elif self.full and self._under >= RELEASE_SAMPLES * 2**self._relapses:
            self.full = False
        return self.full


def received_bytes(table: str, interface: str) -> int | None:
    """An interface's bytes from ``/proc/net/dev``, or None: it is not there."""
    for line in table.splitlines():
        name, colon, values = line.partition(":")
        if colon and name.strip() == interface and values.split():
            return int(values.split()[0])
    return None
