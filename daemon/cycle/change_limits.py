"""Change limits: how many changes a cycle may send, how often one job may be changed, and when sodad stops by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurm_soda.daemon.settings.scheduling import ChangeLimitSettings
from slurm_soda.slurm_ext.write.job_changes import JobChange


@dataclass(frozen=True, slots=True)
class AdmittedChanges:
    """What the change limits let through, in the order to send, and what must wait."""

    changes: tuple[JobChange, ...]
    deferred: int
    retry_s: float
    """When the first deferred change may go, by the steady clock; infinite when none waits."""


@dataclass(slots=True)
class ChangeLimits:
    """Limits over all cycles of one daemon. All instants are the steady clock's, which nobody sets."""

    settings: ChangeLimitSettings
    _changed_s: dict[int, float] = field(default_factory=dict)

    def remember(self, job_id: int, at_s: float) -> None:
        """Count a change that an earlier daemon or cycle made."""
        self._changed_s[job_id] = max(at_s, self._changed_s.get(job_id, at_s))

    def admit(
        self,
        urgent: Sequence[JobChange],
        ordinary: Sequence[JobChange],
        steady_s: float,
        *,
        services: Sequence[JobChange] = (),
        already: int = 0,
    ) -> AdmittedChanges:
        """Cut a cycle's changes to what is allowed.

        Args:
            urgent: steps of preemptions, most urgent first; they come before everything, and their own state machine paces
                them, so that only the number counts.
            ordinary: orders and rewrites, most urgent first (jobs that shall start lead them).
            steady_s: the cycle's instant.
            services: leases, starts and requeues of services' tasks, most urgent first; before what is ordinary, but of what
                urgent changes leave they have half at most as long as that wants the rest: users may have many tasks.
            already: so many of the cycle's changes were admitted before.
        """
        limits = self.settings
        self._forget(steady_s)
        most = max(limits.max_changes_per_cycle - already, 0)
        passed = list(urgent[:most])
        left = most - len(passed)
        ready_s = [
            self._changed_s.get(change.job_id, float("-inf")) + limits.min_change_interval_s for change in ordinary
        ]
        ready = sum(at_s <= steady_s for at_s in ready_s)
        passed += services[: max(left - ready, (left + 1) // 2)]
        deferred = len(urgent) + len(services) - len(passed)
        retry_s = steady_s if deferred else float("inf")
        for change, at_s in zip(ordinary, ready_s, strict=True):
            if at_s <= steady_s and len(passed) < most:
                passed.append(change)
                continue
            deferred += 1
            retry_s = min(retry_s, max(at_s, steady_s))
        for change in passed:
            if change.kind in ("order", "rewrite"):
                self._changed_s[change.job_id] = steady_s
        return AdmittedChanges(tuple(passed), deferred, retry_s)

    def _forget(self, steady_s: float) -> None:
        horizon_s = steady_s - self.settings.min_change_interval_s
        self._changed_s = {job_id: at_s for job_id, at_s in self._changed_s.items() if at_s > horizon_s}


@dataclass(slots=True)
class CircuitBreaker:
    """Opens after too many failing or slow cycles in a row; while open, sodad only observes.

    After the pause one cycle may act again; a failure then opens the breaker at once. All instants are the steady clock's.
    """

    settings: ChangeLimitSettings
    failures: int = 0
    open_until_s: float = float("-inf")
    cause: str = ""

    def is_open(self, steady_s: float) -> bool:
        """Whether sodad must not change anything now."""
        return steady_s < self.open_until_s

    def note_failure(self, steady_s: float, cause: str) -> bool:
        """Count a failing cycle; true if that opened the breaker."""
        self.failures += 1
        if self.failures < self.settings.breaker_failures or self.is_open(steady_s):
            return False
        self.open_until_s, self.cause = steady_s + self.settings.breaker_pause_s, cause
        return True

    def note_success(self, read_s: float, steady_s: float) -> bool:
        """Count a cycle that went well unless its read was slow; true if that opened the breaker."""
        if read_s > self.settings.breaker_slow_s:
            return self.note_failure(steady_s, f"reading Slurm took {read_s:.1f} s")
        if not self.is_open(steady_s):
            self.failures = 0
        return False
