"""Whether instances still write their files, by the router's own clock: those of nodes may differ from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_soda.wire.services.instance_file import InstanceFile

SILENT_S = 10.0
"""An instance whose heartbeat did not change for so long is not ready."""


@dataclass(slots=True)
class _Seen:
    heartbeat_s: float
    changed_s: float
    """By the router's clock; minus infinity: not seen to change yet."""


@dataclass(slots=True)
class Heartbeats:
    """When each instance's heartbeat was last seen to change."""

    _seen: dict[str, _Seen] = field(default_factory=dict)
    _looked_s: float | None = None

    def observe(self, instances: Mapping[str, InstanceFile], now_s: float, unix_s: float) -> None:
        """Take what the files say now.

        A file that is seen for the first time is believed if its heartbeat is of now by both clocks; else it has to change
        first. While the router itself could not look, nobody grew silent.

        Args:
            instances: by the names of their files.
            now_s: seconds of a steady clock.
            unix_s: Unix seconds.
        """
        blind_s = 0.0 if self._looked_s is None else max(0.0, now_s - self._looked_s - SILENT_S / 4)
        for seen in self._seen.values():
            seen.changed_s += blind_s
        for stem, instance in instances.items():
            seen_before = self._seen.get(stem)
            if seen_before is None:
                fresh = abs(unix_s - instance.heartbeat_s) <= SILENT_S
                self._seen[stem] = _Seen(instance.heartbeat_s, now_s if fresh else float("-inf"))
            elif seen_before.heartbeat_s != instance.heartbeat_s:
                self._seen[stem] = _Seen(instance.heartbeat_s, now_s)
        for stem in self._seen.keys() - instances.keys():
            del self._seen[stem]
        self._looked_s = now_s

    def silent(self, stem: str, now_s: float) -> bool:
        """Whether this instance is not known to live."""
        seen = self._seen.get(stem)
        return seen is None or now_s - seen.changed_s > SILENT_S
