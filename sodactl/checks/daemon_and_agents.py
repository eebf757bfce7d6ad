"""Checks of slurm-soda at work: store, daemon, agents and clocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from statistics import median

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from slurm_soda.daemon.sharing.node_guards import read_node_guards
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.agent_reports import NODE_SILENT_S
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.shares import open_shares
from slurm_soda.daemon.store.store_errors import StoreBegunError, StoreDeniedError, StoreError, StoreMissingError
from slurm_soda.daemon.store.store_failures import describe_disk, free_mib, ownership_commands
from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat
from slurm_soda.slurm_ext.errors import SlurmError, SlurmReplyError
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES
from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig, runs_slurmctld, slurm_user_id
from slurm_soda.sodactl import output
from slurm_soda.sodactl.checks.check_result import CheckResult, CommandProbe
from slurm_soda.sodactl.checks.configuration import SODADS_WORDS
from slurm_soda.sodactl.checks.controllers import check_controllers, check_password
from slurm_soda.sodactl.checks.lifts import check_site_factors
from slurm_soda.sodactl.checks.prolog_on_nodes import check_nodes_without_agent
from slurm_soda.sodactl.checks.scope import check_scope_counts
from slurm_soda.sodactl.checks.sharing import check_walls_on_nodes
from slurm_soda.sodactl.checks.slurm_conf import parse_node_gres
from slurm_soda.sodactl.live.unfinished_preemptions import describe_unfinished_preemptions
from slurm_soda.sodactl.live.view_source import find_stall, is_daemon_alive, open_view_source
from slurm_soda.sodactl.site.roll_out import describe_standing, read_standing
from slurm_soda.sodactl.site_access import SiteAccess
from slurm_soda.wire.hook_settings import HookSettings

MAX_CLOCK_OFFSET_S = 5.0
"""A node's clock may differ this much from the controller's; the start of a prolog already takes a second or two."""

_TIMER = "sodad-expiry.timer"
_START = f"systemctl start sodad; if it does not stay: {SODADS_WORDS}"

MIN_FREE_MIB = 64
"""With less on the store's disk, warn."""


def check_store_parts(site: SiteAccess, config: SlurmConfig, nodes_text: str) -> Iterator[CheckResult]:
    """All checks that need the store; it and sodad are told of even if it cannot be used.

    Args:
        site: where.
        config: slurmctld's configuration, empty if it does not answer.
        nodes_text: ``scontrol -o show nodes``, as empty.
    """
    yield from check_password(site)
    try:
        with site.store() as store:
            with store.read() as session:
                found = [
                    check_daemon(session, site),
                    check_preemptions(session, site),
                    check_site_factors(session, site, config),
                    *check_controllers(store, session, site, config),
                    *check_agents(session, site, config, nodes_text),
                    *_check_walls(session, site, nodes_text),
                    check_clocks(session),
                    *check_scope_counts(site.settings.scope, session),
                    check_stage(site, session),
                ]
            store.try_write()
    except (StoreMissingError, StoreBegunError) as error:
        begun = isinstance(error, StoreBegunError)
        if not begun and not runs_slurmctld(config, site.context.host()):
            yield CheckResult("store", "skip", f"{error.found} here", "run doctor on the controller")
            yield _check_daemon_as_users_see_it(site)
            return
        yield CheckResult("store", "warn", error.found, error.remedy if begun else _START)
        yield check_site_factors(None, site, config)
        return
    except StoreError as error:
        if isinstance(error, StoreDeniedError) and site.context.uid() not in (0, slurm_user_id(config)):
            yield CheckResult("store", "skip", "only root and SlurmUser may use it", "run doctor as one of them")
            yield _check_daemon_as_users_see_it(site)
            return
        yield CheckResult("store", "fail", error.found, error.remedy)
        yield _check_daemon_without_store(site)
        return
    yield _check_store_file(store, config)
    yield from found


