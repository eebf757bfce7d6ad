"""Whether a seat that ends with its host's job is worth taking, for policies that go by bounds, not by completion times."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slurm_soda.policies.sharing.arithmetic.revocation import kept_ratios
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.snapshot import SharingSnapshot

LOSES = "its host is expected to end first, and what it would lose is more than what sharing gains"


class GuestWorth:
    """Whether a host and its guest get more done than the host alone.

    In a second beside each other they do 1 / xi_B and 1 / xi_A seconds of their work; of the guest's, the kept ratio of
    :mod:`.revocation` counts: it pays where 1 / xi_B + kept / xi_A > 1. Where no seat is revoked that is left to the policy.
    """

    def __init__(
        self, snapshot: SharingSnapshot, gpu_occupancy: GpuOccupancy, interference_view: InterferenceView
    ) -> None:
        self._snapshot, self._interference_view = snapshot, interference_view
        self._guest_rules = gpu_occupancy.guest_rules

    def pays(self, row: int, device: int, there: Sequence[int]) -> bool:
        """Whether a waiting job may join these: with slowdowns that nobody knows it may, as far as this goes."""
        mechanism = self._snapshot.mechanism
        if not mechanism.revokes or not there:
            return True
        host = self._guest_rules.host(device, there)
        to_me = self._interference_view.slowdown(row, there)
        to_it = self._interference_view.slowdown(host, [row, *(one for one in there if one != host)])
        if not (math.isfinite(to_me) and math.isfinite(to_it)):
            return True
        remaining_s = self._snapshot.jobs.remaining_s
        ratio = kept_ratios(
            np.asarray(remaining_s[row]),
            np.asarray(remaining_s[host]),
            np.asarray(to_me),
            np.asarray(to_it),
            start_s=mechanism.start_s,
            saves_every_s=np.asarray(self._snapshot.sharing.saves_every_s[row]),
        )
        return 1.0 / to_it + float(ratio) / to_me > 1.0

    def refuse(self, row: int, device: int, there: Sequence[int]) -> str:
        """Why a job should not join these, by the mechanism or by this; empty where nothing speaks against it."""
        refusal = self._guest_rules.refuse_device(row, device, there)
        return refusal or ("" if self.pays(row, device, there) else LOSES)

    def traits(self, row: int) -> tuple[object, ...]:
        """As :meth:`.GuestRules.traits`, and how long the job will run, as far as that counts."""
        traits = self._guest_rules.traits(row)
        return (*traits, float(self._snapshot.jobs.remaining_s[row])) if self._snapshot.mechanism.revokes else traits
