"""Whether the run that a requeued job had before has certainly left its nodes: only then may Slurm's wait end early.

Slurm requeues the jobs of a node that is set down at once, without a COMPLETING phase and without a word from the node,
which may be back within a second while the run still saves its state there. A job that starts beside its own former run is
refused ("Duplicate jobid"): Slurm drains the node and holds the job. The two minutes that Slurm itself makes a requeued job
wait are the long way around this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from sqlalchemy import select

from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.cached_job import CachedRun
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.tables.scheduling import NodeEvent
from slurm_soda.slurm_ext.client import SlurmJob, SlurmNode
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.read.hostlist import expand_hosts

RunKey = tuple[int, int]
"""Job id and restart count once it is requeued: Slurm shows the new count while the old run is completing."""


@dataclass(slots=True)
class FormerRuns:
    """What was seen of the ends of runs.

    A run has left if Slurm had it COMPLETING, which ends when every node has said that all is over there, and no node of it
    was seen down since: Slurm does not wait for a node that is. Otherwise the closing records of all its nodes tell.
    """

    store: Store
    left: set[int] = field(default_factory=set)
    """Waiting jobs whose former run has certainly left."""
    _completing: dict[RunKey, bool] = field(default_factory=dict)
    """Runs that were completing; false where a node of them was seen down."""
    _left: set[RunKey] = field(default_factory=set)

    def observe(
        self,
        jobs: Mapping[int, SlurmJob],
        nodes: Iterable[SlurmNode],
        job_cache: JobCache,
        *,
        followed: Collection[int],
        requeued: Collection[int],
    ) -> None:
        """Look at some jobs.

        Args:
            jobs: as Slurm shows them.
            nodes: all.
            job_cache: knows the runs; it has taken in the same reading.
            followed: the jobs whose wait may be ended.
            requeued: those of them that Slurm has requeued at our word: these were completing, seen or not.
        """
        listed = [jobs[job_id] for job_id in followed if job_id in jobs]
        keys = {(job.job_id, job.restarts): job for job in listed if job.state in ("COMPLETING", "PENDING")}
        up = {node.name for node in nodes if not node.state.startswith("DOWN")} if keys else set()
        self._completing = {key: good for key, good in self._completing.items() if key in keys}
        self._left.intersection_update(keys)
        for key, job in keys.items():
            runs = job_cache.jobs[job.job_id].runs
            run = runs.get(job.restarts - 1) or (runs.get(job.restarts) if job.state == "COMPLETING" else None)
            if run is None or key in self._left:
                continue
            names = _nodes_of(run)
            if key in self._completing or job.state == "COMPLETING" or job.job_id in requeued:
                self._completing[key] = self._completing.get(key, True) and up.issuperset(names)
            if job.state == "PENDING" and names and (self._completing.get(key) or self._is_closed(job, run, names)):
                self._left.add(key)
        self.left = {job_id for job_id, _ in self._left}

    def _is_closed(self, job: SlurmJob, run: CachedRun, names: Collection[str]) -> bool:
        """Whether the epilogs of all its nodes have told of its end; they begin when its processes are gone."""
        query = select(NodeEvent.node).where(
            NodeEvent.job_id == job.job_id,
            NodeEvent.restart == run.restart,
            NodeEvent.kind == "close",
            NodeEvent.at_s >= run.start_s,
        )
        with self.store.read() as session:
            return set(session.scalars(query)).issuperset(names)


def _nodes_of(run: CachedRun) -> tuple[str, ...]:
    try:
        return tuple(expand_hosts(run.node_names))
    except SlurmError:
        return ()