def _check_store_file(store: Store, config: SlurmConfig) -> CheckResult:
    """Root may write what sodad may not, and fill a disk further than others."""
    slurm_user, path = slurm_user_id(config), None if store.file is None else store.file.path
    if path is not None and slurm_user is not None and (commands := ownership_commands(path, slurm_user)):
        found = f"{store.url} can be written here, but not by SlurmUser, as whom sodad runs"
        return CheckResult("store", "fail", found, "; ".join(commands))
    if path is not None and free_mib(path) < MIN_FREE_MIB:
        return CheckResult(
            "store", "warn", f"little room on {describe_disk(path)}", "make room; a full disk stops sodad"
        )
    return CheckResult("store", "ok", f"{store.url} can be read and written")


def _check_daemon_without_store(site: SiteAccess) -> CheckResult:
    """What is known of sodad on its own host while its store cannot be used."""
    pid = site.local_daemon_pid()
    found = "not running: Slurm schedules alone" if pid is None else f"runs (pid {pid}), but see store"
    remedy = "mend the store, then systemctl " + ("start sodad" if pid is None else "restart sodad")
    return CheckResult("sodad", "fail", found, remedy)


def _check_daemon_as_users_see_it(site: SiteAccess) -> CheckResult:
    """What sodad itself tells a user who may not use its store."""
    try:
        with open_view_source(site) as source:
            head = source.overview(cycles=1, since_s=site.now_s()).head
    except StoreError as error:
        return CheckResult(
            "sodad", "warn", error.found, "ask an admin whether it runs; Slurm schedules alone meanwhile"
        )
    if head.daemon_alive:
        return CheckResult("sodad", "ok", "answers")
    return CheckResult("sodad", "warn", head.stall or "not running", "tell an admin; Slurm schedules alone meanwhile")


def check_stage(site: SiteAccess, session: Session) -> CheckResult:
    """At which stage of a roll-out the site stands, and what the next one waits for."""
    return CheckResult("roll-out", "ok", describe_standing(read_standing(session, site.settings, site.now_s())))


def check_daemon(session: Session, site: SiteAccess) -> CheckResult:
    """The daemon's heart beats, and its last cycle went well."""
    epoch, now_s = queries.latest_epoch(session), site.now_s()
    if epoch is None:
        return CheckResult("sodad", "warn", "never started: Slurm schedules alone", _START)
    beat = f"epoch {epoch.id} on {epoch.host}, heartbeat {output.format_duration(now_s - epoch.heartbeat_s)} ago"
    if stall := find_stall(session, epoch, site):
        remedy = "mend that; sodad goes on by itself. Its log: journalctl -u sodad"
        return CheckResult("sodad", "fail", f"alive, but no cycle ({beat}): {stall}", remedy)
    if not is_daemon_alive(session, epoch, site):
        if guests := _guests_of_nobody(site):
            found = f"not running ({beat}), nor is {_TIMER}: nobody restores guests {output.format_first(guests)}"
            return CheckResult("sodad", "fail", found, f"systemctl start {_TIMER}, until no guest is left; {_START}")
        return CheckResult("sodad", "fail", f"not running ({beat})", f"{_START}; Slurm schedules alone meanwhile")
    last = next(iter(queries.recent_cycles(session, 1)), None)
    if last is not None and last.error:
        return CheckResult(
            "sodad", "fail", f"its last cycle failed: {last.error}", "fix that; sodad tries again by itself"
        )
    return CheckResult("sodad", "ok", beat)


def _guests_of_nobody(site: SiteAccess) -> list[int]:
    """Guests that nobody gives their own requests again, where no sodad lives; none where systemd does not tell."""
    if CommandProbe(site.context.runner()).run("systemctl", "is-active", _TIMER).stdout.strip() != b"inactive":
        return []
    with suppress(SlurmError):
        return [job.job_id for job in site.slurm().jobs() if job.shared_gpus and job.state not in ENDED_STATES]
    return []


def check_preemptions(session: Session, site: SiteAccess) -> CheckResult:
    """Somebody finishes the preemptions that have begun."""
    active = queries.active_preemptions(session)
    alive = is_daemon_alive(session, queries.latest_epoch(session), site)
    if unfinished := describe_unfinished_preemptions(active, alive=alive):
        found, remedy = unfinished.split(": ", 1)
        return CheckResult("preemptions", "warn", found, f"systemctl start sodad; {remedy}")
    return CheckResult("preemptions", "ok", f"{len(active)} under way")


