"""Everything that is known about kinds of jobs, from all sources: what policies ask, as
:class:`~slurm_soda.policies.sharing.snapshot.KindEstimates`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.sharing.arithmetic.sharing_decision import Footprint
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.arithmetic.throughput_fit import MeasuredIteration, fit_throughput
from slurm_soda.policies.sharing.job_kinds import (
    Estimate,
    InterferenceEstimator,
    JobKind,
    KindProfile,
    Source,
    TimeSlicingPrior,
    most_trusted,
)
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue, normalised_kind
from slurm_soda.policies.sharing.snapshot import TellsFits
from slurm_soda.policies.tiresias.model_skews import normalise_model_name

PRIOR_RESTART_S = Estimate(30.0, 30.0, Source.PRIOR)
"""What the evaluations of Pollux and SJF-BSBF take; Tiresias saw 5 to 80 s (Section 5.2)."""
PRIOR_MIGRATION_S = Estimate(60.0, 60.0, Source.PRIOR)
"""Our choice: a checkpoint and a restart."""


class KindProfiles:
    """One reading of the store; asked by kinds of jobs with names in any spelling.

    Sources answer in the order of :class:`~slurm_soda.policies.sharing.job_kinds.Source`. A value of any batch (0) speaks
    for batches without one of their own; a pair on one GPU for gangs of the same models, as computed from it. What an
    owner's own jobs showed (:meth:`of_owner`) goes before what other owners' did.
    """

    def __init__(
        self,
        values: Iterable[ProfileValue],
        guess: InterferenceEstimator | None = None,
    ) -> None:
        """``guess``: a predictor of slowdowns."""
        self._owner, self._values = "", tuple(values)
        self._by: dict[tuple[str, str, ProfileSubject], list[Estimate]] = defaultdict(list)
        """By owner, empty where a value holds for everybody, quantity and subject."""
        self._batches: dict[tuple[str, str, str, int], set[int]] = defaultdict(set)
        for value in self._values:
            kind = value.subject.kind
            self._by[value.owner, value.quantity, value.subject].append(value.estimate)
            if not value.subject.partner and kind.batch:
                self._batches[value.quantity, kind.model, kind.gpu_type, kind.gpus].add(kind.batch)
        self.predictor, self._prior = guess, TimeSlicingPrior()

    def of_owner(self, owner: str) -> KindProfiles:
        """The same for one owner's jobs, with what they showed themselves; of nobody, only what holds for everybody."""
        profiles = copy(self)
        profiles._owner = owner
        return profiles

    def values_about(self, models: Collection[str]) -> Iterator[ProfileValue]:
        """Those that hold for everybody and concern these models alone or together, or no model."""
        named = {normalise_model_name(model) for model in models} | {""}
        for value in self._values:
            if not value.owner and value.subject.kind.model in named and value.subject.partner in named:
                yield value

    def estimate(self, quantity: str, kind: JobKind, other: JobKind | None = None) -> Estimate | None:
        """The most trusted value of one quantity, of one source the owner's own; None where no source has it."""
        subject = ProfileSubject.of(kind, other)
        own = subject.kind
        general = [
            subject,
            ProfileSubject(JobKind(own.model, 0, own.gpu_type, own.gpus), subject.partner, subject.partner_batch),
            ProfileSubject(JobKind(own.model, 0, own.gpu_type, own.gpus), subject.partner, 0),
        ]
        for one in dict.fromkeys(general):
            found = most_trusted(self._by.get(("", quantity, one), ()))
            measured = most_trusted(self._by.get((self._owner, quantity, one), ()))
            if measured is not None and (found is None or measured.source <= found.source):
                return measured
            if found is not None:
                return found
        return None

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate:
        """As :meth:`.KindEstimates.xi`; several partners' slowdowns add up. Pairs that nobody knows have the prior's."""
        if not others:
            return self._prior.xi(slowed, others)
        pairs = [self._pair(slowed, other) for other in others]
        known = [pair for pair in pairs if pair is not None]
        if len(known) == len(others):
            value = 1.0 + math.fsum(max(pair.value, 1.0) - 1.0 for pair in known)
            return Estimate(value, math.fsum(pair.error for pair in known), Source(max(pair.source for pair in known)))
        guessed = (
            self.predictor.xi(normalised_kind(slowed), [normalised_kind(other) for other in others])
            if self.predictor is not None
            else None
        )
        return guessed or self._prior.xi(slowed, others)

    def _pair(self, slowed: JobKind, other: JobKind) -> Estimate | None:
        found = self.estimate("xi", slowed, other)
        if found is None and slowed.gpus > 1:
            one = JobKind(slowed.model, slowed.batch, slowed.gpu_type, 1)
            alone = self.estimate("xi", one, JobKind(other.model, other.batch, other.gpu_type, 1))
            # A gang meets the other on every GPU and waits for the slowest, so the pair's slowdown is the least of it.
            found = None if alone is None else Estimate(alone.value, alone.error + 0.1 * alone.value, Source.PREDICTED)
        if found is None and self.predictor is not None:
            found = self.predictor.xi(normalised_kind(slowed), (normalised_kind(other),))
        return found

    def fits(self, together: Sequence[JobKind]) -> bool | None:
        """As :meth:`.KindEstimates.fits`."""
        found = self.fits_by(together)
        return None if found is None else found[0]

    def never_fits(self, together: Sequence[JobKind]) -> bool:
        """As :meth:`.KindEstimates.never_fits`: what a model predicts is a guess."""
        found = self.fits_by(together)
        return found is not None and not found[0] and found[1] <= Source.IMPORTED

    def fits_by(self, together: Sequence[JobKind]) -> tuple[bool, Source] | None:
        """Whether they fit and who says so: by what was seen of pairs, else by memory, where that of jobs and GPU is known,
        else by the trained model. Of several values the least trusted one is named.
        """
        pairs = [(one, other) for at, one in enumerate(together) for other in together[at + 1 :]]
        seen = [self.estimate("fits", one, other) or self.estimate("fits", other, one) for one, other in pairs]
        apart = [found.source for found in seen if found is not None and found.value < 0.5]
        if apart:
            return False, min(apart)
        if len(together) == 2 and seen[0] is not None:
            return True, seen[0].source
        needed = [self.estimate("memory_mib", kind) for kind in together]
        known = [one for one in needed if one is not None]
        device = self.device_mib(together[0].gpu_type) if together else None
        if device is not None and len(known) == len(needed):
            source = max(one.source for one in (*known, device))
            return math.fsum(one.value for one in known) <= device.value, source
        guessed = (
            self.predictor.fits([normalised_kind(kind) for kind in together])
            if isinstance(self.predictor, TellsFits)
            else None
        )
        return None if guessed is None else (guessed, Source.PREDICTED)

    def device_mib(self, gpu_type: str) -> Estimate | None:
        """Memory of a type of GPU."""
        return self.estimate("device_mib", JobKind("", 0, gpu_type, 1))

    def profile(self, kind: JobKind) -> KindProfile | None:
        """As :meth:`.KindEstimates.profile`."""
        names = ("occupancy_s", "bandwidth_s", "utilisation_ratio", "memory_mib")
        found = {name: self.estimate(name, kind) for name in names}
        return KindProfile(kind, **found) if any(found.values()) else None

    def iteration_s(self, kind: JobKind) -> Estimate | None:
        """Time of an iteration of a kind, alone."""
        return self.estimate("iteration_s", kind)

    def throughput(self, kind: JobKind) -> Throughput | None:
        """As :meth:`.KindEstimates.throughput`: fitted to the times of all batches of the model on as many GPUs.

        With one batch alone every pass takes as long as a whole one did, so that accumulation never looks cheap; gangs
        count their exchange of gradients to every pass until four batches tell it apart.
        """
        model = normalised_kind(kind)
        batches = sorted(self._batches["iteration_s", model.model, model.gpu_type, model.gpus])
        times = {
            batch: self.estimate("iteration_s", JobKind(kind.model, batch, kind.gpu_type, kind.gpus))
            for batch in batches
        }
        seen = [MeasuredIteration(batch, batch, time.value) for batch, time in times.items() if time is not None]
        for exchanges in (True, False):
            try:
                if len(seen) > 1 and (kind.gpus > 1 or not exchanges):
                    return fit_throughput(seen, exchanges=exchanges).throughput
            except PolicyError:
                continue  # too few, or off any model: what one batch took still holds for it
        own = self.iteration_s(kind)
        return None if own is None else Throughput(own.value, 0.0)

    def footprint(self, kind: JobKind) -> Footprint | None:
        """As :meth:`.KindEstimates.footprint`: a line over batches, never falling; with one batch alone what that takes."""
        model = normalised_kind(kind)
        batches = sorted(self._batches["memory_mib", model.model, model.gpu_type, model.gpus])
        pairs = [
            (batch, found.value)
            for batch in batches
            if (found := self.estimate("memory_mib", JobKind(kind.model, batch, kind.gpu_type, kind.gpus)))
        ]
        if len(pairs) > 1:
            (low, least), (high, most) = pairs[0], pairs[-1]
            slope = max((most - least) / (high - low), 0.0)
            fixed = max(0.0, *(mib - slope * batch for batch, mib in pairs))
            return Footprint(fixed, slope)
        own = self.estimate("memory_mib", kind)
        return None if own is None else Footprint(own.value, 0.0)

    def restart_s(self, kind: JobKind) -> Estimate:
        """Time without progress when a job of this kind starts again."""
        return self._of_any("restart_s", kind) or PRIOR_RESTART_S

    def migration_s(self, kind: JobKind) -> Estimate:
        """Time without progress when it moves."""
        return self._of_any("migration_s", kind) or PRIOR_MIGRATION_S

    def _of_any(self, quantity: str, kind: JobKind) -> Estimate | None:
        """Of this kind, else of any model on its type of GPU, else of any model."""
        asked = (kind, JobKind("", 0, kind.gpu_type, 1), JobKind("", 0, "", 1))
        return next((found for one in asked if (found := self.estimate(quantity, one))), None)
