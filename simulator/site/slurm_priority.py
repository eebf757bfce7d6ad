"""Priorities of simulated jobs, as Slurm's priority/multifactor computes them."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.bands.bands import PriorityParts
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.site.decayed_usage import DecayedUsage, classic_factors, fair_tree_factors
from slurm_soda.simulator.site.description import CLASSIC, SiteDescription
from slurm_soda.simulator.workload import Workload


class SlurmPriority:
    """The parts of each job's priority, by row of the workload.

    As in Slurm, priorities of waiting jobs are computed when they are submitted and then once a period (PriorityCalcPeriod),
    with the fair shares of that moment; a job that runs keeps the priority with which it started, and a requeued one counts
    its age anew. A job is billed the largest part of the cluster's GPUs or CPUs that it asks for (PriorityFlags=MAX_TRES
    with both weighted by their scarcity); all users are in one account.

    A snapshot costs O(jobs in it); a period in which one is taken O(users) besides.
    """

    def __init__(self, site: SiteDescription, workload: Workload, cluster: SimulatedCluster) -> None:
        rules = site.priority
        self._rules, self._submit_s = rules, workload.submit_s
        users = max(len(workload.users), 1)
        self._user = np.maximum(workload.user, 0)
        self._usage = DecayedUsage(users, period_s=rules.calc_period_s, half_life_s=rules.decay_half_life_s)
        self._shares = np.array([site.shares.get(name, 1) for name in workload.users] or [1], dtype=np.float64)
        self._fair_at, self._fair = -1, np.ones(users)
        cpus = int(cluster.cpus.sum()) if workload.cpus.any() else 0
        self._billing = np.maximum(_part(workload.gpus, cluster.total_gpus), _part(workload.cpus, cpus))
        tiers = np.array([site.partition_of(name).tier for name in (*workload.partitions, "")], dtype=np.int64)
        self.tier: IntColumn = tiers[workload.partition]
        self._granted = rules.weight_qos * _qos_factors(site, workload)
        self._granted += rules.weight_partition * _partition_factors(site, workload)
        size = _size_factors(workload, cluster, cpus)
        self._size = rules.weight_job_size * (1.0 - size if rules.favor_small else size)
        self._earned = np.zeros(len(workload))

    def start(self, row: int, now_s: float) -> None:
        """A job starts: its user is billed for it."""
        self._usage.start(int(self._user[row]), float(self._billing[row]), now_s)

    def stop(self, row: int, start_s: float, now_s: float) -> None:
        """A job stops that started then."""
        self._usage.stop(int(self._user[row]), float(self._billing[row]), start_s, now_s)

    def compute(self, rows: IntColumn, waits: BoolColumn, since_s: FloatColumn, now_s: float) -> PriorityParts:
        """The parts of these jobs' priorities, of whom some wait, and since then."""
        rules = self._rules
        period = int(now_s // rules.calc_period_s)
        if period != self._fair_at:
            factors = classic_factors if rules.fair_share == CLASSIC else fair_tree_factors
            self._fair_at, self._fair = period, factors(self._usage.at(now_s), self._shares)
        waiting = rows[waits]
        age = np.clip((period * rules.calc_period_s - since_s[waits]) / rules.max_age_s, 0.0, 1.0)
        self._earned[waiting] = rules.weight_age * age + rules.weight_fair_share * self._fair[self._user[waiting]]
        most = rules.weight_age + rules.weight_fair_share
        return PriorityParts(self.tier[rows], self._granted[rows], self._earned[rows], most)

    def priority(self, rows: IntColumn) -> IntColumn:
        """Slurm's priority of these jobs as last computed: a whole number, 1 at least."""
        return np.maximum((self._granted[rows] + self._earned[rows] + self._size[rows]).astype(np.int64), 1)

    def next_period_s(self, now_s: float) -> float:
        """When priorities are next computed."""
        period_s = self._rules.calc_period_s
        return (now_s // period_s + 1) * period_s


def _part(amount: IntColumn, total: int) -> FloatColumn:
    return np.minimum(amount / total, 1.0) if total else np.zeros(len(amount))


def _qos_factors(site: SiteDescription, workload: Workload) -> FloatColumn:
    """Priority of each job's QOS over the largest one there is; 0 where that is 0."""
    most = max((qos.priority for qos in site.qos.values()), default=0)
    factors = np.array([site.qos_of(name).priority / max(most, 1) for name in (*workload.qos_names, "")])
    return factors[workload.qos]


def _partition_factors(site: SiteDescription, workload: Workload) -> FloatColumn:
    """PriorityJobFactor of each job's partition over the largest one there is."""
    names = (*workload.partitions, "")
    most = max(site.partition_of(name).job_factor for name in (*names, *site.partition))
    factors = np.array([site.partition_of(name).job_factor / max(most, 1) for name in names])
    return factors[workload.partition]


def _size_factors(workload: Workload, cluster: SimulatedCluster, cpus: int) -> FloatColumn:
    """The mean of a job's part of all nodes, of which it takes as few as its GPUs fit on, and its part of all CPUs; without
    CPUs the first alone.
    """
    nodes = np.maximum(workload.nodes, -(-workload.gpus // max(int(cluster.gpus.max(initial=0)), 1)))
    of_nodes = _part(nodes, len(cluster))
    return 0.5 * (of_nodes + _part(workload.cpus, cpus)) if cpus else of_nodes
