"""Who has a lift, by what sprio of a cluster in containers says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from benchmarks.lifted_jobs import find_lifted_jobs
from slurm_soda.containers.cluster import ContainerCluster


@dataclass
class Sprio:
    """A cluster whose sprio says this."""

    stdout: str

    def exec(self, *_: Any) -> Sprio:
        return self

    def check(self) -> Sprio:
        return self


def test_a_job_whose_priority_is_not_computed_has_no_lift() -> None:
    said = " 7 65536\n 7 65536\n 8 0\n 9 -2147483648\n10 -3\n"
    assert find_lifted_jobs(cast("ContainerCluster", Sprio(said))) == {7, 10}
