"""Small services, loads and clusters for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from slurm_soda.policies.services.service import Device, DeviceProfile, Service
from slurm_soda.policies.services.settings import ServiceSettings
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.services.load import LoadCurve
from slurm_soda.simulator.services.service_set import PLACED, ServiceSet, ServingRules
from slurm_soda.simulator.services.simulate_serving import ServedWorkload
from slurm_soda.simulator.workload import Workload
from tests.simulator.engine.ledger import Witness, instants, runs_of
from tests.simulator.engine.worlds import job, policy

CLUSTER = parse_cluster("3x4/16c")
CPU = DeviceProfile(Device.CPU, batch=2, batch_ms=50.0, cores=4)
GPU = DeviceProfile(Device.GPU, batch=16, batch_ms=40.0, cores=1)
"""40 and 400 queries in a second."""


def service(
    name: str = "s", *, cpu: DeviceProfile | None = CPU, gpu: DeviceProfile | None = GPU, least: int = 1, most: int = 6
) -> Service:
    return Service("owner", name, least=least, most=most, cpu=cpu, gpu=(gpu,) if gpu else ())


def rules(
    loads: Sequence[Sequence[float]], *services: Service, mode: str = PLACED, step_s: float = 60.0, start_s: float = 5.0
) -> ServingRules:
    """Services with these loads, step by step; the cool-down is short."""
    told = services or tuple(service(f"s{at}") for at in range(len(loads)))
    curve = LoadCurve(np.array(loads, dtype=np.float64), step_s)
    settings = ServiceSettings(cool_down_s=step_s, first_everywhere=True)
    return ServingRules(ServiceSet("test", told, curve), mode, start_s, settings)


def served(workload: Workload, how: ServingRules, name: str = "fifo", **options: object) -> SimulationOutcome:
    """The jobs' outcome under a policy."""
    scenario = Scenario(workload, CLUSTER, services=how, **options)  # type: ignore[arg-type]
    return scenario.run(policy(name))


def check_nothing_twice(workload: Workload, how: ServingRules, name: str) -> SimulationOutcome:
    """Run with tasks among the jobs; asserts at each instant that no GPU, core or MiB is given twice."""
    witness = Witness(len(CLUSTER))
    built = ServedWorkload.build(workload, CLUSTER, how)
    outcome = built.simulate_all(policy(name), speed=witness)
    # Where a job can never start, since instances hold what it needs, the simulation ends and the instances run on.
    tasks = range(len(outcome.workload) - len(workload))
    waits_for_ever = bool(np.isnan(outcome.end_s[len(tasks) :]).any())
    for _ in instants(outcome, runs_of(outcome, witness, tasks if waits_for_ever else ())):
        pass
    return outcome


LONG = Workload.build("long", [job(0.0, 1200.0, cpus=1)])
"""One job that lasts twenty steps."""

smooth_loads = st.lists(st.floats(-0.2, 0.2), min_size=19, max_size=19).map(
    lambda steps: (60.0 * np.exp(np.concatenate(([0.0], np.cumsum(steps))))).tolist()
)
"""Twenty steps, none more than a fifth above the one before: within the headroom while an instance starts."""
any_loads = st.lists(st.floats(0.0, 600.0), min_size=4, max_size=8)
"""At their highest two GPU instances: beside two such services every job finds room at some time."""
