"""What holds for one cycle: mode and policy, from the file and from what admins set at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from sqlalchemy.orm import Session

from slurm_soda.daemon.cycle.epoch import DaemonEpoch
from slurm_soda.daemon.cycle.snapshot_requests import SETTING
from slurm_soda.daemon.learning.policy_parameters import PolicyParameterLearner
from slurm_soda.daemon.settings.settings import MODES, Mode, Settings
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.engine import Store
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.slurm_ext.errors import SodaError


class ModeChangedError(SodaError):
    """An admin took the right to change Slurm from sodad while a cycle was deciding what to change."""


LearnedParameters = Callable[[str], Mapping[str, Any]]
"""Parameters of a policy, by its name, that come from the site's own past."""


def no_learned_parameters(_policy: str) -> Mapping[str, Any]:
    """For a site without a past."""
    return {}


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    """The effective settings of one cycle."""

    mode: Mode
    """As configured; an open breaker keeps an enforcing daemon from acting all the same."""
    policy: Policy
    problems: tuple[str, ...] = ()
    """Run-time settings that could not be used, one line each."""
    snapshot_request: str | None = None
    """Somebody waits for this cycle's snapshot (``sodactl snapshot dump``)."""


def read_admin_settings(session: Session) -> dict[str, str]:
    """What ``sodactl`` set, by key."""
    return queries.setting_values(session)


def effective_settings(
    settings: Settings, overrides: Mapping[str, str], learn: LearnedParameters = no_learned_parameters
) -> EffectiveSettings:
    """Combine the file's settings with the overrides; an override that cannot be used is left out and said.

    A parameter that the file sets is never learned.

    Raises:
        PolicyError: the file's own policy or its parameters are not allowed.
    """
    problems: list[str] = []
    mode = overrides.get("mode", settings.mode)
    if mode not in MODES:
        problems.append(f"setting mode = {mode!r} is not one of {', '.join(MODES)}; {settings.mode} holds")
        mode = settings.mode
    policy = make_policy(settings.policy.name, {**learn(settings.policy.name), **settings.policy.parameters})
    if (name := overrides.get("policy", settings.policy.name)) != settings.policy.name:
        try:
            policy = make_policy(name, learn(name))
        except PolicyError as error:
            problems.append(f"setting policy: {error}; {settings.policy.name} holds")
    return EffectiveSettings(cast("Mode", mode), policy, tuple(problems), overrides.get(SETTING))


@dataclass(frozen=True, slots=True)
class EffectiveSettingsReader:
    """Reads the effective settings of each cycle, for one daemon epoch."""

    store: Store
    daemon_epoch: DaemonEpoch
    learner: PolicyParameterLearner = field(default_factory=PolicyParameterLearner)

    def read(self, settings: Settings, steady_s: float) -> EffectiveSettings:
        """What holds at an instant of the steady clock.

        Raises:
            PolicyError: the file's own policy or its parameters are not allowed.
            SupersededError: a newer daemon has taken over.
        """
        with self.store.read() as session:
            self.daemon_epoch.check(session)
            learn = partial(self.learner.parameters, session, steady_s=steady_s)
            return effective_settings(settings, read_admin_settings(session), learn)

    @staticmethod
    def check_enforces(session: Session) -> None:
        """What a cycle has decided in mode enforce may still be sent.

        Raises:
            ModeChangedError: another mode was set since.
        """
        mode = read_admin_settings(session).get("mode", "enforce")
        if mode in MODES and mode != "enforce":
            raise ModeChangedError(f"mode {mode} was set while this cycle was deciding")
