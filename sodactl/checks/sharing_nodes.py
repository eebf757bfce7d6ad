"""Checks of the settings of prolog and epilog on nodes that share GPUs, as the nodes' agents report them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from slurm_soda.daemon.settings.sharing import SharingSettings
from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig
from slurm_soda.sodactl import output
from slurm_soda.sodactl.checks.check_result import CheckResult
from slurm_soda.sodactl.checks.slurm_conf import leading_number
from slurm_soda.wire.hook_settings import HOOK_SETTINGS_FILE, HookSettings

_CHECK = "sharing: node settings"


def check_node_settings(
    settings: SharingSettings, config: SlurmConfig, nodes: Collection[str], told: Mapping[str, HookSettings]
) -> Iterator[CheckResult]:
    """Whether each node has what Slurm and sodad have; one line for each thing that differs.

    Args:
        settings: sodad's.
        config: of slurmctld.
        nodes: those whose GPUs are shared.
        told: by node, what its agent reported last.
    """
    wrong: dict[tuple[str, str], list[str]] = {}
    silent = [node for node in sorted(nodes) if node not in told]
    for node in sorted(set(nodes) & told.keys()):
        for problem in _differences(settings, config, told[node]):
            wrong.setdefault(problem, []).append(node)
    for (found, remedy), where in wrong.items():
        yield CheckResult(_CHECK, "fail", f"{HOOK_SETTINGS_FILE} on {output.format_first(where)}: {found}", remedy)
    if silent:
        remedy = f"start soda-agent there (make install ROLE=agent renews it), or look at {HOOK_SETTINGS_FILE} there"
        yield CheckResult(_CHECK, "warn", f"not told by the agents of {output.format_first(silent)}", remedy)
    elif not wrong:
        yield CheckResult(_CHECK, "ok", f"{output.format_count(len(nodes), 'node')} as slurm.conf and soda.toml")


def _differences(settings: SharingSettings, config: SlurmConfig, node: HookSettings) -> Iterator[tuple[str, str]]:
    """What differs, and its remedy."""
    if node.problem:
        path = HOOK_SETTINGS_FILE
        yield f"not used by the hooks: {node.problem}", f"chown root {path}; chmod 644 {path}, on these nodes"
        return
    wait_s = leading_number(config.get("KillWait", ""))
    if node.kill_wait_s != wait_s:
        yield f"kill_wait_s={node.kill_wait_s}, KillWait is {wait_s} s", f"set kill_wait_s={wait_s} on these nodes"
    if node.mps and not settings.mps:
        yield (
            "mps=yes, but soda.toml does not say sharing.mps",
            "mps = true under [sharing] in soda.toml and systemctl reload sodad, or mps=no on every node",
        )
    if settings.mps and not node.mps:
        yield (
            "no mps=yes, but soda.toml says sharing.mps",
            f"mps=yes and partitions={','.join(settings.partitions)} on every node, or mps = false in soda.toml",
        )
    if node.mps and set(node.partitions) != set(settings.partitions):
        yield (
            "partitions differ from those of soda.toml",
            f"set partitions={','.join(settings.partitions)} on every node",
        )
    if node.mps and node.consent_by_default != settings.consent_by_default:
        yield "consent_by_default differs from that of soda.toml", "say the same in both"
