"""``sodactl status``: is the daemon alive, what did it do last, and what is in its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import click

from slurm_soda.daemon.api import views
from slurm_soda.daemon.api.views import StatusView, ViewHeader
from slurm_soda.daemon.explanations.start_reasons import describe_score, score_text
from slurm_soda.daemon.store.agent_reports import NODE_SILENT_S
from slurm_soda.daemon.store.store_errors import StoreMissingError
from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat, Cycle, Preemption, Standby
from slurm_soda.sodactl import output
from slurm_soda.sodactl.checks.scope import describe_scope
from slurm_soda.sodactl.live.unfinished_preemptions import describe_unfinished_preemptions
from slurm_soda.sodactl.live.view_source import open_view_source
from slurm_soda.sodactl.output import Column, Document
from slurm_soda.sodactl.site_access import SiteAccess, on_site

EXIT_NOT_RUNNING = 3
"""As ``systemctl status`` has it."""

MAX_TIMED_CYCLES = 100
_SHOWN_OF_OTHERS = ("jobs", "nodes")
"""What status shows, of the words of PrivateData."""
STANDBY_SILENT_S = 60.0
"""A waiting sodad shows life every 10 s."""


@click.command()
@click.option("--timings", is_flag=True, help=f"Also how long the parts of the last {MAX_TIMED_CYCLES} cycles took.")
@on_site
def status(site: SiteAccess, *, as_json: bool, timings: bool) -> int:
    """Is slurm-soda running, and what is it doing?

    Shows the daemon, mode and policy, the last cycle and its error, the circuit breaker, the queues, running preemptions,
    and agents that do not report or report faults. Exit status: 0 if sodad runs, 3 if it does not or records no
    cycle, 1 if neither the store
    nor sodad can be asked.

    \b
    Examples:
      sodactl status
      sodactl status --timings          the parts of a cycle: minimum, median, maximum
      sodactl status --json | jq .daemon.alive
    """  # noqa: D301 - click reads the control character
    document = describe_status(site, timings=timings)
    if as_json:
        output.print_json(document)
    else:
        _draw(document)
    return 0 if document["daemon"]["alive"] else EXIT_NOT_RUNNING


def describe_status(site: SiteAccess, *, timings: bool = False) -> Document:
    """Everything that ``status`` shows, as plain data."""
    now_s, warnings = site.now_s(), list[str]()
    known = _overview(site, now_s, warnings)
    last, failed = next(iter(known.cycles), None), known.failed
    if unfinished := describe_unfinished_preemptions(known.preemptions, alive=known.head.daemon_alive):
        warnings.append(unfinished)
    document: Document = {
        "now_s": now_s,
        "daemon": _daemon(known.head, now_s),
        "mode": known.head.mode,
        "policy": known.head.policy,
        "last_cycle": None if last is None else _cycle(last, now_s),
        "last_error": None
        if failed is None
        else {"at_s": failed.started_s, "age_s": now_s - failed.started_s, "error": failed.error},
        "breaker": breaker_document(last, now_s),
        "scope": None if last is None else last.facts.get("scope"),
        "jobs": {
            "states": dict(known.states),
            "queues": {queue: dict(counts) for queue, counts in known.queues.items()},
        },
        "preemptions": [_preemption(entry, now_s) for entry in known.preemptions],
        "shares": dict(known.shares),
        "expected_starts": describe_score(known.start_score),
        "changes_last_hour": dict(known.changes),
        "nodes": [_node(node, now_s) for node in known.nodes],
        "private": [word for word in known.head.private if word in _SHOWN_OF_OTHERS],
        "standbys": [_standby(one, now_s) for one in known.standbys],
        "warnings": warnings,
    }
    if timings:
        document["timings"] = summarise_timings(known.cycles)
    return document


def _overview(site: SiteAccess, now_s: float, warnings: list[str]) -> StatusView:
    """What sodad knows; nothing where it never made a store: that is a state of a site, not an error."""
    try:
        with open_view_source(site) as source:
            return source.overview(cycles=MAX_TIMED_CYCLES, since_s=now_s - 3600)
    except StoreMissingError as error:
        warnings.append(str(error))
        nobody = views.view_header(None, {}, site.settings, daemon_alive=False)
        return StatusView(nobody, cycles=(), failed=None, states={}, queues={}, preemptions=(), changes={}, nodes=())


def _daemon(head: ViewHeader, now_s: float) -> Document:
    epoch, alive = head.epoch, head.daemon_alive
    if epoch is None:
        return {
            "alive": False,
            "state": "never started",
            "epoch": None,
            "host": None,
            "pid": None,
            "version": None,
            "started_s": None,
            "heartbeat_age_s": None,
        }
    return {
        "alive": alive,
        "state": "running" if alive else "stalled" if head.stall else "gone" if epoch.ended_s is None else "stopped",
        "epoch": epoch.id,
        "host": epoch.host,
        "pid": epoch.pid,
        "version": epoch.version,
        "started_s": epoch.started_s,
        "heartbeat_age_s": now_s - epoch.heartbeat_s,
        **({"stall": head.stall} if head.stall else {}),
    }


def _cycle(cycle: Cycle, now_s: float) -> Document:
    return {
        "id": cycle.id,
        "started_s": cycle.started_s,
        "age_s": now_s - cycle.started_s,
        "mode": cycle.mode,
        "policy": cycle.policy,
        "pending": cycle.pending,
        "running": cycle.running,
        "planned": cycle.planned,
        "sent": cycle.sent,
        "error": cycle.error,
        "timings_s": cycle.timings_s,
        "facts": cycle.facts,
    }


def breaker_document(last: Cycle | None, now_s: float) -> Document:
    """State of the circuit breaker as the last cycle left it."""
    until_s = last.facts.get("breaker_open_until_s") if last is not None else None
    if isinstance(until_s, int | float) and until_s > now_s:
        return {"state": "open", "until_s": until_s, "cause": str(last.facts.get("breaker_cause", "")) if last else ""}
    return {"state": "closed" if last is not None else "unknown", "until_s": None, "cause": ""}


def _preemption(entry: Preemption, now_s: float) -> Document:
    return {
        "job_id": entry.job_id,
        "phase": entry.phase,
        "age_s": now_s - entry.created_s,
        "deadline_s": entry.deadline_s,
        "for_jobs": list(entry.for_jobs),
        "reason": entry.reason,
    }


def _node(node: AgentHeartbeat, now_s: float) -> Document:
    return {
        "node": node.node,
        "age_s": now_s - node.seen_s,
        "silent": now_s - node.seen_s > NODE_SILENT_S,
        "gpu_count": node.gpu_count,
        "faults": list(node.faults),
        "agent_id": node.agent_id,
    }


def _standby(one: Standby, now_s: float) -> Document:
    age_s = now_s - one.seen_s
    return {"host": one.host, "pid": one.pid, "age_s": age_s, "silent": age_s > STANDBY_SILENT_S}


def total_cycle_s(timings_s: Mapping[str, float]) -> float:
    """Length of a cycle; a part inside another one is named ``outer.inner`` and counted there already."""
    return sum(seconds for part, seconds in timings_s.items() if "." not in part)


def summarise_timings(cycles: Sequence[Cycle]) -> Document:
    """Least, median and most seconds of every part over cycles without error; ``last`` is the newest of them."""
    good = [cycle.timings_s for cycle in cycles if not cycle.error and cycle.timings_s]
    parts: dict[str, list[float]] = {}
    for timings in good:
        for part, seconds in [*timings.items(), ("total", total_cycle_s(timings))]:
            parts.setdefault(part, []).append(seconds)
    return {
        part: {
            "min_s": min(values),
            "median_s": median(values),
            "max_s": max(values),
            "last_s": values[0],
            "cycles": len(values),
        }
        for part, values in parts.items()
    }


def _draw(document: Document) -> None:
    for line in document["warnings"]:
        output.warn(line)
    daemon, last = document["daemon"], document["last_cycle"]
    output.print_fields(
        [
            ("sodad", _daemon_line(daemon)),
            *(("standby", _standby_line(one)) for one in document["standbys"]),
            ("mode", document["mode"]),
            ("policy", document["policy"]),
            ("last cycle", _cycle_line(last)),
            *([("", f"failed: {last['error']}")] if last and last["error"] else []),
            *_older_error(document),
            *(("problem", problem) for problem in (last["facts"].get("problems", []) if last else [])),
            ("breaker", _breaker_line(document["breaker"], document["now_s"])),
            ("jobs", _counts(document["jobs"]["states"]) or "none"),
            *([("scope", describe_scope(document["scope"]))] if document["scope"] else []),
            *((f"queue {queue}", _counts(counts)) for queue, counts in document["jobs"]["queues"].items()),
            *([("guests", _counts(document["shares"]))] if document["shares"] else []),
            *_start_line(document["expected_starts"]),
            ("changes, last hour", _counts(document["changes_last_hour"]) or "none"),
            ("agents", _agents_line(document["nodes"])),
            *_privacy_line(document["private"]),
        ]
    )
    _draw_preemptions(document["preemptions"])
    _draw_nodes([node for node in document["nodes"] if node["faults"] or node["silent"]])
    if "timings" in document:
        _draw_timings(document["timings"])


def _daemon_line(daemon: Document) -> str:
    if daemon["epoch"] is None:
        return "never started: Slurm schedules alone"
    where = f"epoch {daemon['epoch']}, pid {daemon['pid']} on {daemon['host']}, version {daemon['version']}"
    beat = output.format_duration(daemon["heartbeat_age_s"])
    if daemon["alive"]:
        return f"running ({where}), heartbeat {beat} ago"
    if daemon["state"] == "stalled":
        return f"alive ({where}), but no cycle for {beat}: {daemon['stall']}"
    told = {"stopped": "stopped", "gone": "gone without a word"}[daemon["state"]]
    return f"{told} ({where}), last heartbeat {beat} ago: Slurm schedules alone"


def _standby_line(one: Document) -> str:
    seen = f"{output.format_duration(one['age_s'])} ago"
    where = f"pid {one['pid']} on {one['host']}"
    return f"gone without a word ({where}), last seen {seen}" if one["silent"] else f"waits ({where}), seen {seen}"


def _cycle_line(last: Document | None) -> str:
    if last is None:
        return "none yet"
    took = output.format_duration(total_cycle_s(last["timings_s"]))
    return (
        f"{output.format_duration(last['age_s'])} ago, {took}: {last['pending']} pending, {last['running']} running, "
        f"{last['planned']} changes planned, {last['sent']} sent"
    )


def _older_error(document: Document) -> list[tuple[str, str]]:
    last, failed = document["last_cycle"], document["last_error"]
    if failed is None or (last and last["error"]):
        return []
    return [("last error", f"{output.format_duration(failed['age_s'])} ago: {failed['error']}")]


def _breaker_line(state: Document, now_s: float) -> str:
    if state["state"] != "open":
        return str(state["state"])
    return f"open for another {output.format_duration(state['until_s'] - now_s)}, only observing: {state['cause']}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name.lower()}" for name, count in counts.items())


def _agents_line(nodes: Sequence[Document]) -> str:
    silent = sum(node["silent"] for node in nodes)
    faulty = sum(bool(node["faults"]) for node in nodes)
    return f"{len(nodes)} seen, {silent} silent, {faulty} with faults" if nodes else "none has reported yet"


def _start_line(score: Document | None) -> list[tuple[str, str]]:
    return [("expected starts", score_text(score))] if score and score["forecasts"] else []


def _privacy_line(private: Sequence[str]) -> list[tuple[str, str]]:
    words = f"{', '.join(private)} of others are not shown (PrivateData of slurm.conf)"
    return [("private", words)] if private else []


def _draw_preemptions(entries: Sequence[Document]) -> None:
    if entries:
        output.print_line()
        output.print_table(
            [
                Column("preempted job", right=True),
                Column("phase"),
                Column("since", right=True),
                Column("for jobs"),
                Column("reason"),
            ],
            [
                (
                    str(e["job_id"]),
                    e["phase"],
                    output.format_duration(e["age_s"]),
                    " ".join(map(str, e["for_jobs"])),
                    e["reason"],
                )
                for e in entries
            ],
        )


def _draw_nodes(nodes: Sequence[Document]) -> None:
    if nodes:
        output.print_line()
        output.print_table(
            [Column("node"), Column("last report", right=True), Column("faults")],
            [(n["node"], f"{output.format_duration(n['age_s'])} ago", "; ".join(n["faults"])) for n in nodes],
        )


def _draw_timings(parts: dict[str, Any]) -> None:
    output.print_line()
    if not parts:
        output.print_line("no cycle without error yet, so no timings")
        return
    output.print_table(
        [Column("part"), *(Column(name, right=True) for name in ("least", "median", "most", "last", "cycles"))],
        [
            (
                part,
                *(output.format_duration(v[key]) for key in ("min_s", "median_s", "max_s", "last_s")),
                str(v["cycles"]),
            )
            for part, v in parts.items()
        ],
    )
