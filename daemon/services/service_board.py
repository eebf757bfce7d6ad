"""What the routers of inference services reported, kept between the HTTP side and the cycles of one daemon.

Reports come every second or two and are only kept here; the cycle writes the newest ones into the store. Its answers are
what the last cycle decided, so no router ever waits for one.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.services.known_service import KnownService, ServiceKey, ServiceStatus
from slurm_soda.daemon.services.recent_load import RecentLoad
from slurm_soda.daemon.services.service_load import MINUTE_S, LoadMinute, MinuteLoads, QueryTotals
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.services.router_report import RouterAnswer, RouterReport
from slurm_soda.wire.services.service_file import ReplicaLimits, ServiceFile, read_service_file

LEAST_INTERVAL_S = 0.2
"""Least time between two reports of one service."""
WAKE_EVERY_S = 1.0
"""Reports of one user bring about a cycle before its time so often at most; what they say counts in the next one anyway."""
RIVAL_FOR_S = 10.0
"""A report from another endpoint counts as a second router's for so long after the one before."""
FORGOTTEN_AFTER_S = 7 * 86_400.0
"""A service without tasks that nobody reported for so long is forgotten."""
WRITTEN_EVERY_S = 10.0
"""A report that says nothing new of a service itself is written into the store so often at most."""
_RISE_RATIO = 0.2
"""A load that rose by so much since the last cycle, and by more than chance makes of a second, is worth a new one. A load
that fell can wait."""


class ReportRefusedError(SodaError):
    """A report or request that is not taken; says why, and after how long it may be sent again."""

    def __init__(self, text: str, status: int, retry_s: float = 0.0) -> None:
        super().__init__(text)
        self.status, self.retry_s = status, retry_s