def reported_hook_settings(site: SiteAccess) -> dict[str, HookSettings]:
    """By node, what its agent reported last; empty where the store, of which there is a line of its own, cannot be read."""
    with suppress(StoreError, SQLAlchemyError), site.store() as store, store.read() as session:
        told = {node.node: node.hooks for node in queries.agent_heartbeats(session) if node.hooks}
        return {name: HookSettings.from_dict(hooks[0]) for name, hooks in told.items()}
    return {}


def check_agents(session: Session, site: SiteAccess, config: SlurmConfig, nodes_text: str) -> Iterator[CheckResult]:
    """Every node with GPUs has an agent that reports, without faults; where Prolog is ours, every node has one."""
    gpu_nodes = [name for name, gres in parse_node_gres(nodes_text) if "gpu" in gres]
    yield _check_reports(session, site, gpu_nodes)
    if is_daemon_alive(session, queries.latest_epoch(session), site):
        yield from check_nodes_without_agent(session, config, nodes_text)


def _check_walls(session: Session, site: SiteAccess, nodes_text: str) -> Iterator[CheckResult]:
    """Nothing where nothing is to be shared, or nobody takes reports."""
    sharing = site.settings.sharing
    if sharing.partitions and is_daemon_alive(session, queries.latest_epoch(session), site):
        guards = read_node_guards(session, site.now_s())
        with suppress(SlurmError):  # the nodes' own words are left
            client = site.slurm()
            records = client.jobs()
            on_gpus = [one.job_id for one in records if one.state == "RUNNING" and (one.gpus or one.shared_gpus)]
            told = client.allocations(on_gpus) if on_gpus else {}
            held = {job_id: found for job_id, found in told.items() if not isinstance(found, SlurmReplyError)}
            guards = guards.with_jobs(records, held, {share.guest for share in open_shares(session)})
        yield check_walls_on_nodes(guards, sharing.gres, nodes_text)


def _check_reports(session: Session, site: SiteAccess, gpu_nodes: Sequence[str]) -> CheckResult:
    seen = {node.node: node for node in queries.agent_heartbeats(session)}
    missing = [name for name in gpu_nodes if name not in seen]
    silent = [node.node for node in seen.values() if _is_silent(node, site)]
    faulty = [f"{node.node}: {'; '.join(node.faults)}" for node in seen.values() if node.faults]
    if (missing or silent) and not is_daemon_alive(session, queries.latest_epoch(session), site):
        return CheckResult("agents", "skip", "not known: no sodad takes their reports", "see sodad")
    remedy = "systemctl status soda-agent on the node; without it, use of GPUs is not known"
    if missing:
        return CheckResult(
            "agents", "warn", f"none ever on {output.format_first(missing)} of {len(gpu_nodes)} GPU nodes", remedy
        )
    if silent:
        return CheckResult("agents", "warn", f"silent on {output.format_first(silent)}", remedy)
    if faulty:
        return CheckResult(
            "agents", "warn", f"faults on {output.format_first(faulty)}", "see soda-agent's log on the node"
        )
    return (
        CheckResult("agents", "ok", f"{len(seen)} report")
        if seen
        else CheckResult("agents", "skip", "no GPU node known")
    )


def _is_silent(node: AgentHeartbeat, site: SiteAccess) -> bool:
    return site.now_s() - node.seen_s > NODE_SILENT_S


def check_clocks(session: Session) -> CheckResult:
    """Nodes' clocks agree with the controller's, by when prologs ran and when Slurm started the runs."""
    offsets = {node: median(values) for node, values in queries.clock_offsets(session).items()}
    wrong = [
        f"{node} by {offset:+.0f} s" for node, offset in sorted(offsets.items()) if abs(offset) > MAX_CLOCK_OFFSET_S
    ]
    if wrong:
        return CheckResult(
            "clocks",
            "fail",
            f"off: {output.format_first(wrong)}",
            "run NTP or chrony on every node; MUNGE needs it too",
        )
    if not offsets:
        return CheckResult("clocks", "skip", "no run recorded yet")
    largest = max(offsets.values(), key=abs)
    return CheckResult("clocks", "ok", f"{len(offsets)} nodes agree to {abs(largest):.1f} s")
