"""What a policy learns from the site's own past, where the configuration does not say it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from slurm_soda.daemon.store.jobs.completed_services import completed_services_gpu_s
from slurm_soda.policies.registry.catalog import find_entry

MIN_SAMPLES = 20
"""With fewer past jobs a distribution says more about chance than about the site."""

READ_INTERVAL_S = 60.0
"""The past is read again this often; a distribution of many jobs does not change faster."""


@dataclass(slots=True)
class PolicyParameterLearner:
    """Parameters that come from the store, read now and then."""

    _samples_gpu_s: list[float] = field(default_factory=list)
    _renew_s: float = float("-inf")

    def parameters(self, session: Session, policy: str, steady_s: float) -> dict[str, Any]:
        """What the past says, by the steady clock, about the parameters of a policy; empty where it says too little.

        Raises:
            PolicyError: no such policy.
        """
        if not any(parameter.name == "samples_gpu_s" for parameter in find_entry(policy).parameters):
            return {}
        if steady_s >= self._renew_s:
            self._samples_gpu_s, self._renew_s = completed_services_gpu_s(session), steady_s + READ_INTERVAL_S
        return {"samples_gpu_s": self._samples_gpu_s} if len(self._samples_gpu_s) >= MIN_SAMPLES else {}
