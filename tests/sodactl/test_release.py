"""``sodactl release-all``: out, in every state that slurm-soda itself may be in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import select

from slurm_soda.daemon.store.tables.scheduling import Action, AdminSetting
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.write.start_leases import lease_end_s

from .conftest import NOW_S, SUBMIT_S, Bench, record, refuse_results, stored_job


@pytest.fixture
def site(soda: Bench) -> Bench:
    """7 and 8 are ordered by us, 9 waits out our requeue; 10 has a user's begin time, 11 and 12 are held.

    Slurm does not tell the SiteFactor of 9 to 12.
    """
    soda.slurm.queue = [
        record(7), record(8), record(9, reason="BeginTime", restarts=1, eligible_s=SUBMIT_S + 121),
        record(10, reason="BeginTime", eligible_s=NOW_S + 9000), record(11, reason="JobHeldUser", priority=0),
        record(12, reason="JobHeldAdmin", priority=0), record(13, state="RUNNING"),
    ]  # fmt: skip
    soda.slurm.factors = {7: 500, 8: -3, 11: 77}
    return soda


RELEASED = dict.fromkeys((7, 8, 9, 10, 11, 12), 0)


def test_everything_of_ours_goes_and_nothing_else(site: Bench) -> None:
    site.daemon()
    document = site("release-all", "--json").document
    assert (document["mode_set"], document["warnings"]) == ("observe", [])
    sent = [(update.job_id, dict(update.fields)) for update in site.slurm.sent]
    zero = {"SiteFactor": "0"}
    assert sent == [(7, zero), (8, zero), (9, zero), (10, zero), (11, zero), (12, zero)]
    assert site.slurm.factors == RELEASED
    with site.store.read() as session:
        setting = session.get_one(AdminSetting, "mode")
        assert (setting.value, setting.changed_by) == ("observe", "root (release-all)")
        kept = [(a.job_id, a.kind, a.state, a.submit_s, a.epoch_id) for a in session.scalars(select(Action))]
    assert kept == [(job_id, "release", "done", SUBMIT_S, None) for job_id, _ in sent]


def test_what_a_living_sodad_sent_last_is_taken_back_too(site: Bench) -> None:
    """Its cycle began in mode enforce, and sends a chunk after the first look at Slurm."""
    site.daemon()
    site.cycle(mode="enforce")
    waits = 0

    def sleep(_s: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 2:
            site.slurm.factors[8] = 16
        if waits == 3:
            site.cycle(mode="observe")

    site.sleep = sleep
    site("release-all")
    assert site.slurm.factors == RELEASED
    assert waits > 3


def test_a_cycle_that_never_ends_does_not_keep_anybody(site: Bench) -> None:
    site.daemon()
    site.cycle(mode="enforce")
    site("release-all")
    assert site.slurm.factors == RELEASED


def test_a_requeued_jobs_release_is_in_its_own_story(site: Bench) -> None:
    site.add(stored_job(9, submit_s=SUBMIT_S - 700))
    site("release-all")
    changes = site("explain", "9", "--json").document["changes"]
    assert [change["kind"] for change in changes] == ["release"]


def test_a_release_after_an_end_that_sodad_saw_is_in_its_story(site: Bench) -> None:
    """It ended, and its owner requeued it while sodad was down."""
    site.add(stored_job(9, submit_s=SUBMIT_S - 700, state="FAILED", end_s=SUBMIT_S - 100))
    site("release-all")
    assert len(site("explain", "9", "--json").document["changes"]) == 1


def test_a_second_time_only_resets_what_slurm_does_not_tell(site: Bench) -> None:
    assert "6 changes sent" in site("release-all").out
    site.slurm.sent.clear()
    site("release-all")
    assert [update.job_id for update in site.slurm.sent] == [9, 10, 11, 12]


def test_nothing_to_release(soda: Bench) -> None:
    soda.slurm.queue = [record(7), record(8, state="RUNNING")]
    assert "nothing of ours is in Slurm" in soda("release-all").out


GUEST = {"tres_per_node": "gres/sharedgpu:g2:1", "gpus": 1, "shared_gpus": 1, "req_node_names": "n1"}


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED", "COMPLETING"])
@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_guests_that_run_are_named_and_left(soda: Bench, options: tuple[str, ...], state: str) -> None:
    """Once prolog and epilog are gone they would start again beside somebody who did not agree."""
    soda.slurm.queue = [
        record(7, state=state, **GUEST),
        record(8, state="RUNNING"),
        record(9, state="COMPLETED", **GUEST),
        record(14, state=state, array_job_id=14, array_task="2", **GUEST),
    ]
    shown = soda("release-all", *options, status=1)
    assert "`scontrol requeue Incomplete JOB`" in shown.err
    assert "running on GPUs of other jobs: 7, 14_2. Leave prolog and epilog where they are" in shown.err
    assert "nothing of ours can be taken back now" in shown.out
    assert soda("release-all", *options, "--json", status=1).document["running_guests"] == ["7", "14_2"]


def test_a_guest_that_waits_for_its_begin_time_after_a_requeue_gets_its_own_request(soda: Bench) -> None:
    soda.slurm.queue = [record(7, reason="BeginTime", restarts=1, eligible_s=NOW_S + 121, **GUEST)]
    soda.slurm.extra_of = {7: "soda-guest:1,hosts=5,gpus=2,undo=TresPerNode=gres/gpu:1;ReqNodeList="}
    document = soda("release-all", "--json").document
    assert document["running_guests"] == []
    assert {"TresPerNode": "gres/gpu:1", "ReqNodeList": "", "Extra": ""}.items() <= document["changes"][0][
        "new"
    ].items()


@pytest.mark.parametrize("url", ["sqlite:////nonexistent/soda.db", "nonsense", "sqlite:////etc/hostname"])
def test_without_a_readable_store(site: Bench, url: str) -> None:
    site.config.write_text(f'[store]\nurl = "{url}"\n')
    shown = site("release-all")
    assert "6 changes sent" in shown.out
    assert "the mode stays as it is and nothing is recorded" in shown.err
    assert site.slurm.factors == RELEASED


def test_a_store_of_another_version_does_not_stop_it(site: Bench) -> None:
    with site.store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    assert "newer" in site("release-all").err
    assert site.slurm.factors[7] == 0


def test_a_broken_configuration_does_not_stop_it(site: Bench) -> None:
    site.config.write_text("[store\n")
    shown = site("release-all")
    assert "defaults instead of the configuration" in shown.err
    assert site.slurm.factors[7] == 0


def test_a_store_that_is_damaged_is_one_line(site: Bench) -> None:
    with site.store.engine.connect() as other:
        other.exec_driver_sql("ALTER TABLE admin_setting RENAME TO gone")
        other.commit()
    shown = site("release-all")
    assert "nothing is recorded: no such table: admin_setting" in shown.err
    assert site.slurm.factors[7] == 0
    assert site("mode", "advise", status=1).err.startswith("sodactl: store sqlite:///")


def test_changes_that_cannot_be_recorded_are_made(site: Bench) -> None:
    with site.store.engine.connect() as other:
        other.exec_driver_sql("ALTER TABLE action RENAME TO gone")
        other.commit()
    assert "the changes are not recorded: no such table: action" in site("release-all").err
    assert site.slurm.factors == RELEASED


def test_results_that_cannot_be_recorded_send_nothing_twice(site: Bench) -> None:
    refuse_results(site)
    assert "what became of them is not recorded: full" in site("release-all").err
    assert len(site.slurm.sent) == len({(update.job_id, update.fields) for update in site.slurm.sent})
    assert site.slurm.factors == RELEASED


def test_a_dry_run_changes_nothing(site: Bench) -> None:
    document = site("release-all", "--dry-run", "--json").document
    assert [row["job_id"] for row in document["changes"]] == [7, 8, 9, 10, 11, 12]
    assert document["mode_set"] is None
    assert site.slurm.sent == []
    with site.store.read() as session:
        assert session.get(AdminSetting, "mode") is None
        assert list(session.scalars(select(Action))) == []
    assert "6 changes would be sent" in site("release-all", "-n").out


def test_what_slurm_refuses_is_said(site: Bench) -> None:
    site.slurm.refuse = {8: "Access/permission denied"}
    shown = site("release-all", status=1)
    assert "Access/permission denied" in shown.out
    assert "5 changes sent" in shown.out
    assert "1 change failed" in shown.err


def test_slurm_down_is_one_error_and_the_mode_is_set_all_the_same(site: Bench) -> None:
    site.slurm.down = True
    assert "Unable to contact slurm controller" in site("release-all", status=1).err
    assert site("mode", "--json").document["value"] == "observe"


def test_an_admins_own_site_factor_is_not_told_apart(site: Bench) -> None:
    """SiteFactor belongs to slurm-soda on a site that runs it: the documentation says so."""
    site.slurm.queue = [replace(record(20), priority=5)]
    site.slurm.factors = {20: 9}
    site("release-all")
    assert site.slurm.factors == {20: 0}


def test_requests_for_cores_go_back_to_what_their_users_asked(site: Bench) -> None:
    site.daemon()
    wrote, asked = {"CPUsPerTask": "3", "NumCPUs": "3"}, {"CPUsPerTask": "20", "NumCPUs": "20"}
    for job_id in (7, 8, 13):
        site.action(job_id, kind="rewrite", new=wrote, old=asked)
    site.slurm.queue = [record(7, cpus=3), record(8, cpus=5), record(13, cpus=3, state="RUNNING")]
    assert "NumCPUs=20" in site("release-all", "-n").out
    site("release-all")
    cpus = {update.job_id: dict(update.fields) for update in site.slurm.sent if "NumCPUs" in dict(update.fields)}
    assert cpus == {7: asked}, "8 was changed by somebody else, 13 runs"
    with site.store.read() as session:
        states = [a.state for a in session.scalars(select(Action).where(Action.kind == "rewrite").order_by(Action.id))]
    assert states == ["undone", "done", "done"]


def test_partitions_of_pools_stay_and_a_place_in_line_goes(site: Bench) -> None:
    site.daemon()
    borrowing = {"Partition": "gpu_cpu_lend,gpu_cpu"}
    site.action(7, kind="rewrite", new={"Partition": "gpu_cpu"}, old=borrowing)
    back = {"Partition": "gpu_cpu", "SiteFactor": "500", "StartTime": "now"}
    site.action(9, kind="rewrite", new=back, old={**borrowing, "SiteFactor": "3"})
    site("release-all")
    assert not [update for update in site.slurm.sent if "Partition" in dict(update.fields)]
    assert (site.slurm.factors[7], site.slurm.factors[9]) == (0, 0)


def test_a_place_in_line_that_was_lifted_before_is_not_lifted_again(site: Bench) -> None:
    """Slurm does not tell the SiteFactor of 9."""
    site.daemon()
    site.action(9, kind="rewrite", new={"SiteFactor": "500", "StartTime": "now"}, old={"SiteFactor": "3"})
    site("release-all")
    assert {dict(update.fields).get("SiteFactor", "0") for update in site.slurm.sent} == {"0"}


def test_a_user_who_sees_no_job_is_not_told_that_there_is_nothing(soda: Bench) -> None:
    soda.uid = 2001
    soda.config.write_text('[store]\nurl = "sqlite:////nonexistent/soda.db"\n')
    for dry_run in ([], ["-n"]):
        shown = soda("release-all", *dry_run, status=1)
        assert "nothing of ours is in what this user may see: run this as root or SlurmUser" in shown.out
    soda.uid = 0
    assert "no SiteFactor of ours is in Slurm; of requests for cores only the store tells" in soda("release-all").out


def test_leases_of_services_tasks_end_and_a_begin_time_of_the_owner_stays(soda: Bench) -> None:
    """By what Slurm shows alone; without them the rest of an array is one record, and stays one."""
    at_s = float(lease_end_s(NOW_S, 300.0))
    service, waits = Hints(service="answers"), {"reason": "BeginTime"}
    soda.slurm.queue = [
        record(7, array_job_id=7, array_task="2-4", eligible_s=at_s, hints=service, **waits),
        record(8, eligible_s=at_s, **waits),
        record(9, eligible_s=at_s + 3600.0, hints=service, **waits),
    ]
    document = soda("release-all", "--json").document
    leases = [(row["job_id"], row["new"]) for row in document["changes"] if row["kind"] == "lease"]
    assert leases == [(7, {"StartTime": "now"})]
