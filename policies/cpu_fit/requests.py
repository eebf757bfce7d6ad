"""What is known of waiting jobs' requests for CPUs: the columns of a snapshot that :mod:`.stage` decides on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.cpu_fit.fit import CpuFitCandidate, EarlierChange, EarlierResize, RequestDetail
from slurm_soda.policies.cpu_fit.start_cores import FitHistory, NodeCapacity
from slurm_soda.policies.snapshot_file.identifiers import CategoryName, JobIdColumn, ModelName, Sentence, UserName, Word

IntColumn = NDArray[np.int64]

_NONE: IntColumn = np.zeros(0, dtype=np.int64)
_NONE.flags.writeable = False


def _none() -> IntColumn:
    return _NONE


class DetailState(IntEnum):
    """What came of asking Slurm for one job's request in detail."""

    KNOWN = 0
    UNREADABLE = 1
    """There was an answer, but not one that can be read."""


@dataclass(frozen=True, slots=True, eq=False)
class RequestDetails:
    """Requests in the detail that Slurm shows of one job at a time; jobs that it was not asked about are missing.

    Columns after :attr:`state` are those of :class:`~.fit.RequestDetail`, in its order.
    """

    job_id: JobIdColumn = field(default_factory=_none)
    state: IntColumn = field(default_factory=_none)
    """A :class:`DetailState`; all other columns are 0 where it is not KNOWN."""
    nodes: IntColumn = field(default_factory=_none)
    tasks_per_node: IntColumn = field(default_factory=_none)
    """0: nobody can say before the job starts."""
    cpus: IntColumn = field(default_factory=_none)
    """Over all nodes."""
    cpus_per_task: IntColumn = field(default_factory=_none)
    least_cpus_per_node: IntColumn = field(default_factory=_none)
    memory_per_cpu_mib: IntColumn = field(default_factory=_none)
    memory_per_node_mib: IntColumn = field(default_factory=_none)
    tied_to: IntColumn = field(default_factory=_none)
    """Index into :attr:`ties`, or -1: its CPUs are tied to nothing else."""
    ties: tuple[Word, ...] = ()
    """In Slurm's words, such as ``--cpus-per-gpu``."""

    def __post_init__(self) -> None:
        _protect_columns(self)

    def by_job(self) -> dict[int, RequestDetail | None]:
        """By job id; ``None``: the answer cannot be read."""
        ties = (*self.ties, "")
        found: dict[int, RequestDetail | None] = {}
        for job_id, state, *numbers, tied_to in _rows(self):
            found[job_id] = RequestDetail._make((*numbers, ties[tied_to])) if state == DetailState.KNOWN else None
        return found

    @classmethod
    def build(cls, details: Mapping[int, RequestDetail | None]) -> RequestDetails:
        """From values by job id; ``None``: the answer cannot be read."""
        ties = tuple(sorted({one.tied_to for one in details.values() if one is not None and one.tied_to}))
        unreadable = (DetailState.UNREADABLE, *([0] * (len(RequestDetail._fields) - 1)), -1)
        rows = [
            (job_id, *unreadable)
            if one is None
            else (job_id, DetailState.KNOWN, *one[:-1], ties.index(one.tied_to) if one.tied_to else -1)
            for job_id, one in details.items()
        ]
        return _table(cls, rows, ties=ties)


