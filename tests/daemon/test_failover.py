"""Two sodads with one store on PostgreSQL: the leader is killed or paused at work, and the other one takes over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.failover.controllers import Controllers
from benchmarks.postgresql import new_store_url
from tests.postgresql import postgresql_server
from tests.sampling import thorough


@pytest.fixture
def controllers(tmp_path: Path) -> Iterator[Controllers]:
    postgresql_server()
    made = Controllers(tmp_path, new_store_url(), seed=7)
    yield made
    made.close()


def test_the_backup_takes_over_and_no_update_of_the_old_leader_begins_after_that(controllers: Controllers) -> None:
    for fault in ("kill", "pause") * (50 if thorough() else 1):
        found = controllers.fail_over(fault)  # type: ignore[arg-type]
        assert found.violations() == [], found
