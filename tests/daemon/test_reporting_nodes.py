"""Names of nodes that agents make up: what is kept by them is bounded, whether slurmctld answers or not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import count

import pytest
from sqlalchemy import func, select

from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.metrics.node_board import NodeBoard
from slurm_soda.daemon.services.node_bandwidths import NodeBandwidths
from slurm_soda.daemon.sharing.co_runners import GuestsByNode
from slurm_soda.daemon.store import reporting_nodes
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.reporting_nodes import ReportingNodes
from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat, JobNodeUsage
from slurm_soda.wire.memory_bandwidth import NodeBandwidth
from slurm_soda.wire.mps import MpsJob
from slurm_soda.wire.node_use import COUNTS, NodeUse
from slurm_soda.wire.records import JobUsage, NodeReport
from tests.daemon.fake_slurm import FakeClock, FakeSlurm
from tests.daemon.harness import Daemon

MOST = 20


@pytest.fixture(autouse=True)
def few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting_nodes, "MAX_OTHER_NAMES", MOST)


class Kept:
    """Everything in which a report may leave something by the name of its node."""

    def __init__(self, store: Store, nodes: ReportingNodes | None = None) -> None:
        self.store, self.nodes, self.seq = store, nodes or ReportingNodes(), count(1)
        self.board, self.guests, self.bandwidths = NodeBoard(), GuestsByNode(), NodeBandwidths()

    def report(self, *names: str) -> None:
        at = Instant.read(FakeClock())
        writer = ReportWriter(
            self.store, FakeClock(), lambda: None, guests=self.guests, bandwidths=self.bandwidths, nodes=self.nodes,
            on_report=lambda report: self.board.note(report, at),
        )  # fmt: skip
        with closing(writer):
            futures = [writer.submit(self._report_of(name)) for name in names]
            assert [future.result(30).node for future in futures] == list(names), "all are answered"

    def _report_of(self, name: str) -> NodeReport:
        usage = JobUsage(7, 0, name, 1.0, 2.0, 1, 0.5, 0.5, 1.0, 1, 1.0, 1.0)
        return NodeReport(
            name, "a", next(self.seq), 1.0, usage=(usage,), use=(NodeUse(),), mps_jobs=(MpsJob(7, "d", ()),),
            bandwidth=(NodeBandwidth(1.0, 2.0),),
        )  # fmt: skip

    def names(self) -> set[str]:
        """Of all places together."""
        with self.store.read() as session:
            stored = set(session.scalars(select(AgentHeartbeat.node)))
        return stored | self.board.signs().keys() | self.guests._daemons.keys() | self.bandwidths._free.keys()


def test_of_names_that_slurm_does_not_show_so_many_are_remembered(store: Store) -> None:
    kept = Kept(store)
    kept.report(*(f"x{number}" for number in range(3 * MOST)))
    assert kept.names() == {f"x{number}" for number in range(MOST)}
    with store.read() as session:
        assert session.scalar(select(func.count()).select_from(JobNodeUsage)) == 3 * MOST, (
            "what they say of jobs is taken"
        )


def test_a_node_of_slurm_finds_room_however_many_names_were_made_up(store: Store) -> None:
    kept = Kept(store)
    kept.report(*(f"x{number}" for number in range(2 * MOST)), "n1")
    assert "n1" not in kept.names()
    kept.nodes.note({"n1", "n2"})
    kept.report("n1", "y")
    assert len(kept.names()) == MOST + 1
    assert "n1" in kept.names()


def test_those_that_the_store_has_are_remembered_after_a_restart_and_count(store: Store) -> None:
    with store.write() as session:
        session.add_all(
            AgentHeartbeat(node=f"n{number}", agent_id="a", seq=1, seen_s=1.0) for number in range(2 * MOST)
        )
    kept = Kept(store)
    kept.report("x", *(f"n{number}" for number in range(2 * MOST)))
    assert kept.board.signs().keys() == {f"n{number}" for number in range(2 * MOST)}
    assert "x" not in kept.names()


def test_a_node_that_slurm_has_no_more_is_one_of_the_others(store: Store) -> None:
    kept = Kept(store, nodes := ReportingNodes(recalled=True))
    nodes.note({"n1"})
    assert nodes.admits("n1")
    nodes.note({"n2"})
    kept.report(*(f"x{number}" for number in range(MOST)), "n1")
    assert "n1" not in kept.board.signs()


def test_cycles_tell_which_nodes_slurm_has(slurm: FakeSlurm, daemon: Callable[..., Daemon]) -> None:
    sodad = daemon()
    nodes = sodad.cycles._context.reporting_nodes
    assert all(nodes.admits(f"x{number}") for number in range(MOST))
    name = slurm.nodes()[0].name
    assert not nodes.admits(name)
    sodad.run()
    assert nodes.admits(name)


def test_of_what_an_agent_counts_only_known_names_are_kept() -> None:
    """A report has four megabytes, and the newest of each node is held in memory."""
    counts = {f"{number}{'x' * 60_000}": 1 for number in range(60)} | {COUNTS[0]: 3}
    assert NodeUse.from_dict({"gpus": [], "counts": counts, "agent_cpu_s": 1}).counts == {COUNTS[0]: 3}
