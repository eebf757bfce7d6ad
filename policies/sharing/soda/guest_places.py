"""Who of those that wait joins whom: where all jobs together end earlier.

A job k that waits, with work w_k left, would wait t_k for GPUs of its own. Beside a host h, with work w_h left, k would end
at e_k and h at e_h (Equations 18 and 19 of SJF-BSBF, with what a guest loses whose host ends first:
:mod:`slurm_soda.policies.sharing.arithmetic.revocation`). With n jobs waiting, b of them behind k, and G GPUs, to join
changes the sum of completion times by the expectation, over what is likely of w_k and w_h, of

- what k gains itself: t_k + w_k - e_k (if its host ends first it waits on, until t_k at the least: its place is revoked,
  or it makes way for those before it);
- what those behind k gain, as so much of its work needs no GPUs of its own: b g_k / G x (work done beside h);
- what h loses, and those who wait for its GPUs: (1 + n g_h / G) (e_h - w_h), as if no others were beside h, since k may
  stay on when they leave;
- what the a jobs before k lose, if k cannot be preempted and keeps the GPUs once its host has ended: a g_k / G x (the
  time that it has them before its turn).

If k can be preempted it need not stay beside h for long: after t_k it can have GPUs of its own as if it had waited, for what
it costs to move. Of both the better one counts. Else a job that waits for minutes would be refused by hosts with hours left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from slurm_soda.policies.engine.demand import RequestShape
from slurm_soda.policies.engine.free_capacity import JobPlacement
from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.sharing.arithmetic.revocation import GuestTerms
from slurm_soda.policies.sharing.arithmetic.sharing_decision import BOUND_CAUTION, SharingDecision, start_all_the_same
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.sjf.partner_screening import PartnerScreen
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.sharing.soda.expected_waits import MOST_JOBS, expect_waits_s
from slurm_soda.policies.sharing.soda.guest_outcome import WaitingGuest, expect_outcomes
from slurm_soda.policies.sharing.soda.remaining_work import expect_remaining_s
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn, JobState

JOBS_PER_GPU = 2
"""A host and a guest."""
_MOST_REFUSALS = 32
"""Jobs that find no host, one after the other, before a decision looks for hosts no more."""

_LONG_S = 365 * 86_400.0
"""In place of a run time that nobody knows."""


class GuestPlaces:
    """Places beside running jobs in one decision.

    Attributes:
        devices: by row, of those who join.
        sub_batches: by row, of those who would accumulate gradients.
        decisions: by row, the arithmetic behind joining or waiting.
    """

    def __init__(
        self,
        snapshot: SharingSnapshot,
        placing: PlacementPass,
        gpu_occupancy: GpuOccupancy,
        interference_view: InterferenceView,
        *,
        ranks_s: FloatColumn,
        change_s: float,
    ) -> None:
        """``ranks_s``: the rank of each job, by row; ``change_s``: what a preemption costs on each GPU."""
        self._snapshot, self._placing = snapshot, placing
        self._gpu_occupancy, self._interference_view = gpu_occupancy, interference_view
        self._change_s = change_s
        self._ranks_s, self._total_gpus = ranks_s, max(int(snapshot.nodes.gpus[snapshot.nodes.usable].sum()), 1)
        self.devices: dict[int, tuple[int, ...]] = {}
        self.sub_batches: dict[int, int] = {}
        self.decisions: dict[int, SharingDecision] = {}
        self._masks: dict[int, BoolColumn] = {}

    def find(self, waiting: IntColumn) -> None:
        """Places for those who gain by it, in this order.

        O(devices) once, then O(hosts) in numpy for each of them; no more are asked once 32 in a row found no host.
        """
        sharing, jobs = self._snapshot.sharing, self._snapshot.jobs
        able = sharing.shares[waiting] & np.isfinite(jobs.remaining_s[waiting])
        if not able.any():
            return
        self._screen = PartnerScreen(
            self._snapshot, self._gpu_occupancy, self._interference_view, JOBS_PER_GPU, BOUND_CAUTION
        )
        if not len(self._screen):
            return
        waits_s = self._expect_waits_s(waiting)
        host_gpus = np.array([jobs.gpus[group.rows[0]] for group in self._screen.groups], dtype=np.float64)
        self._host_left_s = expect_remaining_s(
            self._snapshot, np.array([group.rows[0] for group in self._screen.groups], dtype=np.int64)
        )
        self._host_weight = 1.0 + host_gpus * len(waiting) / self._total_gpus
        refusals = 0
        for at in np.flatnonzero(able).tolist():
            row = int(waiting[at])
            share = int(jobs.gpus[row]) / self._total_gpus
            behind, ahead = (len(waiting) - at - 1) * share, at * share
            refusals = 0 if self._join(row, float(waits_s[at]), behind, ahead) else refusals + 1
            if refusals == _MOST_REFUSALS:
                return

    def _expect_waits_s(self, waiting: IntColumn) -> FloatColumn:
        jobs = self._snapshot.jobs
        stays = (jobs.state == JobState.RUNNING) & (jobs.gpus > 0) & (self._placing.verdict != JobVerdict.PREEMPT)
        running = np.flatnonzero(stays)
        left_s = self._hold_s(running)
        shared = {row for there in self._gpu_occupancy.jobs_on if len(there) > 1 for row in there}
        for at, row in enumerate(running.tolist()):
            if row in shared:
                left_s[at] *= self._interference_view.pace(row)
        return expect_waits_s(
            int(self._placing.free_capacity.now.gpus.sum()),
            left_s,
            jobs.gpus[running].tolist(),
            self._hold_s(waiting[:MOST_JOBS]),
            jobs.gpus[waiting].tolist(),
        )

    def _hold_s(self, rows: IntColumn) -> FloatColumn:
        """How long jobs keep GPUs: until they end, or, by their ranks, others had better have a turn."""
        held_s = np.fmin(expect_remaining_s(self._snapshot, rows), self._ranks_s[rows][:, None])
        return np.where(np.isfinite(held_s), held_s, _LONG_S)

    def _join(self, row: int, wait_s: float, behind: float, ahead: float) -> bool:
        """Whether a job found hosts; ``behind`` and ``ahead``: b g_k / G and a g_k / G of the formula."""
        screen = self._screen
        guest = WaitingGuest(
            expect_remaining_s(self._snapshot, np.array([row]))[0],
            self._interference_view.guest_terms(row) or GuestTerms(revokes=False),
            wait_s,
            self._change_s if self._snapshot.jobs.preemptible[row] else math.inf,
        )
        gain_s, cost_s = np.full(len(screen), -np.inf), np.full(len(screen), np.inf)
        for work_ratio, (members, guest_xi, _, host_xi) in screen.partners(row):
            for outcome in expect_outcomes(guest, self._host_left_s[members], guest_xi, host_xi, work_ratio):
                gain = outcome.sooner_s + behind * outcome.guest_work_s
                cost = self._host_weight[members] * outcome.later_s + ahead * outcome.out_of_turn_s
                better = gain - cost > gain_s[members] - cost_s[members]
                gain_s[members[better]], cost_s[members[better]] = gain[better], cost[better]
        nodes, shape = self._request(row)
        gpus = int(self._snapshot.jobs.gpus[row])
        used = np.minimum(screen.free_capacity(nodes), gpus)
        good = np.flatnonzero((gain_s > cost_s) & (used > 0))
        if not len(good):
            return False
        # Of hosts with too few GPUs several are needed, each of which costs.
        worth_s = gain_s[good] - cost_s[good] * gpus / used[good]
        order = good[np.argsort(-worth_s, kind="stable")]
        picked = self._gpu_occupancy.pick(row, shape, self._ranked_devices(order, nodes))
        if picked is None:
            return False
        chosen = [at for at in order.tolist() if not set(screen.groups[at].devices).isdisjoint(picked[0])]
        total_s = float(gain_s[chosen].min() - cost_s[chosen].sum()) if chosen else 0.0
        return total_s > 0 and self._start(row, *picked, total_s)

    def _request(self, row: int) -> tuple[BoolColumn, RequestShape]:
        code = int(self._placing.demand.code[row])
        shape = self._placing.demand.shapes[code]
        if code not in self._masks:
            self._masks[code] = self._gpu_occupancy.classes.mask(shape)
        return self._masks[code], shape

    def _ranked_devices(self, order: IntColumn, nodes: BoolColumn) -> Iterator[int]:
        """Shared ones before free ones, as the job waits though these are free."""
        yield from self._screen.devices(order, nodes)
        yield from self._gpu_occupancy.free(nodes)

    def _start(self, row: int, devices: list[int], pieces: list[NodeAllocation], total_s: float) -> bool:
        """Algorithm 2 of SJF-BSBF has the last word: bounds and memory, all co-runners together, and the sub-batch."""
        judged = self._interference_view.judge(row, devices)
        reason = f"starts now: all jobs together end {total_s:.0f} s earlier than if it waited"
        decision = self.decisions[row] = start_all_the_same(judged, reason)
        if not decision.share:
            return False
        self._placing.free_capacity.hold(self._gpu_occupancy.take(devices, pieces))
        self._placing.record(row, JobPlacement(list(pieces), at_once=True))
        self.devices[row] = tuple(devices)
        batch = int(self._snapshot.sharing.batch[row])
        if decision.chosen is not None and 0 < decision.chosen.sub_batch < batch and len(decision.trials) > 1:
            self.sub_batches[row] = decision.chosen.sub_batch
        return True
