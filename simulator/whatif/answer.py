"""The answer: every candidate on the site's jobs, held against what the site observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.report.run_results import FailedRun, PolicyRuns
from slurm_soda.simulator.runs.batch import RunProgressCallback
from slurm_soda.simulator.runs.estimates import PREDICTED
from slurm_soda.simulator.whatif import candidates
from slurm_soda.simulator.whatif.candidate_runs import (
    Candidate,
    CandidateRole,
    CandidateRunner,
    WhatIfQuestion,
    candidate_of_least_jct,
)
from slurm_soda.simulator.whatif.gain_curve import CONSENT, GainLine, make_gain_line
from slurm_soda.simulator.whatif.observed_site import ObservedFigures, ObservedSite, summarise_observed
from slurm_soda.simulator.whatif.worse_off_jobs import WorseOffJobs, compare_jobs

WORTHWHILE_RATIO = 1.05
"""A change must make the average JCT so many times better to be recommended."""
_TUNED_WORTH_IT = 1.02


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """What was found."""

    site: ObservedSite
    seen: ObservedFigures
    present: Candidate
    """The stand-in for what the site does now."""
    others: tuple[Candidate, ...]
    """In the order tried, the bound last."""
    bound: Candidate
    recommended: Candidate | None
    """None: nothing is worth a change."""
    dearer: Candidate | None
    """The recommended one if restarts cost twice as much; None where it does not preempt."""
    losers: WorseOffJobs
    """Under the recommended policy, or under the best one that was tried."""
    restart_s: float
    restart_is_guessed: bool
    gain: tuple[GainLine, ...]
    """The recommended policy, or the best one that was tried, and those that share GPUs, by who can checkpoint."""
    members: int
    """Over so many workloads figures are means."""
    failed: tuple[FailedRun, ...] = ()
    """Why a policy is missing, one for each such policy."""

    @property
    def error_ratio(self) -> float:
        """How far the simulation of the present is off in average JCT; positive: too slow."""
        return self.present.avg_jct_s / self.seen.avg_jct_s - 1.0

    @property
    def best(self) -> Candidate:
        """The recommended candidate, or else the best that could be turned on."""
        return self.recommended or candidate_of_least_jct(
            [self.present, *(c for c in self.others if c.role not in ("sharing", "bound"))]
        )


def answer_question(
    site: ObservedSite, question: WhatIfQuestion, progress: RunProgressCallback | None = None
) -> WhatIfAnswer:
    """Simulate all candidates.

    A policy of which a run fails is missing in the answer, which says why, as far as there is one without it.

    Raises:
        PolicyError: a parameter is not allowed.
        SimulatorError: a policy cannot run in such a scenario, nothing that could stand for the present ran, or the bound
            did not; or the site's jobs took no time.
    """
    seen = summarise_observed(site)
    guess = candidates.likely_restart_s(site.workload)
    restart_s = guess if question.restart_s is None else question.restart_s
    rig = CandidateRunner(site, question, restart_s, progress)
    rig.batch(rig.sharing(), role="sharing").check()  # what is missing is said before anything runs
    stand_ins = rig.run(rig.stand_ins(), role="slurm", costs=rig.slurm())
    tried = rig.run(rig.tried(by_run_times=True), estimates=PREDICTED) + rig.run(rig.tried())
    able = [candidate for candidate in stand_ins if candidate.complete]
    if not able:
        raise SimulatorError(
            f"nothing that could stand for the present ran: {rig.failed[0]}"
            if not stand_ins
            else f"some jobs of {site.workload.name} cannot run on {site.cluster.name}{_beside(question)}; describe"
            " the cluster with --cluster"
        )
    present = min(able, key=lambda candidate: abs(candidate.avg_jct_s - seen.avg_jct_s))
    tried = _with_tuned(tried, rig.tuned())
    sharing = [
        _relabelled(found, f"{found.label} (jobs share GPUs)", "sharing") if _is_tried(found.label, tried) else found
        for found in rig.run(rig.sharing(), role="sharing", estimates=PREDICTED)
    ]
    bounds = rig.run([rig.bound()], role="bound", estimates="exact")
    if not bounds:
        raise SimulatorError(str(next(failure for failure in rig.failed if failure.policy == candidates.BOUND_POLICY)))
    (bound,) = bounds
    best = candidate_of_least_jct([*able, *(candidate for candidate in tried if candidate.complete)])
    recommended = best if best.avg_jct_s * WORTHWHILE_RATIO < present.avg_jct_s else None
    curved = [recommended] if any(recommended is one for one in tried) and recommended else tried
    return WhatIfAnswer(
        site=site,
        seen=seen,
        present=present,
        others=(*(c for c in stand_ins if c is not present), *tried, *sharing, bound),
        bound=bound,
        recommended=recommended,
        dearer=rig.dearer(recommended) if recommended and recommended.runs.mean("preemptions") else None,
        losers=compare_jobs(site.workload, _jct_s(present.runs), _jct_s(best.runs)),
        restart_s=restart_s,
        restart_is_guessed=question.restart_s is None,
        gain=_gain_lines(site, rig, present, [*([candidate_of_least_jct(curved)] if curved else []), *sharing]),
        members=len(rig.workloads),
        failed=rig.failed,
    )


def _beside(question: WhatIfQuestion) -> str:
    return "" if question.services is None else " beside services that hold what their peaks need"


def _with_tuned(tried: Sequence[Candidate], tuned: Candidate | None) -> list[Candidate]:
    """What was tried, with the tuned policy behind its plain self if it is better."""
    kept = list(tried)
    at = next((at for at, candidate in enumerate(kept) if candidate.label == candidates.TUNED_POLICY), None)
    if tuned is not None and at is not None and tuned.avg_jct_s * _TUNED_WORTH_IT < kept[at].avg_jct_s:
        kept.insert(at + 1, _relabelled(tuned, f"{tuned.label} (tuned)", "tuned"))
    return kept


def _is_tried(label: str, tried: Sequence[Candidate]) -> bool:
    return any(candidate.label == label for candidate in tried)


def _relabelled(found: Candidate, label: str, role: CandidateRole) -> Candidate:
    runs = tuple(replace(run, policy=label) for run in found.runs.runs)
    return Candidate(label, found.choice, PolicyRuns(label, runs), role)


def _gain_lines(
    site: ObservedSite, rig: CandidateRunner, present: Candidate, chosen: Sequence[Candidate]
) -> tuple[GainLine, ...]:
    before_s = _jct_s(present.runs)

    def losers(runs: PolicyRuns) -> WorseOffJobs:
        return compare_jobs(site.workload, before_s, _jct_s(runs))

    alone = {candidate.choice.name for candidate in chosen if candidate.role != "sharing"}
    lines = [
        make_gain_line(present, rig.workloads, consent, partial(rig.again, candidate), losers)
        for candidate in chosen
        for consent in (CONSENT if candidate.role == "sharing" else (None,))
        if consent != 0.0 or candidate.choice.name not in alone  # who shares with nobody has a line already
    ]
    return tuple(line for line in lines if line is not None)


def _jct_s(runs: PolicyRuns) -> FloatColumn:
    """Mean JCT of each job over the workloads."""
    mean: FloatColumn = np.stack([run.jct_s for run in runs.runs]).mean(axis=0)
    return mean
