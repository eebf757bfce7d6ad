"""``sodactl doctor`` on ``[services]``."""

from __future__ import annotations

import pytest

from slurm_soda.daemon.settings.services import ServicesSettings
from slurm_soda.slurm_ext.errors import SlurmCommandError
from slurm_soda.slurm_ext.pools.scontrol_partitions import ScontrolPartitions, SlurmPartition
from slurm_soda.sodactl.checks.services import check_first_in
from tests.sodactl.checks.conftest import RecordedSlurm, finding
from tests.sodactl.conftest import Bench


def test_a_name_that_is_no_partition(soda: Bench, recorded: RecordedSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScontrolPartitions, "partitions", lambda _: {"gpu": SlurmPartition("gpu", {})})
    soda.config.write_text(soda.config.read_text() + '[services]\nfirst_in = ["gpu", "gpus"]\n')
    state, found, remedy = finding(soda("doctor", "--json"), "services: first_in")
    assert (state, found) == ("warn", "Slurm has no partition gpus")
    assert "correct services.first_in in soda.toml" in remedy


@pytest.mark.parametrize(("named", "states"), [([], []), (["*"], []), (["gpu"], ["ok"]), (["*", "cpu"], ["warn"])])
def test_what_is_fine_and_what_nobody_named(named: list[str], states: list[str]) -> None:
    checks = check_first_in(ServicesSettings(first_in=named), lambda: {"gpu": None})
    assert [one.state for one in checks] == states


def test_a_slurm_that_does_not_tell_its_partitions() -> None:
    def fails() -> dict[str, SlurmPartition]:
        raise SlurmCommandError(("scontrol",), 1, "no answer", "see it")

    assert [one.state for one in check_first_in(ServicesSettings(first_in=["gpu"]), fails)] == ["skip"]
