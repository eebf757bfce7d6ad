"""Memory bandwidth from the counters of resctrl, in the files that the kernel has."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.services.profiling.bandwidth import bandwidth_gb_s, transferred_bytes


def test_counters_of_all_domains_are_added(tmp_path: Path) -> None:
    for domain, counted in (("00", "1000\n"), ("01", "234\n")):
        (tmp_path / "mon_data" / f"mon_L3_{domain}").mkdir(parents=True)
        (tmp_path / "mon_data" / f"mon_L3_{domain}" / "mbm_total_bytes").write_text(counted)
    assert transferred_bytes(tmp_path) == 1234
    (tmp_path / "mon_data" / "mon_L3_01" / "mbm_total_bytes").write_text("Unavailable\n")
    assert transferred_bytes(tmp_path) is None


def test_without_resctrl_nothing_is_known(tmp_path: Path) -> None:
    assert transferred_bytes(tmp_path) is None
    assert bandwidth_gb_s(None, 5, 1.0) is None
    assert bandwidth_gb_s(5, 4, 1.0) is None


def test_what_was_there_before_does_not_count() -> None:
    assert bandwidth_gb_s(0, 6_000_000_000, 2.0, idle_gb_s=1.0) == pytest.approx(2.0)
    assert bandwidth_gb_s(0, 1_000_000_000, 2.0, idle_gb_s=1.0) == 0.0
