"""Jobs on several nodes through reports and answers: searched as one, across restarts, and never left at a trial."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import select

from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.cpu_fit.multi_node_search import SEARCH_TIMEOUT_S, MultiNodeSearches
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.tables.cpu_fit import CpuMeasurementRow
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.wire.core_tuning import CoreFit, CoreMeasurement, CoreOrder
from slurm_soda.wire.records import JobClosed, JobOpened, NodeReport
from tests.daemon.fake_slurm import FakeClock
from tests.policies.cpu_fit.models import MODELS

MODEL = MODELS[3].job(gpus=2)
NODES = ("n1", "n2")


@dataclass
class Agents:
    """Two nodes of one job, and the sodad that they report to."""

    store: Store
    clock: FakeClock
    writer: ReportWriter
    seq: int = 0
    cores: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NODES, 2))

    def tell(
        self,
        node: str,
        *,
        opened: tuple[JobOpened, ...] = (),
        closed: tuple[JobClosed, ...] = (),
        measured: tuple[CoreMeasurement, ...] = (),
        fits: tuple[CoreFit, ...] = (),
    ) -> tuple[CoreOrder, ...]:
        self.seq += 1
        report = NodeReport(
            node,
            "a",
            self.seq,
            self.clock.at_s,
            opened=opened,
            closed=closed,
            core_measurements=measured,
            core_fits=fits,
        )
        return self.writer.submit(report).result(10).cores

    def open(self) -> None:
        for node in NODES:
            record = JobOpened(7, 0, node, 1, "alice", "main", self.clock.at_s, (0, 1), 28, {"category": "cv"}, nodes=2)
            self.tell(node, opened=(record,))

    def measure(self, node: str, step: int, search: int = 0) -> tuple[CoreOrder, ...]:
        self.clock.at_s += 60
        cores = self.cores[node]
        record = CoreMeasurement(7, 0, node, self.clock.at_s, search, step, cores, 28, 2, MODEL.at(cores), 0.0, 60)
        return self.tell(node, measured=(record,))

    def give_up(self, node: str) -> tuple[CoreOrder, ...]:
        return self.tell(node, fits=(CoreFit(7, 0, node, self.clock.at_s, 0, 2, 28, 2, 2, 1, 0.3, 0.3, "cut_short"),))

    def restart(self) -> None:
        self.writer.close()
        self.writer = ReportWriter(self.store, self.clock, lambda: None)


@pytest.fixture
def agents(fresh_store: Path) -> Iterator[Agents]:
    store, clock = open_store(f"sqlite:///{fresh_store}/soda.db"), FakeClock()
    with store.write() as session:
        session.add(Job(job_id=7, submit_s=clock.at_s - 10, user="alice", state="RUNNING", gpus=4, nodes=2, cpus=56))
    agents = Agents(store, clock, ReportWriter(store, clock, lambda: None))
    agents.open()
    yield agents
    agents.writer.close()
    store.close()


def settle(agents: Agents, *, restarts: bool = False) -> CoreOrder:
    step = 0
    for _ in range(8):
        for node in NODES:
            if restarts:
                agents.restart()
            agents.measure(node, step)
        orders = [agents.tell(node) for node in NODES]
        assert orders[0] == orders[1], "both nodes are told the same"
        (order,) = orders[0]
        if order.settled:
            return order
        step = order.step
        agents.cores = dict.fromkeys(NODES, order.cores)
    raise AssertionError("never settled")


@pytest.mark.parametrize("restarts", [False, True])
def test_two_nodes_find_one_best_fit(agents: Agents, restarts: bool) -> None:
    order = settle(agents, restarts=restarts)
    assert order.reason == "best_fit"
    assert abs(order.cores - MODEL.best_fit) <= 1
    assert order.step <= 4
    agents.restart()
    assert agents.tell("n2") == (order,), "a restarted sodad says the same"


def test_one_node_alone_gets_no_order_and_strangers_get_none(agents: Agents) -> None:
    assert agents.measure("n1", 0) == ()
    assert agents.measure("n2", 0) != ()
    assert agents.tell("n3") == ()


def test_a_job_on_one_node_is_its_agents_own(agents: Agents) -> None:
    record = CoreMeasurement(9, 0, "n1", agents.clock.at_s, 0, 0, 2, 28, 2, 0.5, 0.0, 60)
    opened = JobOpened(9, 0, "n1", 1, "bob", "main", agents.clock.at_s, (2, 3), 28, {}, nodes=1)
    assert agents.tell("n1", opened=(opened,), measured=(record,)) == ()


def test_orders_end_with_the_job(agents: Agents) -> None:
    settle(agents)
    assert agents.tell("n1", closed=(JobClosed(7, 0, "n1", agents.clock.at_s),)) == ()
    assert agents.tell("n2") == ()


def test_a_late_word_on_a_job_that_ended_is_kept_and_orders_nothing(agents: Agents) -> None:
    agents.measure("n1", 0)
    with agents.store.write() as session:
        session.scalars(select(Job)).one().end_s = agents.clock.at_s
    assert agents.measure("n2", 0) == ()
    with agents.store.read() as session:
        assert len(session.scalars(select(CpuMeasurementRow)).all()) == 2


def test_one_node_that_gives_up_takes_the_other_with_it(agents: Agents) -> None:
    agents.measure("n1", 0)
    (trial,) = agents.measure("n2", 0)
    assert not trial.settled
    agents.give_up("n1")
    (order,) = agents.tell("n2")
    assert (order.settled, order.cores, order.reason) == (True, 2, "cut_short")
    agents.restart()
    assert agents.tell("n2") == (order,)


def test_a_silent_node_does_not_keep_the_other_at_a_trial(agents: Agents) -> None:
    agents.measure("n1", 0)
    (trial,) = agents.measure("n2", 0)
    agents.cores = dict.fromkeys(NODES, trial.cores)
    (waiting,) = agents.measure("n1", trial.step)
    assert (waiting.settled, waiting.cores) == (False, trial.cores)
    agents.clock.at_s += SEARCH_TIMEOUT_S + 1
    (order,) = agents.tell("n1")
    assert (order.settled, order.cores, order.reason) == (True, 2, "cut_short")


def test_a_restarted_sodad_is_as_patient_as_ever(agents: Agents) -> None:
    agents.measure("n1", 0)
    (trial,) = agents.measure("n2", 0)
    writer = ReportWriter(agents.store, agents.clock, lambda: None, MultiNodeSearches())
    report = NodeReport("n1", "a", 99, agents.clock.at_s)
    assert writer.submit(report).result(10).cores == (trial,)
    writer.close()
