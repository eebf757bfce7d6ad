"""``sodactl release-lifts``: what a dead or paused sodad lifted, taken back by somebody else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import select

from slurm_soda.daemon.cycle.epoch import DaemonEpoch, SupersededError, begin_epoch
from slurm_soda.daemon.cycle.release_stamp import STAMP_NAME
from slurm_soda.daemon.settings.scheduling import CycleSettings
from slurm_soda.daemon.store.tables.scheduling import Action, Epoch
from slurm_soda.slurm_ext.client import JobUpdate, JobUpdateResult
from slurm_soda.slurm_ext.command_runner import CompletedCommand

from .conftest import NOW_S, Bench, record, refuse_results

LEASE_S = CycleSettings().lease_s
AUTOMATIC = ("release-lifts", "--unless-alive", "--json")


@pytest.fixture
def site(soda: Bench) -> Bench:
    """7 and 8 are lifted, and 11 was before it was held; 12 is held and was never lifted, 13 runs."""
    soda.slurm.queue = [
        record(7), record(8), record(11, reason="JobHeldUser", priority=0), record(12, reason="JobHeldAdmin", priority=0),
        record(13, state="RUNNING"),
    ]  # fmt: skip
    soda.slurm.factors = {7: 500, 8: 3, 11: 77}
    return soda


def lifted_by_daemon(site: Bench, **values: object) -> None:
    site.daemon(**values)  # type: ignore[arg-type]  # columns of epoch
    for job_id, factor in site.slurm.factors.items():
        site.action(job_id, new={"SiteFactor": str(factor)})


def released(site: Bench) -> dict[int, int]:
    return {update.job_id: int(dict(update.fields)["SiteFactor"]) for update in site.slurm.sent}


def epochs(site: Bench) -> list[tuple[int, float, float | None]]:
    with site.store.read() as session:
        return [(e.pid, e.heartbeat_s, e.ended_s) for e in session.scalars(select(Epoch).order_by(Epoch.id))]


def test_while_sodad_shows_life_nothing_is_done(site: Bench) -> None:
    lifted_by_daemon(site, heartbeat_s=NOW_S - LEASE_S + 1)
    assert site(*AUTOMATIC).document["released"] is False
    assert (released(site), len(epochs(site))) == ({}, 1)


@pytest.mark.parametrize(
    "end",
    [
        {"heartbeat_s": NOW_S - LEASE_S},
        {"heartbeat_s": NOW_S + LEASE_S},
        {"pid": 1},
        {"ended_s": NOW_S - 1},
        {"host": "ctl2", "heartbeat_s": NOW_S - LEASE_S},
    ],
    ids=["paused", "clock set back", "dead", "stopped", "dead elsewhere"],
)
def test_without_sodad_lifts_end(site: Bench, end: dict[str, object]) -> None:
    lifted_by_daemon(site, **end)
    document = site(*AUTOMATIC).document
    assert (document["released"], document["complete"], document["epoch"]) == (True, True, 2)
    assert released(site) == {7: 0, 8: 0, 11: 0}, "12 was never lifted"
    (_, heartbeat_s, _), last = epochs(site)
    assert last == (0, heartbeat_s, NOW_S)
    with site.store.read() as session:
        kept = [(a.job_id, a.old) for a in session.scalars(select(Action).where(Action.kind == "release"))]
        with pytest.raises(SupersededError):
            DaemonEpoch(1).check(session)
    assert kept == [(7, {"SiteFactor": "500"}), (8, {"SiteFactor": "3"}), (11, {})]
    assert site("status", "--json", status=None).document["daemon"]["epoch"] == 1, "people are told of daemons"
    begin_epoch(site.store, host="other", pid=2, version="0", now_s=NOW_S)  # another host need not wait


@pytest.mark.parametrize("set_by_s", [-7200.0, 7200.0])
def test_a_clock_that_is_set_costs_a_living_sodad_no_lift(site: Bench, set_by_s: float) -> None:
    lifted_by_daemon(site, heartbeat_s=NOW_S - set_by_s)
    waited_s: list[float] = []

    def sleep(seconds: float) -> None:
        waited_s.append(seconds)
        if sum(waited_s) >= LEASE_S / 10:  # its next heartbeat
            with site.store.write() as session:
                session.get_one(Epoch, 1).heartbeat_s = NOW_S

    site.sleep = sleep
    assert site(*AUTOMATIC).document["released"] is False
    assert (released(site), len(epochs(site))) == ({}, 1)
    assert sum(waited_s) <= LEASE_S / 6


def test_a_paused_sodad_is_watched_no_longer_than_a_sixth_of_its_lease(site: Bench) -> None:
    lifted_by_daemon(site, heartbeat_s=NOW_S - LEASE_S - 1)
    waited_s: list[float] = []
    site.sleep = waited_s.append
    assert site(*AUTOMATIC).document["released"] is True
    assert sum(waited_s) == pytest.approx(LEASE_S / 6)


def test_a_site_where_sodad_only_observed_keeps_its_site_factors(site: Bench) -> None:
    site.daemon(pid=1)
    assert site(*AUTOMATIC).document["released"] is False
    assert (released(site), len(epochs(site))) == ({}, 1)


def test_a_daemon_of_another_host_lives_by_its_heartbeat(site: Bench) -> None:
    lifted_by_daemon(site, host="ctl2", pid=1)
    assert site(*AUTOMATIC).document["released"] is False


def test_by_hand_a_living_sodad_is_superseded(site: Bench) -> None:
    lifted_by_daemon(site)
    assert "3 SiteFactors reset" in site("release-lifts").out
    assert len(epochs(site)) == 2


def test_the_lease_is_the_configurations(site: Bench) -> None:
    lifted_by_daemon(site, heartbeat_s=NOW_S - 10)
    site.config.write_text(site.config.read_text() + "[cycle]\nlease_s = 10\n")
    assert site(*AUTOMATIC).document["released"] is True


def test_it_is_looked_at_again_for_a_while_and_then_no_more(site: Bench) -> None:
    lifted_by_daemon(site, pid=1)
    site(*AUTOMATIC)
    site.slurm.factors[8] = 3  # by a command that was on its way
    assert site(*AUTOMATIC).document["epoch"] == 2
    assert site.slurm.factors[8] == 0
    with site.store.write() as session:
        session.get_one(Epoch, 2).ended_s = NOW_S - 121
    assert site(*AUTOMATIC).document["released"] is False


def test_while_slurm_is_down_it_stays_to_be_done(site: Bench) -> None:
    lifted_by_daemon(site, pid=1)
    site.slurm.down = True
    assert "Unable to contact" in site(*AUTOMATIC, status=1).err
    assert [ended_s for _, _, ended_s in epochs(site)] == [None, None]
    site.slurm.down = False
    assert site(*AUTOMATIC).document["complete"] is True
    assert released(site) == {7: 0, 8: 0, 11: 0}


@pytest.mark.parametrize("job_id", [8, 11], ids=["shown", "held: whether it was reset is not told"])
def test_what_slurm_refuses_is_tried_again_later(site: Bench, job_id: int) -> None:
    lifted_by_daemon(site, pid=1)
    site.slurm.refuse = {job_id: "Access/permission denied"}
    shown = site(*AUTOMATIC, status=1).document
    errors = {row["job_id"]: row["error"] for row in shown["changes"]}
    assert errors == {7: "", 8: "", 11: "", job_id: "Access/permission denied"}
    assert epochs(site)[-1][2] is None


def test_a_sodad_that_is_started_meanwhile_keeps_its_lifts(site: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for job_id in range(100, 220):
        site.slurm.queue.append(record(job_id))
        site.slurm.factors[job_id] = 9
    lifted_by_daemon(site, pid=1)
    send = site.slurm.update

    def update(updates: Sequence[JobUpdate]) -> list[JobUpdateResult]:
        monkeypatch.setattr(site.slurm, "update", send)
        begin_epoch(site.store, host="ctl", pid=2, version="0", now_s=NOW_S)
        return send(updates)

    monkeypatch.setattr(site.slurm, "update", update)
    document = site(*AUTOMATIC).document
    assert "was started meanwhile" in document["warnings"][0]
    assert 0 < len(released(site)) <= 50


@pytest.mark.parametrize("url", ["sqlite:////nonexistent/soda.db", "sqlite:////etc/hostname"])
@pytest.mark.parametrize(
    ("age_s", "pid", "ends"), [(LEASE_S, 4242, True), (1, 1, True), (1, 4242, False), (None, 0, True)]
)
def test_without_a_store_the_lock_file_tells(
    site: Bench, tmp_path: Path, url: str, age_s: float | None, pid: int, ends: bool
) -> None:
    site.config.write_text(f'state_dir = "{tmp_path}"\n[store]\nurl = "{url}"\n')
    if age_s is not None:
        (tmp_path / "sodad.lock").write_text(f"{pid}\n")
        os.utime(tmp_path / "sodad.lock", (NOW_S - age_s, NOW_S - age_s))
    assert site(*AUTOMATIC).document["released"] is ends
    assert released(site) == ({7: 0, 8: 0, 11: 0, 12: 0} if ends else {})


def test_changes_that_cannot_be_recorded_are_made(site: Bench) -> None:
    lifted_by_daemon(site, pid=1)
    with site.store.engine.connect() as other:
        other.exec_driver_sql("CREATE TRIGGER full BEFORE INSERT ON action BEGIN SELECT RAISE(ABORT, 'full'); END")
        other.commit()
    assert "not recorded: full" in site(*AUTOMATIC).document["warnings"][0]
    assert site.slurm.factors == {7: 0, 8: 0, 11: 0}


def test_results_that_cannot_be_recorded_send_nothing_twice(site: Bench) -> None:
    lifted_by_daemon(site, pid=1)
    refuse_results(site)
    document = site(*AUTOMATIC).document
    assert document["warnings"] == ["the changes are sent, and what became of them is not recorded: full"]
    assert (document["complete"], [update.job_id for update in site.slurm.sent]) == (True, [7, 8, 11])
    assert site.slurm.factors == {7: 0, 8: 0, 11: 0}


@pytest.mark.parametrize("writable", [True, False])
def test_without_a_store_what_slurm_hides_is_reset_once(site: Bench, tmp_path: Path, writable: bool) -> None:
    """The timer runs it every 10 s until a person has brought the store back."""
    config = site.config.read_text()
    site.config.write_text(f'state_dir = "{tmp_path}"\n[store]\nurl = "sqlite:////nonexistent/soda.db"\n')
    if not writable:
        (tmp_path / STAMP_NAME).symlink_to(tmp_path / "elsewhere")
    hidden = [11, 12]
    assert site(*AUTOMATIC).document["complete"] is True
    assert sorted(released(site)) == [7, 8, *hidden]
    site.slurm.sent.clear()
    site.slurm.factors[8] = 5
    assert site(*AUTOMATIC).document["complete"] is True
    assert sorted(released(site)) == [8, *([] if writable else hidden)]
    assert not (tmp_path / "elsewhere").exists()
    if writable:
        site.config.write_text(f'state_dir = "{tmp_path}"\n{config}')
        site(*AUTOMATIC)  # with the store, from which lifts may come again
        assert not (tmp_path / STAMP_NAME).exists()


@pytest.mark.parametrize("during", ["jobs", "update"])
def test_a_store_that_is_removed_meanwhile_keeps_no_lift(
    site: Bench, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    lifted_by_daemon(site, pid=1)
    answer = getattr(site.slurm, during)

    def remove_store(*arguments: object) -> object:
        (site.config.parent / "soda.db").unlink(missing_ok=True)
        return answer(*arguments)

    monkeypatch.setattr(site.slurm, during, remove_store)
    document = site(*AUTOMATIC).document
    assert [("was removed" in warning) for warning in document["warnings"]] == [True]
    assert (document["complete"], [update.job_id for update in site.slurm.sent]) == (True, [7, 8, 11])


def test_others_than_root_and_slurm_user_are_refused(site: Bench, tmp_path: Path) -> None:
    site.uid = 2001
    assert "only root and SlurmUser" in site(*AUTOMATIC, status=1).err
    assert released(site) == {}
    site.config.write_text(site.config.read_text().replace("[store]", f'state_dir = "{tmp_path}"\n[store]'))
    site.uid = tmp_path.stat().st_uid
    lifted_by_daemon(site, pid=1)
    assert site(*AUTOMATIC).document["released"] is True


def test_slurms_word_for_slurm_user_counts_where_the_state_directory_has_changed_hands(site: Bench) -> None:
    """As after a backup that root brought back: sodad cannot start then, and nobody else would end its lifts."""

    def scontrol(argv: Sequence[str], **_: object) -> CompletedCommand:
        assert list(argv) == ["scontrol", "show", "config"]
        return CompletedCommand(tuple(argv), 0, b"SlurmUser               = slurm(2001)\n", b"")

    site.commands = scontrol
    lifted_by_daemon(site, pid=1)
    site.uid = 2002
    assert "only root and SlurmUser" in site(*AUTOMATIC, status=1).err
    site.uid = 2001
    assert site(*AUTOMATIC).document["released"] is True
    assert site.slurm.factors == {7: 0, 8: 0, 11: 0}


def test_it_says_why_there_is_nothing_to_do(site: Bench, tmp_path: Path) -> None:
    def why() -> str:
        out = site("release-lifts", "--unless-alive").out
        assert out.startswith("nothing to do: ")
        return out

    assert "this store has no change of the order of jobs" in why()
    site.action(7, epoch_id=None)
    assert "no sodad has ever run with this store" in why()
    lifted_by_daemon(site)
    assert "sodad lives (pid 4242 on ctl): its heartbeat is 1 s old" in why()
    assert "sodad lives" in site(*AUTOMATIC).document["why"]
    with site.store.write() as session:
        session.get_one(Epoch, 1).heartbeat_s = NOW_S + 0.3  # written after this command looked at the clock
    assert "its heartbeat is 0 s old" in why()
    site.pids.clear()
    assert site(*AUTOMATIC).document["why"] == ""
    with site.store.write() as session:
        session.get_one(Epoch, 2).ended_s = NOW_S - 121
    assert "the lifts of the last sodad were taken back 2 min 01 s ago" in why()
    assert not guests_sent(site)
    site.pids.add(4242)
    (tmp_path / "sodad.lock").write_text("4242\n")
    os.utime(tmp_path / "sodad.lock", (NOW_S - 3, NOW_S - 3))
    site.config.write_text(f'state_dir = "{tmp_path}"\n[store]\nurl = "sqlite:////nonexistent/soda.db"\n')
    assert "sodad lives (pid 4242): it dated sodad.lock 3 s ago" in why()


@pytest.mark.parametrize("command", [AUTOMATIC, ("release-all", "--json")])
def test_where_no_job_can_have_a_lift(site: Bench, command: Sequence[str]) -> None:
    """PriorityType=priority/basic: Slurm tells no SiteFactors, and that is no reason to fail."""
    site.slurm.basic_priority = True
    site(*command)
    assert 7 not in released(site)


GUEST = {"tres_per_node": "gres/sharedgpu:g2:1", "gpus": 1, "shared_gpus": 1, "req_node_names": "n1"}
EXTRA = "soda-guest:1,hosts=5,gpus=2,undo=TresPerNode=gres/gpu:1;ReqNodeList="
OWN_REQUEST = {"TresPerNode": "gres/gpu:1", "ReqNodeList": "", "Extra": ""}


def guests_sent(site: Bench) -> list[tuple[int, dict[str, str]]]:
    return [(u.job_id, dict(u.fields)) for u in site.slurm.sent if "Extra" in dict(u.fields)]


def test_a_waiting_guest_gets_its_own_request_and_a_running_one_once_it_waits(site: Bench) -> None:
    lifted_by_daemon(site, heartbeat_s=NOW_S - LEASE_S)
    site.slurm.queue += [record(21, **GUEST), record(22, state="RUNNING", array_job_id=22, array_task="3", **GUEST)]
    site.slurm.extra_of = {21: EXTRA, 22: EXTRA}
    said = site(*AUTOMATIC).document["warnings"]
    assert (guests_sent(site), said) == (
        [(21, OWN_REQUEST)],
        ["guests get their own requests once they wait again: 22_3"],
    )
    with site.store.read() as session:
        kept = {(a.job_id, a.state) for a in session.scalars(select(Action).where(Action.kind == "unshare"))}
    assert kept == {(21, "done")}

    site.slurm.queue = [record(22, **GUEST)]  # a host ended long after sodad
    with site.store.write() as session:
        session.get_one(Epoch, 2).ended_s = NOW_S - 121
    site.slurm.sent.clear()
    document = site(*AUTOMATIC).document
    assert (guests_sent(site), document["released"]) == ([(22, OWN_REQUEST)], True)


def test_a_leader_on_another_host_keeps_its_waiting_guests(site: Bench) -> None:
    """The timer of a host whose own sodad is dead reads the same store, in which nothing has changed yet."""
    site.daemon(pid=1, host="other")
    site.slurm.queue += [record(21, **GUEST)]
    site.slurm.extra_of = {21: EXTRA}
    document = site(*AUTOMATIC).document
    assert (guests_sent(site), document["released"]) == ([], False)
    assert "sodad lives (pid 1 on other)" in document["why"]


@pytest.mark.parametrize("store", ["new", "of changes alone", "of a sodad that only observed"])
def test_a_store_that_knows_no_lift_keeps_no_guest_from_its_own_request(site: Bench, store: str) -> None:
    """It is a new one, or an older one that was brought back."""
    if store == "of changes alone":
        site.action(7, epoch_id=None)
    elif store == "of a sodad that only observed":
        site.daemon(pid=1)
    site.slurm.queue += [record(21, **GUEST)]
    site.slurm.extra_of = {21: EXTRA}
    said = site("release-lifts", "--unless-alive").out
    assert guests_sent(site) == [(21, OWN_REQUEST)]
    assert "0 SiteFactors reset\n1 waiting guest given the own request again" in said
    assert site.slurm.factors == {7: 500, 8: 3, 11: 77}, "those may be the site's own"


@pytest.mark.parametrize("lifts", [True, False])
def test_guests_of_a_living_sodad_stay(site: Bench, lifts: bool) -> None:
    (lifted_by_daemon if lifts else Bench.daemon)(site, heartbeat_s=NOW_S - LEASE_S + 1)
    site.slurm.queue += [record(21, **GUEST)]
    site.slurm.extra_of = {21: EXTRA}
    site(*AUTOMATIC)
    assert guests_sent(site) == []


def test_without_a_store_guests_get_their_own_requests(site: Bench) -> None:
    site.slurm.queue = [record(21, **GUEST)]
    site.store.close()
    (site.config.parent / "soda.db").unlink()
    for argv in (("release-lifts",), ("release-all",)):
        site.slurm.sent.clear()
        site.slurm.extra_of = {21: EXTRA}
        site(*argv, status=None)
        assert guests_sent(site) == [(21, OWN_REQUEST)], argv
