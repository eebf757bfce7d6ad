"""A site as its slurm.conf and its accounting database describe it, as far as the order of jobs depends on them."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_soda.policies.bands.bands import BANDS, OFF
from slurm_soda.policies.registry.named import read_values
from slurm_soda.policies.registry.parameters import (
    Parameter,
    finite_from,
    integer_from,
    number_from,
    one_of,
    read_boolean,
)
from slurm_soda.simulator.errors import SimulatorError

FAIR_TREE, CLASSIC = "fair-tree", "classic"
DEFAULT_QOS = "normal"
"""The QOS of jobs whose trace names none, as Slurm's own first QOS is called."""
_MOST_BYTES = 1024 * 1024

PRIORITY = (
    Parameter("weight_age", 1000.0, "priority", "PriorityWeightAge", "a number from 0", finite_from(0.0)),
    Parameter("weight_fair_share", 10_000.0, "priority", "PriorityWeightFairshare", "a number from 0", finite_from(0.0)),
    Parameter("weight_job_size", 1000.0, "priority", "PriorityWeightJobSize", "a number from 0", finite_from(0.0)),
    Parameter("weight_partition", 1000.0, "priority", "PriorityWeightPartition", "a number from 0", finite_from(0.0)),
    Parameter("weight_qos", 10_000.0, "priority", "PriorityWeightQOS", "a number from 0", finite_from(0.0)),
    Parameter("max_age_s", 7 * 86_400.0, "s", "PriorityMaxAge: waiting longer does not count", "a number from 1",
              finite_from(1.0)),
    Parameter("favor_small", False, "yes/no", "PriorityFavorSmall: small jobs get the larger size factor",
              "true or false", read_boolean),
    Parameter("decay_half_life_s", 7 * 86_400.0, "s", "PriorityDecayHalfLife: past usage halves in it; 0: it never decays",
              "a number from 0", finite_from(0.0)),
    Parameter("calc_period_s", 300.0, "s", "PriorityCalcPeriod: priorities are computed anew so often", "a number from 1",
              finite_from(1.0)),
    Parameter("fair_share", FAIR_TREE, "name", "Slurm's Fair Tree, or the classic formula (NO_FAIR_TREE)",
              f"{FAIR_TREE} or {CLASSIC}", one_of((FAIR_TREE, CLASSIC))),
)  # fmt: skip
"""``[priority]``. The weights are those of the example in Slurm's documentation, and one for QOS."""
QOS = (
    Parameter("priority", 0, "priority", "sacctmgr's Priority of the QOS", "a whole number from 0", integer_from(0)),
    Parameter("max_gpus_per_user", math.inf, "GPUs", "MaxTRESPerUser=gres/gpu: a user's jobs of this QOS hold no more "
              "together", "a whole number from 1, or inf", number_from(1.0)),
)  # fmt: skip
"""``[qos.NAME]``."""
PARTITION = (
    Parameter("tier", 1, "tier", "PriorityTier: compared before the priority", "a whole number from 0", integer_from(0)),
    Parameter("job_factor", 1, "factor", "PriorityJobFactor", "a whole number from 0", integer_from(0)),
)  # fmt: skip
"""``[partition.NAME]``."""
SECTIONS = ("bands", "priority", "shares", "qos", "partition")


@dataclass(frozen=True, slots=True)
class PriorityRules:
    """``[priority]``, see :data:`PRIORITY`."""

    weight_age: float = 1000.0
    weight_fair_share: float = 10_000.0
    weight_job_size: float = 1000.0
    weight_partition: float = 1000.0
    weight_qos: float = 10_000.0
    max_age_s: float = 7 * 86_400.0
    favor_small: bool = False
    decay_half_life_s: float = 7 * 86_400.0
    calc_period_s: float = 300.0
    fair_share: str = FAIR_TREE


@dataclass(frozen=True, slots=True)
class Qos:
    """``[qos.NAME]``, see :data:`QOS`."""

    priority: int = 0
    max_gpus_per_user: float = math.inf


@dataclass(frozen=True, slots=True)
class PartitionRules:
    """``[partition.NAME]``, see :data:`PARTITION`."""

    tier: int = 1
    job_factor: int = 1


