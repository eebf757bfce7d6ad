"""What went wrong on this node lately, for ``sodactl status``: each thing once, for an hour."""

from __future__ import annotations

from slurm_soda.wire.records import MAX_FAULT_LENGTH

KEPT_S = 3600.0
MAX_KEPT = 32


class RecentFaults:
    """A short memory of faults."""

    def __init__(self) -> None:
        self._last_s: dict[str, float] = {}
        self._times: dict[str, int] = {}

    def add(self, now_s: float, text: str) -> bool:
        """Remember a fault; says whether it is new."""
        line = "".join(c if c.isprintable() else "?" for c in text)[: MAX_FAULT_LENGTH - 20]
        new = line not in self._last_s
        self._last_s[line] = now_s
        self._times[line] = self._times.get(line, 0) + 1
        if len(self._last_s) > MAX_KEPT:
            self._drop(min(self._last_s, key=self._last_s.__getitem__))
        return new

    def recent(self, now_s: float) -> tuple[str, ...]:
        """The faults of the last hour, oldest first, with how often each came. The clock may have been set back since."""
        self._last_s = {line: min(at_s, now_s) for line, at_s in self._last_s.items()}
        for line in [line for line, at_s in self._last_s.items() if now_s - at_s > KEPT_S]:
            self._drop(line)
        ordered = sorted(self._last_s, key=self._last_s.__getitem__)
        return tuple(f"{line} (x{self._times[line]})" if self._times[line] > 1 else line for line in ordered)

    def _drop(self, line: str) -> None:
        del self._last_s[line]
        del self._times[line]