@dataclass(slots=True)
class ServiceBoard:
    """Reports, requests of owners, and answers; for threads."""

    most_per_user: int = 20
    enabled: bool = True
    mean_over_s: float = MINUTE_S
    """Over how many seconds the load that decisions count with is a mean."""
    wake: Callable[[], None] = lambda: None
    """Called when a report says what may change a decision."""
    statuses: Mapping[ServiceKey, ServiceStatus] = field(default_factory=dict)
    """What the last cycle saw of each; replaced as a whole."""
    loads: MinuteLoads = field(default_factory=MinuteLoads)
    totals: QueryTotals = field(default_factory=QueryTotals)
    _recent: dict[ServiceKey, RecentLoad] = field(default_factory=dict)
    _known: dict[ServiceKey, KnownService] = field(default_factory=dict)
    _stored: dict[ServiceKey, KnownService] = field(default_factory=dict)
    """As the store has them."""
    _answers: Mapping[ServiceKey, RouterAnswer] = field(default_factory=dict)
    _decided_on: dict[ServiceKey, tuple[object, float]] = field(default_factory=dict)
    """States of instances, and load, by which the last cycle decided."""
    _woken_s: dict[str, float] = field(default_factory=dict)
    """When reports of each owner last woke sodad."""
    _leave: dict[ServiceKey, set[int]] = field(default_factory=dict)
    """Instances that their owners want drained; 0: all."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, owner: str, report: RouterReport, at: Instant) -> RouterAnswer:
        """Keep a report; gives what sodad wants of its router.

        Raises:
            ReportRefusedError: it is not taken.
        """
        if not self.enabled:
            raise ReportRefusedError("services.enabled is false in sodad's configuration", 403)
        try:
            file = self._file(owner, report)
        except RecordError as error:
            raise ReportRefusedError(str(error), 422) from error
        key = ServiceKey(owner, file.name)
        with self._lock:
            before = self._known.get(key)
            self._check_limits(key, before, at)
            recent_qps = self._recent.setdefault(key, RecentLoad()).add(report.load_qps, at.steady_s, self.mean_over_s)
            service = _renewed(before, KnownService(key, file, report, at.now_s, at.steady_s, recent_qps=recent_qps))
            self._known[key] = service
            self.loads.add(key, report, at.now_s)
            self.totals.add(report)
            answer = self._answers.get(key, RouterAnswer(reason="sodad has not decided yet"))
            worth = _worth_a_cycle(self._decided_on.get(key), service)
            worth = worth and not 0 <= at.steady_s - self._woken_s.get(owner, -math.inf) < WAKE_EVERY_S
            if worth:
                self._woken_s[owner] = at.steady_s
        if worth:
            self.wake()
        return replace(answer, reason="; ".join(filter(None, (service.rival, answer.reason)))[:1000])

    def scale(self, key: ServiceKey, least: int, most: int) -> ReplicaLimits:
        """Other limits than the file's, until that says something else.

        Raises:
            ReportRefusedError: no router reports such a service, or the limits contradict each other.
        """
        with self._lock:
            service = self._reported(key)
            if least > most:
                raise ReportRefusedError(f"least is {least}, and most {most}; most must not be smaller", 422)
            limits = ReplicaLimits(least, most)
            self._known[key] = replace(service, scaled=limits, scaled_from=service.file.replicas)
        self.wake()
        return limits

    def drain(self, key: ServiceKey, job_ids: Collection[int]) -> None:
        """Its owner wants these instances to leave; an empty collection: all of them.

        Raises:
            ReportRefusedError: no router reports such a service, or none of its instances has one of these ids.
        """
        with self._lock:
            service = self._reported(key)
            there = {one.job_id for one in service.report.instances}
            if unknown := sorted(set(job_ids) - there):
                raise ReportRefusedError(
                    f"service {key.name} of {key.owner} has no instance {unknown[0]}; it has"
                    f" {', '.join(map(str, sorted(there)[:20])) or 'none'}",
                    404,
                )
            self._leave.setdefault(key, set()).update(job_ids or there)
        self.wake()

    def take_requests(self) -> dict[ServiceKey, set[int]]:
        """Instances that owners want drained since the last call."""
        with self._lock:
            asked, self._leave = self._leave, {}
        return asked

    def known(self) -> list[KnownService]:
        """All services, by owner and name."""
        with self._lock:
            return [self._known[key] for key in sorted(self._known)]

    def service(self, key: ServiceKey) -> KnownService | None:
        """One of them."""
        with self._lock:
            return self._known.get(key)

    def answer(self, answers: Mapping[ServiceKey, RouterAnswer], decided_on: Collection[KnownService]) -> None:
        """What routers are told from now on, and by which reports that was decided."""
        with self._lock:
            self._answers = dict(answers)
            self._decided_on = {one.key: (_states(one.report), one.load_qps) for one in decided_on}

    def changed(self) -> list[KnownService]:
        """Services of which something is not in the store yet; :meth:`saved` once it is."""
        with self._lock:
            return [one for key, one in sorted(self._known.items()) if _is_to_be_stored(self._stored.get(key), one)]

    def saved(self, written: Collection[KnownService]) -> None:
        """These are in the store; reports that came meanwhile are not."""
        with self._lock:
            self._stored |= {one.key: one for one in written}

    def finished_minutes(self, now_s: float) -> list[LoadMinute]:
        """Minutes that are over and not in the store yet; :meth:`saved_minutes` once they are."""
        with self._lock:
            return self.loads.finished(now_s)

    def saved_minutes(self, minutes: Collection[LoadMinute]) -> None:
        """These are in the store."""
        with self._lock:
            self.loads.saved(minutes)

    def recall(self, services: Collection[KnownService]) -> None:
        """What the store has of services that nobody has reported to this daemon yet; their load of now is not known.

        The store's may be of before a burst: by that, instances would leave that the burst needs.
        """
        with self._lock:
            self._stored = {one.key: one for one in services}
            for one in services:
                self._known.setdefault(one.key, replace(one, recent_qps=math.nan))

    def forget(self, kept: Collection[ServiceKey], at: Instant) -> list[ServiceKey]:
        """Forget services that have no tasks (not in ``kept``) and that nobody has reported for long; gives them."""
        with self._lock:
            gone = [
                key
                for key, one in self._known.items()
                if key not in kept and at.steady_s - one.reported_steady_s > FORGOTTEN_AFTER_S
            ]
            for key in gone:
                del self._known[key]
                self._stored.pop(key, None)
                self._recent.pop(key, None)
        return gone

    def _file(self, owner: str, report: RouterReport) -> ServiceFile:
        """As it was read before, if it is the same text."""
        for one in self.known():
            if one.key.owner == owner and one.report.service_file == report.service_file:
                return one.file
        return read_service_file(report.service_file, "service's file")

    def _check_limits(self, key: ServiceKey, before: KnownService | None, at: Instant) -> None:
        if before is not None:
            if 0 <= at.steady_s - before.reported_steady_s < LEAST_INTERVAL_S:
                raise ReportRefusedError(
                    f"service {key.name} was reported less than {LEAST_INTERVAL_S:g} s ago; report once a second",
                    429,
                    1.0,
                )
            return
        if sum(one.owner == key.owner for one in self._known) >= self.most_per_user:
            raise ReportRefusedError(
                f"{key.owner} has {self.most_per_user} services, and no more are taken (services.most_per_user)", 403
            )

    def _reported(self, key: ServiceKey) -> KnownService:
        service = self._known.get(key)
        if service is None:
            own = [one.name for one in sorted(self._known) if one.owner == key.owner]
            raise ReportRefusedError(
                f"no router reports a service {key.name} of {key.owner}; known are {', '.join(own) or 'none'}", 404
            )
        return service


def _renewed(before: KnownService | None, now: KnownService) -> KnownService:
    """With what the owner said by command, and what is to be said of a second router."""
    if before is None:
        return now
    if before.scaled is not None and before.scaled_from == now.file.replicas:
        now = replace(now, scaled=before.scaled, scaled_from=before.scaled_from)
    here, there, at_s = now.report.endpoint, before.report.endpoint, now.reported_steady_s
    if here != there and at_s - before.reported_steady_s < RIVAL_FOR_S:
        both = f"{there or '(no address)'} and {here or '(no address)'}"
        told = f"two routers report {now.key.name}: {both}; the newest report counts, stop one of them"
        return replace(now, rival=told, rival_s=at_s)
    if at_s - before.rival_s < RIVAL_FOR_S:
        return replace(now, rival=before.rival, rival_s=before.rival_s)
    return now


def _is_to_be_stored(stored: KnownService | None, now: KnownService) -> bool:
    if stored is None or (stored.scaled, stored.scaled_from) != (now.scaled, now.scaled_from):
        return True
    was, told = stored.report, now.report
    if (was.service_file, was.profile, was.endpoint) != (told.service_file, told.profile, told.endpoint):
        return True
    return not 0 <= now.reported_steady_s - stored.reported_steady_s < WRITTEN_EVERY_S


def _states(report: RouterReport) -> object:
    """What of the instances matters for a decision: a draining one that has answered all it had is to be requeued."""
    return frozenset((one.job_id, one.state, one.state == "draining" and one.queries == 0) for one in report.instances)


def _worth_a_cycle(decided_on: tuple[object, float] | None, service: KnownService) -> bool:
    if decided_on is None:
        return True
    states, load_qps = decided_on
    if math.isnan(load_qps):
        return True
    rise = service.load_qps - load_qps
    return states != _states(service.report) or rise > max(_RISE_RATIO * load_qps, 3.0 * math.sqrt(load_qps), 1.0)
