"""``sodactl undo``: what can be taken back, what cannot, and the record of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from slurm_soda.daemon.store.tables.scheduling import Action, AdminSetting, Epoch

from .conftest import NOW_S, SUBMIT_S, Bench, record, stored_job


@pytest.fixture
def site(soda: Bench) -> Bench:
    """Job 7 waits, and the daemon gave it SiteFactor 500."""
    soda.daemon()
    soda.add(stored_job(7))
    soda.slurm.queue = [record(7)]
    soda.slurm.factors = {7: 500}
    soda.action()
    return soda


def actions(soda: Bench) -> list[tuple[int, str, str, dict[str, str]]]:
    with soda.store.read() as session:
        return [(a.id, a.kind, a.state, a.new) for a in session.scalars(select(Action).order_by(Action.id))]


def test_an_order_is_taken_back_and_recorded(site: Bench) -> None:
    document = site("undo", "1", "--json").document
    assert document == {
        "dry_run": False, "warnings": [],
        "actions": [{"action_id": 1, "job_id": 7, "kind": "order", "restores": {"SiteFactor": "0"}, "outcome": "undone",
                     "reason": ""}],
    }  # fmt: skip
    assert site.slurm.factors == {7: 0}
    assert actions(site) == [(1, "order", "undone", {"SiteFactor": "500"}), (2, "undo", "done", {"SiteFactor": "0"})]
    with site.store.read() as session:
        made = session.get_one(Action, 2)
        assert (made.epoch_id, made.old, made.submit_s, made.finished_s) == (
            None,
            {"SiteFactor": "500"},
            SUBMIT_S,
            NOW_S,
        )


def test_a_dry_run_sends_and_records_nothing(site: Bench) -> None:
    assert site("undo", "1", "--dry-run", "--json").document["actions"][0]["outcome"] == "would undo"
    assert site.slurm.sent == []
    assert len(actions(site)) == 1


def test_a_rewrite_is_taken_back_as_one(site: Bench) -> None:
    old = {"CPUsPerTask": "4", "NumCPUs": "4"}
    site.action(kind="rewrite", new={"CPUsPerTask": "8", "NumCPUs": "8"}, old=old)
    site.slurm.queue = [record(7, cpus=8)]
    site("undo", "2")
    assert [dict(update.fields) for update in site.slurm.sent] == [old]


def test_a_request_that_somebody_else_changed_since_stays(site: Bench) -> None:
    site.action(kind="rewrite", new={"CPUsPerTask": "8", "NumCPUs": "8"}, old={"CPUsPerTask": "4", "NumCPUs": "4"})
    site.slurm.queue = [record(7, cpus=16)]
    assert "NumCPUs is now 16, not the 8 that it wrote" in site("undo", "2", status=1).out
    assert not site.slurm.sent


@pytest.mark.parametrize(("memory_mib", "kept"), [(20480, {"MinMemoryCPU": "1024"}), (3000, {})])
@pytest.mark.parametrize("command", [("undo", "2"), ("release-all",)])
def test_memory_that_the_owner_changed_since_stays(
    site: Bench, command: tuple[str, ...], memory_mib: int, kept: dict[str, str]
) -> None:
    asked = {"CPUsPerTask": "20", "NumCPUs": "20", "MinCPUsNode": "20"}
    wrote = {"CPUsPerTask": "5", "NumCPUs": "5", "MinCPUsNode": "5", "MinMemoryNode": "20480"}
    site.action(kind="rewrite", new=wrote, old=asked | {"MinMemoryCPU": "1024"})
    site.slurm.queue = [record(7, cpus=5, cpus_per_task=5, memory_mib=memory_mib)]
    site(*command)
    sent = [dict(update.fields) for update in site.slurm.sent if "NumCPUs" in dict(update.fields)]
    assert sent == [asked | kept]


def test_two_changes_of_a_request_are_taken_back_one_after_the_other(site: Bench) -> None:
    site.action(kind="rewrite", new={"NumCPUs": "3"}, old={"NumCPUs": "20"})
    site.action(kind="rewrite", new={"NumCPUs": "7"}, old={"NumCPUs": "3"})
    site.slurm.queue = [record(7, cpus=7)]
    site("undo", "--job", "7", status=None)
    assert [dict(update.fields)["NumCPUs"] for update in site.slurm.sent if "NumCPUs" in dict(update.fields)] == [
        "3",
        "20",
    ]


def test_all_of_a_job_newest_first(site: Bench) -> None:
    site.action(new={"SiteFactor": "900"}, old={"SiteFactor": "500"})
    site.slurm.factors = {7: 900}
    site.action(kind="signal", new={"Signal": "USR1"}, old={})
    document = site("undo", "--job", "7", "--json", status=1).document
    assert [(a["action_id"], a["outcome"]) for a in document["actions"]] == [
        (3, "refused"),
        (2, "undone"),
        (1, "undone"),
    ]
    assert site.slurm.factors == {7: 0}
    assert [a["action_id"] for a in site("undo", "--job", "7", "--json", status=1).document["actions"]] == [3]


def test_the_last_so_many(site: Bench) -> None:
    site.slurm.queue.append(record(8))
    site.slurm.factors[8] = 400
    site.action(8, new={"SiteFactor": "400"})
    site.action(8, state="failed")
    assert [a["action_id"] for a in site("undo", "--last", "1", "--json").document["actions"]] == [2]
    assert site.slurm.factors == {7: 500, 8: 0}


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({"kind": "requeue", "new": {}, "old": {}}, "a requeue cannot be taken back"),
        ({"kind": "signal", "new": {"Signal": "USR1"}, "old": {}}, "a signal cannot be taken back"),
        ({"kind": "start-now", "new": {"StartTime": "now"}, "old": {}}, "a started wait cannot be put back"),
        ({"kind": "undo"}, "it takes a change back itself"),
        ({"state": "failed"}, "it is failed, so there is nothing to undo"),
        ({"state": "undone"}, "it is undone"),
        ({"state": "intended", "new": {"SiteFactor": "499"}}, "it is intended"),
        ({"old": {}}, "the value before it is not known"),
        ({"submit_s": SUBMIT_S - 5}, "job 7 has ended"),
        ({"new": {"SiteFactor": "499"}}, "SiteFactor is now 500, not the 499 that it wrote: somebody else changed it"),
    ],
)
def test_what_cannot_be_undone_is_refused_with_the_reason(site: Bench, values: dict[str, Any], refusal: str) -> None:
    site.action(**values)
    (row,) = site("undo", "2", "--json", status=1).document["actions"]
    assert row["outcome"] == "refused"
    assert refusal in row["reason"]
    assert site.slurm.sent == []
    assert refusal in site("undo", "2", status=1).out


@pytest.mark.parametrize(
    ("state", "refusal"), [("RUNNING", "job 7 is running: only a waiting job"), ("COMPLETED", "job 7 has ended")]
)
def test_a_job_that_waits_no_more(site: Bench, state: str, refusal: str) -> None:
    site.slurm.queue = [replace(site.slurm.queue[0], state=state)]
    assert refusal in site("undo", "1", "--json", status=1).document["actions"][0]["reason"]


def test_a_job_that_was_held_since_can_be_undone_though_slurm_does_not_tell_its_factor(site: Bench) -> None:
    site.slurm.queue = [replace(site.slurm.queue[0], reason="JobHeldUser")]
    site("undo", "1")
    assert site.slurm.factors == {7: 0}


def test_a_later_change_of_the_same_stands_in_the_way(site: Bench) -> None:
    site.action(new={"SiteFactor": "900"}, old={"SiteFactor": "500"})
    site.slurm.factors = {7: 900}
    (row,) = site("undo", "1", "--json", status=1).document["actions"]
    assert row["reason"] == "action 2 changed the same again since; undo that first, or use --job 7"


def test_after_the_later_one_the_earlier_one_can_be_undone(site: Bench) -> None:
    site.action(new={"SiteFactor": "900"}, old={"SiteFactor": "500"})
    site.slurm.factors = {7: 900}
    site("undo", "2")
    site("undo", "1")
    assert site.slurm.factors == {7: 0}


def released(site: Bench) -> None:
    """``release-lifts`` has ended the lift of job 7 (action 2)."""
    site.action(kind="release", new={"SiteFactor": "0"}, old={"SiteFactor": "500"}, epoch_id=None)
    site.slurm.factors = {7: 0}


@pytest.mark.parametrize("pid", [4242, 1], ids=["sodad lives", "sodad is dead"])
def test_the_end_of_a_lift_is_not_undone(site: Bench, pid: int) -> None:
    with site.store.write() as session:
        session.get_one(Epoch, 1).pid = pid
    released(site)
    for dry_run in ([], ["-n"]):
        (row,) = site("undo", "2", "--json", *dry_run, status=1).document["actions"]
        assert (row["outcome"], row["restores"]) == ("refused", {})
        assert "a lift that has ended is not put back" in row["reason"]
    assert site.slurm.sent == []


def test_the_end_of_a_lift_is_not_offered(site: Bench) -> None:
    released(site)
    for chosen in (["--last", "20"], ["--job", "7"]):
        (row,) = site("undo", *chosen, "-n", "--json", status=1).document["actions"]
        assert (row["action_id"], row["reason"]) == (1, "action 2 has ended the lift already")


def test_without_sodad_nothing_is_lifted_again(site: Bench) -> None:
    site.action(new={"SiteFactor": "900"}, old={"SiteFactor": "500"})
    site.slurm.factors = {7: 900}
    (row,) = site("undo", "2", "--json").document["actions"]
    assert row["restores"] == {"SiteFactor": "500"}
    site.action(new={"SiteFactor": "900"}, old={"SiteFactor": "500"})
    site.slurm.factors, site.slurm.sent = {7: 900}, []
    site.pids.clear()
    (row,) = site("undo", "4", "--json", status=1).document["actions"]
    assert "no sodad lives that would end the lift before it (SiteFactor 500)" in row["reason"]
    assert site.slurm.sent == []


def test_without_sodad_a_chain_of_lifts_ends_at_once(site: Bench) -> None:
    site.action(new={"SiteFactor": "900"}, old={"SiteFactor": "500"})
    site.slurm.factors = {7: 900}
    site.pids.clear()
    rows = site("undo", "--job", "7", "--json").document["actions"]
    assert [(row["outcome"], row["restores"]) for row in rows] == [("undone", {"SiteFactor": "0"})] * 2
    assert [dict(update.fields) for update in site.slurm.sent] == [{"SiteFactor": "0"}] * 2


def test_what_slurm_refuses_is_failed(site: Bench) -> None:
    site.slurm.refuse = {7: "Access/permission denied"}
    (row,) = site("undo", "1", "--json", status=1).document["actions"]
    assert (row["outcome"], row["reason"]) == ("failed", "Access/permission denied")
    assert [(kind, state) for _, kind, state, _ in actions(site)] == [("order", "done"), ("undo", "failed")]


def test_an_enforcing_daemon_is_warned_of(site: Bench) -> None:
    site.add(AdminSetting(key="mode", value="enforce", changed_s=NOW_S))
    assert "sodad enforces and will set its order again" in site("undo", "1").err


@pytest.mark.parametrize(("argv", "said"), [(["99"], "there is no action 99"), (["--job", "99"], "knows no job 99")])
def test_unknown_things(site: Bench, argv: list[str], said: str) -> None:
    assert said in site("undo", *argv, status=1).err


def test_nothing_to_undo(soda: Bench) -> None:
    assert soda("undo", "--last", "5").out == "no change stands that could be undone\n"


def test_a_share_is_undone_by_what_was_recorded(site: Bench) -> None:
    wrote = {"TresPerNode": "gres/sharedgpu:g2:1", "ReqNodeList": "n1", "Extra": "soda-guest:1,hosts=5,gpus=2,undo="}
    before = {"TresPerNode": "gres/gpu:1", "ReqNodeList": "", "Extra": ""}
    site.slurm.queue = [record(7, tres_per_node=wrote["TresPerNode"], req_node_names="n1")]
    site.action(kind="share", new=wrote, old=before)
    (row,) = site("undo", "2", "--json").document["actions"]
    assert (row["outcome"], row["restores"]) == ("undone", before)
    assert [dict(update.fields) for update in site.slurm.sent] == [before]


def test_a_share_whose_request_was_changed_since_is_not_undone(site: Bench) -> None:
    site.slurm.queue = [record(7, tres_per_node="gres/gpu:4")]
    site.action(kind="share", new={"TresPerNode": "gres/sharedgpu:g2:1"}, old={"TresPerNode": "gres/gpu:1"})
    (row,) = site("undo", "2", "--json", status=1).document["actions"]
    assert (row["outcome"], "TresPerNode is now gres/gpu:4" in row["reason"]) == ("refused", True)


def test_a_lease_is_taken_back(soda: Bench) -> None:
    """The task may start; its begin time is not compared, as it is over sooner or later."""
    soda.slurm.queue = [record(7, reason="BeginTime")]
    soda.add(stored_job(7))
    with soda.store.write() as session:
        session.add(
            Action(job_id=7, submit_s=SUBMIT_S, kind="lease", state="done", created_s=NOW_S - 5, reason="",
                   new={"StartTime": "uts1700000037"}, old={"StartTime": "now"})
        )  # fmt: skip
    (row,) = soda("undo", "--last", "1", "--json").document["actions"]
    assert (row["kind"], row["restores"], row["outcome"]) == ("lease", {"StartTime": "now"}, "undone")
    assert [dict(update.fields) for update in soda.slurm.sent] == [{"StartTime": "now"}]


def test_the_end_of_a_lease_is_taken_back_also_after_a_new_lift(site: Bench) -> None:
    """The lift that it ended is not put back."""
    site.action(kind="lease", new={"StartTime": "now", "SiteFactor": "0"}, old={"StartTime": "uts1700000317"})
    site("undo", "2")
    assert [dict(update.fields) for update in site.slurm.sent] == [{"StartTime": "uts1700000317"}]
