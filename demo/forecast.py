"""What ``sodactl whatif`` makes of the stock run's accounting: both runs foretold, to be held against what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurm_soda.demo.mix import Mix
from slurm_soda.demo.settings import RESTART_S, DemoSettings, policy_parameters
from slurm_soda.simulator.traces.sacct import read_dump
from slurm_soda.simulator.traces.sacct_cluster import cluster_from
from slurm_soda.simulator.whatif.answer import answer
from slurm_soda.simulator.whatif.rig import Candidate, Question
from slurm_soda.simulator.whatif.site import site_of


def forecast(path: Path, settings: DemoSettings, mix: Mix) -> dict[str, Any]:
    """Both runs from a dump of the first one: by phase ``policy`` and ``avg_jct_s``.

    It is what :func:`~slurm_soda.demo.dump.whatif_command` comes to, in about a second for thirty jobs.

    Raises:
        SimulatorError: the dump cannot be read or simulated.
    """
    dump = read_dump(path, lenient=False)
    parameters = {settings.policy: policy_parameters(settings, mix)}
    found = answer(
        site_of(dump.trace, dump.runs, cluster_from(dump)[0]),
        Question(restart_s=RESTART_S, parameters=parameters, policies=(settings.policy,)),
    )
    (soda,) = (other for other in found.others if other.role == "tried" and other.choice.name == settings.policy)
    return {"stock": _told(found.present), "soda": _told(soda)}


def _told(candidate: Candidate) -> dict[str, Any]:
    return {"policy": candidate.label, "avg_jct_s": round(candidate.avg_jct_s, 4)}
