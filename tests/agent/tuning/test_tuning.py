"""A job's cores from its first sample to its end, on a clock that is set: settled, watched, left alone, taken up again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slurm_soda.agent.cpusets.core_limits import CoreRange
from slurm_soda.agent.settings.core_tuning import CoreTuningSettings
from slurm_soda.wire.core_tuning import CoreOrder
from tests.agent.tuning.node import Curve, Node

JOB = 7


class Within:
    """Equals a number of cores that is off by one at most: what a search promises."""

    def __init__(self, cores: int) -> None:
        self.cores = cores

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and abs(other - self.cores) <= 1

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.cores} or one core from it"


TWENTY = CoreRange(20, 20)


def knee(at: int, best: float = 0.9) -> Curve:
    """Proportional up to a knee."""
    return lambda cores: best * min(cores / at, 1.0)


def test_a_job_ends_on_its_best_fit_and_the_controller_is_told(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add(JOB, knee(6), room=TWENTY, gpus=(0, 1))
    node.tuned(JOB)
    (fit,) = node.core_messages.fits
    assert (fit.start_cores, fit.cores, fit.limit, fit.gpus, fit.reason) == (20, Within(6), 20, 2, "best_fit")
    assert fit.utilisation_ratio == pytest.approx(0.9)
    assert node.cores.has(JOB) == Within(6)
    told = list(node.core_messages.measurements)
    assert [one.step for one in told] == list(range(fit.steps + 1))
    assert told[0].cores == 20
    assert {one.samples for one in told} == {60}
    assert all(one.utilisation_ratio == pytest.approx(knee(6)(one.cores)) for one in told)
    assert node.faults == []


def test_what_needs_no_cores_keeps_them_unless_they_are_wanted(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add(JOB, lambda cores: 0.7, room=TWENTY)
    node.tuned(JOB)
    assert node.core_messages.fits[0].reason == "independent"
    assert JOB not in node.cores.wanted
    node.end(JOB)
    node.settings = replace(node.settings, free_unneeded=True)
    node.start_agent()
    node.pass_time(5)
    node.add(JOB, lambda cores: 0.7, room=TWENTY)
    node.tuned(JOB)
    assert node.cores.has(JOB) == Within(1)


def test_cpu_jobs_and_jobs_that_do_not_train_are_not_touched(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add(1, knee(4), room=TWENTY, gpus=())
    node.add(2, lambda cores: 0.0, room=TWENTY, gpus=(1,))
    node.add(3, lambda cores: 0.9 if node.now_s % 40 < 10 else 0.0, room=TWENTY, gpus=(2,))  # a notebook
    node.pass_time(600)
    assert node.cores.set_to == []
    assert not node.core_messages
    assert node.resource_controller.interval_s == float(
        "inf"
    )  # nobody needs samples more often than the agent takes them


def test_a_step_in_which_the_job_saves_is_measured_again(tmp_path: Path) -> None:
    node = Node(tmp_path)
    saves_at_s = node.now_s + 60
    node.add(JOB, lambda cores: 0.0 if saves_at_s <= node.now_s < saves_at_s + 10 else knee(6)(cores), room=TWENTY)
    node.tuned(JOB)
    assert node.core_messages.fits[0].cores == Within(6)
    assert node.core_messages.measurements[0].utilisation_ratio == pytest.approx(0.9)


def test_a_job_whose_gpus_stop_in_a_step_gets_its_cores_back_and_is_searched_when_they_work(tmp_path: Path) -> None:
    node = Node(tmp_path)
    stopped = False
    node.add(JOB, lambda cores: 0.0 if stopped else knee(6)(cores), room=TWENTY)
    node.until(lambda: node.cores.has(JOB) != 20)
    stopped = True
    node.until(lambda: node.cores.has(JOB) == 20)
    node.pass_time(300)
    assert node.cores.has(JOB) == 20
    stopped = False
    node.tuned(JOB)
    assert node.cores.has(JOB) == Within(6)


@pytest.mark.parametrize(("before", "after"), [(4, 10), (10, 3)])
def test_a_later_phase_is_searched_anew(tmp_path: Path, before: int, after: int) -> None:
    node = Node(tmp_path)
    job = node.add(JOB, knee(before, 0.9), room=TWENTY)
    node.tuned(JOB)
    node.pass_time(1000)
    assert len(node.core_messages.fits) == 1
    job.curve = knee(after, 0.75)
    node.tuned(JOB, fits=2)
    fit = node.core_messages.fits[-1]
    assert (fit.search, fit.start_cores) == (1, Within(before))
    assert fit.cores == Within(after)


def test_noise_alone_calls_for_no_search(tmp_path: Path) -> None:
    node = Node(tmp_path, seed=3)
    node.add(JOB, knee(6), room=TWENTY, noise=0.1)
    node.tuned(JOB)
    node.pass_time(20_000)
    assert len(node.core_messages.fits) == 1


def test_searches_that_change_nothing_become_rare(tmp_path: Path) -> None:
    """Utilisation swings every ten minutes for reasons that cores do not mend."""
    node = Node(tmp_path)

    def swinging(cores: int) -> float:
        return knee(5, 0.9 if node.now_s % 1200 < 600 else 0.6)(cores)

    node.add(JOB, swinging, room=TWENTY)
    node.pass_time(12 * 3600)
    assert 2 <= len(node.core_messages.fits) <= 20


def test_a_job_that_does_worse_than_it_came_gets_its_cores_back(tmp_path: Path) -> None:
    """Its curve changes at the moment when the search ends: what was measured holds no more."""
    node = Node(tmp_path)
    job = node.add(JOB, knee(6), room=TWENTY)
    node.tuned(JOB)
    job.curve = knee(18)
    node.until(lambda: node.core_messages.fits[-1].reason == "kept", 300)
    assert node.cores.has(JOB) == 20


def test_cores_that_cannot_be_set_are_one_fault_and_no_harm(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.cores.refuses.add(JOB)
    node.add(JOB, knee(6), room=TWENTY)
    node.add(8, knee(6), room=TWENTY, gpus=(1,))
    node.tuned(8)
    node.pass_time(300)
    assert node.faults == [f"cores of job {JOB} are not tuned: job {JOB}: the kernel says no"]
    assert node.cores.has(JOB) == 20


def test_a_job_whose_processes_are_not_seen_yet_is_asked_again(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add(JOB, knee(6), room=TWENTY)
    node.cores.unseen.add(JOB)
    node.pass_time(100)
    assert not node.core_messages
    node.cores.unseen.clear()
    node.tuned(JOB)


def test_a_disk_that_refuses_stops_the_search_before_anything_is_changed(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add(JOB, knee(6), room=TWENTY)
    (tmp_path / "tuning.json.new").mkdir()
    node.pass_time(300)
    assert node.cores.set_to == []
    assert len(node.faults) == 1
    assert "nothing is changed" in node.faults[0]


def test_jobs_on_the_same_gpu_are_left_until_one_is_alone(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add(JOB, knee(6), room=TWENTY)
    node.until(lambda: node.cores.has(JOB) != 20)
    node.add(8, knee(3), room=TWENTY)
    node.pass_time(600)
    assert (node.cores.has(JOB), node.cores.has(8)) == (20, 20)
    node.end(8)
    node.tuned(JOB)
    assert node.cores.has(JOB) == Within(6)


@pytest.mark.parametrize("lived_s", [35, 100, 170, 240, 310, 900])
def test_a_killed_agents_search_goes_on(tmp_path: Path, lived_s: float) -> None:
    node = Node(tmp_path)
    node.add(JOB, knee(11), room=TWENTY)
    node.pass_time(lived_s)
    node.start_agent()
    node.until(lambda: node.cores.has(JOB) == Within(11))
    node.pass_time(900)
    assert node.cores.has(JOB) == Within(11)
    assert len({(one.step, one.cores) for one in node.core_messages.measurements}) <= 5
    assert {(fit.at_s, fit.cores) for fit in node.core_messages.fits} == {
        (node.core_messages.fits[0].at_s, node.cores.has(JOB))
    }
    assert node.faults == []


def test_a_job_that_rests_when_it_is_first_measured_is_measured_when_it_works(tmp_path: Path) -> None:
    node = Node(tmp_path)
    begun_s = node.now_s
    node.add(JOB, lambda cores: 0.0 if 31 < node.now_s - begun_s < 400 else knee(6)(cores), room=TWENTY)
    node.pass_time(390)
    assert node.cores.set_to == []
    assert not node.core_messages.fits
    node.tuned(JOB)
    assert node.cores.has(JOB) == Within(6)


def test_a_job_that_pauses_again_and_again_is_watched_all_the_same(tmp_path: Path) -> None:
    """It saves for ten of every fifty seconds."""
    node = Node(tmp_path)
    node.add(JOB, lambda cores: 0.0 if node.now_s % 50 < 10 else knee(6)(cores), room=TWENTY)
    node.settings = replace(node.settings, warm_up_s=20.0)
    node.start_agent()
    node.tuned(JOB)
    node.until(lambda: node.resource_controller.interval_s == float("inf"), 600)


def test_what_ended_while_no_agent_was_there_is_forgotten(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add(JOB, knee(5), room=TWENTY)
    node.tuned(JOB)
    node.end(JOB)
    node.start_agent()
    node.add(8, knee(5), room=TWENTY)
    node.tuned(8)
    assert f'"job_id":{JOB},' not in (tmp_path / "tuning.json").read_text()


def test_a_search_on_record_is_not_that_of_the_jobs_next_run(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add(JOB, knee(5), room=TWENTY)
    node.tuned(JOB)
    node.end(JOB)
    node.pass_time(10)
    node.add(JOB, knee(9), room=TWENTY)
    node.start_agent()
    node.tuned(JOB)
    assert node.core_messages.fits[-1].search == 0
    assert node.cores.has(JOB) == Within(9)


def test_a_damaged_record_is_one_fault_and_searches_begin_anew(tmp_path: Path) -> None:
    (tmp_path / "tuning.json").write_text('{"version": 1, "jobs": [{"job_id": 0}]}')
    node = Node(tmp_path)
    assert ["searches begin anew" in fault for fault in node.faults] == [True]
    node.add(JOB, knee(6), room=TWENTY)
    node.tuned(JOB)


def order(search: int, step: int, cores: int, *, settled: bool = False) -> dict[tuple[int, int], CoreOrder]:
    return {(JOB, 0): CoreOrder(JOB, 0, search, step, cores, settled, "best_fit" if settled else "")}


def test_a_job_on_several_nodes_goes_by_orders(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add(JOB, knee(6), room=TWENTY, nodes=2)
    node.until(lambda: len(node.core_messages.measurements) == 1)
    node.pass_time(100)
    assert node.cores.set_to == []  # the other node is not there yet
    for step, cores in ((1, 5), (2, 9)):
        node.core_messages.orders = order(0, step, cores)
        node.until(lambda step=step: len(node.core_messages.measurements) == step + 1)  # type: ignore[misc]
        assert (node.core_messages.measurements[-1].step, node.core_messages.measurements[-1].cores) == (step, cores)
        node.pass_time(100)  # the same order again, in every answer
        assert len(node.core_messages.measurements) == step + 1
    node.core_messages.orders = order(0, 2, 6, settled=True)
    node.pass_time(200)
    assert node.cores.has(JOB) == 6
    assert [(fit.cores, fit.reason, fit.steps) for fit in node.core_messages.fits] == [(6, "best_fit", 2)]
    node.core_messages.orders = order(1, 0, 6)  # another node saw another phase
    node.until(lambda: node.core_messages.measurements[-1].search == 1)
    assert (node.core_messages.measurements[-1].step, node.core_messages.measurements[-1].cores) == (0, 6)


def test_a_job_on_several_nodes_gets_its_cores_back_when_no_order_comes(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add(JOB, knee(6), room=TWENTY, nodes=2)
    node.until(lambda: len(node.core_messages.measurements) == 1)
    node.core_messages.orders = order(0, 1, 2)
    node.until(lambda: len(node.core_messages.measurements) == 2)
    assert node.cores.has(JOB) == 2
    node.until(lambda: bool(node.core_messages.fits), 2 * node.settings.order_timeout_s)
    assert node.cores.has(JOB) == 20
    assert node.core_messages.fits[0].reason == "cut_short"


def test_a_phase_that_one_node_sees_is_told_with_the_cores_at_hand(tmp_path: Path) -> None:
    node = Node(tmp_path)
    job = node.add(JOB, knee(6), room=TWENTY, nodes=2)
    node.until(lambda: len(node.core_messages.measurements) == 1)
    node.core_messages.orders = order(0, 0, 6, settled=True)
    node.pass_time(300)
    job.curve = knee(12)
    node.until(lambda: node.core_messages.measurements[-1].search == 1)
    assert (node.core_messages.measurements[-1].step, node.core_messages.measurements[-1].cores) == (0, 6)
    node.pass_time(30)
    assert node.cores.has(JOB) == 6


def test_steps_are_as_long_as_the_site_says(tmp_path: Path) -> None:
    node = Node(tmp_path, CoreTuningSettings(enabled=True, step_s=10.0, sample_s=0.5, settle_s=1.0, warm_up_s=5.0))
    begun_s = node.now_s
    node.add(JOB, knee(6), room=TWENTY)
    node.tuned(JOB)
    assert node.now_s - begun_s < 5 + 5 * (10 + 1) + 10
    assert 19 <= node.core_messages.measurements[0].samples <= 21


def test_a_job_that_leaves_the_scope_has_all_its_cores_again(tmp_path: Path) -> None:
    node = Node(tmp_path)
    job = node.add(JOB, knee(6), room=TWENTY)
    node.tuned(JOB)
    assert node.cores.has(JOB) == Within(6)
    job.run.left_out = True
    before = len(node.cores.set_to)
    node.pass_time(600.0)
    assert node.cores.has(JOB) == 20
    assert len(node.cores.set_to) == before
    job.run.left_out = False
    node.tuned(JOB, fits=2)
    assert node.cores.has(JOB) == Within(6)
    assert node.faults == []
