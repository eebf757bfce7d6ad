"""What sodad shows of the service, twice a second: its instances as the router sees them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.cluster_spec import ClusterError
from slurm_soda.demo.cluster_runs import PYTHON
from slurm_soda.demo.services_day.owner_commands import OWNER

_STDOUT = 1
_ASK = """
import sys, time
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl.live.sodad_http import request_sodad
from slurm_soda.wire.munge import Munge
munge = Munge()
while True:
    try:
        said = request_sodad("http://127.0.0.1:6830", "/v1/services", {}, munge)
        print(said.decode().replace("\\n", " "), flush=True)
    except SodaError:
        pass
    time.sleep(0.5)
"""
"""One process that asks, since starting one for each question would take a core."""


@dataclass(frozen=True, slots=True)
class SeenInstance:
    """One task that runs."""

    job_id: int
    device: str
    state: str
    host: str
    since_s: float
    queries: int
    """In flight, by the router's last report."""


@dataclass(frozen=True, slots=True)
class ServiceSight:
    """The service at one moment."""

    at_s: float
    """When it was heard, by this machine's steady clock."""
    load_qps: float
    reason: str
    instances: tuple[SeenInstance, ...]

    @property
    def ready(self) -> tuple[SeenInstance, ...]:
        """Those that answer."""
        return tuple(one for one in self.instances if one.state == "ready")

    def serves(self, count: int, device: str = "") -> bool:
        """Whether so many are ready, on this device if one is named, and nothing else of the service runs."""
        return len(self.ready) == len(self.instances) == count and all(
            one.device == device for one in self.ready if device
        )

    def __str__(self) -> str:
        """One line for a person."""
        there = ", ".join(f"{one.job_id} {one.device} {one.state} on {one.host}" for one in self.instances)
        return f"{self.load_qps:.0f}/s, {there or 'no instance'} ({self.reason})"


def read_sight(text: str, name: str, at_s: float) -> ServiceSight | None:
    """One answer of sodad's; None: it does not know the service yet, or the answer is cut off."""
    try:
        found = [one for one in json.loads(text)["services"] if one["name"] == name]
    except ValueError:
        return None
    if not found:
        return None
    fields = ("job_id", "device", "state", "host", "since_s", "queries")
    instances = tuple(SeenInstance(*(one[field] for field in fields)) for one in found[0]["instances"])
    return ServiceSight(at_s, found[0]["load_qps"], found[0]["reason"], instances)


class ServiceWatch:
    """Keeps every sight, until the cluster goes.

    Attributes:
        sights: by time.
    """

    def __init__(self, cluster: ContainerCluster, name: str) -> None:
        self.sights: list[ServiceSight] = []
        self._name = name
        self._running = cluster.run(OWNER, (PYTHON, "-c", _ASK))
        threading.Thread(target=self._read, daemon=True).start()

    def wait(self, what: str, condition: Callable[[ServiceSight], bool], within_s: float) -> ServiceSight:
        """Wait for a sight from now on of which the condition holds.

        Raises:
            ClusterError: there was none within ``within_s``; has the last one.
        """
        began_s = time.monotonic()
        while time.monotonic() - began_s < within_s:
            last = self.sights[-1] if self.sights else None
            # What was heard just now may have been asked before the last change.
            if last is not None and last.at_s > began_s + 1.0 and condition(last):
                return last
            time.sleep(0.1)
        raise ClusterError(
            f"not within {within_s:g} s: {what}; seen last: {self.sights[-1] if self.sights else 'nothing'}"
        )

    def between(self, from_s: float, until_s: float) -> list[ServiceSight]:
        """Sights of a time, by the steady clock."""
        return [one for one in self.sights if from_s <= one.at_s < until_s]

    def _read(self) -> None:
        text = b""
        for stream, data in self._running:
            if stream == _STDOUT:
                *lines, text = (text + data).split(b"\n")
                for line in lines:
                    sight = read_sight(line.decode("utf-8", "replace"), self._name, time.monotonic())
                    if sight is not None:
                        self.sights.append(sight)


def least_ready(sights: Collection[ServiceSight]) -> int:
    """Fewest ready instances at any of these moments; 0 if there was none."""
    return min((len(one.ready) for one in sights), default=0)


def most_ready(sights: Collection[ServiceSight]) -> int:
    """Most ready instances at any of these moments."""
    return max((len(one.ready) for one in sights), default=0)
