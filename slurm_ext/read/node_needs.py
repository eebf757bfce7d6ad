"""Which nodes would do for each waiting job, beyond its numbers of GPUs, CPUs and MiB, as far as that can be told.

A job is bound to the nodes that it names, to those that it does not exclude, to those with its features, and to those where
as much of every other generic resource is free as it asks for. What jobs that may be preempted hold of such a resource does
not count, and the nodes of a reservation are not known: a job that needs these waits until Slurm starts it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import numpy as np

from slurm_soda.policies.engine.demand import ANY_NODE
from slurm_soda.policies.engine.vain_preemptions import bar_rows
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, IntColumn, JobState, UnknownNodes
from slurm_soda.slurm_ext.client import SlurmJob, SlurmNode
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.hostlist import count_hosts, expand_hosts
from slurm_soda.slurm_ext.read.job_states import lacks_only_resources
from slurm_soda.slurm_ext.read.slurm_values import parse_other_gres
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob

_PLAIN_FEATURES = re.compile(r"[^&|\[\]()*,:!]+(?:(?:&[^&|\[\]()*,:!]+)*|(?:\|[^&|\[\]()*,:!]+)*)")
"""Features that must all be there, or of which one must; everything else is a matter of Slurm's."""

MAX_REQUESTS = 200
"""Different requests for nodes in one cycle; each is compared with all nodes. Owners take turns, most urgent jobs first.
Jobs for which no one may be preempted anyway come last."""

_NODE_REQUEST = attrgetter("req_node_names", "nodes", "tasks", "tres_per_node", "tres_per_job", "tres_per_task")
_DETAIL_REQUEST = attrgetter("excluded_nodes", "features", "reservation", "cut")
"""What :func:`_read_request` takes of a job, and of what else Slurm tells of it."""

_Words = tuple[str, str, str, tuple[tuple[str, int], ...]]
"""Nodes by name, nodes that are excluded, features, other generic resources on each node."""


class _TooManyError(Exception):
    """No more requests are compared with all nodes in this cycle."""


@dataclass(slots=True)
class KeptNodeFlags:
    """Which nodes would do by name and features, kept from one cycle to the next while these stay as they are."""

    _shown: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    _row: dict[str, int] = field(default_factory=dict)
    _last: dict[tuple[str, str, str], BoolColumn] = field(default_factory=dict)
    _now: dict[tuple[str, str, str], BoolColumn] = field(default_factory=dict)

    def begin(self, nodes: Sequence[SlurmNode]) -> None:
        """A cycle begins: what the last one did not use is dropped."""
        shown = [(node.name, node.features) for node in nodes]
        if shown != self._shown:
            self._shown, self._row, self._now = shown, {name: row for row, (name, _) in enumerate(shown)}, {}
        self._last, self._now = self._now, {}

    def of(self, named: str, excluded: str, features: str) -> BoolColumn:
        """One flag for each node; not to be changed.

        Raises:
            SlurmReplyError: a host list cannot be read.
        """
        key = named, excluded, features
        flags = self._last.get(key)
        if flags is None:
            does = _having(features)
            flags = np.fromiter((does(have) for _, have in self._shown), np.bool_, len(self._shown))
            if named:
                flags &= self._named(named)
            flags &= ~self._named(excluded)
        self._now[key] = flags
        return flags

    def _named(self, hosts: str) -> BoolColumn:
        flags = np.zeros(len(self._shown), dtype=np.bool_)
        flags[[self._row[name] for name in expand_hosts(hosts) if name in self._row]] = True
        return flags


@dataclass(slots=True)
class _NodeSets:
    """Sets of nodes, each once."""

    nodes: Sequence[SlurmNode]
    kept: KeptNodeFlags
    columns: dict[bytes, tuple[int, BoolColumn]] = field(default_factory=dict)
    _by_words: dict[_Words, int | None] = field(default_factory=lambda: {("", "", "", ()): ANY_NODE})

    def number(self, words: _Words) -> int | None:
        """Number of the set that a request is bound to; ``None``: it cannot be read.

        Raises:
            _TooManyError: beyond :data:`MAX_REQUESTS`.
        """
        if words not in self._by_words:
            if len(self._by_words) > MAX_REQUESTS:
                raise _TooManyError
            try:
                self._by_words[words] = self._number(words)
            except SlurmReplyError:
                self._by_words[words] = None
        return self._by_words[words]

    def _number(self, words: _Words) -> int:
        named, excluded, features, gres = words
        flags = self.kept.of(named, excluded, features)
        for name, count in gres:
            free = _has_free(name, count)
            flags = flags & np.fromiter((free(node) for node in self.nodes), np.bool_, len(self.nodes))
        if flags.all():
            return ANY_NODE
        return self.columns.setdefault(flags.tobytes(), (len(self.columns), flags))[0]


