"""The runs of one answer: every candidate on the same workloads, at the costs of whoever would run it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from slurm_soda.policies.registry.catalog import find_entry
from slurm_soda.policies.scope.scope import Scope
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.report.run_results import FailedRun, PolicyRuns, SimulatedRun
from slurm_soda.simulator.runs.batch import RunProgressCallback, SimulationBatch, run_batch
from slurm_soda.simulator.runs.estimates import PREDICTED, with_estimates
from slurm_soda.simulator.runs.policy_choice import PolicyChoice, service_gpu_s
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.services.service_set import PEAK, PLACED, ServingRules
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.site.description import SiteDescription
from slurm_soda.simulator.whatif import candidates
from slurm_soda.simulator.whatif.observed_site import ObservedSite
from slurm_soda.simulator.workload import Workload

_JOBS = 1000
"""So many jobs, over all members, are enough for a steady mean."""
_MOST = 20
_SHORTEST_S = 0.05


def variant_count(jobs: int) -> int:
    """How many workloads are worth simulating."""
    return max(1, min(_MOST, _JOBS // max(jobs, 1)))


def shift_within_the_second(workload: Workload, seed: int) -> Workload:
    """The same jobs, in the same order, each submitted within its second and run as long as its whole seconds allow.

    A submission moves by U(0, 1) s, a run time by the difference of two such numbers. The same seed gives the same jobs.
    """
    rng = np.random.default_rng(seed)
    jobs = len(workload)
    submit_s = np.sort(workload.submit_s + rng.random(jobs))
    run_s = np.maximum(workload.run_s + rng.random(jobs) - rng.random(jobs), _SHORTEST_S)
    return workload.with_columns(submit_s=submit_s, run_s=run_s)


def make_variants(workload: Workload) -> tuple[Workload, ...]:
    """The workload as it is if it is large, else :func:`variant_count` of its kind."""
    count = variant_count(len(workload))
    return (workload,) if count == 1 else tuple(shift_within_the_second(workload, seed) for seed in range(count))


TOLD_AFTER_S = 12.0
"""sodad knows what is left of a job that tells its progress once it has seen 10 s of it; agents send it every 2 s."""
REQUEUE_S = 2.0
"""sodad lets a job that it preempted wait for so long from the requeue on: before that its node may turn it away."""
_TRIAL_WORKLOADS = 4
_WORTH_A_PROCESS = 3000
"""Jobs to simulate, over all runs of a batch, below which starting processes takes longer than it saves."""

CandidateRole = Literal["slurm", "tried", "tuned", "sharing", "bound"]
"""What a candidate is tried as: Slurm by itself, a policy that could be turned on as it was asked for, the same with
thresholds from the trace, one that shares GPUs (by users' consent), and what nobody can do. A policy may be there in
several roles."""
_UNBOUNDED: tuple[CandidateRole, ...] = ("slurm", "bound")
"""Roles in which sodad bounds no wait."""


@dataclass(frozen=True, slots=True)
class WhatIfQuestion:
    """What a person may say."""

    restart_s: float | None = None
    """What each restart of a job costs; None: :func:`.candidates.likely_restart_s`."""
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    """Parameters by policy, in place of its defaults."""
    policies: tuple[str, ...] = ()
    """Policies to try besides :data:`.candidates.TRIED_POLICIES`."""
    workers: int | None = None
    passing_limit_s: float = np.inf
    """A job that waited so long is passed by no later one, as by sodad; Slurm by itself bounds no wait."""
    sharing: SharingRules | None = None
    """What jobs do to each other on a GPU, for policies that share; None: nobody knows."""
    site: SiteDescription = field(default_factory=SiteDescription)
    """What the site's Slurm knows of users, QOS and partitions."""
    tells_progress: bool = False
    """Whether jobs tell sodad how far they are."""
    checkpoint_every_s: float = math.inf
    """How much work a job does before it saves its state by itself: the rest is lost when its host ends."""
    services: ServingRules | None = None
    """Inference services beside the jobs: now on GPUs for their peaks, always; None: none."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy that was tried."""

    label: str
    """Its name, with ``(tuned)`` where its thresholds come from the trace."""
    choice: PolicyChoice
    runs: PolicyRuns
    role: CandidateRole

    @property
    def avg_jct_s(self) -> float:
        """Mean over the workloads."""
        return self.runs.mean("avg_jct_s")

    @property
    def complete(self) -> bool:
        """Every job came to its end."""
        return not any(self.runs.values("unfinished"))


class CandidateRunner:
    """Everything that the runs of one answer have in common."""

    def __init__(
        self, site: ObservedSite, question: WhatIfQuestion, restart_s: float, progress: RunProgressCallback | None
    ) -> None:
        self._site, self._question, self._restart_s = site, question, restart_s
        self._progress = _Counted(progress)
        self._failed: dict[str, FailedRun] = {}
        self.workloads = make_variants(site.workload)

    @property
    def failed(self) -> tuple[FailedRun, ...]:
        """The first failure of each policy that has one."""
        return tuple(self._failed.values())

    def slurm(self) -> Costs:
        """What Slurm alone takes: its main loop starts the first in line at once, a moment after nodes are free."""
        return Costs(start_s=self._site.start_delay_s)

    def soda(self, restart_s: float) -> Costs:
        """What slurm-soda takes, which is woken by every event."""
        lag_s = self._site.start_delay_s
        every_s = self._question.checkpoint_every_s
        return Costs(start_s=lag_s, restart_s=lag_s + restart_s, checkpoint_every_s=every_s)

    def stand_ins(self) -> Sequence[PolicyChoice]:
        """What may stand for the present."""
        return candidates.with_parameters(candidates.PRESENT_STAND_INS, self._question.parameters)

    def tried(self, *, by_run_times: bool = False) -> Sequence[PolicyChoice]:
        """What could be turned on: policies that need run times, or the others."""
        asked = [
            name
            for name in (*candidates.TRIED_POLICIES, *self._question.policies)
            if not candidates.needs_sharing(name)
        ]
        return self._named(name for name in asked if (name in candidates.POLICIES_BY_RUN_TIME) is by_run_times)

    def sharing(self) -> Sequence[PolicyChoice]:
        """Policies that share GPUs, as far as somebody says what jobs do to each other there, or asks for them; they are
        told run times as those are that need them.
        """
        tried = () if self._question.sharing is None else candidates.TRIED_POLICIES
        asked = (name for name in (*tried, *self._question.policies) if candidates.lets_jobs_share(name))
        return self._named(
            name for name in asked if self._question.sharing is not None or candidates.needs_sharing(name)
        )

    def _named(self, names: Iterable[str]) -> Sequence[PolicyChoice]:
        change_s = candidates.round_to_two_digits(self.soda(self._restart_s).restart_s)
        likely = {"min_run_s": candidates.likely_min_run_s(self._restart_s), "change_s": change_s}
        known = [
            PolicyChoice(name, {key: value for key, value in likely.items() if key in _parameters(name)})
            for name in dict.fromkeys(names)
        ]
        return candidates.with_parameters(known, self._question.parameters)

    def tuned(self) -> Candidate | None:
        """The policy with the best thresholds from the trace, looked for on a few of the workloads."""
        least = candidates.likely_min_run_s(self._restart_s)
        fixed = {"min_run_s": least, **self._question.parameters.get(candidates.TUNED_POLICY, {})}
        choices = candidates.threshold_choices(self._site.workload, fixed)
        if not choices:
            return None
        trials = self.run(choices, workloads=self.workloads[:_TRIAL_WORKLOADS])
        if not trials or len(self.workloads) <= _TRIAL_WORKLOADS:
            return candidate_of_least_jct(trials) if trials else None
        return next(iter(self.run([candidate_of_least_jct(trials).choice])), None)

    def bound(self) -> PolicyChoice:
        """What somebody could do who knew everything."""
        return PolicyChoice(candidates.BOUND_POLICY, {"min_run_s": candidates.likely_min_run_s(self._restart_s)})

    def run(
        self,
        choices: Sequence[PolicyChoice],
        *,
        role: CandidateRole = "tried",
        estimates: str = "none",
        costs: Costs | None = None,
        workloads: Sequence[Workload] = (),
        scope: Scope | None = None,
    ) -> list[Candidate]:
        """All choices on these workloads, or else on all, at the costs of slurm-soda unless others are given; but those of
        which a run fails.
        """
        batch = self.batch(choices, role=role, estimates=estimates, costs=costs, workloads=workloads, scope=scope)
        found = run_batch(batch, workers=self._workers(batch), progress=self._progress.over(len(batch)))
        each = len(batch.scenarios)
        ran: list[Candidate] = []
        for at, choice in enumerate(choices):
            members = found[at * each : (at + 1) * each]
            if failures := [one for one in members if isinstance(one, FailedRun)]:
                self._failed.setdefault(choice.name, replace(failures[0], seed=None))
                continue
            runs = PolicyRuns(choice.name, tuple(one for one in members if isinstance(one, SimulatedRun)))
            ran.append(Candidate(choice.name, choice, runs, role))
        return ran

    def batch(
        self,
        choices: Sequence[PolicyChoice],
        *,
        role: CandidateRole = "tried",
        estimates: str = "none",
        costs: Costs | None = None,
        workloads: Sequence[Workload] = (),
        scope: Scope | None = None,
    ) -> SimulationBatch:
        """The runs of all choices; nobody shares but in the role of those that do. ``scope``: whom alone they change."""
        costs = costs or self.soda(self._restart_s)
        history_gpu_s = service_gpu_s(self._site.workload)
        scenarios = tuple(
            Scenario(
                with_estimates(workload, estimates),
                self._site.cluster,
                costs,
                history_gpu_s=history_gpu_s,
                seed=seed,
                predicted=estimates == PREDICTED,
                tells_after_s=TOLD_AFTER_S if self._question.tells_progress else math.inf,
                requeue_s=0.0 if role == "sharing" else REQUEUE_S,
                sharing=self._question.sharing if role == "sharing" else None,
                passing_limit_s=np.inf if role in _UNBOUNDED else self._question.passing_limit_s,
                site=self._question.site,
                services=self._serving(role),
                scope=scope,
            )
            for seed, workload in enumerate(workloads or self.workloads)
        )
        return SimulationBatch(scenarios, tuple(choices))

    def _serving(self, role: CandidateRole) -> ServingRules | None:
        """Slurm alone knows no load: services hold what their peaks need."""
        services = self._question.services
        return None if services is None else replace(services, mode=PEAK if role == "slurm" else PLACED)

    def _workers(self, batch: SimulationBatch) -> int:
        """As asked, or one a CPU where it is worth it: backfill looks at every job at every event."""
        if self._question.workers is not None:
            return self._question.workers
        jobs = len(batch) * len(self._site.workload)
        return 1 if jobs < _WORTH_A_PROCESS else len(os.sched_getaffinity(0))

    def again(self, candidate: Candidate, workloads: Sequence[Workload]) -> Candidate | None:
        """A candidate on other workloads; None: that fails."""
        if all(_agree_alike(one, other) for one, other in zip(workloads, self.workloads, strict=True)):
            return candidate
        found = self.run([candidate.choice], role=candidate.role, estimates=_told(candidate), workloads=workloads)
        return replace(found[0], label=candidate.label) if found else None

    def dearer(self, candidate: Candidate) -> Candidate | None:
        """The same with restarts that cost twice as much; None: that fails."""
        costs = self.soda(2 * self._restart_s)
        return next(
            iter(self.run([candidate.choice], role=candidate.role, estimates=_told(candidate), costs=costs)), None
        )


class _Counted:
    """Progress over several batches."""

    def __init__(self, progress: RunProgressCallback | None) -> None:
        self._progress, self._before, self._total = progress, 0, 0

    def over(self, runs: int) -> Callable[[int, int], None]:
        """Progress of the next batch of so many runs."""
        self._before, self._total = self._total, self._total + runs
        before = self._before

        def told(done: int, _of: int) -> None:
            if self._progress is not None:
                self._progress(before + done, self._total)

        return told


def _told(candidate: Candidate) -> str:
    """What a candidate is told about run times."""
    by_run_time = candidate.role == "sharing" or candidate.choice.name in candidates.POLICIES_BY_RUN_TIME
    return PREDICTED if by_run_time else "none"


def _agree_alike(one: Workload, other: Workload) -> bool:
    """Whether the same jobs can checkpoint and share in both."""
    return np.array_equal(one.preemptible, other.preemptible) and np.array_equal(one.shares, other.shares)


def _parameters(name: str) -> set[str]:
    return {parameter.name for parameter in find_entry(name).parameters}


def candidate_of_least_jct(found: Sequence[Candidate]) -> Candidate:
    """The candidate of least average JCT."""
    return min(found, key=lambda candidate: candidate.avg_jct_s)
