"""Arrays made and taken back: recorded first, undone on refusal, nobody's jobs lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_soda.policies.pools.kinds import PoolShare
from slurm_soda.policies.pools.layout.partitions import PoolTable
from slurm_soda.slurm_ext.errors import SlurmError, SlurmReplyError
from slurm_soda.slurm_ext.pools.pool_installer import POOLS_LOCK_NAME
from slurm_soda.slurm_ext.pools.pools_record import POOLS_RECORD_NAME, read_record, read_table
from slurm_soda.slurm_ext.pools.routes_file import ROUTES_NAME, RoutingRules, render_routes
from slurm_soda.slurm_ext.pools.state_files import hold_lock
from slurm_soda.slurm_ext.read.hostlist import expand_hosts
from tests.slurm_ext.pool_site import A100, NAMES, Site
from tests.slurm_ext.scontrol import detail, partition
from tests.sodactl.conftest import record

Words = tuple[str, ...]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_applied_once_and_then_nothing_happens(site: Site) -> None:
    before = {"gpu": dict(site.scontrol.partitions["gpu"])}
    assert len(site.arranger.apply(site.wanted()).steps) == 6
    assert site.names == site.include == NAMES
    assert site.routed
    found = read_record(site.folder)
    assert found is not None
    assert (found.phase, found.by, found.shares, set(found.sent)) == ("applied", "root", {A100: PoolShare(8, 1)}, NAMES)
    assert read_table(site.folder) == site.wanted().table
    sent = len(site.scontrol.sent)
    assert site.arranger.apply(site.wanted()).steps == ()
    assert len(site.scontrol.sent) == sent

    done = site.arranger.revert()
    assert (done.leaving, done.problems) == ((), ())
    assert site.scontrol.partitions == before
    assert read_record(site.folder) is None
    assert (site.include, site.routed) == (set(), False)
    assert site.arranger.revert().steps == ()


@pytest.mark.parametrize("refused_at", range(6))
def test_a_refusal_leaves_nothing_behind(site: Site, refused_at: int) -> None:
    before = dict(site.scontrol.partitions)
    site.scontrol.refuse_after = refused_at
    original, calls = site.scontrol._change, []

    def once(words: tuple[str, ...]) -> tuple[int, str, str]:
        answer = original(words)
        calls.append(words)
        if answer[0]:  # what comes after the refusal is the way back, which Slurm takes
            site.scontrol.refuse_after = 10**6
        return answer

    site.scontrol._change = once  # type: ignore[method-assign]
    with pytest.raises(SlurmError, match=r"nothing is changed: .*Invalid node name"):
        site.arranger.apply(site.wanted())
    assert site.scontrol.partitions == before
    assert read_record(site.folder) is None
    assert (site.include, site.routed) == (set(), False)


def test_a_refused_change_of_shares_puts_the_old_ones_back(site: Site) -> None:
    site.arranger.apply(site.wanted())
    before = {name: dict(of) for name, of in site.scontrol.partitions.items()}
    original = site.scontrol._change

    def refuse_large(words: tuple[str, ...]) -> tuple[int, str, str]:
        if words[2] == "PartitionName=gpu_large" and "MaxCPUsPerNode=18" in words:
            return 1, "", "no"
        return original(words)

    site.scontrol._change = refuse_large  # type: ignore[method-assign]
    with pytest.raises(SlurmError, match="nothing is changed"):
        site.arranger.apply(site.wanted(cpu_cores=10))
    assert site.scontrol.partitions == before
    found = read_record(site.folder)
    assert found is not None
    assert (found.phase, found.shares) == ("applied", {A100: PoolShare(8, 1)})
    assert (site.folder / ROUTES_NAME).read_text() == render_routes(site.wanted().table, RoutingRules())


def test_more_pools_than_lua_reads_are_refused_before_anything_is_done(site: Site) -> None:
    part = next(iter(site.wanted().table))
    many = PoolTable({f"gpu_cpu_{i}": replace(part, name=f"gpu_cpu_{i}") for i in range(1000)})
    with pytest.raises(SlurmError, match=r"1000 pool partitions take .* divide fewer"):
        site.arranger.apply(replace(site.wanted(), table=many))
    assert (site.names, read_record(site.folder), site.routed) == (set(), None, False)


def test_an_include_file_that_cannot_be_written_stops_it_at_once(site: Site) -> None:
    nowhere = site.folder / "missing" / "soda-pools.conf"
    with pytest.raises(SlurmError, match="cannot be written"):
        site.arranger.apply(replace(site.wanted(), include_path=nowhere))
    assert (site.names, read_record(site.folder)) == (set(), None)
    site.arranger.apply(site.wanted())
    with pytest.raises(SlurmError, match="cannot be written"):
        site.arranger.apply(replace(site.wanted(cpu_cores=9), include_path=nowhere))
    found = read_record(site.folder)
    assert found is not None
    assert found.shares == {A100: PoolShare(8, 1)}
    assert site.include == NAMES


def test_another_include_file_takes_over_from_the_first(site: Site) -> None:
    site.arranger.apply(site.wanted())
    other = site.folder / "other.conf"
    site.arranger.apply(replace(site.wanted(), include_path=other))
    assert site.include == set()
    assert "PartitionName=gpu_cpu " in other.read_text()
    site.scontrol.refuse_after = len(site.scontrol.sent)
    with pytest.raises(SlurmError, match="nothing is changed"):
        site.arranger.apply(site.wanted(9))
    assert site.include == set()
    assert "MaxCPUsPerNode=8 " in other.read_text()


def test_it_is_recorded_before_slurm_is_told(site: Site) -> None:
    seen = []
    original = site.scontrol._change

    def watched(words: tuple[str, ...]) -> tuple[int, str, str]:
        found = read_record(site.folder)
        seen.append((found is not None and found.phase, site.include == NAMES, site.routed))
        return original(words)

    site.scontrol._change = watched  # type: ignore[method-assign]
    site.arranger.apply(site.wanted())
    assert set(seen) == {("applying", True, False)}


def test_after_a_crash_midway_both_ways_are_open(site: Site) -> None:
    for way_out in ("apply", "revert"):
        original = site.scontrol._change
        done: list[int] = []

        def dies(words: tuple[str, ...], original: object = original, done: list[int] = done) -> tuple[int, str, str]:
            if len(done) == 3:
                raise KeyboardInterrupt
            done.append(1)
            return original(words)  # type: ignore[operator, no-any-return]

        site.scontrol._change = dies  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            site.arranger.apply(site.wanted())
        site.scontrol._change = original  # type: ignore[method-assign]
        assert len(site.names) == 3
        if way_out == "apply":
            site.arranger.apply(site.wanted())
            assert (site.names, site.routed) == (NAMES, True)
        site.arranger.revert()
        assert (site.names, site.include, site.routed) == (set(), set(), False)


def test_somebody_else_s_partition_and_changes_are_respected(site: Site) -> None:
    site.scontrol.partitions["gpu_large"] = partition(Nodes="n9")
    with pytest.raises(SlurmError, match=r"gpu_large is there already.*rename or delete"):
        site.arranger.apply(site.wanted())
    assert site.names == {"gpu_large"}
    del site.scontrol.partitions["gpu_large"]
    site.arranger.apply(site.wanted())
    site.scontrol.partitions["gpu_cpu"]["MaxTime"] = "5"
    acts: list[Callable[[], object]] = [lambda: site.arranger.apply(site.wanted(9)), site.arranger.revert]
    for act in acts:
        with pytest.raises(SlurmError, match=r"gpu_cpu was changed by somebody else: MaxTime is 5, was UNLIMITED"):
            act()
    assert site.routed
    # Whoever drains one of them wants it empty too.
    site.scontrol.partitions["gpu_cpu"] |= {"MaxTime": "UNLIMITED", "State": "DRAIN"}
    site.arranger.revert()
    assert site.names == set()


def test_force_overwrites_what_somebody_else_changed(site: Site) -> None:
    site.arranger.apply(site.wanted())
    site.scontrol.partitions["gpu_cpu"]["MaxCPUsPerNode"] = "2"
    steps = site.arranger.apply(site.wanted(), force=True).steps
    assert [(step.name, dict(step.settings)) for step in steps] == [("gpu_cpu", {"MaxCPUsPerNode": "8"})]
    assert site.scontrol.partitions["gpu_cpu"]["MaxCPUsPerNode"] == "8"


def test_revert_moves_who_waits_and_waits_for_who_runs(site: Site) -> None:
    site.arranger.apply(site.wanted())
    site.queue.queue = [
        record(1, partition="gpu_small,gpu_small_lend"),
        record(2, partition="gpu_cpu_lend", reason="BeginTime"),
        record(3, partition="gpu_large", state="RUNNING"),
        record(4, partition="gpu"),
        record(5, partition="other,gpu_cpu"),
    ]
    site.queue.refuse[2] = "Job is busy"
    site.scontrol.used = {"gpu_large", "gpu_cpu_lend"}
    done = site.arranger.revert()
    assert {job.job_id: job.partition for job in site.queue.queue} == {
        1: "gpu", 2: "gpu_cpu_lend", 3: "gpu_large", 4: "gpu", 5: "other",
    }  # fmt: skip
    assert done.problems == ("job 2: Job is busy",)
    assert set(done.leaving) == site.names == site.include == site.scontrol.used
    assert {site.scontrol.partitions[name]["State"] for name in site.names} == {"DRAIN"}
    found = read_record(site.folder)
    assert found is not None
    assert (found.phase, set(found.leaving)) == ("reverting", site.names)

    site.queue.refuse.clear()
    site.scontrol.used = {"gpu_large"}
    assert site.arranger.revert().moved == (2,)
    site.arranger.apply(site.wanted())
    assert {of["State"] for of in site.scontrol.partitions.values()} == {"UP"}
    site.scontrol.used.clear()
    site.arranger.revert()
    assert (site.names, site.include) == (set(), set())


def test_a_partition_of_an_old_layout_goes_when_its_jobs_have(site: Site) -> None:
    site.arranger.apply(site.wanted())
    site.queue.queue = [record(1, partition="gpu_small,gpu_small_lend")]
    site.scontrol.used = {"gpu_small_lend"}
    done = site.arranger.apply(site.wanted(large_nodes=0))
    assert done.leaving == ("gpu_small_lend",)
    assert site.queue.queue[0].partition == "gpu_small"
    assert "gpu_large_lend" not in site.names
    assert "gpu_small_lend" in site.include
    assert site.arranger.apply(site.wanted(large_nodes=0)).leaving == ("gpu_small_lend",)
    site.scontrol.used.clear()
    assert site.arranger.apply(site.wanted(large_nodes=0)).leaving == ()
    assert site.names == site.include == {"gpu_cpu", "gpu_small", "gpu_large", "gpu_cpu_lend"}


@pytest.mark.parametrize(("before", "after"), [((8, 1), (10, 0)), ((10, 1), (8, 0)), ((8, 0), (10, 1))])
def test_no_job_is_routed_to_what_cannot_hold_it(site: Site, before: tuple[int, int], after: tuple[int, int]) -> None:
    site.arranger.apply(site.wanted(*before))
    seen: list[Words] = []
    original = site.scontrol._change

    def watched(words: Words) -> tuple[int, str, str]:
        answer = original(words)
        seen.append(words)
        routes = (site.folder / ROUTES_NAME).read_text()
        for line in routes.splitlines()[2:-1]:
            told = dict(word.split("=", 1) for word in line.split()[1:])
            there = site.scontrol.partitions[told["name"]]  # never to one that is not there
            limit = there["MaxCPUsPerNode"]
            assert there["State"] == "UP"
            assert limit == "UNLIMITED" or int(told["cores"]) <= int(limit)
            assert int(told["nodes"]) <= len(expand_hosts(there["Nodes"]))
        if "State=DRAIN" in words:
            assert routes == render_routes(site.wanted(*after).table, RoutingRules())
        return answer

    site.scontrol._change = watched  # type: ignore[method-assign]
    site.arranger.apply(site.wanted(*after))
    assert len(seen) > 4


def test_who_waits_is_not_left_where_it_can_no_longer_start(site: Site) -> None:
    site.arranger.apply(site.wanted())
    small = {"partition": "gpu_small", "gpus": 1, "gpus_per_node": 1}
    site.queue.queue = [
        record(1, cpus=20, **small),
        record(2, cpus=18, **small),
        record(3, cpus=20, state="RUNNING", **small),
        record(4, cpus=20, **small | {"partition": "gpu_small,gpu_small_lend"}),
    ]
    site.scontrol.waiting = {job: detail() for job in (1, 2, 4)}
    assert site.arranger.apply(site.wanted()).moved == ()
    done = site.arranger.apply(site.wanted(10))
    assert (done.moved, done.problems) == ((1, 4), ())
    assert [job.partition for job in site.queue.queue] == ["gpu", "gpu_small", "gpu_small", "gpu"]


def test_who_waits_in_what_goes_gets_back_to_its_own_base(site: Site) -> None:
    site.scontrol.partitions["big"] = partition(Nodes="n[1-2]", MinNodes="0")
    site.arranger.apply(site.wanted(bases=("gpu", "big")))
    site.scontrol.used = {"big_small"}
    assert site.arranger.apply(site.wanted()).leaving == ("big_small",)
    found = read_record(site.folder)
    assert found is not None
    assert (list(found.bases), found.base_of["big_small"], found.base_of["gpu_cpu"]) == (["gpu"], "big", "gpu")
    site.queue.queue = [record(1, partition="big_small")]  # one that Slurm requeued meanwhile
    assert site.arranger.apply(site.wanted()).moved == (1,)
    assert site.queue.queue[0].partition == "big"
    site.queue.queue = [record(2, partition="big_small")]
    site.arranger.revert()
    assert site.queue.queue[0].partition == "big"


def test_a_record_from_before_bases_were_kept_is_read(site: Site) -> None:
    site.arranger.apply(site.wanted())
    site.scontrol.used = {"gpu_small_lend"}
    site.arranger.apply(site.wanted(large_nodes=0))
    file = site.folder / POOLS_RECORD_NAME
    document = json.loads(file.read_text())
    del document["base_of"]
    file.write_text(json.dumps(document))
    found = read_record(site.folder)
    assert found is not None
    assert set(found.base_of.values()) == {"gpu"}
    assert "gpu_small_lend" in found.base_of


def test_partitions_that_a_restart_lost_are_made_again(site: Site) -> None:
    site.arranger.apply(site.wanted())
    del site.scontrol.partitions["gpu_small"]
    assert [(step.verb, step.name) for step in site.arranger.apply(site.wanted()).steps] == [("create", "gpu_small")]


def test_one_at_a_time(site: Site) -> None:
    with hold_lock(site.folder / POOLS_LOCK_NAME), pytest.raises(SlurmError, match="another sodactl or sodad"):
        site.arranger.apply(site.wanted())
    site.arranger.apply(site.wanted())


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 2, "table": []}'])
def test_a_record_that_cannot_be_read_is_an_error_with_a_remedy(site: Site, text: str) -> None:
    (site.folder / POOLS_RECORD_NAME).write_text(text)
    with pytest.raises(SlurmReplyError, match=POOLS_RECORD_NAME):
        read_table(site.folder)
