"""Whether slurmctld is active on this host: where controllers have a store each, only the sodad beside it acts.

A store in a file fences nobody on another host. But Slurm itself sees to it that only one of its controllers is active, and
``scontrol ping`` tells which. So of several sodads with a store each one acts, and after a fail-over of Slurm the next one,
once nothing of the one before can be on its way. A site with one controller, or with a shared store, needs none of this.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurm_soda.daemon.clock import Clock
from slurm_soda.slurm_ext.command_runner import SLURM_ENVIRONMENT, CommandRunner
from slurm_soda.slurm_ext.read.slurm_config import ask_config, config_of

LOOK_EVERY_S = 10.0
"""How often slurmctld is asked; a controller that is down makes the answer late."""

LOOK_SELDOM_S = 600.0
"""The same where Slurm has one controller. Another one must first be in slurm.conf, and a change of that file is noticed
within the time above; this is for files that slurm.conf includes."""

_PING = re.compile(rb"^Slurmctld\([a-z0-9]+\) at (\S+) is (UP|DOWN)\b", re.MULTILINE)


def parse_ping(text: bytes) -> list[tuple[str, bool]]:
    """Slurm's controllers in their order and whether each one answers, from ``scontrol ping``."""
    return [(host.decode("utf-8", "backslashreplace"), state == b"UP") for host, state in _PING.findall(text)]


def _active(controllers: Sequence[tuple[str, bool]]) -> str | None:
    """The first one that answers, which Slurm lets act."""
    return next((name for name, answers in controllers if answers), None)


def is_this_host(name: str) -> bool:
    """Whether a name is this host's, or leads to one of its addresses."""
    if name.partition(".")[0] == socket.gethostname().partition(".")[0]:
        return True
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    return any(_is_own_address(family, address[0]) for family, _, _, _, address in found)


def _is_own_address(family: int, address: object) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


@dataclass(slots=True)
class ActiveController:
    """Looks for the active controller now and then."""

    runner: CommandRunner
    clock: Clock
    timeout_s: float
    settle_s: float
    """So long after slurmctld has become active here another host's sodad may still have changes on their way."""
    is_here: Callable[[str], bool] = is_this_host
    _controllers: Sequence[tuple[str, bool]] | None = field(default=None, init=False)
    _looked_s: float = field(default=float("-inf"), init=False)
    _stamp: tuple[int, ...] | None = field(default=None, init=False)
    """Of slurm.conf before Slurm was last asked."""
    _config_path: Path | None = field(default=None, init=False)
    """Of slurm.conf; ``None``: not known."""
    _here_since_s: float | None = field(default=None, init=False)

    def reason_to_observe(self) -> str:
        """Why this sodad must change nothing now; empty: it may act."""
        now_s = self.clock.elapsed_s()
        if now_s - self._looked_s >= LOOK_EVERY_S and not self._is_known_to_be_one(now_s):
            self._look()
        if self._controllers is None:
            return "scontrol ping has not said yet which controllers Slurm has, so another one's sodad may act"
        if len(self._controllers) < 2:
            return ""
        if self._here_since_s is None:
            return (
                f"slurmctld is active on {_active(self._controllers)}, not on this host: of sodads with a store each only "
                "the one there acts; a store on PostgreSQL serves both"
            )
        left_s = self._here_since_s + self.settle_s - self.clock.elapsed_s()
        if left_s <= 0:
            return ""
        return f"another controller's sodad, with a store of its own, may have acted just now: {left_s:.0f} s left"

    def _is_known_to_be_one(self, now_s: float) -> bool:
        """Whether there is one controller, by an answer that is not old and a slurm.conf that is as it was then."""
        if self._controllers is None or len(self._controllers) > 1 or now_s - self._looked_s >= LOOK_SELDOM_S:
            return False
        return self._stamp is not None and self._stamp == self._read_stamp()

    def _read_stamp(self) -> tuple[int, ...] | None:
        """What changes with slurm.conf, where scontrol finds the controllers; ``None``: it cannot be looked at."""
        if self._config_path is None:
            return None
        try:
            found = self._config_path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size

    def _look(self) -> None:
        """Ask Slurm; where it says nothing, what it said before holds."""
        stamp, said = self._read_stamp(), self._ask("ping")
        self._looked_s = self.clock.elapsed_s()
        if not (found := parse_ping(said)):
            return
        self._controllers, self._stamp = found, stamp
        if len(found) == 1 and self._config_path is None:
            config = config_of(ask_config(self.runner, self.timeout_s))
            self._config_path = Path(config["SLURM_CONF"]) if "SLURM_CONF" in config else None
        active = _active(found)
        if active is None or not self.is_here(active):
            self._here_since_s = None
        elif self._here_since_s is None:
            self._here_since_s = self._looked_s

    def _ask(self, *words: str) -> bytes:
        return self.runner(("scontrol", *words), stdin=b"", timeout_s=self.timeout_s, env=SLURM_ENVIRONMENT).stdout
