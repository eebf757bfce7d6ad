"""Small clusters whose jobs share GPUs, for tests: jobs as dictionaries, slowdowns as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slurm_soda.policies.engine.job_rows import build_job_table
from slurm_soda.policies.sharing.arithmetic.sharing_decision import Footprint
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, KindProfile, Source
from slurm_soda.policies.sharing.snapshot import GpuDevices, SharingJobs, SharingSnapshot
from slurm_soda.policies.snapshot import JobState, NodeTable
from tests.policies.cases import NOW_S, with_free

Pairs = Mapping[tuple[str, str], tuple[float, float]]
"""Slowdowns of the first and the second model; either order will do."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Table:
    """Knowledge from a table of pairs of models; what is not in it, and is not ``else_xi``, nobody knows."""

    pairs: Pairs = field(default_factory=dict)
    else_xi: float | None = None
    throughputs: Mapping[str, Throughput] = field(default_factory=dict)
    footprints: Mapping[str, Footprint] = field(default_factory=dict)
    misfits: frozenset[frozenset[str]] = frozenset()
    source: Source = Source.MEASURED
    error: float = 0.0
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate | None:
        self.asked.append((slowed.model, *(one.model for one in others)))
        if len(others) != 1:
            return None
        key = (slowed.model, others[0].model)
        value = self.pairs[key][0] if key in self.pairs else self.pairs.get(key[::-1], (0, self.else_xi))[1]
        return None if value is None else Estimate(value, self.error, self.source)

    def fits(self, together: Sequence[JobKind]) -> bool | None:
        return False if frozenset(one.model for one in together) in self.misfits else None

    def never_fits(self, together: Sequence[JobKind]) -> bool:
        return self.fits(together) is False

    def profile(self, kind: JobKind) -> KindProfile | None:
        return None

    def throughput(self, kind: JobKind) -> Throughput | None:
        return self.throughputs.get(kind.model)

    def footprint(self, kind: JobKind) -> Footprint | None:
        return self.footprints.get(kind.model)


def scene(
    jobs: Iterable[dict[str, Any]], nodes: NodeTable, known: Table, *, memory_mib: float = np.inf, now_s: float = NOW_S
) -> SharingSnapshot:
    """A snapshot. Jobs have further keys: ``model`` (empty: nobody can tell), ``batch``, ``sub_batch``, ``shares``,
    ``accumulates``, ``max_slowdown`` and, if they run, ``on``: their devices, numbered over all nodes."""
    rows = sorted((dict(job) for job in jobs), key=lambda row: int(row["job_id"]))
    usual = {
        "model": "m",
        "batch": 0,
        "sub_batch": 0,
        "shares": True,
        "accumulates": True,
        "max_slowdown": np.inf,
        "on": (),
    }
    own: list[dict[str, Any]] = [usual | {key: row.pop(key) for key in usual if key in row} for row in rows]
    first = np.concatenate(([0], np.cumsum(nodes.gpus))).astype(np.int64)
    node_of = np.repeat(np.arange(len(nodes)), nodes.gpus)
    for row, extra in zip(rows, own, strict=True):
        if extra["on"]:
            row.update(_running(row, np.bincount(node_of[list(extra["on"])], minlength=len(nodes)), now_s))
    table = build_job_table([{"partition": "p0", **row} for row in rows])
    kinds = tuple(sorted({JobKind(e["model"], e["batch"], "v100", 1) for e in own if e["model"]}, key=str))
    free = with_free(table, nodes)
    held = np.array(sorted({device for extra in own for device in extra["on"]}), dtype=np.int64)
    empty = nodes.gpus - np.bincount(node_of[held], minlength=len(nodes))
    counts = [len(extra["on"]) for extra in own]
    return SharingSnapshot(
        now_s=now_s, jobs=table, partitions=("p0",),
        nodes=_with_gpus(free, np.where(nodes.usable, empty, 0)),
        devices=GpuDevices(
            first, np.full(int(first[-1]), memory_mib), np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            np.array([device for extra in own for device in sorted(extra["on"])], dtype=np.int64),
        ),
        sharing=SharingJobs(
            kinds,
            np.array([kinds.index(JobKind(e["model"], e["batch"], "v100", 1)) if e["model"] else -1 for e in own]),
            np.array([e["batch"] for e in own]), np.array([e["sub_batch"] or e["batch"] for e in own]),
            np.full(len(own), np.nan), np.array([e["shares"] for e in own], dtype=np.bool_),
            np.array([e["max_slowdown"] for e in own], dtype=np.float64),
            accumulates=np.array([e["accumulates"] for e in own], dtype=np.bool_),
        ),
        known=known,
    )  # fmt: skip


def _running(row: dict[str, Any], on_nodes: np.ndarray[Any, Any], now_s: float) -> dict[str, Any]:
    alloc = [(node, int(gpus), int(gpus)) for node, gpus in enumerate(on_nodes.tolist()) if gpus]
    gpus = sum(part for _, part, _ in alloc)
    state = row.get("state", JobState.RUNNING)
    return {"state": state, "gpus": gpus, "cpus": gpus, "alloc": alloc, "start_s": now_s - 100.0, "preemptible": True,
            "first_start_s": now_s - 100.0, "executed_s": 0.0, **row}  # fmt: skip


def _with_gpus(nodes: NodeTable, gpus_free: np.ndarray[Any, Any]) -> NodeTable:
    values = {name: getattr(nodes, name) for name in nodes.__slots__}
    return NodeTable(**{**values, "gpus_free": gpus_free.astype(np.int64)})
