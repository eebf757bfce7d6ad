"""Which running jobs a waiting one might join, over all of them at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from slurm_soda.policies.sharing.arithmetic.completion_times import mean_pair_completions_s
from slurm_soda.policies.sharing.arithmetic.revocation import mean_guest_completions_s
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy, joinable_devices
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.sjf.running_kinds import RunningKinds
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn


class SharedGpuGroup(NamedTuple):
    """Devices that the same running jobs are on."""

    rows: tuple[int, ...]
    devices: tuple[int, ...]


class SubBatchOption(NamedTuple):
    """A waiting kind with one sub-batch, beside every kind of running jobs; infinite where they may not, or cannot, meet."""

    work_ratio: float
    """Its work with this sub-batch over that with the whole batch."""
    memory_mib: float
    new_xi: FloatColumn
    running_xi: FloatColumn
    new_worst: FloatColumn
    """What counts against bounds; so does ``running_worst``."""
    running_worst: FloatColumn
    assumed: FloatColumn
    """1 where one of the slowdowns is only assumed, else 0."""


class SubBatchOptions(NamedTuple):
    """The options of a waiting kind, the largest sub-batch first: a row for each, of tables with a column for each kind of
    running jobs.
    """

    work_ratio: FloatColumn
    memory_mib: FloatColumn
    new_xi: FloatColumn
    running_xi: FloatColumn
    new_worst: FloatColumn
    running_worst: FloatColumn
    assumed: FloatColumn

    @classmethod
    def of(cls, options: Sequence[SubBatchOption]) -> SubBatchOptions:
        """One option at least."""
        return cls(*(np.array(column) for column in zip(*options, strict=True)))


class PartnerSlowdowns(NamedTuple):
    """Members of groups who may meet a waiting job, once for each of its sub-batches with which they may, and the slowdowns
    of both sides.
    """

    members: IntColumn
    work_ratio: FloatColumn
    """The job's work with this sub-batch over that with its whole batch."""
    new_xi: FloatColumn
    running_xi: FloatColumn
    """Of the members, over the pace that they have now beside others."""
    pair_xi: FloatColumn
    """Of the members, as if no others were beside them."""
    assumed: BoolColumn
    """Nobody has seen or predicted one of the slowdowns of the pair."""

    def only(self, at: BoolColumn) -> PartnerSlowdowns:
        """Some of them."""
        xi = self.new_xi[at], self.running_xi[at], self.pair_xi[at]
        return PartnerSlowdowns(self.members[at], self.work_ratio[at], *xi, self.assumed[at])


