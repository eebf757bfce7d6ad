"""Neighbours on a node: CPU jobs that take the memory's or the network's bandwidth, and training that suffers from it."""

from __future__ import annotations

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.node_limits.link_shares import GPU_PERCENT
from slurm_soda.simulator.node.model_core_curves import INFERENCE
from slurm_soda.simulator.node.node_rules import NodeRules
from slurm_soda.simulator.workload import Workload

HEAVY_BANDWIDTH_MODEL = "heavy-bandwidth"
"""Model of a CPU job with a high demand for memory and network bandwidth (Section VI-G)."""
BANDWIDTH_SENSITIVE_MODELS = frozenset({"alexnet", "inception3", "resnet50", "wavenet", "deepspeech"})
"""Models that lose speed under pressure on memory: five of the eight (Section IV-C). Which five is not printed: CV models of
low complexity and SPEECH use much bandwidth, NLP little, so VGG16 and both NLP models are left out; our choice."""
MEMORY_CONTENTION_RATIO = 1.0 - 0.081
"""Their speed: the mean slowdown under 50 % pressure (Section IV-C). A heavy job presses harder, but no more is printed."""
NETWORK_CONTENTION_RATIO = 1.0 - 0.317
"""Speed of training over several nodes while a CPU job takes more than 80 % of the network (Section IV-C)."""
THROTTLED_MEMORY_RATIO = 0.5
"""Speed of a heavy job that is throttled for memory: as with half of its cores (Section V-E)."""
THROTTLED_NETWORK_RATIO = (1.0 - GPU_PERCENT / 100) / 0.8
"""The same for the network: it wants 80 % and gets 25 % (Sections IV-C and V-E)."""


class BandwidthContention:
    """Who is on which node, of those who press and those who may suffer; others are not counted."""

    def __init__(self, workload: Workload, nodes: int, rules: NodeRules) -> None:
        names = (*workload.models, "")
        inference = workload.categories.index(INFERENCE) if INFERENCE in workload.categories else -2
        self._heavy = [
            names[model] == HEAVY_BANDWIDTH_MODEL and not gpus
            for model, gpus in zip(workload.model.tolist(), workload.gpus.tolist(), strict=True)
        ]
        self._trains = ((workload.gpus > 0) & (workload.category != inference)).tolist()
        self._sensitive = [names[model] in BANDWIDTH_SENSITIVE_MODELS for model in workload.model.tolist()]
        self._rules = rules
        self._pressing: list[set[int]] = [set() for _ in range(nodes)]
        self._training: list[set[int]] = [set() for _ in range(nodes)]
        self._wide: list[set[int]] = [set() for _ in range(nodes)]
        """Of the training jobs, those on several nodes."""
        self.matter = any(self._heavy)

    def arrive(self, row: int, pieces: tuple[NodeAllocation, ...]) -> set[int]:
        """A job starts; returns the neighbours whose speed may change."""
        return self._move(row, pieces, present=True)

    def leave(self, row: int, pieces: tuple[NodeAllocation, ...]) -> set[int]:
        """A job leaves; returns the neighbours whose speed may change."""
        return self._move(row, pieces, present=False)

    def ratio(self, row: int, pieces: tuple[NodeAllocation, ...]) -> float:
        """Speed of a job among its neighbours, relative to that without."""
        if self._heavy[row]:
            return self._throttled(pieces)
        if not self._trains[row] or not any(self._pressing[piece.node] for piece in pieces if piece.gpus):
            return 1.0
        memory = MEMORY_CONTENTION_RATIO if self._sensitive[row] and not self._rules.memory_is_safe else 1.0
        wide = len(pieces) > 1 and not self._rules.network_is_safe
        return memory * (NETWORK_CONTENTION_RATIO if wide else 1.0)

    def _throttled(self, pieces: tuple[NodeAllocation, ...]) -> float:
        """Of a heavy job: the harder of the two limits, where there is somebody to protect."""
        ratio = 1.0
        if self._rules.memory_is_safe and any(self._training[piece.node] for piece in pieces):
            ratio = THROTTLED_MEMORY_RATIO
        if self._rules.network_is_safe and any(self._wide[piece.node] for piece in pieces):
            ratio = min(ratio, THROTTLED_NETWORK_RATIO)
        return ratio

    def _move(self, row: int, pieces: tuple[NodeAllocation, ...], *, present: bool) -> set[int]:
        if self._heavy[row]:
            mine, others = [self._pressing], self._training
        elif self._trains[row]:
            mine, others = [self._training, self._wide] if len(pieces) > 1 else [self._training], self._pressing
        else:
            return set()
        touched: set[int] = set()
        for piece in pieces:
            for groups in mine:
                if present:
                    groups[piece.node].add(row)
                else:
                    groups[piece.node].discard(row)
            touched |= others[piece.node]
        return touched
