"""The accounting of the demo's cluster, dumped as a site would dump its own, for ``sodactl whatif``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_soda.containers.cluster import Cluster
from slurm_soda.demo.mix import Mix
from slurm_soda.demo.settings import RESTART_S, DemoSettings, policy_parameters
from slurm_soda.simulator.traces.sacct_columns import COMMAND
from slurm_soda.simulator.whatif.candidates import TRIED

DUMPS = {"stock": "sacct-stock.txt", "soda": "sacct-soda.txt"}
"""File of each phase's jobs in the demo's output folder."""


def dump_command() -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Environment and argument vector of the command that ``sodactl whatif`` wants its dumps made with."""
    words = shlex.split(COMMAND)
    assignments = words[: words.index("sacct")]
    return dict(word.split("=", 1) for word in assignments), tuple(words[len(assignments) :])


def write_dump(cluster: Cluster, phase: str, job_ids: Sequence[int], folder: Path) -> None:
    """Ask the cluster's accounting as root what became of a phase's jobs, and write it into its file.

    Only those: the cluster's warm-up and the other phase are left out.

    Raises:
        ClusterError: sacct failed.
    """
    environment, argv = dump_command()
    only = f"--jobs={','.join(map(str, job_ids))}"
    reply = cluster.exec("root", (*argv, only), environment=environment).check()
    (folder / DUMPS[phase]).write_text(reply.stdout, errors="surrogateescape")


def whatif_command(settings: DemoSettings, mix: Mix) -> str:
    """The command line that predicts both runs from the dump of the stock run, with what the demo's daemon has set."""
    words = ["sodactl", "whatif", "--sacct", str(settings.out / DUMPS["stock"]), f"--restart-cost-s={RESTART_S:g}"]
    if settings.policy not in TRIED:
        words.append(f"--policy={settings.policy}")
    for name, value in policy_parameters(settings, mix).items():
        numbers = value if isinstance(value, list) else [value]
        words += ["--set", f"{name}={','.join(f'{number:g}' for number in numbers)}"]
    return shlex.join(words)