class PartnerScreen:
    """Groups of devices with columns, so that one job is held against all of them in numpy.

    A job is told from its kind, batch and consent; it costs O(groups x sub-batches worth a try), and knowledge is asked
    once for each pair of kinds. Groups of several jobs are taken as their worst pair; :func:`.decide_sharing` has the
    last word.

    Attributes:
        groups: those that others may join, by their first device.
    """

    def __init__(
        self,
        snapshot: SharingSnapshot,
        gpu_occupancy: GpuOccupancy,
        interference_view: InterferenceView,
        most: int,
        bound_caution: float = 0.0,
    ) -> None:
        """``bound_caution``: as in :func:`.decide_sharing`."""
        self._snapshot, self._gpu_occupancy, self._interference_view = snapshot, gpu_occupancy, interference_view
        sharing = snapshot.sharing
        able: list[bool] = (sharing.shares & (sharing.kind >= 0) & np.isfinite(snapshot.jobs.remaining_s)).tolist()
        by_rows: dict[tuple[int, ...], list[int]] = {}
        for device in joinable_devices(gpu_occupancy, most):
            rows = gpu_occupancy.jobs_on[device]
            if all(able[row] for row in rows):
                by_rows.setdefault(tuple(rows), []).append(device)
        willing = {rows: devices for rows, devices in by_rows.items() if all(map(self._keeps_pace, rows))}
        self.groups = [SharedGpuGroup(rows, tuple(devices)) for rows, devices in willing.items()]
        self._device = np.array([device for group in self.groups for device in group.devices], dtype=np.int64)
        self._of_group = np.repeat(np.arange(len(self.groups)), [len(group.devices) for group in self.groups])
        self._kinds = RunningKinds(snapshot.known, bound_caution)
        self._columns()
        self._options: dict[tuple[JobKind, int], SubBatchOptions] = {}
        self._may_meet: dict[tuple[JobKind, int, float], BoolColumn] = {}

    def _keeps_pace(self, row: int) -> bool:
        pace = self._interference_view.pace(row)
        return math.isfinite(pace) and pace <= float(self._snapshot.sharing.max_slowdown[row])

    def _columns(self) -> None:
        """Of members of groups: ``_start`` says where each group's begin."""
        members = [(number, row) for number, group in enumerate(self.groups) for row in group.rows]
        self._member_of = np.array([number for number, _ in members], dtype=np.int64)
        partners = [self._interference_view.partner(row, self.groups[number].devices) for number, row in members]
        kinds = [self._interference_view.kind(row) for _, row in members]
        self._start = np.cumsum([0, *(len(group.rows) for group in self.groups)])[:-1].astype(np.int64)
        self._kind = np.array([self._kinds.number(kind) for kind in kinds if kind], dtype=np.int64)
        self._work_s = np.array([partner.work_s for partner in partners], dtype=np.float64)
        self._free_mib = np.array([partner.free_mib for partner in partners], dtype=np.float64)
        self._bound = np.array([partner.consent.max_slowdown for partner in partners], dtype=np.float64)
        bare = [
            self._interference_view.pace(row) / self._interference_view.accumulation_slowdown(row) for _, row in members
        ]
        self._pace = np.array(bare, dtype=np.float64)

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def work_s(self) -> FloatColumn:
        """What is left of the job of each group, at the pace that it has now; of groups of one job."""
        return self._work_s

    def may_share(self, row: int) -> BoolColumn:
        """Groups whose jobs may share with this one, with some sub-batch; whether that gains is not asked."""
        kind, consent = self._interference_view.kind(row), self._interference_view.consent(row)
        if kind is None or not consent.shares or not self.groups:
            return np.zeros(len(self.groups), dtype=np.bool_)
        key = (kind, int(self._snapshot.sharing.batch[row]), consent.max_slowdown)
        if key not in self._may_meet:
            members = np.zeros(len(self._kind), dtype=np.bool_)
            members[self._slowdowns(self._of(row, kind), consent.max_slowdown).members] = True
            self._may_meet[key] = np.logical_and.reduceat(members, self._start)
        return self._may_meet[key]

    def mean_completions_s(self, row: int) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
        """Mean completion times with each group's jobs: (together, one after the other, as if each were alone).

        The first is infinite where they may not meet. Of several jobs in one group the worst pair counts.
        """
        none = np.full(len(self.groups), np.inf)
        kind, consent = self._interference_view.kind(row), self._interference_view.consent(row)
        if kind is None or not consent.shares or not self.groups:
            return none, none, none
        work_s, terms = float(self._snapshot.jobs.remaining_s[row]), self._interference_view.guest_terms(row)
        together = np.full(len(self._kind), np.inf)
        members, work_ratio, new_xi, running_xi, *_ = self._slowdowns(self._of(row, kind), consent.max_slowdown)
        pairs = work_s * work_ratio, self._work_s[members], new_xi, running_xi
        mean = mean_pair_completions_s(*pairs)[0] if terms is None else mean_guest_completions_s(*pairs, terms)
        np.minimum.at(together, members, mean)
        after, apart = self._work_s + work_s / 2, (self._work_s + work_s) / 2
        return tuple(np.maximum.reduceat(mean, self._start) for mean in (together, after, apart))  # type: ignore[return-value]

    def partners(self, row: int) -> PartnerSlowdowns | None:
        """Of groups of one job, who may meet this one, with each of its sub-batches; ``None``: it shares with nobody."""
        kind, consent = self._interference_view.kind(row), self._interference_view.consent(row)
        if kind is None or not consent.shares or not self.groups:
            return None
        return self._slowdowns(self._of(row, kind), consent.max_slowdown)

    def _slowdowns(self, options: SubBatchOptions, max_slowdown: float) -> PartnerSlowdowns:
        """Members of groups who, and whose memory, bear a job with each sub-batch, and whom it bears."""
        bearable: BoolColumn = np.isfinite(options.new_xi) & (
            options.new_worst * options.work_ratio[:, None] <= max_slowdown
        )
        fits = options.memory_mib[:, None] <= self._free_mib
        option, members = np.nonzero(bearable[:, self._kind] & fits)
        kind, pace = self._kind[members], self._pace[members]
        bear = np.maximum(options.running_worst[option, kind], pace) / pace <= self._bound[members]
        option, members, kind, pace = option[bear], members[bear], kind[bear], pace[bear]
        pair_xi = options.running_xi[option, kind]
        return PartnerSlowdowns(
            members,
            options.work_ratio[option],
            options.new_xi[option, kind],
            np.maximum(pair_xi, pace) / pace,
            pair_xi,
            options.assumed[option, kind] > 0,
        )

    def _of(self, row: int, kind: JobKind) -> SubBatchOptions:
        new = self._interference_view.new_job(row)
        key = (kind, new.batch)
        if key not in self._options:
            whole_s = new.throughput.iteration_s(new.batch)
            free_mib = self._most_free_mib()
            options = []
            for size in self._interference_view.sizes(row):
                trial = size if new.batch > 1 else 1
                ratio = new.throughput.iteration_s(new.batch, trial) / whole_s if whole_s else 1.0
                memory_mib, mine = new.footprint.mib(trial), self._interference_view.kind(row, size) or kind
                slowdowns = self._kinds.slowdowns(mine, kind, memory_mib <= free_mib)
                options.append(SubBatchOption(ratio, memory_mib, *slowdowns.T))
            self._options[key] = SubBatchOptions.of(_without_dominated(options))
        return self._options[key]

    def _most_free_mib(self) -> FloatColumn:
        """Memory beside the running jobs of each kind, where that is most; of kinds on no GPU that is left, none.

        Whoever needs more meets none of them: nobody need be asked about such pairs, of which there may be thousands.
        """
        left = np.zeros(len(self.groups), dtype=np.bool_)
        left[self._of_group[~self._gpu_occupancy.taken[self._device]]] = True
        members = np.flatnonzero(left[self._member_of])
        most = np.full(len(self._kinds), -np.inf)
        np.maximum.at(most, self._kind[members], self._free_mib[members])
        return most

    def _left(self, nodes: BoolColumn) -> BoolColumn:
        """Which devices of groups are on these nodes and not given away by this decision."""
        left: BoolColumn = ~self._gpu_occupancy.taken[self._device] & nodes[self._gpu_occupancy.node[self._device]]
        return left

    def free_capacity(self, nodes: BoolColumn) -> IntColumn:
        """GPUs of each group, on these nodes, that this decision has not given away."""
        left = self._left(nodes)
        return np.bincount(self._of_group[left], minlength=len(self.groups)).astype(np.int64)

    def gpus_by_node(self, order: IntColumn) -> IntColumn:
        """GPUs of these groups on each node that this decision has not given away."""
        wanted = np.zeros(len(self.groups), dtype=np.bool_)
        wanted[order] = True
        left = self._device[~self._gpu_occupancy.taken[self._device] & wanted[self._of_group]]
        return np.bincount(self._gpu_occupancy.node[left], minlength=len(self._snapshot.nodes)).astype(np.int64)

    def devices(self, order: IntColumn, nodes: BoolColumn) -> Iterator[int]:
        """Devices of groups, in this order, on these nodes, that this decision has not given away."""
        place = np.full(len(self.groups), len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        left = self._left(nodes) & (place[self._of_group] < len(order))
        devices = self._device[left]
        yield from devices[np.argsort(place[self._of_group[left]], kind="stable")].tolist()


def _without_dominated(options: list[SubBatchOption]) -> list[SubBatchOption]:
    """Without sub-batches that save no memory and slow nobody less."""
    kept: list[SubBatchOption] = []
    for option in options:
        beaten = any(
            larger.memory_mib <= option.memory_mib
            and bool(np.all(larger.new_xi * larger.work_ratio <= option.new_xi * option.work_ratio))
            and bool(np.all(larger.new_worst * larger.work_ratio <= option.new_worst * option.work_ratio))
            and bool(np.all(larger.running_xi <= option.running_xi))
            and bool(np.all(larger.running_worst <= option.running_worst))
            for larger in kept
        )
        if not beaten:
            kept.append(option)
    return kept
