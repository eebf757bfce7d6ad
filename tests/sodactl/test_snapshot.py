"""``sodactl snapshot dump`` and ``sodactl decide``, with a sodad that cycles beside them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from slurm_soda.daemon.cycle.snapshot_requests import SETTING, SnapshotRequests, answer_path
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.queries import put_admin_setting
from slurm_soda.daemon.store.tables.scheduling import AdminSetting
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.policies.snapshot_file.document import SnapshotDump, plan_bytes, read_dump, write_dump
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.engine.deciders.snapshot_decider import SnapshotDecider
from slurm_soda.simulator.engine.run import simulate
from slurm_soda.simulator.generators.registry import generate_workload
from slurm_soda.sodactl.bench.synthetic_cluster import busy_cluster, idle_cluster
from slurm_soda.sodactl.main import run
from slurm_soda.sodactl.site_access import CommandContext
from tests.daemon.fake_slurm import FakeClock, FakeSlurm
from tests.daemon.harness import Daemon, settings
from tests.daemon.pool_slurm import BOTH, LEND, PoolSlurm, put_in_force, table
from tests.sampling import some
from tests.sodactl.conftest import Result

REQUEST = "0123456789abcdef"


@dataclass
class Site:
    """A loaded small Slurm, its sodad, and sodactl on the same host."""

    slurm: FakeSlurm
    path: Path
    capture: Callable[[], tuple[str, str]]
    options: dict[str, Any]
    host: str = "h"
    alive: bool = True

    def sodad(self) -> Daemon:
        return Daemon(self.slurm, self.path, settings(state_dir=str(self.path), **self.options))

    @contextmanager
    def cycling(self) -> Iterator[None]:
        """Cycle after cycle in another thread, until the block ends."""
        sodad, stop = self.sodad(), threading.Event()

        def cycle() -> None:
            while not stop.wait(0.01):
                sodad.run()

        thread = threading.Thread(target=cycle)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def __call__(self, *argv: str, status: int = 0) -> Result:
        outside = CommandContext(
            now_s=self.slurm.clock.now_s, who=lambda: "root", host=lambda: self.host, pid_lives=lambda pid: self.alive
        )
        code = run(argv, outside)
        out, err = self.capture()
        assert code == status, (code, out, err)
        return Result(code, out, err)

    def dump(self, file: Path, *more: str) -> Result:
        with self.cycling():
            return self("snapshot", "dump", str(file), *more, "--config", str(self.path / "soda.toml"))

    def sodad_refuses(self, file: Path) -> Result:
        with self.cycling():
            return self("snapshot", "dump", str(file), "--config", str(self.path / "soda.toml"), status=1)

    def requests(self) -> list[str]:
        store = open_store(f"sqlite:///{self.path}/soda.db")
        with store.read() as session:
            return [row.value for row in session.query(AdminSetting) if row.key == SETTING]


@pytest.fixture
def site(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Site:
    open_store(f"sqlite:///{tmp_path}/soda.db").close()
    (tmp_path / "soda.toml").write_text(
        f'state_dir = "{tmp_path}"\nwake_path = "{tmp_path}/wake"\n[store]\nurl = "sqlite:///{tmp_path}/soda.db"\n'
    )
    slurm = FakeSlurm(FakeClock())
    slurm.submit(4711, gpus=4, work_s=500.0, user="secret-zoe")
    slurm.tick()
    found = Site(slurm, tmp_path, lambda: tuple(capfd.readouterr()), {})  # type: ignore[arg-type, return-value]
    slurm.advance(150)  # past a threshold
    slurm.submit(4712, gpus=2, user="secret-ann")
    slurm.submit(4713, gpus=2, user="secret-zoe")
    found.options = {"mode": "advise"}  # the same is decided in every cycle
    return found


@pytest.mark.parametrize("name", ["dump.json", "dump.json.gz"])
def test_a_dump_decides_what_sodad_decided(site: Site, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    told = site.dump(file, "--json").document
    assert (told["jobs"], told["nodes"], told["decides_the_same"], told["stand_ins"]) == (3, 1, True, True)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_bytes().startswith(b"\x1f\x8b" if name.endswith("gz") else b'{"format":')
    assert b"secret" not in write_dump(read_dump(file.read_bytes()))
    decided = site("decide", str(file), "--json").document
    assert decided["same_as_recorded"] is True
    assert [action["id"] for action in decided["actions"] if action["id"].startswith("preempt")] == ["preempt:1"]
    assert "the same as sodad decided" in site("decide", str(file)).out
    assert not list(tmp_path.glob("snapshot-*"))
    assert not site.requests()


def test_names_stay_when_asked(site: Site, tmp_path: Path) -> None:
    out = site.dump(tmp_path / "dump", "--names").out
    assert "3 jobs, 1 nodes, with all names" in out
    text = site("decide", str(tmp_path / "dump")).out
    assert "secret-ann" in text
    assert "preempt:4711" in text
    assert "its place goes to jobs 4712, 4713, which rank before it" in text


def test_another_policy_and_other_parameters(site: Site, tmp_path: Path) -> None:
    file = str(tmp_path / "dump")
    site.dump(Path(file), "--names")
    fifo = site("decide", file, "--policy", "fifo", "--json").document
    assert (fifo["policy"], fifo["starts"], fifo["same_as_recorded"]) == ("fifo", [], None)
    patient = site("decide", file, "--set", "min_run_s=9000", "--json").document
    assert patient["parameters"]["thresholds_gpu_s"] == [100.0], "the others stay as sodad had them"
    assert not [action for action in patient["actions"] if action["id"].startswith("preempt")]
    assert "--set" in site("decide", file, "--set", "luck=1", status=2).err
    assert "there is no policy" not in site("decide", file, "--policy", "lottery", status=2).out


def test_an_observing_sodad_has_no_plan(site: Site, tmp_path: Path) -> None:
    site.options = {"mode": "observe"}
    told = site.dump(tmp_path / "dump", "--json")
    assert (told.document["recorded_plan"], told.document["decides_the_same"]) == (False, None)
    assert "there is no plan in it" in told.err
    decided = site("decide", str(tmp_path / "dump"), "--json").document
    assert decided["same_as_recorded"] is None
    assert decided["order"]


def test_a_file_that_is_there_stays(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "precious"
    file.write_text("mine")
    argv = ("snapshot", "dump", "--config", str(tmp_path / "soda.toml"))
    assert "is there already and is not replaced" in site(*argv, str(file), status=1).err
    assert file.read_text() == "mine"
    dangling = tmp_path / "link"
    dangling.symlink_to(tmp_path / "elsewhere")
    assert "is there already" in site(*argv, str(dangling), status=1).err
    assert not site.requests()


def test_a_file_that_cannot_be_written(site: Site, tmp_path: Path) -> None:
    with site.cycling():
        told = site("snapshot", "dump", f"{tmp_path}/no/dump", "--config", f"{tmp_path}/soda.toml", status=1)
    assert told.err == f"sodactl: {tmp_path}/no/dump cannot be written: No such file or directory\n"


def test_no_sodad_or_one_elsewhere_or_one_that_hangs(site: Site, tmp_path: Path) -> None:
    site.sodad()
    argv = ("snapshot", "dump", f"{tmp_path}/dump", "--wait", "0", "--config", f"{tmp_path}/soda.toml")
    assert "sodad has written no snapshot within 0 s" in site(*argv, status=1).err
    site.host = "login"
    assert "sodad runs on h and leaves the snapshot there; run this on h" in site(*argv, status=1).err
    site.host, site.alive = "h", False
    assert "sodad is not running" in site(*argv, status=1).err
    assert not site.requests(), "nothing is asked for that nobody waits for"


@pytest.mark.parametrize("request_", ["../../etc/passwd", "0123", "0123456789ABCDEF", REQUEST + "\n"])
def test_a_request_of_another_form_is_dropped(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture, request_: str
) -> None:
    sodad = site.sodad()
    with sodad.store.write() as session:
        put_admin_setting(session, SETTING, request_, now_s=0.0, by="root")
    assert not sodad.run().error
    assert "snapshot-not-written" in caplog.text
    assert not list(tmp_path.rglob("snapshot-*"))
    assert not site.requests()


def test_a_snapshot_that_cannot_be_left_does_not_stop_a_cycle(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sodad = site.sodad()
    with sodad.store.write() as session:
        put_admin_setting(session, SETTING, REQUEST, now_s=0.0, by="root")
    requests = SnapshotRequests(sodad.store, tmp_path / "gone")
    requests.serve(REQUEST, idle_cluster(3, 2, 1), make_policy("fifo"))
    assert "snapshot-not-written" in caplog.text
    assert not site.requests()


@pytest.mark.parametrize("error", [ValueError("Out of range float values"), OSError(28, "No space left on device")])
def test_a_snapshot_that_cannot_be_written_costs_only_the_dump(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(_dump: SnapshotDump) -> bytes:
        raise error

    sodad = site.sodad()
    monkeypatch.setattr("slurm_soda.daemon.cycle.snapshot_requests.write_dump", fail)
    with sodad.store.write() as session:
        put_admin_setting(session, SETTING, REQUEST, now_s=0.0, by="root")
    assert not sodad.run().error
    assert f"snapshot-not-written error={json.dumps(f'{type(error).__name__}: {error}')}" in caplog.text
    assert not site.requests()
    told = site.sodad_refuses(tmp_path / "dump")
    assert told.err == f"sodactl: sodad could not write the snapshot: {type(error).__name__}: {error}\n"
    assert not (tmp_path / "dump").exists()


def test_a_store_that_is_locked_costs_only_the_dump(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    sodad = site.sodad()
    requests = SnapshotRequests(sodad.store, site.path)
    with sodad.store.write() as session:
        put_admin_setting(session, SETTING, REQUEST, now_s=0.0, by="root")

    def locked(_store: Store) -> None:
        raise OperationalError("DELETE", {}, Exception("database is locked"))

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", locked)
        requests.serve(REQUEST, idle_cluster(3, 2, 1), make_policy("fifo"))
    assert site.requests() == [REQUEST], "it is answered by the next cycle"
    assert not sodad.run().error
    assert answer_path(site.path, REQUEST).exists()


def test_a_request_that_was_withdrawn_meanwhile_has_no_answer(site: Site) -> None:
    SnapshotRequests(site.sodad().store, site.path).serve(REQUEST, idle_cluster(3, 2, 1), make_policy("fifo"))
    assert not answer_path(site.path, REQUEST).exists()


def test_an_answer_that_nobody_fetched_goes_with_the_next(site: Site, tmp_path: Path) -> None:
    sodad = site.sodad()
    for request in (REQUEST, REQUEST[::-1]):
        with sodad.store.write() as session:
            put_admin_setting(session, SETTING, request, now_s=0.0, by="root")
        sodad.run()
    (left,) = tmp_path.glob("snapshot-*")
    assert left == answer_path(tmp_path, REQUEST[::-1])
    assert left.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "{file} cannot be read: No such file or directory"),
        (b"", "{file}: it is cut off: Expecting value: line 1 column 1 (char 0)"),
        (b"\xff", "{file}: byte 0 = b'\\xff': expected UTF-8"),
        (b'{"format":"slurm-soda snapshot","version":7}', "{file}: version = 7: expected 1, which alone this version"),
        (b"JobID|State\n", "{file}: it is not JSON"),
    ],
)
def test_a_bad_file_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], raw: bytes | None, message: str
) -> None:
    file = tmp_path / "site.json"
    if raw is not None:
        file.write_bytes(raw)
    assert run(["decide", str(file)]) == 1
    out, err = capfd.readouterr()
    assert not out
    assert err.startswith("sodactl: " + message.format(file=file))
    assert err.count("\n") == 1


def test_a_plan_that_was_tampered_with_is_noticed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    policy = make_policy("fifo")
    dump = SnapshotDump(busy_cluster(40, 5, 1), policy)
    document = json.loads(write_dump(replace(dump, plan=dump.decide())))
    document["plan"]["order"].reverse()
    (tmp_path / "dump").write_text(json.dumps(document))
    assert run(["decide", str(tmp_path / "dump"), "--json"]) == 1
    out, err = capfd.readouterr()
    assert json.loads(out)["same_as_recorded"] is False
    assert "has another plan" in err


# --- 100 dumps, of the sample 37, three ways --------------------------------------------------------------------------

POLICIES = ("tiresias-las", "fifo", "backfill", "gandiva", "drf", "coda", "srtf", "multifactor", "srsf", "kelp-drf")


def made_up(policies: Sequence[str]) -> Iterator[SnapshotDump]:
    for seed, name in enumerate([*policies, *policies]):
        made = (busy_cluster, idle_cluster)[seed % 2](60, 8, seed)
        dump = SnapshotDump(made, make_policy(name), mode="enforce")
        yield replace(dump, plan=dump.decide())


def simulated(policies: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[SnapshotDump]:
    """Snapshots of the simulator in the midst of runs, with the plans that it followed."""
    decide, decided = SnapshotDecider.plan, list[tuple[ClusterSnapshot, Plan]]()

    def noted(decider: SnapshotDecider, snapshot: ClusterSnapshot) -> Plan:
        plan = decide(decider, snapshot)
        decided.append((snapshot, plan))
        return plan

    monkeypatch.setattr(SnapshotDecider, "plan", noted)
    for seed, name in enumerate(policies):
        policy = make_policy(name)
        decided.clear()
        workload = generate_workload("tiresias480", seed, jobs=60)
        simulate(workload, parse_cluster("4x4"), policy, costs=Costs(checkpoint_s=5.0), engine="snapshot")
        loaded = sorted(decided, key=lambda one: -len(one[1].starts) - 2 * len(one[1].preempts))[:3]
        yield from (SnapshotDump(snapshot, policy, plan) for snapshot, plan in loaded)


def recorded(policies: Sequence[str], path: Path) -> Iterator[SnapshotDump]:
    """What sodad left, cycle by cycle, of a cluster under load."""
    for seed, name in enumerate(policies):
        place = path / name
        place.mkdir()
        open_store(f"sqlite:///{place}/soda.db").close()
        slurm = FakeSlurm(FakeClock())
        sodad = Daemon(slurm, place, settings(state_dir=str(place), policy={"name": name}))
        for number in range(4):
            for job in range(3):
                slurm.submit(10 * number + job + 1, gpus=(seed + job) % 4 + 1, work_s=30.0 * (job + 1), user=f"u{job}")
            slurm.advance(15.0)
            yield left_by(sodad, place)


def recorded_with_pools(path: Path) -> Iterator[SnapshotDump]:
    """The same where pools are in force and Slurm takes back what a job borrowed."""
    for name in ("drf", "coda"):
        place = path / f"pools-{name}"
        place.mkdir()
        open_store(f"sqlite:///{place}/soda.db").close()
        put_in_force(table(), place)
        slurm = PoolSlurm(FakeClock())
        for job in (1, 2):
            slurm.submit_cpu(job)
        slurm.submit(3, gpus=2)
        sodad = Daemon(slurm, place, settings(policy={"name": name}, state_dir=str(place)))
        yield left_by(sodad, place)
        slurm.start_in(1, LEND)
        slurm.advance(3)
        yield left_by(sodad, place)
        slurm.abort(1)
        slurm.refused_lists = {BOTH}
        for _ in range(3):
            slurm.clock.at_s += 1.25
            yield left_by(sodad, place)


def left_by(sodad: Daemon, place: Path) -> SnapshotDump:
    with sodad.store.write() as session:
        put_admin_setting(session, SETTING, REQUEST, now_s=0.0, by="root")
    assert not sodad.run().error
    return read_dump(answer_path(place, REQUEST).read_bytes())


def test_dumps_decide_the_same_three_ways(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, cluster = generate_workload("tiresias480", 1, jobs=5), parse_cluster("1x4")
    policies = some(POLICIES, 2)
    dumps = [*made_up(policies), *simulated(policies, monkeypatch), *recorded(policies, tmp_path)]
    dumps += recorded_with_pools(tmp_path)
    assert len(dumps) == 9 * len(policies) + 10
    with_work = 0  # decisions that do something
    for number, original in enumerate(dumps):
        for dump in (original, original.with_stand_ins()):
            file = tmp_path / f"{number}-{dump.stand_ins}.json"
            file.write_bytes(write_dump(dump))
            assert dump.plan is not None
            assert run(["decide", str(file), "--json"]) == 0
            told = json.loads(capfd.readouterr().out)
            assert told["same_as_recorded"] is True
            again = read_dump(file.read_bytes())
            decider = SnapshotDecider(again.policy, workload, cluster, at_once=False)
            assert plan_bytes(decider.plan(again.snapshot)) == plan_bytes(dump.plan), (number, dump.policy.name)
            with_work += bool(told["starts"] or [one for one in told["actions"] if one["is"] != "OrderJobs"])
    assert with_work > len(dumps)
