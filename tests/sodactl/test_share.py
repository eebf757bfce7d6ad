"""``sodactl share`` and ``unshare`` with a sodad that cycles beside them: what is shown, asked for and refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_soda.daemon.store.engine import open_store
from slurm_soda.daemon.store.tables.sharing import ManualShareRow
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.sodactl.control.share_objections import find_remedy
from slurm_soda.sodactl.main import run
from slurm_soda.sodactl.site_access import CommandContext
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.harness import Daemon
from tests.daemon.sharing_daemon import sharing_settings
from tests.daemon.sharing_slurm import SharingSlurm
from tests.daemon.test_manual_shares import KIND, know
from tests.sodactl.conftest import Result

SILENT = replace(KIND, share=None, iterations=60)
BOUND = replace(KIND, iterations=60, max_slowdown=1.05)


@dataclass
class Site:
    """Job 1 runs on three of four GPUs, job 2 waits for two; the policy never shares."""

    slurm: SharingSlurm
    path: Path
    capture: Callable[[], tuple[str, str]]
    options: dict[str, Any] = field(default_factory=dict)

    def sodad(self) -> Daemon:
        config = {"state_dir": str(self.path), "policy": {"name": "tiresias-las"}, "cycle": {"interval_s": 1}}
        return Daemon(self.slurm, self.path, sharing_settings(**{**config, **self.options}))

    @contextmanager
    def cycling(self) -> Iterator[None]:
        daemon, stop = self.sodad(), threading.Event()

        def cycle() -> None:
            while not stop.wait(0.01):
                daemon.run()

        daemon.run()
        daemon.run()
        thread = threading.Thread(target=cycle)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def __call__(self, *argv: str, status: int | None = 0) -> Result:
        outside = CommandContext(
            connect=lambda settings: self.slurm, now_s=self.slurm.clock.now_s, who=lambda: "root", host=lambda: "h",
            pid_lives=lambda pid: True,
        )  # fmt: skip
        with self.cycling():
            code = run([*argv, "--config", str(self.path / "soda.toml")], outside)
        out, err = self.capture()
        assert status is None or code == status, (code, out, err)
        return Result(code, out, err)

    def wanted(self) -> list[tuple[str, int, list[int]]]:
        store = open_store(f"sqlite:///{self.path}/soda.db")
        with store.read() as session:
            return [(row.kind, row.guest, row.hosts) for row in session.query(ManualShareRow)]


@pytest.fixture
def site(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Site:
    store = open_store(f"sqlite:///{tmp_path}/soda.db")
    know(store)
    store.close()
    (tmp_path / "soda.toml").write_text(
        f'state_dir = "{tmp_path}"\nwake_path = "{tmp_path}/wake"\n[store]\nurl = "sqlite:///{tmp_path}/soda.db"\n'
        '[policy]\nname = "tiresias-las"\n[sharing]\npartitions = ["main"]\n'
    )
    slurm = SharingSlurm(FakeClock())
    slurm.submit(1, gpus=4, work_s=2000.0, hints=replace(KIND, iterations=2000))
    slurm.tick()
    slurm.submit(2, gpus=2, work_s=60.0, checkpoint="TERM", hints=replace(KIND, iterations=60))
    return Site(slurm, tmp_path, lambda: tuple(capfd.readouterr()))  # type: ignore[arg-type, return-value]


def remedies(told: Any) -> dict[str, str]:
    return {one["reason"]: one["remedy"] for one in told["objections"]}


def test_the_dry_run_tells_the_whole_arithmetic_and_does_nothing(site: Site) -> None:
    out = site("share", "2", "--with", "1").out
    for part in (
        "Job 2 would start on GPU 0, 1 of n1, beside job 1.", 'The arithmetic ("it" is job 2):', "Alone it takes 60 s;",
        "Slowdown: it takes 1.10 (set) times as long, the other one 1.10 (set) times.", "It is expected to end first, ",
        "s earlier than one after the other.", "Nothing is done yet: --yes does it.",
    ):  # fmt: skip
        assert part in out, part
    told = site("share", "2", "--with", "1", "--json").document
    assert (told["possible"], told["asked"], told["mode"], told["policy"]) == (True, False, "enforce", "tiresias-las")
    assert told["place"] == {"nodes": ["n1"], "gpus": [0, 1], "own_gpus": 0, "sub_batch": None, "steps": 1}
    assert told["decision"]["gained_s"] > 900
    assert told["objections"] == []
    assert site.wanted() == []
    assert site.slurm.requests()[2] == ("gres/gpu:2", "", "")


def test_yes_makes_a_guest_and_unshare_sends_it_back(site: Site) -> None:
    told = site("share", "2", "--with", "1", "--yes", "--json").document
    assert told["asked"] is True
    assert site.wanted() == [("share", 2, [1])]
    with site.cycling():
        pass
    site.slurm.advance(1)
    assert (site.slurm.all[2].state, site.slurm.all[2].guest) == ("RUNNING", True)
    assert remedies(site("share", "2", "--with", "1", "--json", status=1).document)[
        "it is a guest already, or waits to start as one"
    ].startswith("sodactl unshare")
    assert "job 1 is a host; name its guest: sodactl unshare 2" in site("unshare", "1", status=1).err
    site.slurm.advance(30)
    shown = site("unshare", "2")
    assert "It would be asked to save its state, be requeued" in shown.out
    assert "What it has not saved yet: 3" in shown.out
    assert site("unshare", "2", "--yes", "--json").document["asked"] is True
    assert site.wanted()[-1] == ("unshare", 2, [1])


@pytest.mark.parametrize("mode", ["observe", "advise"])
def test_in_modes_that_do_nothing_it_says_what_would_be(site: Site, mode: str) -> None:
    site.options = {"mode": mode}
    shown = site("share", "2", "--with", "1", "--yes", status=1)
    assert "Job 2 would start on GPU 0, 1 of n1, beside job 1." in shown.out
    assert (
        f"sodad only {mode}s: nothing is done, this is what would be. `sodactl mode enforce` lets it act." in shown.out
    )
    assert site.wanted() == []


@pytest.mark.parametrize(
    ("change", "reason", "remedy"),
    [
        ({2: {"hints": SILENT}}, "job 2 has not agreed to share", "--soda-share=yes"),
        ({1: {"hints": SILENT}}, "job 1 has not agreed to share", "--soda-share=yes"),
        ({2: {"user": "bob"}}, "a job of another user is there", "different_users"),
        ({2: {"hints": BOUND}}, "slows a job 1.100 times, allowed 1.050", "--soda-max-slowdown"),
        ({2: {"hints": Hints(share=True, iterations=60)}}, "nobody knows the model of job 2", "--soda-model"),
        ({2: {"batch": False}}, "it cannot be requeued, so it cannot be a guest", "batch job"),
        ({2: {"partition": "cpu"}}, "jobs of partition cpu do not share, and job 2 may run there", "partitions in"),
    ],
)  # fmt: skip
def test_every_reason_against_has_its_remedy(
    site: Site, change: dict[int, dict[str, Any]], reason: str, remedy: str
) -> None:
    for job_id, values in change.items():
        for name, value in values.items():
            setattr(site.slurm.all[job_id], name, value)
    told = site("share", "2", "--with", "1", "--yes", "--json", status=1).document
    assert (told["possible"], told["asked"], told["place"]) == (False, False, None)
    assert remedy in remedies(told)[reason]
    assert site.wanted() == []
    out = site("share", "2", "--with", "1", status=1).out
    assert f"Not possible: {reason}." in out


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        ("it cannot be a guest: limits of accounting are not known now", "ask again in a minute"),
        ("it cannot be a guest: nobody can be one now: Prolog=(null): set Prolog=…", "do that; sodad looks again"),
        ("nobody knows how much they would slow each other down", "counts within a minute: ask again then"),
        ("nobody knows how long job 2 will run", "counts within a minute: ask again then"),
    ],
)
def test_what_is_known_a_moment_later_is_to_be_asked_again(why: str, remedy: str) -> None:
    assert remedy in find_remedy(why)


def test_all_reasons_are_told_at_once(site: Site) -> None:
    site.slurm.all[2].hints, site.slurm.all[2].user = SILENT, "bob"
    assert {"job 2 has not agreed to share", "a job of another user is there"} <= remedies(
        site("share", "2", "--with", "1", "--json", status=1).document
    ).keys()


def test_what_only_costs_is_said_and_done(site: Site) -> None:
    site.slurm.all[1].hints = replace(KIND, iterations=20)
    told = site("share", "2", "--with", "1", "--yes", "--json").document
    assert told["asked"] is True
    against = [one for one in told["objections"] if not one["forbids"]]
    assert len(against) == 2
    assert any("job 2 would do" in one["reason"] for one in against)


def test_wrong_jobs_and_sites_are_refused_with_the_remedy(site: Site) -> None:
    assert "2 is the same job; name another one" in site("share", "2", "--with", "2", status=2).err
    assert "neither Slurm nor the store knows job 9" in site("share", "9", "--with", "1", status=1).err
    assert "neither Slurm nor the store knows job 9" in site("share", "2", "--with", "9", status=1).err
    assert "nobody's guest, so there is nothing to take back" in site("unshare", "2", status=1).err
    told = site("share", "1", "--with", "2", "--json", status=1).document
    assert "does not wait for GPUs" in next(iter(remedies(told)))
    site.options = {"sharing": {"partitions": []}}
    config = site.path / "soda.toml"
    config.write_text(config.read_text().replace('["main"]', "[]"))
    assert "sharing.partitions is empty" in site("share", "2", "--with", "1", status=1).err


def test_an_order_that_is_not_carried_out_yet_is_taken_back(site: Site) -> None:
    site.slurm.held = True
    site("share", "2", "--with", "1", "--yes")
    assert site("unshare", "2", "--yes", "--json").document["asked"] is True
    with site.cycling():
        pass
    with site.cycling():
        pass
    assert site.slurm.requests()[2] == ("gres/gpu:2", "", "")


def test_a_guest_that_cannot_save_its_state_stays(site: Site) -> None:
    site.slurm.all[2].checkpoint = None
    site("share", "2", "--with", "1", "--yes")
    with site.cycling():
        pass
    site.slurm.advance(20)
    told = site("unshare", "2", "--yes", "--json", status=1).document
    ((reason, remedy),) = remedies(told).items()
    assert "names no --soda-checkpoint" in reason
    assert remedy.startswith("scontrol requeue Incomplete 2 sends it back all the same, and it loses 2")
    assert site.wanted() == [("share", 2, [1])]


def runs_as_guest(site: Site) -> None:
    site("share", "2", "--with", "1", "--yes")
    with site.cycling():
        pass
    site.slurm.advance(20)
    with site.cycling():
        pass
    assert (site.slurm.all[2].state, site.slurm.all[2].guest) == ("RUNNING", True)


def test_a_guest_goes_by_hand_where_nothing_is_shared_any_more(site: Site) -> None:
    runs_as_guest(site)
    site.options = {"sharing": {"partitions": []}}
    config = site.path / "soda.toml"
    config.write_text(config.read_text().replace('["main"]', "[]"))
    with site.cycling():
        pass
    assert site.slurm.all[2].state == "RUNNING", "it runs on until somebody says so"
    assert site("unshare", "2", "--yes", "--json").document["asked"] is True
    for _ in range(3):
        with site.cycling():
            pass
        site.slurm.advance(5)
    assert site.slurm.all[2].restarts == 1
    assert site.slurm.requests()[2] == ("gres/gpu:2", "", "")


def test_a_guest_whose_gres_has_another_name_now_is_told_of(site: Site) -> None:
    runs_as_guest(site)
    site.slurm.all[2].guest = False  # as a reader shows it that looks for another GRES
    told = site("unshare", "2", "--json", status=1).document
    ((reason, remedy),) = remedies(told).items()
    assert "sharing.gres in soda.toml has another name now" in reason
    assert remedy.startswith("scontrol requeue Incomplete 2")


def test_pools_keep_sodad_from_sending_a_guest_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    runs_as_guest(site)
    monkeypatch.setattr("slurm_soda.daemon.sharing.sharing_snapshot.members_of", lambda _: object())
    assert site("unshare", "2", "--yes", "--json").document["asked"] is True
    with site.cycling():
        pass
    assert "sends no running guest back now: pools are in force" in site("explain", "2").out
    pools = SimpleNamespace(bases={"main": ()})
    monkeypatch.setattr("slurm_soda.sodactl.control.unshare.read_table", lambda _: pools)
    told = site("unshare", "2", "--yes", "--json", status=1).document
    ((reason, remedy),) = remedies(told).items()
    assert (told["possible"], reason) == (False, "pools are in force, and sodad sends no running guest back there")
    assert "scontrol requeue Incomplete 2 sends it back all the same" in remedy


def test_a_host_with_a_guest_on_one_gpu_has_another_for_the_next(site: Site) -> None:
    runs_as_guest(site)
    site.slurm.submit(3, gpus=2, work_s=60.0, checkpoint="TERM", hints=replace(KIND, iterations=60))
    site.slurm.submit(4, gpus=3, work_s=60.0, checkpoint="TERM", hints=replace(KIND, iterations=60))
    site.slurm.submit(5, gpus=1, work_s=60.0, user="bob", checkpoint="TERM", hints=replace(KIND, iterations=60))
    full = "all 2 places are taken"
    foreign = remedies(site("share", "5", "--with", "1", "--json", status=1).document)
    assert "a job of another user is there" in foreign
    assert full not in foreign, "of one GPU it is not so"
    assert full in remedies(site("share", "4", "--with", "1", "--json", status=1).document)
    told = site("share", "3", "--with", "1", "--yes", "--json").document
    assert (told["place"]["gpus"], told["objections"], told["asked"]) == ([2, 3], [], True)


def test_explain_tells_the_arithmetic_of_who_could_share_of_guest_and_of_host(site: Site) -> None:
    with site.cycling():
        pass
    told = site("explain", "2", "--json").document
    ((pair),) = told["sharing"]
    assert (pair["guest"], pair["host"], pair["now"], pair["trouble"], pair["forbidden"]) == (2, 1, False, "", [])
    assert pair["decision"]["share"] is True
    text = "\n".join(told["reasons"])
    assert "It could join job 1, as far as consent goes:" in text
    assert "Slowdown: it takes 1.10 (set) times as long" in text
    assert "`sodactl share 2 --with 1` shows what speaks against it" in text
    site("share", "2", "--with", "1", "--yes")
    with site.cycling():
        pass
    site.slurm.advance(20)
    for job in ("2", "1"):
        told = site("explain", job, "--json").document
        ((pair),) = told["sharing"]
        assert (pair["guest"], pair["host"], pair["now"]) == (2, 1, True), job
        assert "Job 2 beside job 1, by what is known now" in "\n".join(told["reasons"])
        assert "It is expected to end first, " in "\n".join(told["reasons"])
    text = "\n".join(site("explain", "2", "--json").document["reasons"])
    assert "root wanted it to share with job 1, since " in text
    assert "If its host ended now, it would do 2" in text