@dataclass(frozen=True, slots=True, eq=False)
class EarlierResizes:
    """What became of the newest change of ours of each job's CPUs; jobs without one are missing.

    Columns after the job's id are those of :class:`~.fit.EarlierChange`, in its order.
    """

    job_id: JobIdColumn = field(default_factory=_none)
    outcome: IntColumn = field(default_factory=_none)
    """An :class:`~.fit.EarlierResize`."""
    cpus: IntColumn = field(default_factory=_none)
    """What it asked for, over all nodes."""
    cpus_per_task: IntColumn = field(default_factory=_none)
    least_cpus_per_node: IntColumn = field(default_factory=_none)
    memory_per_cpu_mib: IntColumn = field(default_factory=_none)
    """0: it left the request for memory as it was."""
    error: IntColumn = field(default_factory=_none)
    """Index into :attr:`errors`, or -1."""
    errors: tuple[Sentence, ...] = ()
    """What Slurm said, where it refused."""

    def __post_init__(self) -> None:
        _protect_columns(self)

    def by_job(self) -> dict[int, EarlierChange]:
        """By job id."""
        errors = (*self.errors, "")
        return {
            job_id: EarlierChange._make((EarlierResize(outcome), *numbers, errors[error]))
            for job_id, outcome, *numbers, error in _rows(self)
        }

    @classmethod
    def build(cls, earlier: Mapping[int, EarlierChange]) -> EarlierResizes:
        """From values by job id."""
        errors = tuple(sorted({one.error for one in earlier.values() if one.error}))
        rows = [(job_id, *one[:-1], errors.index(one.error) if one.error else -1) for job_id, one in earlier.items()]
        return _table(cls, rows, errors=errors)


class WaitingCase(NamedTuple):
    """Everything that all readings show of a waiting job's CPUs; many jobs have the same."""

    job: CpuFitCandidate
    node: NodeCapacity | None
    """The smallest node that it may run on; ``None``: no node has its GPUs."""
    history: FitHistory
    """What searches found for its owner's earlier jobs."""


