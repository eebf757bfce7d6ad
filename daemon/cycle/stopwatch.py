"""Where a cycle's time went."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from slurm_soda.daemon.clock import Clock, Instant


@dataclass(slots=True)
class Stopwatch:
    """Seconds by part; a part inside another is named ``outer.inner``."""

    clock: Clock
    began: Instant = field(init=False)
    """The cycle's instant."""
    _taken_s: dict[str, float] = field(default_factory=dict)
    _began_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began = Instant.read(self.clock)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Add the time of the ``with`` block to a part."""
        self._began_s[part] = self.clock.elapsed_s()
        try:
            yield
        finally:
            self._taken_s[part] = self.reading()[part]
            del self._began_s[part]

    def reading(self) -> dict[str, float]:
        """Seconds by part so far, parts that still run included."""
        now_s = self.clock.elapsed_s()
        running = {part: self._taken_s.get(part, 0.0) + now_s - began_s for part, began_s in self._began_s.items()}
        return {part: round(taken_s, 6) for part, taken_s in (self._taken_s | running).items()}