@dataclass(frozen=True, slots=True)
class SiteDescription:
    """A site; by default users have equal shares, and there is one QOS, without limits."""

    bands: str = OFF
    """One of :data:`~slurm_soda.policies.bands.bands.BANDS`: which classes of Slurm's priority policies keep to."""
    priority: PriorityRules = field(default_factory=PriorityRules)
    shares: Mapping[str, int] = field(default_factory=dict)
    """Shares of users that do not have one."""
    qos: Mapping[str, Qos] = field(default_factory=dict)
    other_qos: Qos = field(default_factory=Qos)
    """Each QOS that is not described."""
    partition: Mapping[str, PartitionRules] = field(default_factory=dict)

    def qos_of(self, name: str) -> Qos:
        """A QOS by name; jobs without one are in :data:`DEFAULT_QOS`."""
        return self.qos.get(name or DEFAULT_QOS, self.other_qos)

    def partition_of(self, name: str) -> PartitionRules:
        """A partition by name."""
        return self.partition.get(name, PartitionRules())

    @property
    def rules_starts(self) -> bool:
        """Something in it keeps jobs from starting, whatever the policy."""
        return self.bands != OFF or self.limits_users

    @property
    def limits_users(self) -> bool:
        """Some QOS limits what a user's jobs hold."""
        return any(math.isfinite(qos.max_gpus_per_user) for qos in (*self.qos.values(), self.other_qos))


def load_site(path: Path) -> SiteDescription:
    """Read a TOML file with the keys that :func:`format_site` prints.

    Raises:
        SimulatorError: it cannot be read, or has a key or value that is not allowed.
    """
    try:
        with path.open("rb") as stream:
            text = stream.read(_MOST_BYTES)  # a device may never end
        return read_site(tomllib.loads(text.decode("utf-8")))
    except OSError as error:
        raise SimulatorError(f"{path}: {error.strerror}; name a readable file with --site") from error
    except (ValueError, RecursionError) as error:
        raise SimulatorError(
            f"{path}: not valid TOML: {error}; sodactl simulate --print-site prints an example"
        ) from error
    except SimulatorError as error:
        raise SimulatorError(f"{path}: {error}; sodactl simulate --print-site prints all keys") from None


def read_site(data: Mapping[str, Any]) -> SiteDescription:
    """A site from nested values.

    Raises:
        SimulatorError: a key or value that is not allowed.
    """
    if unknown := sorted(set(data) - set(SECTIONS)):
        raise SimulatorError(f"there is no section {unknown[0]!r}; there are: {', '.join(SECTIONS)}")
    bands = data.get("bands", OFF)
    if bands not in BANDS:
        raise SimulatorError(f"bands = {bands!r} is not allowed; use one of: {', '.join(BANDS)}")
    return SiteDescription(
        bands=bands,
        priority=PriorityRules(**_read("[priority]", PRIORITY, data.get("priority", {}))),
        shares={name: _share(name, value) for name, value in _table("shares", data).items()},
        qos=_each("qos", QOS, Qos, data),
        partition=_each("partition", PARTITION, PartitionRules, data),
    )


def _each(
    section: str, keys: tuple[Parameter, ...], kind: Callable[..., Any], data: Mapping[str, Any]
) -> dict[str, Any]:
    return {name: kind(**_read(f"[{section}.{name}]", keys, values)) for name, values in _table(section, data).items()}


def _table(section: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    found = data.get(section, {})
    if not isinstance(found, Mapping):
        raise SimulatorError(f"{section} = {found!r} is not allowed; write a section [{section}]")
    return found


def _read(owner: str, keys: tuple[Parameter, ...], values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise SimulatorError(
            f"{owner}: {values!r} is not a section; its keys are: {', '.join(key.name for key in keys)}"
        )
    return read_values(owner, keys, values, SimulatorError)


def _share(user: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**31:
        raise SimulatorError(f"[shares]: {user} = {value!r} is not allowed; use a whole number from 1")
    return value


def format_site() -> str:
    """A site description with each key at its default, and what it means."""
    lines = [
        "# A site as Slurm knows it. Every key is optional; these are the defaults, under Slurm's own names.",
        f'bands = "{OFF}"  # {", ".join(BANDS)}: classes of priority that all policies keep to (docs/policies/bands.md)',
        "", "[priority]", *_key_lines(PRIORITY),
        "", "[shares]  # Fairshare= of users; those who are not named have 1", "# alice = 2",
        "", f"[qos.{DEFAULT_QOS}]  # one section a QOS; {DEFAULT_QOS}: of jobs whose trace names none", *_key_lines(QOS),
        "", "[partition.main]  # one section a partition", *_key_lines(PARTITION),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _key_lines(keys: tuple[Parameter, ...]) -> list[str]:
    return [f"{key.name} = {_literal(key.default)}  # {key.doc} [{key.unit}]" for key in keys]


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"
