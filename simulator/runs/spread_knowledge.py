"""What policies know of how much slower jobs run on more nodes than they need: nothing, the truth, or what runs showed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.policies.spreading.learner import SpreadLearner
from slurm_soda.policies.spreading.measurements import SlowdownRow, TimedRun, slowdown_row
from slurm_soda.policies.spreading.slowdowns import EXTRA_NODES, SpreadSlowdowns
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.speed.speed_model import SpeedModel
from slurm_soda.simulator.workload import Workload

NONE, LEARNED, TRUTH = "none", "learned", "truth"
SPREAD_KNOWLEDGE = (NONE, LEARNED, TRUTH)


class NotedPlaces:
    """A model of speed that notes on how many nodes jobs ran, and how long an iteration took there.

    An iteration takes a second on the fewest nodes.
    """

    def __init__(self, speed: SpeedModel, cluster: SimulatedCluster) -> None:
        self._speed, self._most = speed, max(int(cluster.gpus.max(initial=1)), 1)
        self.noted: dict[int, list[tuple[int, float]]] = {}
        """By row of jobs with several GPUs: nodes beyond the fewest, and time of an iteration, wherever it started."""

    def ratio(self, row: int, pieces: Sequence[NodeAllocation]) -> float:
        """As that model says."""
        ratio = self._speed.ratio(row, pieces)
        used = [piece.gpus for piece in pieces if piece.gpus]
        if sum(used) > 1:
            found = len(used) - self._fewest(sum(used)), 1.0 / ratio
            noted = self.noted.setdefault(row, [])
            if not noted or noted[-1] != found:
                noted.append(found)
        return ratio

    def true_slowdown(self, row: int, gpus: int, extra_nodes: int) -> float | None:
        """Of a job on so many nodes more than needed, as evenly as can be; ``None``: it has too few GPUs for that."""
        nodes = self._fewest(gpus) + extra_nodes
        if gpus < nodes:
            return None
        pieces = [NodeAllocation(at, gpus // nodes + (at < gpus % nodes), 0, 0) for at in range(nodes)]
        return 1.0 / self._speed.ratio(row, pieces)

    def _fewest(self, gpus: int) -> int:
        return -(-gpus // self._most)


class PolicyWithSpreadSlowdowns:
    """A policy that is told how much slower jobs run on more nodes than they need; one object serves one run.

    What is learned comes from jobs that have ended, as if each told its progress, as sodad learns it.
    """

    def __init__(
        self, policy: Policy, workload: Workload, places: NotedPlaces, knowledge: str, *, binding: bool
    ) -> None:
        """``binding``: jobs run where plans say, and wait where plans let them."""
        self._policy, self.name = policy, policy.name
        self._places, self._binding = places, binding
        self._learner = SpreadLearner() if knowledge == LEARNED else None
        names, users = (*workload.models, ""), (*workload.users, "")
        columns = (workload.model, workload.batch_size, workload.gpus, workload.gpus_per_node, workload.user)
        self._kind: list[JobKind | None] = []
        self._owner: list[str] = []
        for model, batch, gpus, per_node, user in zip(*(column.tolist() for column in columns), strict=True):
            known = gpus > 1 and not per_node and bool(names[model])
            self._kind.append(JobKind(names[model], batch, "", gpus) if known else None)
            self._owner.append(users[user])
        self._run_s = workload.run_s
        self._true: dict[JobKind, SlowdownRow | None] = {}

    def decide(self, snapshot: ClusterSnapshot) -> Plan:
        """As the policy decides, with what is known now."""
        rows = (snapshot.jobs.job_id - 1).tolist()
        if self._learner is not None:
            self._learn(self._learner, set(rows))
        numbers: dict[SlowdownRow, int] = {}
        kind = []
        for row in rows:
            known = self._known(row)
            kind.append(-1 if known is None else numbers.setdefault(known, len(numbers)))
        if not numbers:
            return self._policy.decide(snapshot)
        spread = SpreadSlowdowns(
            expected=np.array([known.expected for known in numbers]),
            at_most=np.array([known.at_most for known in numbers]),
            kind=np.array(kind, dtype=np.int64),
            binding=self._binding,
        )
        return self._policy.decide(replace(snapshot, spread=spread))

    def _learn(self, learner: SpreadLearner, present: set[int]) -> None:
        noted = self._places.noted
        for row in sorted(noted.keys() - present):
            kind, seen = self._kind[row], noted.pop(row)
            run_s = float(self._run_s[row])
            if kind is not None and np.isfinite(run_s):
                for extra_nodes, iteration_s in seen:
                    run = TimedRun(iteration_s, run_s * iteration_s / len(seen))
                    learner.learn(self._owner[row], kind, extra_nodes, run)

    def _known(self, row: int) -> SlowdownRow | None:
        kind = self._kind[row]
        if kind is None:
            return None
        if self._learner is not None:
            return self._learner.known(self._owner[row], kind)
        if kind not in self._true:
            each = {extra: self._places.true_slowdown(row, kind.gpus, extra) for extra in range(1, EXTRA_NODES + 1)}
            self._true[kind] = slowdown_row(
                {extra: Estimate(one, 0.0, Source.SET) for extra, one in each.items() if one}
            )
        return self._true[kind]