def with_node_needs(
    snapshot: ClusterSnapshot,
    jobs: Mapping[int, SlurmJob],
    nodes: Sequence[SlurmNode],
    waiting: Mapping[int, WaitingJob] | None,
    kept: KeptNodeFlags | None = None,
) -> ClusterSnapshot:
    """The snapshot with what waiting GPU jobs need of nodes, and with the jobs for whom no one may be preempted.

    Nobody is preempted for a job that Slurm would not start on empty nodes either, that it has not looked at since it was
    submitted, or that needs what cannot be told.

    Args:
        snapshot: made of the same jobs and nodes, in the order of ``nodes``.
        jobs: by id.
        nodes: as Slurm shows them.
        waiting: what else it shows of waiting jobs; ``None``: nobody asked, as no job may be preempted.
        kept: from the last cycle.
    """
    table = snapshot.jobs
    rows = np.flatnonzero((table.state == JobState.PENDING) & (table.gpus > 0))
    rows = rows[np.lexsort((table.job_id[rows], -table.priority[rows]))]  # most urgent first
    barred = np.zeros(len(table), dtype=np.bool_)
    node_set = np.full(len(table), ANY_NODE, dtype=np.int64)
    whole, least_cpus = np.zeros(len(table), dtype=np.bool_), np.zeros(len(table), dtype=np.int64)
    unknown = np.zeros(len(table), dtype=np.int64)
    kept = kept or KeptNodeFlags()
    kept.begin(nodes)
    sets, asked = _NodeSets(nodes, kept), dict[int, _Words]()
    known: dict[object, _Words | UnknownNodes] = {}
    for row in rows.tolist():
        job = jobs[int(table.job_id[row])]
        barred[row] = not lacks_only_resources(job.reason) and job.reason != "BeginTime"
        if waiting is None:
            continue
        detail = waiting.get(job.job_id)
        request = None if detail is None else (_NODE_REQUEST(job), _DETAIL_REQUEST(detail))
        if request not in known:  # each request is read once, of however many jobs
            known[request] = _read_request(job, detail)
        read = known[request]
        if isinstance(read, UnknownNodes):
            unknown[row] = read
        else:
            asked[row] = read
    for row in _in_turns(asked, table.user, barred):
        try:
            number = sets.number(asked[row])
        except _TooManyError:
            unknown[row] = UnknownNodes.TOO_MANY
            continue
        if waiting is None or number is None:
            unknown[row] = UnknownNodes.UNREADABLE
            continue
        detail = waiting[int(table.job_id[row])]
        node_set[row], whole[row], least_cpus[row] = number, detail.whole_nodes, detail.least_cpus_per_node
    barred |= unknown > 0
    columns: dict[str, Any] = {"unknown_nodes": unknown} if unknown.any() else {}
    if sets.columns:
        columns["node_set"] = node_set
    if whole.any():
        columns["whole_nodes"] = whole
    if (least_cpus > 1).any():
        columns["least_cpus"] = least_cpus
    return _replaced(snapshot, columns, barred, [flags for _, flags in sets.columns.values()])


def _replaced(
    snapshot: ClusterSnapshot, columns: Mapping[str, Any], barred: BoolColumn, sets: Sequence[BoolColumn]
) -> ClusterSnapshot:
    nodes = replace(snapshot.nodes, node_sets=np.column_stack(sets)) if sets else snapshot.nodes
    return replace(snapshot, jobs=bar_rows(snapshot.jobs.with_columns(**columns), barred), nodes=nodes)


def _in_turns(asked: Mapping[int, _Words], user: IntColumn, barred: BoolColumn) -> list[int]:
    """Rows in the order in which their requests are worked out; ``asked`` has the most urgent first."""
    turns: dict[tuple[bool, int], dict[_Words, int]] = {}
    keys = {}
    for row, words in asked.items():
        own = turns.setdefault((bool(barred[row]), int(user[row])), {})
        keys[row] = bool(barred[row]), own.setdefault(words, len(own))
    return sorted(asked, key=keys.__getitem__)  # stable: in one turn the most urgent first


def _read_request(job: SlurmJob, detail: WaitingJob | None) -> _Words | UnknownNodes:
    if detail is None:
        return UnknownNodes.NOT_TOLD
    if detail.cut or detail.reservation:
        return UnknownNodes.TOO_LONG if detail.cut else UnknownNodes.RESERVATION
    if detail.features and not _PLAIN_FEATURES.fullmatch(detail.features):
        return UnknownNodes.FEATURES
    named = job.req_node_names
    try:
        if named and count_hosts(named) < job.nodes:
            return UnknownNodes.MORE_THAN_NAMED  # those and others: a set of nodes to choose from does not say so
        return named, detail.excluded_nodes, _normal(detail.features), _other_gres(job)
    except SlurmReplyError:
        return UnknownNodes.UNREADABLE


def _other_gres(job: SlurmJob) -> tuple[tuple[str, int], ...]:
    """What a job needs on each node of generic resources other than GPUs; of those that it needs in all, an even share."""
    needs = parse_other_gres(job.tres_per_node)
    in_all = ((job.tres_per_job, 1), (job.tres_per_task, job.tasks))
    for text, times in in_all:
        for name, count in parse_other_gres(text).items():
            needs[name] = max(needs.get(name, 0), -(-count * times // max(job.nodes, 1)))
    return tuple(sorted(needs.items()))


def _has_free(name: str, count: int) -> Callable[[SlurmNode], bool]:
    def does(node: SlurmNode) -> bool:
        total, used = (parse_other_gres(text) for text in (node.gres, node.gres_used))
        own = [kind for kind in total if kind == name or kind.startswith(f"{name}:")]
        return sum(total[kind] - used.get(kind, 0) for kind in own) >= count

    return does


def _normal(features: str) -> str:
    """Features of one meaning as one text: each once, in order."""
    sign = "|" if "|" in features else "&"
    return sign.join(sorted(set(features.split(sign))))


def _having(text: str) -> Callable[[Sequence[str]], bool]:
    if not text:
        return lambda _have: True
    together = all if "|" not in text else any
    words = re.split(r"[&|]", text)
    return lambda have: together(word in have for word in words)
