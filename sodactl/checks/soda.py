"""Checks of slurm-soda at work: store, daemon, agents and clocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from sqlalchemy.orm import Session

from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.engine import StoreError, StoreMissingError
from slurm_soda.daemon.store.schema import NodeSeen
from slurm_soda.sodactl import output
from slurm_soda.sodactl.checks.finding import Finding
from slurm_soda.sodactl.past import is_alive
from slurm_soda.sodactl.site import Site
from slurm_soda.sodactl.status import NODE_SILENT_S

MAX_OFFSET_S = 5.0
"""A node's clock may differ this much from the controller's; the start of a prolog already takes a second or two."""


def everything(site: Site, gpu_nodes: Sequence[str]) -> Iterator[Finding]:
    """All checks that need the store."""
    try:
        with site.store() as store:
            with store.read() as session:
                found = [daemon(session, site), agents(session, site, gpu_nodes), clocks(session)]
            with store.write():
                pass  # takes and gives back the right to write
    except StoreMissingError as error:
        yield Finding("store", "warn", str(error), "start sodad")
        return
    except StoreError as error:
        yield Finding("store", "fail", str(error), "run this as root or SlurmUser")
        return
    yield Finding("store", "ok", f"{store.url} can be read and written")
    yield from found


def daemon(session: Session, site: Site) -> Finding:
    """The daemon's heart beats, and its last cycle went well."""
    epoch, now_s = queries.latest_epoch(session), site.now_s()
    if epoch is None:
        return Finding("sodad", "warn", "never started: Slurm schedules alone", "systemctl start sodad")
    beat = f"epoch {epoch.id} on {epoch.host}, heartbeat {output.duration(now_s - epoch.heartbeat_s)} ago"
    if not is_alive(epoch, site, now_s):
        return Finding(
            "sodad", "fail", f"not running ({beat})", "systemctl start sodad; Slurm schedules alone meanwhile"
        )
    last = next(iter(queries.recent_cycles(session, 1)), None)
    if last is not None and last.error:
        return Finding(
            "sodad", "fail", f"its last cycle failed: {last.error}", "mend that; sodad tries again by itself"
        )
    return Finding("sodad", "ok", beat)


def agents(session: Session, site: Site, gpu_nodes: Sequence[str]) -> Finding:
    """Every node with GPUs has an agent that reports, without faults."""
    seen = {node.node: node for node in queries.nodes_seen(session)}
    missing = [name for name in gpu_nodes if name not in seen]
    silent = [node.node for node in seen.values() if _is_silent(node, site)]
    faulty = [f"{node.node}: {'; '.join(node.faults)}" for node in seen.values() if node.faults]
    remedy = "systemctl status soda-agent on the node; without it, use of GPUs is not known"
    if missing:
        return Finding("agents", "warn", f"none ever on {_some(missing)} of {len(gpu_nodes)} GPU nodes", remedy)
    if silent:
        return Finding("agents", "warn", f"silent on {_some(silent)}", remedy)
    if faulty:
        return Finding("agents", "warn", f"faults on {_some(faulty)}", "see soda-agent's log on the node")
    return Finding("agents", "ok", f"{len(seen)} report") if seen else Finding("agents", "skip", "no GPU node known")


def _is_silent(node: NodeSeen, site: Site) -> bool:
    return site.now_s() - node.seen_s > NODE_SILENT_S


def clocks(session: Session) -> Finding:
    """Nodes' clocks agree with the controller's, by when prologs ran and when Slurm started the runs."""
    offsets = {node: median(values) for node, values in queries.clock_offsets(session).items()}
    wrong = [f"{node} by {offset:+.0f} s" for node, offset in sorted(offsets.items()) if abs(offset) > MAX_OFFSET_S]
    if wrong:
        return Finding("clocks", "fail", f"off: {_some(wrong)}", "run NTP or chrony on every node; MUNGE needs it too")
    if not offsets:
        return Finding("clocks", "skip", "no run recorded yet")
    largest = max(offsets.values(), key=abs)
    return Finding("clocks", "ok", f"{len(offsets)} nodes agree to {abs(largest):.1f} s")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
