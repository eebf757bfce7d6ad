"""What signals have asked the daemon to do, until its loop does it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from types import FrameType

from slurm_soda.daemon.cycle.wake import WakeEvent


@dataclass(slots=True)
class SignalFlags:
    """What signals asked for."""

    waker: WakeEvent
    stop: bool = False
    reload: bool = False

    def listen(self) -> None:
        """SIGTERM and SIGINT stop, SIGHUP reads the configuration again."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stop = True
        self.waker.call()

    def _on_reload(self, _number: int, _frame: FrameType | None) -> None:
        self.reload = True
        self.waker.call()
