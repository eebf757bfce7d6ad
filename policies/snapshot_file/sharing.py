"""What snapshots and plans have more where GPUs may be shared, in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.sharing.engine.assembly import assemble_sharing_snapshot
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, Mechanism
from slurm_soda.policies.sharing.pair_knowledge.kind_profiles import KindProfiles
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileValue
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.prediction.model_json import ModelDocument, decode_model, encode_model
from slurm_soda.policies.sharing.prediction.predicted_interference import PredictedInterference
from slurm_soda.policies.sharing.snapshot import GpuDevices, SharingJobs, SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.policies.snapshot_file.encoding import codec_of
from slurm_soda.policies.snapshot_file.identifiers import JobId, Sentence
from slurm_soda.policies.snapshot_file.values import EncodingError, Rename, unexpected

_PREDICTOR = "predictor"
_SHARES = "shares"
_NOT_COLUMNS = (
    "kinds",
    "apart",
    "faulted",
    "quarantined",
    "obstacles",
    "manual_joins",
    "manual_partings",
    "unrecorded",
)
"""Fields of :class:`.SharingJobs` without a value for each job."""


@dataclass(frozen=True, slots=True)
class _SharingColumns:
    """What a :class:`SharingSnapshot` has beyond a snapshot; the trained model apart, which is a document already."""

    devices: GpuDevices
    jobs: SharingJobs
    known: tuple[ProfileValue, ...]
    mechanism: Mechanism = IDEAL


@dataclass(frozen=True, slots=True)
class _Shares:
    """What a :class:`SharingPlan` says beyond a plan; its explanations come from the decision, which can be made again."""

    devices: Mapping[JobId, tuple[int, ...]] = field(default_factory=dict)
    sub_batches: Mapping[JobId, int] = field(default_factory=dict)
    refused_joins: Mapping[JobId, Sentence] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: SharingPlan) -> _Shares:
        """Those of a plan."""
        return cls(plan.devices, plan.sub_batches, plan.refused_joins)


def encode_sharing(snapshot: SharingSnapshot) -> dict[str, Any]:
    """GPUs one by one, kinds of jobs, and as much of what is known as concerns them.

    Raises:
        PolicyError: what is known comes from a simulation.
    """
    columns, predictor = _columns_of(snapshot)
    return {**codec_of(_SharingColumns).encode(columns), _PREDICTOR: predictor}


def decode_sharing(snapshot: ClusterSnapshot, told: Any) -> SharingSnapshot:
    """The reverse of :func:`encode_sharing`, for a snapshot that was checked.

    Raises:
        EncodingError: it is something else, or does not fit the snapshot.
    """
    if not isinstance(told, dict):
        raise unexpected("sharing", told, "an object")
    rest = {key: each for key, each in told.items() if key != _PREDICTOR}
    columns = codec_of(_SharingColumns).decode(rest, "sharing")
    _check(snapshot, columns)
    try:
        predictor = None if told.get(_PREDICTOR) is None else decode_model(told[_PREDICTOR])
    except PolicyError as error:
        raise EncodingError(f"sharing.{_PREDICTOR}: {error}") from error
    return _assemble(snapshot, columns, KindProfiles(columns.known, predictor))


def rename_sharing(renamed: ClusterSnapshot, snapshot: SharingSnapshot, rename: Rename) -> SharingSnapshot:
    """A snapshot whose names were replaced, with those of its kinds replaced as well.

    Raises:
        PolicyError: a trained model knows them by their own names.
    """
    columns, predictor = _columns_of(snapshot)
    if predictor is not None:
        raise PolicyError("a trained model of slowdowns knows jobs by their models' names: write the file with names")
    columns = codec_of(_SharingColumns).renamed(columns, rename)
    return _assemble(renamed, columns, KindProfiles(columns.known))


def encode_plan(plan: Plan) -> dict[str, Any]:
    """A plan, with its GPUs one by one where it names them."""
    told: dict[str, Any] = codec_of(Plan).encode(plan)
    if not isinstance(plan, SharingPlan):
        return told
    return {**told, _SHARES: codec_of(_Shares).encode(_Shares.of(plan))}


def decode_plan(told: Any) -> Plan:
    """The reverse of :func:`encode_plan`, without explanations.

    Raises:
        EncodingError: it is something else.
    """
    if not isinstance(told, dict) or _SHARES not in told:
        return codec_of(Plan).decode(told, "plan")
    plan = codec_of(Plan).decode({key: each for key, each in told.items() if key != _SHARES}, "plan")
    return _with_shares(plan, codec_of(_Shares).decode(told[_SHARES], f"plan.{_SHARES}"))


def rename_plan(plan: Plan, rename: Rename) -> Plan:
    """A plan with other names."""
    renamed = codec_of(Plan).renamed(plan, rename)
    if not isinstance(plan, SharingPlan):
        return renamed
    return _with_shares(renamed, codec_of(_Shares).renamed(_Shares.of(plan), rename))


def _with_shares(plan: Plan, shares: _Shares) -> SharingPlan:
    values = {spec.name: getattr(plan, spec.name) for spec in fields(Plan)}
    return SharingPlan(
        **values, devices=shares.devices, sub_batches=shares.sub_batches, refused_joins=shares.refused_joins
    )


def _assemble(snapshot: ClusterSnapshot, columns: _SharingColumns, known: KindProfiles) -> SharingSnapshot:
    return assemble_sharing_snapshot(snapshot, columns.devices, columns.jobs, known, columns.mechanism)


def _columns_of(snapshot: SharingSnapshot) -> tuple[_SharingColumns, ModelDocument | None]:
    known = snapshot.known
    if not isinstance(known, KindProfiles):
        raise PolicyError(f"what a {type(known).__name__} knows cannot be written to a file")
    models = {kind.model for kind in snapshot.sharing.kinds}
    values = tuple(replace(value, observations=0, origin="", at_s=0.0) for value in known.values_about(models))
    predictor = known.predictor
    if predictor is not None and not isinstance(predictor, PredictedInterference):
        raise PolicyError(f"a {type(predictor).__name__} cannot be written to a file")
    document = None if predictor is None else encode_model(predictor)
    return _SharingColumns(snapshot.devices, snapshot.sharing, values, snapshot.mechanism), document


def _check(snapshot: ClusterSnapshot, columns: _SharingColumns) -> None:
    """Whether the columns fit the tables of the snapshot."""
    devices, jobs, where = columns.devices, columns.jobs, "sharing.devices"
    count, rows = int(snapshot.nodes.gpus.sum()), len(snapshot.jobs)
    if devices.first.tolist() != np.concatenate(([0], np.cumsum(snapshot.nodes.gpus))).tolist():
        raise unexpected(f"{where}.first", devices.first.tolist(), "the sums of snapshot.nodes.gpus")
    lengths: list[tuple[str, NDArray[Any], int]] = [
        (f"{where}.memory_mib", devices.memory_mib, count),
        (f"{where}.held_start", devices.held_start, rows + 1),
        (f"{where}.guest", devices.guest, len(devices.held)),
        (f"{where}.shareable", devices.shareable, count),
    ]
    if len(devices.unavailable):
        lengths.append((f"{where}.unavailable", devices.unavailable, count))
    names = [spec.name for spec in fields(SharingJobs) if spec.name not in _NOT_COLUMNS]
    lengths += [(f"sharing.jobs.{name}", getattr(jobs, name), rows) for name in names]
    for name, column, length in lengths:
        if column.shape != (length,):
            raise EncodingError(f"{name} has {' x '.join(map(str, column.shape))} values: expected {length}")
    starts = devices.held_start.tolist()
    if starts[0] != 0 or starts[-1] != len(devices.held) or any(low > high for low, high in pairwise(starts)):
        raise unexpected(f"{where}.held_start", starts, f"ascending numbers from 0 to {len(devices.held)}")
    ranges = (
        (f"{where}.held", devices.held, 0, count),
        ("sharing.jobs.kind", jobs.kind, -1, len(jobs.kinds)),
        ("sharing.jobs.batch", jobs.batch, 0, 2**40),
        ("sharing.jobs.sub_batch", jobs.sub_batch, 0, 2**40),
        ("sharing.jobs.obstacle", jobs.obstacle, -1, len(jobs.obstacles)),
    )
    for name, column, least, below in ranges:
        wrong = np.flatnonzero((column < least) | (column >= below))
        if len(wrong):
            raise unexpected(
                f"{name}[{wrong[0]}]", int(column[wrong[0]]), f"a whole number from {least} to {below - 1}"
            )
    for name in ("apart", "faulted"):
        for at, (one, other) in enumerate(getattr(jobs, name)):
            if one >= other:
                raise unexpected(f"sharing.jobs.{name}[{at}]", [one, other], "two ids, the smaller one first")
