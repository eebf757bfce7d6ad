"""Checks of ``[services]``: what a site lets inference services do that no partition of its own is named for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from slurm_soda.daemon.settings.services import EVERYWHERE, ServicesSettings
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.sodactl.checks.check_result import CheckResult

_CHECK = "services: first_in"


def check_first_in(settings: ServicesSettings, partitions: Callable[[], Collection[str]]) -> Iterator[CheckResult]:
    """Whether the partitions in which services may go first are there; nothing where none is named.

    Args:
        settings: of the site.
        partitions: asks Slurm for the names of all; it may raise :class:`.SlurmError`.
    """
    named = sorted(set(settings.first_in) - {EVERYWHERE})
    if not named:
        return
    try:
        known = partitions()
    except SlurmError as error:
        yield CheckResult(_CHECK, "skip", str(error).split("\n", 1)[0], "see slurmctld")
        return
    unknown = [one for one in named if one not in known]
    found = f"Slurm has no partition {', '.join(unknown)}" if unknown else ", ".join(named)
    remedy = "correct services.first_in in soda.toml, then systemctl reload sodad" if unknown else ""
    yield CheckResult(_CHECK, "warn" if unknown else "ok", found, remedy)
