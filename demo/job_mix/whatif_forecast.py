"""What ``sodactl whatif`` makes of the stock run's accounting: both runs foretold, to be held against what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurm_soda.demo.job_mix.demo_settings import RESTART_S, DemoSettings, policy_parameters
from slurm_soda.demo.job_mix.mix_jobs import JobMix
from slurm_soda.simulator.traces.sacct.cluster_from_dump import cluster_from
from slurm_soda.simulator.traces.sacct.dump import read_sacct_dump
from slurm_soda.simulator.whatif.answer import answer_question
from slurm_soda.simulator.whatif.candidate_runs import Candidate, WhatIfQuestion
from slurm_soda.simulator.whatif.observed_site import make_observed_site


def forecast_runs(path: Path, settings: DemoSettings, mix: JobMix) -> dict[str, Any]:
    """Both runs from a dump of the first one: by phase ``policy`` and ``avg_jct_s``.

    It is what :func:`~slurm_soda.demo.job_mix.sacct_dump.whatif_command` comes to, in about a second for thirty jobs.

    Raises:
        SimulatorError: the dump cannot be read or simulated.
    """
    dump = read_sacct_dump(path, lenient=False)
    parameters = {settings.policy: policy_parameters(settings, mix)}
    found = answer_question(
        make_observed_site(dump.trace, dump.runs, cluster_from(dump)[0]),
        WhatIfQuestion(restart_s=RESTART_S, parameters=parameters, policies=(settings.policy,), tells_progress=True),
    )
    (soda,) = (other for other in found.others if other.role == "tried" and other.choice.name == settings.policy)
    return {"stock": _candidate_document(found.present), "soda": _candidate_document(soda)}


def _candidate_document(candidate: Candidate) -> dict[str, Any]:
    return {"policy": candidate.label, "avg_jct_s": round(candidate.avg_jct_s, 4)}
