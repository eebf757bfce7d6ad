"""Searches of jobs that are missed for a moment, of records that cannot be, and of one job that must not stop the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_soda.agent.cpusets.core_limits import CoreRange
from slurm_soda.policies.cpu_fit.core_search import CoreSearch
from slurm_soda.policies.errors import PolicyError
from tests.agent.tuning.node import Node
from tests.agent.tuning.test_tuning import JOB, TWENTY, Within, knee


@pytest.mark.parametrize("before_last", [1, 2])
def test_a_job_that_is_not_seen_for_a_moment_has_all_its_cores_and_is_searched_anew(
    tmp_path: Path, before_last: int
) -> None:
    """Its processes are missed in the very turn that sets its cores, in the middle of the search or at its end."""
    calm = Node(tmp_path)
    calm.add(JOB, knee(6), room=TWENTY)
    calm.tuned(JOB)
    (tmp_path / "again").mkdir()
    node = Node(tmp_path / "again")
    node.add(JOB, knee(6), room=TWENTY)
    node.until(lambda: len(node.cores.set_to) == len(calm.cores.set_to) - before_last)
    assert node.cores.has(JOB) != 20
    node.cores.unseen.add(JOB)
    node.until(lambda: JOB not in node.cores.wanted)
    node.cores.unseen.clear()
    node.tuned(JOB)
    assert node.cores.has(JOB) == Within(6)
    assert node.faults == []


@pytest.mark.parametrize(
    "damage", [{"start": 30}, {"cores": 25}, {"limit": 1}, {"measured": [{"cores": 21, "samples": 1}]}, {"stable": 3}]
)
def test_a_search_on_record_that_cannot_be_is_one_fault_and_begins_anew(
    tmp_path: Path, damage: dict[str, object]
) -> None:
    node = Node(tmp_path)
    node.add(JOB, knee(6), room=TWENTY)
    node.until(lambda: len(node.core_messages.measurements) == 2)
    content = json.loads((tmp_path / "tuning.json").read_text())
    content["jobs"][0] |= damage
    (tmp_path / "tuning.json").write_text(json.dumps(content))
    node.start_agent()
    assert ["searches begin anew" in fault for fault in node.faults] == [True]
    node.tuned(JOB)
    assert node.cores.has(JOB) == Within(6)


def test_a_search_that_may_not_be_is_one_jobs_fault_not_that_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path)
    node.add(JOB, knee(6), room=TWENTY)
    node.add(8, knee(6), room=CoreRange(19, 19), gpus=(1,))
    advice = CoreSearch.advice

    def refuse(self: CoreSearch) -> object:
        if self.limit == 20:
            raise PolicyError("it cannot be searched")
        return advice(self)

    monkeypatch.setattr(CoreSearch, "advice", refuse)
    node.tuned(8)
    assert node.faults == [f"cores of job {JOB} are not tuned: it cannot be searched"]
    assert node.cores.has(8) == Within(6)


def test_what_is_told_has_the_time_of_day_also_when_that_is_set_back(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add(JOB, knee(6), room=TWENTY)
    node.until(lambda: len(node.core_messages.measurements) == 1)
    node.booted_s -= 3600
    begun_s = node.now_s
    node.tuned(JOB)
    assert node.now_s - begun_s < 300
    first, second = node.core_messages.measurements[0].at_s, node.core_messages.measurements[1].at_s
    assert -3600 < second - first < -3400
    assert node.core_messages.fits[0].at_s == pytest.approx(node.unix_s, abs=5)
