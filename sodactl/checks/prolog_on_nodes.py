"""Checks of our Prolog on the nodes: slurmd drains a node where the file is missing, and slurmctld holds the job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlalchemy.orm import Session

from slurm_soda.daemon.store import queries
from slurm_soda.slurm_ext.read.site_guards import our_scripts
from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig
from slurm_soda.sodactl import output
from slurm_soda.sodactl.checks.check_result import CheckResult

_CHECK = "prolog on nodes"
_NODE = re.compile(r"NodeName=(\S+).* State=(\S+)(?:.* Reason=(.*))?")
_PROLOG_REASONS = ("Prolog error", "Unable to create list of paths")
"""Slurm's words, those of slurmd and those for a list or glob that matches nothing."""
_AWAY = {"DOWN", "FUTURE", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "UNKNOWN"}
"""States in which no job starts on a node."""


def check_drained_for_prolog(config: SlurmConfig, nodes_text: str) -> Iterator[CheckResult]:
    """Nothing, unless Prolog is ours and Slurm drained nodes over it."""
    drained = [
        name for name, state, reason in _nodes(nodes_text) if "DRAIN" in state and reason.startswith(_PROLOG_REASONS)
    ]
    if drained and (ours := our_scripts(config, "Prolog")):
        remedy = (
            f"on each of them `test -x {ours[0]}`, else `make install ROLE=agent`; then `scontrol update "
            f"nodename={','.join(drained)} state=resume`, and `scontrol release JOB` for each job that "
            "`squeue -h -t PD -o '%A %r'` lists with `launch failed requeued held`"
        )
        yield CheckResult(_CHECK, "fail", f"Slurm drained {output.format_first(drained)} (Prolog error)", remedy)


def check_nodes_without_agent(session: Session, config: SlurmConfig, nodes_text: str) -> Iterator[CheckResult]:
    """Nothing, unless Prolog is ours and an agent has never reported from a node where jobs can start."""
    seen = {node.node for node in queries.agent_heartbeats(session)}
    usable = [name for name, state, _ in _nodes(nodes_text) if not _AWAY & set(re.findall(r"\w+", state))]
    unseen = [name for name in usable if name not in seen]
    if unseen and (ours := our_scripts(config, "Prolog")):
        remedy = (
            f"on each of them `test -x {ours[0]}`, else `make install ROLE=agent`; then start soda-agent there. "
            "Slurm drains a node without that file when a job starts on it, and holds the job"
        )
        yield CheckResult(_CHECK, "fail", f"Prolog is ours, and no agent ever on {output.format_first(unseen)}", remedy)


def _nodes(nodes_text: str) -> Iterator[tuple[str, str, str]]:
    """Name, state and reason of every line of ``scontrol -o show nodes``."""
    for line in nodes_text.splitlines():
        if found := _NODE.match(line):
            yield found[1], found[2], found[3] or ""
