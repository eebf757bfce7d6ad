"""``sodactl doctor`` on the store, sodad, the agents and the clocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat, JobRun, NodeEvent
from tests.sodactl.checks.conftest import CONFIG, RecordedSlurm, finding
from tests.sodactl.conftest import NOW_S, SUBMIT_S, Bench, record, stored_job


def test_no_store_yet(soda: Bench, recorded: RecordedSlurm) -> None:
    soda.config.write_text('[store]\nurl = "sqlite:////nonexistent/soda.db"\n')
    assert finding(soda("doctor", "--json"), "store")[0] == "warn"


def test_a_store_that_is_on_another_host(soda: Bench, recorded: RecordedSlurm) -> None:
    """As root on a login node: nobody is to start a sodad there."""
    recorded.change(CONFIG, "SlurmctldHost[0]        = ctl", "SlurmctldHost[0]        = other(127.0.0.1)")
    soda.config.write_text('[store]\nurl = "sqlite:////nonexistent/soda.db"\n[api]\nport = 1\n')
    result = soda("doctor", "--json")
    state, found, remedy = finding(result, "store")
    assert (state, remedy) == ("skip", "run doctor on the controller")
    assert "it is on the controller" not in found
    assert "start sodad" not in result.out
    assert finding(result, "sodad")[0] == "warn"


def test_sodad_gone_or_failing(soda: Bench, recorded: RecordedSlurm) -> None:
    soda.cycle(error="squeue: half a reply")
    assert "half a reply" in finding(soda("doctor", "--json", status=1), "sodad")[1]
    soda.pids.clear()
    assert "not running" in finding(soda("doctor", "--json", status=1), "sodad")[1]


@pytest.mark.parametrize("timer", ["active", "inactive"])
def test_guests_that_nobody_restores(soda: Bench, recorded: RecordedSlurm, timer: str) -> None:
    soda.cycle()
    soda.pids.clear()
    soda.slurm.queue = [record(7, state="RUNNING", shared_gpus=1), record(8, shared_gpus=1), record(9)]
    recorded.say(
        "systemctl", "is-active", "sodad-expiry.timer", stdout=f"{timer}\n", status=0 if timer == "active" else 3
    )
    found = finding(soda("doctor", "--json", status=1), "sodad")[1]
    assert ("nobody restores guests 7, 8" in found) == (timer == "inactive")


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({}, "none ever on n1"),
        ({"n1": (NOW_S - 900, [])}, "silent on n1"),
        ({"n1": (NOW_S - 1, ["no NVML"])}, "faults on n1: no NVML"),
    ],
)
def test_agents(soda: Bench, recorded: RecordedSlurm, seen: dict[str, tuple[float, list[str]]], said: str) -> None:
    with soda.store.write() as session:
        session.delete(session.get_one(AgentHeartbeat, "n1"))
        session.flush()
        for node, (seen_s, faults) in seen.items():
            session.add(AgentHeartbeat(node=node, agent_id="a", seq=1, seen_s=seen_s, faults=faults))
    state, found, _ = finding(soda("doctor", "--json", status=None), "agents")
    assert state == "warn"
    assert said in found


@pytest.mark.parametrize(
    ("offset_s", "state", "said"), [(1.5, "ok", "1 nodes agree to 1.5 s"), (-400.0, "fail", "n1 by -400 s")]
)
def test_clocks(soda: Bench, recorded: RecordedSlurm, offset_s: float, state: str, said: str) -> None:
    job = stored_job(7, state="RUNNING")
    soda.add(job)
    soda.add(JobRun(job_pk=job.id, restart=0, start_s=SUBMIT_S + 5))
    soda.add(NodeEvent(kind="open", job_id=7, restart=0, node="n1", at_s=SUBMIT_S + 5 + offset_s, record={}))
    found = finding(soda("doctor", "--json", status=None), "clocks")
    assert found[0] == state
    assert said in found[1]


@pytest.mark.parametrize(("mode", "state"), [("enforce", "ok"), ("advise", "fail"), ("observe", "fail")])
def test_lifts_that_this_mode_does_not_end(soda: Bench, recorded: RecordedSlurm, mode: str, state: str) -> None:
    soda.slurm.queue, soda.slurm.factors = [record(7)], {7: 500}
    soda.action(7, new={"SiteFactor": "500"})
    soda("mode", mode)
    found = finding(soda("doctor", "--json", status=None), "lifts")
    assert found[0] == state
    assert ("sodactl release-all" in found[2]) == (state == "fail")


@pytest.mark.parametrize("store", ["there", "lost"])
def test_site_factors_that_no_record_explains(soda: Bench, recorded: RecordedSlurm, tmp_path: Path, store: str) -> None:
    soda.slurm.queue = [record(7), record(8), record(9)]
    soda.slurm.factors = {7: 500, 8: 65536, 9: 0}
    soda.action(7, new={"SiteFactor": "500"})
    if store == "lost":
        soda.config.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/none.db"\n')
    state, found, remedy = finding(soda("doctor", "--json", status=None), "lifts")
    assert (state, found.split(" of ")[1]) == ("warn", "8" if store == "there" else "7, 8")
    assert "sodactl release-all" in remedy
    recorded.change(CONFIG, "PrioritySiteFactorPlugin = (null)", "PrioritySiteFactorPlugin = site_factor/x")
    assert finding(soda("doctor", "--json", status=1), "lifts")[0] == "skip"
