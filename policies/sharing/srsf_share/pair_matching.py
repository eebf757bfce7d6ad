"""Who runs with whom, and who waits: jobs on GPUs so that the sum of weighted speeds is large.

A slot is what one job, or two that share, hold: all slots of one call are for jobs of one size. Local search: every two
slots exchange members, and every slot with everyone who waits, as long as the sum grows. On slots for one GPU it comes
within 2 % of an exact matching's average completion time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.sharing.srsf_share.pair_roles import PairRoles
from slurm_soda.policies.snapshot import BoolColumn, FloatColumn, IntColumn

BLOCK = 128
"""Slots that are compared with each other at once: a sweep costs O(slots x BLOCK)."""
MAX_SWEEPS = 12
_LEAST = 1e-9
"""Part of the heaviest weight by which an exchange must gain, so that rounding cannot go in circles."""
_NEVER = -1e300
_REGROUPED = 8
"""Of those who wait, so many pairs try to take a slot in each block and sweep."""


@dataclass(frozen=True, slots=True)
class PairMatchingInput:
    """Jobs of one size that want slots.

    Attributes:
        weight: what a second of a job at full speed is worth.
        kind: row and column of ``speed``.
        speed: of a kind beside another one over its speed alone; 0 where they may not meet.
        least_speed: below which a job's owner does not let it share; above 1: not at all.
        move_cost: what it costs to stop a running job, in units of weight; 0 for those that wait.
        co_runner: the job with which a running job shares all its GPUs now, or -1.
        running: those that run now.
        fixed: those that may not be stopped.
        roles: what the engine's mechanism makes of pairs; ``None``: any two may meet, and either may end first.
        apart: pairs of numbers, the smaller one first, that may not meet, or not anew.
    """

    weight: FloatColumn
    kind: IntColumn
    speed: FloatColumn
    least_speed: FloatColumn
    move_cost: FloatColumn
    co_runner: IntColumn
    running: BoolColumn
    fixed: BoolColumn
    roles: PairRoles | None = None
    apart: Sequence[tuple[int, int]] = ()

    def __len__(self) -> int:
        return len(self.weight)


class PairMatching:
    """Slots in the making. Job number ``len(matching_input)`` is nobody."""

    def __init__(self, matching_input: PairMatchingInput, slots: int, *, keep: bool = False) -> None:
        """The first ``slots`` jobs begin alone, those that are fixed before the others; the rest waits.

        ``keep``: those that run go before those that wait, beside whom they are now.
        """
        self._nobody = nobody = len(matching_input)
        self._roles = matching_input.roles
        self._apart = np.array([one * nobody + other for one, other in matching_input.apart], dtype=np.int64)
        self._weight = np.append(matching_input.weight, 0.0)
        self._kind = np.append(matching_input.kind, len(matching_input.speed))
        self._kinds = len(matching_input.speed) + 1
        self._fast, self._slow = _speeds(matching_input.speed)
        self._least_speed = np.append(matching_input.least_speed, 0.0)
        self._bears: BoolColumn = self._least_speed <= 1.0
        self._mate = np.append(np.where(matching_input.co_runner < 0, nobody, matching_input.co_runner), nobody)
        self._running = np.append(matching_input.running, False)
        self._fixed = np.append(matching_input.fixed, False)
        cost = np.append(matching_input.move_cost, 0.0)
        self._idle = np.where(self._fixed, _NEVER, -cost)
        self._moved = np.where(self._fixed, np.inf, cost)
        late = np.where(matching_input.fixed, 0, np.where(matching_input.running & keep, 1, 2))
        order = np.argsort(late, kind="stable")
        joining = matching_input.co_runner > np.arange(nobody) if keep else np.zeros(nobody, dtype=np.bool_)
        hosts = order[~joining[order]]
        self.first = hosts[:slots].copy()
        self.second = self._mate[self.first] if keep else np.full(len(self.first), nobody, dtype=np.int64)
        seated = np.isin(order, np.concatenate((self.first, self.second)))
        self.waiting = order[~seated]
        self._least = _LEAST * float(np.max(self._weight, initial=0.0))
        self._at_rest: set[tuple[bytes, ...]] = set()
        """Jobs of blocks among which nobody gained: whoever sits and waits as he did then need not be asked again."""

    def value(self, one: IntColumn, other: IntColumn) -> FloatColumn:
        """What a slot with these two is worth; they broadcast."""
        allowed = self._may_meet(one, other)
        if 2 * np.count_nonzero(allowed) > allowed.size:
            return self._weigh(one, other)
        worth = np.full(allowed.shape, _NEVER)
        mine, its = (np.broadcast_to(column, allowed.shape)[allowed] for column in (one, other))
        worth[allowed] = self._weigh(mine, its)
        return worth

    def _may_meet(self, one: IntColumn, other: IntColumn) -> BoolColumn:
        """Pairs that are to be looked at more closely: of the others one bears nobody, or users may not meet."""
        meet: BoolColumn = self._bears[one] & self._bears[other]
        if self._roles is not None:
            meet &= self._roles.users_may_meet(one, other)
        meet |= (one == self._nobody) | (other == self._nobody)
        return meet

    def _weigh(self, one: IntColumn, other: IntColumn) -> FloatColumn:
        pair = self._kind[one] * self._kinds + self._kind[other]
        fast, slow = self._fast.take(pair), self._slow.take(pair)
        bad = fast < self._least_speed[one]
        bad |= slow < self._least_speed[other]
        bad &= (one != self._nobody) & (other != self._nobody)
        if len(self._apart):
            bad |= np.isin(np.minimum(one, other) * self._nobody + np.maximum(one, other), self._apart)
        if self._roles is not None:
            bad |= self._roles.forbid(one, other)
            fast, slow = self._roles.keep(fast, slow, one, other)
        # In place, as most of the time goes into new arrays.
        fast *= self._weight[one]
        slow *= self._weight[other]
        worth: FloatColumn = np.add(fast, slow, out=fast)
        running, others_run = self._running[one], self._running[other]
        if self._roles is not None:
            for job, beside in ((one, other), (other, one)):
                moves = self._roles.moves(job, beside)
                bad |= moves & self._fixed[job]
                np.subtract(worth, self._moved[job], out=worth, where=moves & ~self._fixed[job])
        elif running.any() and others_run.any():
            # One of two that run in different places must move there.
            apart = (running & others_run) & (self._mate[one] != other)
            bad |= apart & (self._fixed[one] & self._fixed[other])
            apart &= ~bad
            np.subtract(worth, np.minimum(self._moved[one], self._moved[other]), out=worth, where=apart)
        np.putmask(worth, bad, _NEVER)
        return worth

    def total(self) -> float:
        """What all slots are worth, less what it costs to stop those who wait."""
        return float(self.value(self.first, self.second).sum() + self._idle[self.waiting].sum())

    def settle(self) -> list[tuple[int, int]]:
        """Exchange until nobody gains; returns the slots, -1 for an empty place."""
        for sweep in range(MAX_SWEEPS):
            gains = 0
            for slots, waiting in self._fronts(sweep):
                gains += self._admit(slots, waiting)
            for slots in _blocks(len(self.first), sweep):
                gains += self._exchange(slots)
            for slots, waiting in self._fronts(sweep):
                gains += self._regroup(slots, waiting)
            if not gains:
                break
        pairs = np.where(np.stack((self.first, self.second)) == self._nobody, -1, np.stack((self.first, self.second)))
        return list(zip(*pairs.tolist(), strict=True))

    def _fronts(self, sweep: int) -> Iterator[tuple[IntColumn, IntColumn]]:
        """Slots, and those who wait, side by side in blocks."""
        blocks = list(_blocks(len(self.first), sweep))
        for number, slots in enumerate(blocks):
            yield slots, np.arange(number, len(self.waiting), len(blocks), dtype=np.int64)[: 2 * BLOCK]

    def _admit(self, slots: IntColumn, waiting: IntColumn) -> int:
        """Who waits joins somebody, or takes a place; at once wherever it gains, the largest gain first."""
        if not len(slots) or not len(waiting):
            return 0
        seats = tuple(column.tobytes() for column in (self.first[slots], self.second[slots], self.waiting[waiting]))
        if seats in self._at_rest:
            return 0
        a, b, c = self.first[slots, None], self.second[slots, None], self.waiting[None, waiting]
        now = self.value(a, b) + self._idle[c]
        beside_first = self.value(a, c) + self._idle[b] - now
        beside_second = self.value(b, c) + self._idle[a] - now
        moves = self._best_first(np.maximum(beside_first, beside_second), apart=True)
        for s, w in moves:
            slot, place = slots[s], waiting[w]
            job = self.waiting[place]
            if beside_first[s, w] >= beside_second[s, w]:
                out, self.second[slot] = self.second[slot], job
            else:
                out, self.first[slot] = self.first[slot], job
            self.waiting[place] = out
        if not moves:
            self._at_rest.add(seats)
        self._tidy()
        return len(moves)

    def _exchange(self, slots: IntColumn) -> int:
        """Two slots swap members."""
        a, b = self.first[slots], self.second[slots]
        seats = a.tobytes(), b.tobytes()
        if seats in self._at_rest:
            return 0
        now = self.value(a, b)
        total = now[:, None] + now[None, :]
        straight = self.value(a[:, None], a[None, :]) + self.value(b[:, None], b[None, :]) - total
        across = self.value(a[:, None], b[None, :])
        crossed = across + across.T - total
        gain = np.triu(np.maximum(straight, crossed), 1)
        moves = self._best_first(gain, apart=False)
        for p, q in moves:
            mine, its = slots[p], slots[q]
            if straight[p, q] >= crossed[p, q]:
                self.second[mine], self.first[its] = self.first[its], self.second[mine]
            else:
                self.second[mine], self.second[its] = self.second[its], self.second[mine]
        if not moves:
            self._at_rest.add(seats)
        self._tidy()
        return len(moves)

    def _regroup(self, slots: IntColumn, waiting: IntColumn) -> int:
        """Two who wait take a slot together; two who sit alone share one, and the other goes to one or two who wait."""
        if not len(slots) or not len(waiting):
            return 0
        gains = 0
        for worth, pair in self._units(self.waiting[waiting]):
            merge_gain, merge = self._merge(slots)
            leave_gain, slot = self._leave(slots) if pair[1] != self._nobody else (_NEVER, -1)
            if max(merge_gain, leave_gain) + worth <= self._least:
                break
            out = np.zeros(0, dtype=np.int64)
            if merge_gain >= leave_gain:
                kept, slot = merge
                self.second[kept] = self.first[slot]
            else:
                out = np.array([self.first[slot], self.second[slot]])
            self.first[slot], self.second[slot] = pair
            self.waiting = np.append(self.waiting[~np.isin(self.waiting, pair)], out)
            self._tidy()
            gains += 1
        return gains

    def _merge(self, slots: IntColumn) -> tuple[float, tuple[int, int]]:
        """Least loss, below 0, if two who sit alone share a slot; and their slots."""
        alone = slots[self.second[slots] == self._nobody]
        p, q = np.triu_indices(len(alone), 1)
        if not len(p):
            return _NEVER, (-1, -1)
        one, other = self.first[alone[p]], self.first[alone[q]]
        gain = self.value(one, other) - self._weight[one] - self._weight[other]
        at = int(np.argmax(gain))
        return float(gain[at]), (int(alone[p[at]]), int(alone[q[at]]))

    def _leave(self, slots: IntColumn) -> tuple[float, int]:
        """Least loss, below 0, if a slot is given up; and which."""
        one, other = self.first[slots], self.second[slots]
        gain = self._idle[one] + self._idle[other] - self.value(one, other)
        at = int(np.argmax(gain))
        return float(gain[at]), int(slots[at])

    def _units(self, jobs: IntColumn) -> list[tuple[float, tuple[int, int]]]:
        """Those who wait, alone and in pairs, with what a slot of theirs would gain; nobody twice, the best first."""
        among = self.value(jobs[:, None], jobs[None, :]) - self._idle[jobs][:, None] - self._idle[jobs][None, :]
        pairs = np.triu(among, 1)
        alone = self._weight[jobs] - self._idle[jobs]
        np.fill_diagonal(pairs, alone)
        found = [
            (float(pairs[p, q]), (int(jobs[p]), int(jobs[q]) if p != q else self._nobody))
            for p, q in self._best_first(pairs, apart=False)
        ]
        return found[:_REGROUPED]

    def _best_first(self, gain: FloatColumn, *, apart: bool) -> list[tuple[int, int]]:
        """Exchanges that gain, the largest first, no row or column in two of them; ``apart``: columns are not rows."""
        flat = np.flatnonzero(gain > self._least)
        most = 16 * max(gain.shape)
        if len(flat) > most:
            flat = flat[np.argpartition(-gain.ravel()[flat], most)[:most]]
        flat = flat[np.lexsort((flat, -gain.ravel()[flat]))]
        rows, columns = np.divmod(flat, gain.shape[1])
        used_rows: set[int] = set()
        used_columns: set[int] = set() if apart else used_rows
        chosen = []
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            if row not in used_rows and column not in used_columns:
                used_rows.add(row)
                used_columns.add(column)
                chosen.append((row, column))
        return chosen

    def _tidy(self) -> None:
        """Nobody waits, and nobody comes first, who is nobody."""
        swap = self.first == self._nobody
        self.first[swap], self.second[swap] = self.second[swap], self._nobody
        self.waiting = self.waiting[self.waiting != self._nobody]


def _speeds(speed: FloatColumn) -> tuple[FloatColumn, FloatColumn]:
    """Of both in a pair of kinds, by the first's number x kinds + the second's; the last kind is nobody's.

    Below 0, and so below what anybody allows, where the two may not meet.
    """
    kinds = len(speed)
    both = np.ones((kinds + 1, kinds + 1))
    both[:kinds, :kinds] = np.where((speed <= 0) | (speed.T <= 0), -1.0, speed)
    return both.ravel(), both.T.ravel()


def _blocks(count: int, sweep: int) -> list[IntColumn]:
    """Numbers below ``count`` in blocks, other ones in each sweep."""
    parts = -(-count // BLOCK)
    numbers = np.arange(count, dtype=np.int64)
    if parts <= 1:
        return [numbers] if count else []
    if sweep % 2:
        return [numbers[part::parts] for part in range(parts)]
    return [part for part in np.split(np.roll(numbers, sweep * BLOCK // 4), range(BLOCK, count, BLOCK)) if len(part)]
