"""Sorts packets of jobs into classes by the cgroup of their socket: one nft table of ours, replaced and removed whole.

Sockets of root are passed over: slurmstepd lives in its job's cgroup, and Slurm's own traffic is never a job's.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from slurm_soda.agent.network.shaper import NetworkError
from slurm_soda.agent.network.shares import CPU, GPU, MAJOR, class_id
from slurm_soda.wire.seal import Runner, run_bounded

TABLE = "slurm-soda-network"
_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Marks:
    """How this node's jobs are told apart."""

    interface: str
    by_net_cls: bool
    """Groups of net_cls carry the class ids (cgroup v1); otherwise paths of the unified hierarchy are named."""
    gpu: tuple[str, ...] = ()
    """Paths of GPU jobs' groups in the unified hierarchy, relative to its root."""
    cpu: tuple[str, ...] = ()


class Rules:
    """Our table in the node's nftables. Other tables are neither read nor written."""

    def __init__(self, run: Runner = run_bounded) -> None:
        self._run = run

    def set(self, marks: Marks) -> None:
        """Replace the table, in one transaction.

        Raises:
            NetworkError: nft is missing or refuses: a group that has just ended, a kernel that cannot.
        """
        self._nft(f"{_GONE}{script(marks)}")

    def is_set(self) -> bool:
        """The table is there: a firewall's reload may have flushed all tables."""
        try:
            return self._run(("nft", "list", "table", "inet", TABLE), b"", _TIMEOUT_S)[0] == 0
        except (OSError, subprocess.TimeoutExpired):
            return False

    def remove(self) -> None:
        """Remove the table; one that is not there is no error.

        Raises:
            NetworkError: nft refuses.
        """
        self._nft(_GONE)

    def _nft(self, text: str) -> None:
        try:
            status, _, said = self._run(("nft", "-f", "-"), text.encode("ascii"), _TIMEOUT_S)
        except FileNotFoundError:
            raise NetworkError("network: nft is not installed: install the package nftables on this node") from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NetworkError(f"network: nft did not work: {error}") from error
        if status:
            lines = [line for line in said.decode("utf-8", "replace").splitlines() if "rror" in line]
            raise NetworkError(f"network: nft refused: {(lines or ['no reason given'])[0].strip()}")


_GONE = f"add table inet {TABLE}\ndelete table inet {TABLE}\n"
"""Deleting what is not there is an error, making what is there is none."""


def script(marks: Marks) -> str:
    """The table for nft."""
    if marks.by_net_cls:
        matches = [(f"meta cgroup {class_id(minor)}", minor) for minor in (GPU, CPU)]
    else:
        matches = [(_socket(path), minor) for paths, minor in ((marks.gpu, GPU), (marks.cpu, CPU)) for path in paths]
    rules = "".join(
        f'    oifname "{marks.interface}" {match} meta priority set {MAJOR:x}:{minor:x} return\n'
        for match, minor in matches
    )
    return (
        f"table inet {TABLE} {{\n"
        "  chain output {\n"
        "    type filter hook output priority mangle; policy accept;\n"
        "    meta skuid 0 return\n"
        f"{rules}"
        "  }\n"
        "}\n"
    )


def _socket(path: str) -> str:
    """A match on sockets that were made in a group of the unified hierarchy or below it."""
    if not path.isascii() or not path.isprintable() or '"' in path or "\\" in path:
        raise NetworkError(f"network: the cgroup {path!a} cannot be named to nft")
    return f'socket cgroupv2 level {path.count("/") + 1} "{path}"'
