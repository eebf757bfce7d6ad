"""Sorts packets of jobs into classes by the cgroup of their socket: one nft table of ours, replaced and removed whole.

Sockets of root are passed over: slurmstepd lives in its job's cgroup, and Slurm's own traffic is never a job's.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from slurm_soda.agent.network.shaper import MAJOR, NetworkError, class_id
from slurm_soda.policies.node_limits.link_shares import CPU, GPU
from slurm_soda.wire.munge import RunProgram, run_program

TABLE = "slurm-soda-network"
_COUNTER = "gpu_received"
_TIMEOUT_S = 5.0
_BURSTS_A_SECOND = 50
_LEAST_BURST_BYTES = 1 << 17


@dataclass(frozen=True, slots=True)
class PacketClassRules:
    """How this node's jobs are told apart."""

    interface: str
    by_net_cls: bool
    """Groups of net_cls carry the class ids (cgroup v1); otherwise paths of the unified hierarchy are named."""
    gpu: tuple[str, ...] = ()
    """Paths of GPU jobs' groups in the unified hierarchy, relative to its root."""
    cpu: tuple[str, ...] = ()
    counts_received: bool = False
    """Count what GPU jobs receive."""
    cpu_receives: int = 0
    """The most that CPU jobs together may receive, in bytes a second; 0: as much as comes."""


class NftRules:
    """Our table in the node's nftables. Other tables are neither read nor written."""

    def __init__(self, run: RunProgram = run_program) -> None:
        self._run = run

    def set(self, marks: PacketClassRules) -> None:
        """Replace the table, in one transaction.

        Raises:
            NetworkError: nft is missing or refuses: a group that has just ended, a kernel that cannot.
        """
        self._nft(f"{_DELETE_TABLE}{nft_script(marks)}")

    def is_set(self) -> bool:
        """The table is there: a firewall's reload may have flushed all tables."""
        try:
            return self._run(("nft", "list", "table", "inet", TABLE), b"", _TIMEOUT_S)[0] == 0
        except (OSError, subprocess.TimeoutExpired):
            return False

    def gpu_received(self) -> int | None:
        """Bytes that GPU jobs have received since the table was set, or None: they are not counted."""
        try:
            status, said, _ = self._run(("nft", "list", "counter", "inet", TABLE, _COUNTER), b"", _TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired):
            return None
        match = re.search(rb"bytes (\d+)", said)
        return int(match[1]) if status == 0 and match else None

    def remove(self) -> None:
        """Remove the table; one that is not there is no error.

        Raises:
            NetworkError: nft refuses.
        """
        self._nft(_DELETE_TABLE)

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


_DELETE_TABLE = f"add table inet {TABLE}\ndelete table inet {TABLE}\n"
"""Deleting what is not there is an error, making what is there is none."""


def nft_script(marks: PacketClassRules) -> str:
    """The table for nft."""
    sending = "".join(
        f'    oifname "{marks.interface}" {match} meta priority set {MAJOR:x}:{minor:x} return\n'
        for minor in (GPU, CPU)
        for match in _matches(marks, minor)
    )
    return f"table inet {TABLE} {{\n{_chain('output', sending)}{_receiving(marks)}}}\n"


def _receiving(marks: PacketClassRules) -> str:
    """All CPU jobs share one limit, so their packets are sent to one rule."""
    rules, above = "", ""
    if marks.counts_received:
        above += f"  counter {_COUNTER} {{\n  }}\n"
        rules += _incoming(marks, GPU, f"counter name {_COUNTER}")
    if marks.cpu_receives:
        burst = max(marks.cpu_receives // _BURSTS_A_SECOND, _LEAST_BURST_BYTES)
        limit = f"    limit rate over {marks.cpu_receives} bytes/second burst {burst} bytes drop\n"
        above += f"  chain cpu_jobs {{\n{limit}  }}\n"
        rules += _incoming(marks, CPU, "goto cpu_jobs")
    return f"{above}{_chain('input', rules)}" if rules else ""


def _incoming(marks: PacketClassRules, minor: int, then: str) -> str:
    return "".join(f'    iifname "{marks.interface}" {match} {then}\n' for match in _matches(marks, minor))


def _chain(hook: str, rules: str) -> str:
    head = f"    type filter hook {hook} priority mangle; policy accept;\n    meta skuid 0 return\n"
    return f"  chain {hook} {{\n{head}{rules}  }}\n"


def _matches(marks: PacketClassRules, minor: int) -> list[str]:
    """What identifies the jobs of a class."""
    if marks.by_net_cls:
        return [f"meta cgroup {class_id(minor)}"]
    return [_socket(path) for path in (marks.gpu if minor == GPU else marks.cpu)]


def _socket(path: str) -> str:
    """A match on sockets that were made in a group of the unified hierarchy or below it.

    nft wants the path below /sys/fs/cgroup, and the group's depth in the hierarchy, which systemd's hybrid layout mounts
    one directory deeper.
    """
    if not path.isascii() or not path.isprintable() or '"' in path or "\\" in path:
        raise NetworkError(f"network: the cgroup {path!a} cannot be named to nft")
    return f'socket cgroupv2 level {path.removeprefix("unified/").count("/") + 1} "{path}"'
