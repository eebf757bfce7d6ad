"""A change of arrays that is cut short at any point can be finished, and can be taken back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.slurm_ext.pools import pool_installer
from slurm_soda.slurm_ext.pools.partition_settings import include_text
from slurm_soda.slurm_ext.pools.pool_installer import WantedPools
from slurm_soda.slurm_ext.pools.pools_record import read_record
from slurm_soda.slurm_ext.pools.routes_file import ROUTES_NAME
from tests.slurm_ext.pool_site import NAMES, Site
from tests.slurm_ext.scontrol import detail
from tests.sodactl.conftest import record

Crash = KeyboardInterrupt
"""What no error handling of ours catches."""


class Dying:
    """Lets so many acts through, on Slurm and on files, and dies before or after the next one."""

    def __init__(self, acts: int, *, after: bool) -> None:
        self.left, self.after = acts, after

    def of(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **named: Any) -> Any:
            if not self.left and not self.after:
                raise Crash
            answer = act(*args, **named)
            if not self.left:
                raise Crash
            self.left -= 1
            return answer

        return guarded


CHANGES = {
    "updates and retires": ((8, 1), (10, 0)),
    "updates and creates": ((8, 0), (10, 1)),
    "a limit goes": ((8, 1), (0, 1)),
    "first": (None, (8, 1)),
}


@pytest.fixture(params=list(CHANGES))
def change(request: pytest.FixtureRequest) -> tuple[tuple[int, int] | None, tuple[int, int]]:
    return CHANGES[request.param]


def prepared(folder: Path, before: tuple[int, int] | None) -> Site:
    """A site with a job that waits in each array where there are any."""
    folder.mkdir()
    site = Site(folder)
    if before:
        site.arranger.apply(site.wanted(*before))
        site.queue.queue = [
            record(1, partition="gpu_small", gpus=1, gpus_per_node=1, cpus=20),
            record(2, partition="gpu_cpu", gpus=0, gpus_per_node=0, cpus=8, requeue=False),
        ]
        site.scontrol.waiting = {1: detail(), 2: detail()}
    return site


def state(site: Site) -> Any:
    """All that is there, as others see it."""
    files = {name: (site.folder / name).read_text() for name in (ROUTES_NAME, "soda-pools.conf")}
    return site.scontrol.partitions, files, [job.partition for job in site.queue.queue]


def wrecks(
    folder: Path, before: tuple[int, int] | None, act: Callable[[Site], Any], patch: pytest.MonkeyPatch
) -> Iterator[Site]:
    """Sites where an act was cut short, before and after each of the things that it does."""
    patch.setattr(os, "fsync", lambda _: None)  # a program that ends loses nothing; thousands of these take long
    for acts in range(100):
        for late in (False, True):
            site = prepared(folder / f"{acts}-{late}", before)
            dying = Dying(acts, after=late)
            with patch.context() as now:
                now.setattr(site.scontrol, "_change", dying.of(site.scontrol._change))
                now.setattr(site.queue, "_apply", dying.of(site.queue._apply))
                for name in ("write_state_file", "remove_state_file"):
                    now.setattr(pool_installer, name, dying.of(getattr(pool_installer, name)))
                try:
                    act(site)
                except Crash:
                    pass
                else:
                    return
            yield site
    pytest.fail("it never comes to its end")


def finish(site: Site, share: tuple[int, int], whole: Site) -> None:
    """Apply, which brings about what an undisturbed one does."""
    site.arranger.apply(site.wanted(*share))
    assert state(site) == state(whole)
    found = read_record(site.folder)
    assert found is not None
    assert (found.phase, set(found.sent)) == ("applied", site.names)
    assert site.arranger.apply(site.wanted(*share)).steps == ()


def take_back(site: Site) -> None:
    site.arranger.revert()
    assert (site.names, site.routed, read_record(site.folder)) == (set(), False, None)
    assert {job.partition for job in site.queue.queue} <= {"gpu"}


@pytest.mark.parametrize("way_out", ["apply", "revert"])
def test_an_apply_cut_short_anywhere(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: tuple[tuple[int, int] | None, tuple[int, int]],
    way_out: str,
) -> None:
    before, after = change
    whole = prepared(tmp_path / "whole", before)
    whole.arranger.apply(whole.wanted(*after))
    seen = 0
    for site in wrecks(tmp_path, before, lambda site: site.arranger.apply(site.wanted(*after)), monkeypatch):
        seen += 1
        finish(site, after, whole) if way_out == "apply" else take_back(site)
    assert seen > 2 * len(whole.scontrol.partitions)


@pytest.mark.parametrize("way_out", ["apply", "revert"])
def test_a_revert_cut_short_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way_out: str) -> None:
    seen = 0
    for site in wrecks(tmp_path, (8, 1), lambda site: site.arranger.revert(), monkeypatch):
        seen += 1
        if way_out == "revert":
            take_back(site)
            continue
        site.arranger.apply(site.wanted(8, 1))
        assert {of["State"] for of in site.scontrol.partitions.values()} == {"UP"}
        assert (site.names, site.include, site.routed) == (NAMES, NAMES, True)
        assert site.arranger.apply(site.wanted(8, 1)).steps == ()
    assert seen > 2 * len(NAMES)


def test_a_change_of_include_files_cut_short_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(site: Site) -> WantedPools:
        return replace(site.wanted(), include_path=site.folder / "other.conf")

    seen = 0
    for site in wrecks(tmp_path, (8, 1), lambda site: site.arranger.apply(elsewhere(site)), monkeypatch):
        seen += 1
        site.arranger.apply(elsewhere(site))
        # Twice the same partition, and slurmctld would not start.
        assert site.include == set()
        assert (site.folder / "other.conf").read_text() == include_text(site.wanted().settings)
    assert seen > 6
