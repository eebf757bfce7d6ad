"""How a family of workloads is drawn: sessions of users, who run a few scripts over and over.

Whom and what sites have is the family's; that users come back with the same scripts is common to all, since it is what run
times can be predicted from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.generators.distributions import draw_arrivals, draw_choices, names_of_codes, zipf_shares
from slurm_soda.simulator.generators.families.time_limits import draw_time_limits
from slurm_soda.simulator.generators.philly import draw_session_times, draw_sessions
from slurm_soda.simulator.traces.parsing.workload_assembly import assemble_workload
from slurm_soda.simulator.workload import Workload

SCRIPTS = 3
"""Our choice: of each user and class of jobs; the k-th is used 1 / k as often as the first."""
ALIKE = 0.7
"""Our choice: the part of the variance of a class's run times (of their normal scores) that lies between scripts. The rest
lies between runs of one script: failures, early stops, other data."""
SWEEP_MOST = 50
"""Our choice: jobs of a session; Philly's longest had a thousand, which would be a whole small workload."""


class RunTimeLaw(Protocol):
    """Run times of a class of jobs, in seconds."""

    def draw(self, rng: np.random.Generator, count: int, low: float, high: float) -> FloatColumn:
        """So many whole numbers within the bounds."""
        ...


@dataclass(frozen=True, slots=True)
class JobClass:
    """Jobs of one size."""

    share: float
    """Of all jobs."""
    gpus: int
    run_s: RunTimeLaw
    kinds: tuple[tuple[str, int], ...] = (("", 0),)
    """Model and batch size, of which each script has one; as tables of pairs name them."""
    nodes: int = 1
    gpus_per_node: int = 0
    """0: any split."""
    cpus: int = 0
    preemptible: bool = True
    category: str = ""


@dataclass(frozen=True, slots=True)
class WorkloadFamily:
    """A kind of site: who submits what, and when."""

    cluster: str
    """In the words of ``--cluster``; load is counted against its GPUs."""
    users: int
    """The k-th has 1 / k of the first one's sessions."""
    classes: tuple[JobClass, ...]
    rates: FloatColumn
    """Relative rates of submission, by hour; they start over after their last hour."""
    longest_s: float
    """The longest run, and the longest time limit."""
    sweep_most: int = SWEEP_MOST
    """Jobs of a session at most; 1: each job comes by itself."""

    def draw(self, rng: np.random.Generator, jobs: int, load_ratio: float, name: str) -> Workload:
        """So many jobs, over as long a time as makes their GPU time ``load_ratio`` of what the cluster has meanwhile.

        Fewer jobs make a shorter time, not a lower load.
        """
        session, user, of_class, script = self._draw_scripts(rng, jobs)
        score = _draw_scores(rng, _draw_means(rng, script))
        run_s = self._run_times(rng, of_class, score)
        gpus = self._column("gpus", of_class)
        seconds = float((gpus * run_s).sum()) / (load_ratio * parse_cluster(self.cluster).total_gpus)
        model, batch = self._kinds(rng, of_class, script)
        workload, _ = assemble_workload(
            name,
            submit_s=self._submissions(rng, session, seconds),
            run_s=run_s,
            gpus=gpus,
            nodes=self._column("nodes", of_class),
            gpus_per_node=self._column("gpus_per_node", of_class),
            cpus=self._column("cpus", of_class),
            preemptible=self._column("preemptible", of_class),
            time_limit_s=draw_time_limits(rng, user, script, run_s, self.longest_s),
            user=names_of_codes(user, [f"user{number:02d}" for number in range(1, self.users + 1)]),
            model=model,
            batch_size=batch,
            category=names_of_codes(of_class, [one.category for one in self.classes]),
        )
        return workload

    def draw_other_runs(self, rng: np.random.Generator, jobs: int, times: int) -> FloatColumn:
        """Other runs of the scripts of :meth:`draw` with the same state of ``rng``: what the same jobs might have taken.

        Seconds; shape (times, jobs), the job labelled n in column n - 1. Together they follow the classes' laws, as the
        workload's own do.
        """
        _, _, of_class, script = self._draw_scripts(rng, jobs)
        means = _draw_means(rng, script)
        _own, *others = (_draw_scores(rng, means) for _ in range(1 + times))
        score = np.concatenate(others)
        return self._run_times(rng, np.tile(of_class, times), score).reshape(times, jobs)

    def _draw_scripts(self, rng: np.random.Generator, jobs: int) -> tuple[IntColumn, IntColumn, IntColumn, IntColumn]:
        """Session, user, class and script of each job."""
        session = draw_sessions(rng, jobs, self.sweep_most)
        count = int(session[-1]) + 1
        of_class = draw_choices(rng, jobs, [one.share for one in self.classes])
        user = draw_choices(rng, count, zipf_shares(self.users))[session]
        turn = draw_choices(rng, count, zipf_shares(SCRIPTS))[session]
        return session, user, of_class, (user * len(self.classes) + of_class) * SCRIPTS + turn

    def _column(self, key: str, of_class: IntColumn) -> IntColumn | BoolColumn:
        return np.array([getattr(one, key) for one in self.classes])[of_class]

    def _submissions(self, rng: np.random.Generator, session: IntColumn, horizon_s: float) -> FloatColumn:
        clock_s, first_s = draw_session_times(rng, session)
        begins_s = rng.permutation(draw_arrivals(rng, int(session[-1]) + 1, self.rates, horizon_s))
        return np.floor(begins_s[session] + clock_s - first_s)

    def _run_times(self, rng: np.random.Generator, of_class: IntColumn, score: FloatColumn) -> FloatColumn:
        """Each class's law to the letter, given out in the order of normal scores."""
        run_s = np.zeros(len(of_class))
        for code, one in enumerate(self.classes):
            rows = np.flatnonzero(of_class == code)
            run_s[rows[np.argsort(score[rows])]] = np.sort(one.run_s.draw(rng, len(rows), 1.0, self.longest_s))
        return run_s

    def _kinds(self, rng: np.random.Generator, of_class: IntColumn, script: IntColumn) -> tuple[list[str], IntColumn]:
        number, place = np.unique(script, return_inverse=True)
        picked = rng.random(len(number))[place]
        kinds = [self.classes[code].kinds for code in of_class.tolist()]
        each = [found[int(at * len(found))] for found, at in zip(kinds, picked.tolist(), strict=True)]
        return [model for model, _ in each], np.array([batch for _, batch in each], dtype=np.int64)


def _draw_means(rng: np.random.Generator, script: IntColumn) -> FloatColumn:
    """Of each job's script: what its runs have in common."""
    number, place = np.unique(script, return_inverse=True)
    means: FloatColumn = rng.standard_normal(len(number))[place]
    return means


def _draw_scores(rng: np.random.Generator, means: FloatColumn) -> FloatColumn:
    """Normal scores of one run of each job, so that runs of one script are alike."""
    scores: FloatColumn = np.sqrt(ALIKE) * means + np.sqrt(1.0 - ALIKE) * rng.standard_normal(len(means))
    return scores