@dataclass(frozen=True, slots=True, eq=False)
class DistinctRequests:
    """Requests of waiting jobs; those that are alike, and one user's, are there once.

    Columns from :attr:`gpus` on are those of :class:`~.fit.CpuFitCandidate`, in its order.
    """

    user: IntColumn = field(default_factory=_none)
    """Index into :attr:`users`."""
    node: IntColumn = field(default_factory=_none)
    """Index into :attr:`capacities` of the smallest node that such a job may run on, or -1: no node has its GPUs."""
    gpus: IntColumn = field(default_factory=_none)
    """Over all nodes, as are :attr:`tasks` and :attr:`cpus`."""
    nodes: IntColumn = field(default_factory=_none)
    tasks: IntColumn = field(default_factory=_none)
    cpus_per_task: IntColumn = field(default_factory=_none)
    cpus: IntColumn = field(default_factory=_none)
    pipelined: IntColumn = field(default_factory=_none)
    """0 or 1, a hint of the user's, as are the next two."""
    large_weights: IntColumn = field(default_factory=_none)
    heavy_preprocessing: IntColumn = field(default_factory=_none)
    form: IntColumn = field(default_factory=_none)
    """A :class:`~.fit.JobForm`."""
    category: IntColumn = field(default_factory=_none)
    """Index into :attr:`categories`, or -1: the user named none."""
    model: IntColumn = field(default_factory=_none)
    """Index into :attr:`models`, or -1."""
    limit: IntColumn = field(default_factory=_none)
    """Index into :attr:`limits`, or -1: none binds it."""
    users: tuple[UserName, ...] = ()
    histories: tuple[FitHistory, ...] = ()
    """What searches found for each user's earlier jobs."""
    capacities: tuple[NodeCapacity, ...] = ()
    categories: tuple[CategoryName, ...] = ()
    models: tuple[ModelName, ...] = ()
    limits: tuple[Word, ...] = ()
    """What :func:`~.limits.binding_limit` says."""

    def __post_init__(self) -> None:
        _protect_columns(self)

    def cases(self) -> list[WaitingCase]:
        """As values, one a row."""
        capacities, categories, models = (*self.capacities, None), (*self.categories, None), (*self.models, None)
        limits = (*self.limits, "")
        return [
            WaitingCase(
                CpuFitCandidate._make((*numbers, categories[category], models[model], limits[limit])),
                capacities[node],
                self.histories[user],
            )
            for user, node, *numbers, category, model, limit in _rows(self)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class CpuRequests:
    """Waiting GPU jobs whose CPUs may be fitted, most urgent first as Slurm orders them; one row a job.

    Nothing in it can be changed, so :class:`.CpuFit` knows by the object alone that it has judged it before.
    """

    job_id: JobIdColumn = field(default_factory=_none)
    request: IntColumn = field(default_factory=_none)
    """Row of :attr:`distinct`: what it asks for."""
    distinct: DistinctRequests = field(default_factory=DistinctRequests)
    details: RequestDetails = field(default_factory=RequestDetails)
    earlier: EarlierResizes = field(default_factory=EarlierResizes)

    def __post_init__(self) -> None:
        _protect_columns(self)

    def __len__(self) -> int:
        return len(self.job_id)

    @classmethod
    def none(cls) -> CpuRequests:
        """Of nobody: always the same one."""
        return _NO_REQUESTS

    @classmethod
    def build(
        cls,
        job_ids: Sequence[int],
        request: Sequence[int],
        distinct: Sequence[tuple[str, NodeCapacity | None, CpuFitCandidate]],
        histories: Mapping[str, FitHistory],
    ) -> CpuRequests:
        """From values.

        Args:
            job_ids: most urgent first.
            request: where in ``distinct`` the request of each is.
            distinct: user, the smallest node that such a job may run on, and what it asks for.
            histories: by user; of one who is missing nothing is known.
        """
        users, user = _coded([whose for whose, _, _ in distinct])
        capacities, node = _coded([where for _, where, _ in distinct])
        categories, category = _coded([job.category for _, _, job in distinct])
        models, model = _coded([job.model for _, _, job in distinct])
        limits, limit = _coded([job.limit or None for _, _, job in distinct])
        parts = zip(user, node, distinct, category, model, limit, strict=True)
        table = _table(
            DistinctRequests,
            [(whose, where, *job[:-3], kind, name, bound) for whose, where, (_, _, job), kind, name, bound in parts],
            users=users,
            capacities=capacities,
            categories=categories,
            models=models,
            limits=limits,
            histories=tuple(histories.get(name, NO_HISTORY) for name in users),
        )
        return cls(np.array(job_ids, dtype=np.int64), np.array(request, dtype=np.int64), table)


NO_HISTORY = FitHistory(())

_Value = TypeVar("_Value")
_Table = TypeVar("_Table", RequestDetails, EarlierResizes, DistinctRequests)


def _protect_columns(table: RequestDetails | EarlierResizes | DistinctRequests | CpuRequests) -> None:
    """Replace columns that somebody can still write by read-only copies."""
    for part in fields(table):
        column = getattr(table, part.name)
        if isinstance(column, np.ndarray) and column.flags.writeable:
            column = column.copy()
            column.flags.writeable = False
            object.__setattr__(table, part.name, column)


def _coded(values: Sequence[_Value | None]) -> tuple[tuple[_Value, ...], list[int]]:
    """Distinct values in the order of their first use, and each one's index; -1 for ``None``."""
    index: dict[_Value | None, int] = {}
    codes = [-1 if value is None else index.setdefault(value, len(index)) for value in values]
    return tuple(value for value in index if value is not None), codes


def _columns_of(table: type[RequestDetails] | type[EarlierResizes] | type[DistinctRequests]) -> list[str]:
    return [part.name for part in fields(table) if part.default_factory is _none]


def _table(table: type[_Table], rows: Sequence[Sequence[int]], **others: object) -> _Table:
    names = _columns_of(table)
    numbers = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(names))
    matrix = numbers.reshape(len(rows), len(names)).T
    return table(**dict(zip(names, np.ascontiguousarray(matrix), strict=True)), **others)  # type: ignore[arg-type]


def _rows(table: RequestDetails | EarlierResizes | DistinctRequests) -> Iterator[tuple[int, ...]]:
    return zip(*(getattr(table, name).tolist() for name in _columns_of(type(table))), strict=True)


_NO_REQUESTS = CpuRequests()
