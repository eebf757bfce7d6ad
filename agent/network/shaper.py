"""The HTB tree on an interface, through rtnetlink. Somebody else's queueing discipline is never replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from slurm_soda.policies.node_limits.link_shares import OTHER, ShareClass
from slurm_soda.wire.errors import SodaError

SYSFS_NET = Path("/sys/class/net")
MAJOR = 0x50DA
"""Our qdisc's number: the kernel's own have 0, and sites count from 1 or 8001 on."""
HANDLE = MAJOR << 16
OWN_QDISC = ("htb", HANDLE)
"""Kind and handle of our root."""
_TC_H_ROOT = 0xFFFFFFFF
_BURST_S = 0.001
"""What a class may send at once: the kernel's timers are not exact, and on a fast link one packet of 64 KiB is short."""
_LEAST_BURST_BYTES = 1 << 14
_QUANTUM_BYTES = 60_000
_Result = TypeVar("_Result")


def class_id(minor: int) -> int:
    """A class of ours as the kernel numbers it, in net_cls.classid too."""
    return HANDLE | minor


class NetworkError(SodaError):
    """The network cannot be shared out; the text names the interface and what to do."""


class HtbShaper:
    """Sets and removes our tree. Root only."""

    def foreign(self, interface: str) -> str:
        """The kind of a root qdisc that somebody set on purpose, or empty: it is ours, or the kernel's default.

        The kernel's own (noqueue, mq, pfifo_fast, fq_codel, whatever net.core.default_qdisc says) have the handle 0.

        Raises:
            NetworkError: there is no such interface, or the kernel does not answer.
        """
        root = _ask(interface, lambda ip: _root(ip, interface))
        return "" if root is None or root[1] == 0 or root == OWN_QDISC else f"{root[0]} {root[1] >> 16:x}:"

    def is_set(self, interface: str) -> bool:
        """Our tree is there.

        Raises:
            NetworkError: as :meth:`foreign`.
        """
        root = _ask(interface, lambda ip: _root(ip, interface))
        return root == OWN_QDISC

    def set(self, interface: str, tree: Iterable[ShareClass]) -> None:
        """Put our tree on the interface. What belongs to no class goes to the one for others.

        Raises:
            NetworkError: there is a qdisc that somebody set, or the kernel refuses; nothing of ours is left then.
        """

        def make(ip: Any) -> None:
            index = _index(ip, interface)
            ip.tc("add", "htb", index, HANDLE, default=OTHER)  # NLM_F_EXCL: the kernel refuses to replace another one
            try:
                for share in tree:
                    _add_class(ip, index, share)
            except Exception:
                ip.tc("del", "htb", index, HANDLE, root=True)
                raise

        _ask(interface, make)

    def remove(self) -> None:
        """Take our tree off every interface that has it, also one that the configuration no longer names.

        Raises:
            NetworkError: the kernel refuses.
        """

        def clear(ip: Any) -> None:
            for index in [qdisc["index"] for qdisc in ip.get_qdiscs() if _is_ours(qdisc)]:
                ip.tc("del", "htb", index, HANDLE, root=True)

        _ask("the node's interfaces", clear)


def read_link_mbit_per_s(interface: str, sysfs: Path = SYSFS_NET) -> float:
    """The interface's speed as its driver says.

    Raises:
        NetworkError: there is no such interface, or its driver does not know (virtual ones do not).
    """
    if not (sysfs / interface).exists():
        raise NetworkError(f"network: there is no interface {interface}: set network.gpu_interface in agent.toml")
    try:
        speed = int((sysfs / interface / "speed").read_text())
    except (OSError, ValueError):
        speed = -1
    if speed <= 0:
        raise NetworkError(f"network: {interface} does not report its speed: set network.link_mbit in agent.toml")
    return float(speed)


def _add_class(ip: Any, index: int, share: ShareClass) -> None:
    ip.tc(
        "add-class",
        "htb",
        index,
        HANDLE | share.minor,
        parent=HANDLE | share.parent,
        rate=share.rate,
        ceil=share.ceiling,
        burst=max(int(share.rate * _BURST_S), _LEAST_BURST_BYTES),
        cburst=max(int(share.ceiling * _BURST_S), _LEAST_BURST_BYTES),
        prio=share.priority,
        quantum=_QUANTUM_BYTES,
    )


def _root(ip: Any, interface: str) -> tuple[str, int] | None:
    """Kind and handle of the root qdisc."""
    found = [q for q in ip.get_qdiscs(_index(ip, interface)) if q["parent"] == _TC_H_ROOT]
    return (str(found[0].get_attr("TCA_KIND")), int(found[0]["handle"])) if found else None


def _is_ours(qdisc: Any) -> bool:
    return bool(qdisc["parent"] == _TC_H_ROOT and (qdisc.get_attr("TCA_KIND"), qdisc["handle"]) == OWN_QDISC)


def _index(ip: Any, interface: str) -> int:
    found = ip.link_lookup(ifname=interface)
    if not found:
        raise NetworkError(f"network: there is no interface {interface}: set network.gpu_interface in agent.toml")
    return int(found[0])


def _ask(interface: str, work: Callable[[Any], _Result]) -> _Result:
    """Do something with an rtnetlink socket.

    In a thread of its own: pyroute2 runs an event loop, and the agent's own one is running where this is called. It is
    imported here because it costs 8 MB, which nodes without such jobs need not pay.
    """
    import pyroute2  # type: ignore[import-untyped]  # noqa: PLC0415 - it ships no types

    def inside() -> _Result:
        with pyroute2.IPRoute() as ip:
            return work(ip)

    with ThreadPoolExecutor(1) as thread:
        try:
            return thread.submit(inside).result()
        except (OSError, pyroute2.NetlinkError) as error:
            raise NetworkError(f"network: {interface} refused by the kernel: {error}") from error
