"""Services beside jobs: what they hold, that they answer, and that jobs are as without them where they hold nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.services.service import Device
from slurm_soda.simulator.cluster import NodeFailure
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.services.service_set import PACKED, PEAK, PLACED, SERVING_MODES
from slurm_soda.simulator.services.simulate_serving import ServedWorkload, without_inference
from slurm_soda.simulator.workload import Workload
from tests.simulator.engine.worlds import history, job, node_workloads, policy
from tests.simulator.services.worlds import (
    CLUSTER,
    LONG,
    any_loads,
    check_nothing_twice,
    rules,
    served,
    service,
    smooth_loads,
)

POLICIES = ("fifo", "kelp-fifo", "kelp-drf", "coda", "srsf", "tiresias-las", "backfill")
"""Of every engine that services can run on: counted, ranked, by events, by snapshots."""


def alike(one: SimulationOutcome, other: SimulationOutcome) -> bool:
    """To the bit, for every job."""
    columns = ("first_start_s", "end_s", "held_s", "preemptions", "failures")
    same = all(np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True) for name in columns)
    return same and history(one) == history(other)


@pytest.mark.parametrize("name", POLICIES)
@given(workload=node_workloads(), loads=st.tuples(any_loads, any_loads), mode=st.sampled_from(SERVING_MODES))
def test_nothing_is_given_twice(name: str, workload: Workload, loads: tuple[list[float], ...], mode: str) -> None:
    """Whatever load and jobs: GPUs, cores and memory of a node are held once, by jobs and instances together."""
    steps = min(map(len, loads))
    outcome = check_nothing_twice(workload, rules([one[:steps] for one in loads], mode=mode, step_s=7.0), name)
    assert outcome.services is not None
    assert outcome.services.usage.gpus.max(initial=0) <= CLUSTER.total_gpus


@pytest.mark.parametrize("name", POLICIES)
@given(workload=node_workloads())
def test_services_that_hold_nothing_change_nothing(name: str, workload: Workload) -> None:
    """With no load and none to run whatever it is, each job starts and ends as without services."""
    idle = rules([[0.0, 0.0]], service(least=0), step_s=5.0)
    plain = Scenario(workload, CLUSTER).run(policy(name))
    assert alike(plain, served(workload, idle, name))


@given(loads=smooth_loads)
def test_no_query_is_late_while_there_is_room(loads: list[float]) -> None:
    """A load that rises by at most a fifth a step is answered in time, on whatever device, through all changes."""
    found = served(LONG, rules([loads])).services
    assert found is not None
    assert (found.lost.sum(), found.over.sum()) == (0.0, 0.0)
    assert found.queries.sum() == pytest.approx(60.0 * sum(loads))


@given(workload=node_workloads(), loads=any_loads, mode=st.sampled_from(SERVING_MODES))
def test_the_same_again(workload: Workload, loads: list[float], mode: str) -> None:
    """Two runs agree to the bit, in jobs and services."""
    one, other = (served(workload, rules([loads], mode=mode, step_s=7.0), "coda") for _ in range(2))
    assert alike(one, other)
    assert one.services is not None
    assert other.services is not None
    assert one.services.document() == other.services.document()


def test_few_queries_are_answered_on_cores() -> None:
    """By night the GPU is given back, by day cores are."""
    found = served(LONG, rules([[30.0] * 10 + [300.0] * 10])).services
    assert found is not None
    assert found.instances[0, Device.CPU] == pytest.approx(0.5, abs=0.05)
    assert found.instances[0, Device.GPU] == pytest.approx(0.5, abs=0.05)
    assert found.device_changes == 1


def test_what_the_jump_costs_is_counted() -> None:
    """Until the GPU instance is ready the load is above what cores answer: every query of this time is late."""
    found = served(LONG, rules([[30.0] * 10 + [300.0] * 10], start_s=5.0)).services
    assert found is not None
    assert found.over.sum() == pytest.approx(300.0 * 5.0)
    assert found.lost.sum() == 0.0


def test_a_service_without_cores_stays_on_the_gpu() -> None:
    """It was not profiled within its target there."""
    found = served(LONG, rules([[1.0] * 20], service(cpu=None))).services
    assert found is not None
    assert found.instances.tolist() == [[0.0, 1.0]]


def test_baselines_hold_the_peak() -> None:
    """As many GPUs as the peak needs, all the time; packed, no more than that."""
    loads = [[100.0] * 19 + [900.0], [10.0] * 20]
    peak, packed = (served(LONG, rules(loads, mode=mode)).services for mode in (PEAK, PACKED))
    assert peak is not None
    assert packed is not None
    assert peak.instances[:, Device.GPU].tolist() == [3.0, 1.0]
    assert set(peak.usage.gpus.tolist()) == {4}
    assert packed.instances[:, Device.GPU].sum() < 2.0
    assert packed.over.sum() == packed.lost.sum() == 0.0


def test_the_job_submitted_last_gives_way() -> None:
    """All GPUs are taken and jobs wait when the load comes: the last one that can be requeued leaves, and goes on later."""
    rows = [job(float(at), 600.0, cpus=1, preemptible=at != 11) for at in range(13)]
    found = served(Workload.build("full", rows), rules([[0.0, 0.0] + [300.0] * 30], service(cpu=None, least=0)), "coda")
    assert found.services is not None
    assert found.services.gave_way == 1
    assert np.flatnonzero(found.preemptions).tolist() == [10]
    assert np.isfinite(found.end_s).all()


def test_a_preempted_job_takes_its_time_to_leave() -> None:
    """With a cost of saving the instance starts once the job has left."""
    rows = [job(float(at), 600.0, cpus=1) for at in range(13)]
    how = rules([[0.0, 0.0] + [300.0] * 30], service(cpu=None, least=0))
    found = served(Workload.build("full", rows), how, "srsf", costs=Costs(checkpoint_s=20.0))
    assert found.services is not None
    assert found.services.gave_way == 1
    assert found.services.lost.sum() == pytest.approx(300.0 * 25.0)
    assert np.isfinite(found.end_s).all()


def test_a_node_that_fails_takes_its_instance() -> None:
    """Another one starts elsewhere."""
    cluster = CLUSTER.__class__(**{
        **{name: getattr(CLUSTER, name) for name in CLUSTER.__dataclass_fields__},
        "failures": (NodeFailure(0, 100.0, 200.0),),
    })  # fmt: skip
    how = rules([[100.0] * 20], service(cpu=None))
    late = Workload.build("late", [job(0.0, 1200.0, gpus=1, gpus_per_node=1, cpus=1)])
    found = Scenario(late, cluster, services=how).run(policy("fifo")).services
    assert found is not None
    assert found.lost.sum() == pytest.approx(100.0 * 5.0)


@pytest.mark.parametrize("mode", SERVING_MODES)
def test_utilisation_is_what_is_computed(mode: str) -> None:
    """GPU time that services compute is the load over the capacity, however it is spread."""
    found = served(LONG, rules([[320.0] * 20], service(cpu=None), mode=mode)).services
    assert found is not None
    usage = found.usage
    busy_s = float((usage.gpus * usage.busy_ratio * (usage.end_s - usage.start_s)).sum())
    assert busy_s == pytest.approx(1200.0 * 320.0 / 400.0)


def test_jobs_of_the_category_inference_make_room() -> None:
    rows = [job(0.0, 1.0, category="inference"), job(1.0, 1.0, category="cv"), job(2.0, 1.0)]
    left, count = without_inference(Workload.build("mixed", rows))
    assert (len(left), count) == (2, 1)


def test_the_jobs_outcome_has_no_tasks() -> None:
    """Rows, runs and names are the jobs' own."""
    workload = Workload.build("two", [job(0.0, 60.0, user="a", cpus=1), job(30.0, 60.0, user="b", cpus=1)])
    found = served(workload, rules([[50.0] * 4]))
    assert found.workload.label == workload.label
    assert history(found) == [(0, 0.0, 60.0), (1, 30.0, 90.0)]
    assert [found.workload.users[code] for code in found.workload.user.tolist()] == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "said"),
    [({"mode": "fast"}, "'fast'"), ({"mode": PEAK}, "profile of a GPU")],
)
def test_what_cannot_be_served_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(SimulatorError, match=said):
        rules([[1.0]], service(gpu=None), **options)  # type: ignore[arg-type]


def test_an_unknown_partition_is_refused() -> None:
    how = rules([[1.0]], service())
    other = how.services.services[0].__class__("o", "s", gpu=how.services.services[0].gpu, gpu_partition="fast")
    with pytest.raises(SimulatorError, match="no partition 'fast'"):
        ServedWorkload.build(LONG, CLUSTER, rules([[1.0]], other, mode=PLACED))
