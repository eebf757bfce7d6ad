"""sodactl service list, show, scale and drain, from sodad's HTTP side; without it from instances' files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from fastapi import APIRouter

from slurm_soda.daemon.api import viewers
from slurm_soda.daemon.api.report_routes import ReportRoutes
from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.api.routes import ViewRoutes
from slurm_soda.daemon.api.server import ApiServer
from slurm_soda.daemon.api.service_routes import ServiceRoutes
from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.services.known_service import InstanceStatus, ServiceKey, ServiceStatus
from slurm_soda.daemon.services.service_board import ServiceBoard
from slurm_soda.daemon.services.service_load import LoadMinute
from slurm_soda.daemon.settings.config_file import load_settings
from slurm_soda.daemon.store.services import add_minutes
from slurm_soda.services.router.sodad_reports import Controllers, SodadReports
from slurm_soda.sodactl.live import sodad_http
from slurm_soda.sodactl.service.service_names import SERVICE_NAME
from slurm_soda.sodactl.site_access import CommandContext
from slurm_soda.wire.munge import Munge
from tests.daemon.api_server import FakeRights, api_server, view_access
from tests.daemon.services.service_site import report
from tests.services.router.conftest import wait_until
from tests.sodactl.conftest import NOW_S, Bench
from tests.sodactl.service.conftest import SlurmCommands
from tests.sodactl.view_source.conftest import StoppedClock

USERS = {0: "root", 1000: "alice", 1001: "bob"}


@pytest.fixture
def rights() -> FakeRights:
    """What Slurm says of privacy."""
    return FakeRights()


@pytest.fixture
def board(
    soda: Bench, slurm: SlurmCommands, rights: FakeRights, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ServiceBoard]:
    """What routers told the sodad that commands ask."""
    monkeypatch.setattr(sodad_http, "TIMEOUT_S", 60.0)  # these tests are about what it says, on a busy machine too
    monkeypatch.setattr(viewers, "user_name", lambda uid: USERS[uid])
    settings, clock, munge = load_settings(soda.config), StoppedClock(), Munge(run=soda.munged)
    writer = ReportWriter(soda.store, clock, on_close=lambda: None)
    access, api = (
        view_access(soda.munged, clock, rights),
        settings.api.model_copy(update={"host": "127.0.0.1", "port": 0}),
    )
    views, kept, shown = ViewRoutes(soda.store, clock, access, lambda: settings), ServiceBoard(), APIRouter()
    shown.include_router(views.routes())
    services = ServiceRoutes(kept, soda.store, clock, munge=munge, checks=access.checks, admit=views.admit)
    shown.include_router(services.routes())
    server = ApiServer(ReportRoutes(writer, munge, access.checks, api).routes(), shown, api)
    server.start()
    soda.config.write_text(f'[api]\nurl = "http://127.0.0.1:{server.port}"\n')
    become(soda, 1000)
    yield kept
    server.close()
    writer.close()


def become(soda: Bench, uid: int) -> None:
    """Who types."""
    soda.uid = soda.munged.uid = uid


def tell(board: ServiceBoard, name: str = "chat", owner: str = "alice", **more: Any) -> None:
    """A router reports."""
    board.take(owner, report(name=name, **more), Instant(NOW_S - 1, 100.0))


def decide(board: ServiceBoard, **status: Any) -> None:
    """A cycle looked at alice's service."""
    board.statuses = {**board.statuses, ServiceKey("alice", "chat"): ServiceStatus(**status)}


def day(soda: Bench, *minutes: tuple[float, float, float, int, int]) -> None:
    """What the store has of alice's service: seconds ago, load, p99, instances on CPU cores and on GPUs."""
    rows = [
        LoadMinute("alice", "chat", NOW_S - ago_s, 2, 2 * load, load, p99, cpu=cpu, gpu=gpu)
        for ago_s, load, p99, cpu, gpu in minutes
    ]
    with soda.store.write() as session:
        add_minutes(session, rows)


def test_services_are_listed(soda: Bench, board: ServiceBoard) -> None:
    assert "no service has reported" in soda("service", "list").out
    tell(board, load_qps=12.0, instances=[(41, "cpu", "ready"), (42, "cpu", "starting")])
    tell(board, "words", "bob", load_qps=1500.0)
    decide(board, forecast_qps=30.0, wanted={"cpu": 2, "gpu": 0}, waiting={"cpu": 1, "gpu": 3}, reason="low load",
           instances=(InstanceStatus(41, "cpu", "ready", "n1", NOW_S - 60),
                      InstanceStatus(42, "cpu", "starting", "n2", NOW_S)))  # fmt: skip
    alice, bob = [line.split() for line in soda("service", "list").out.splitlines()[1:]]
    assert alice == [
        "alice",
        "chat",
        "12",
        "30",
        "100",
        "200",
        "1",
        "of",
        "2",
        "0",
        "of",
        "0",
        "4",
        "1.0",
        "s",
        "ago",
        "low",
        "load",
    ]
    assert bob[:6] == ["bob", "words", "1,500", "-", "100", "200"]
    document = soda("service", "list", "--json").document
    assert (document["source"], [one["name"] for one in document["services"]]) == ("sodad", ["chat", "words"])
    assert document["services"][1]["forecast_qps"] is None


def test_what_a_router_reports_is_listed(soda: Bench, board: ServiceBoard) -> None:
    """From the router's own thread over HTTP to the owner's terminal."""
    said: list[str] = []
    controllers = Controllers((load_settings(soda.config).api.url,), frozenset({1000}))
    reports = SodadReports(lambda: controllers, Munge(run=soda.munged), said.append)
    reports.start()
    reports.give(report(name="chat", load_qps=12.0, instances=[(41, "gpu", "ready")]))
    wait_until(lambda: reports.idle, "sodad took the report")
    assert said == []
    (shown,) = soda("service", "list", "--json").document["services"]
    assert (shown["owner"], shown["name"], shown["load_qps"], shown["instances"][0]["job_id"]) == (
        "alice",
        "chat",
        12,
        41,
    )
    soda("service", "scale", "chat", "--most", "9")
    assert board.known()[0].limits.most == 9


def test_one_is_shown_with_its_instances_and_its_day(soda: Bench, board: ServiceBoard) -> None:
    tell(board, load_qps=12.0, most=6)
    decide(board, wanted={"gpu": 1}, reason="above the switching point", instances=(
        InstanceStatus(41, "gpu", "ready", "n1", NOW_S - 60, 3),
        InstanceStatus(42, "cpu", "failed", "n2", NOW_S, 0, "status 1")))  # fmt: skip
    day(soda, (3600, 10.0, 90.0, 1, 0), (600, 80.0, 240.0, 1, 2))
    out = soda("service", "show", "chat", "--width", "60").out
    for words in (
        "chat of alice",
        "p99 100 ms; target 200 ms",
        "1 to 6",
        "login1:80",
        "0 on CPU, 1 on GPU",
        "above the switching",
    ):
        assert words in out
    rows = [line.split() for line in out.splitlines()]
    assert ["41", "gpu", "ready", "n1", "1", "min", "00", "s", "ago", "3"] in rows
    assert ["42", "cpu", "failed", "n2", "0", "ms", "ago", "0", "status", "1"] in rows
    assert out.count("!") >= 6
    assert max(map(len, out[out.index("p99 in ms") :].splitlines())) <= 60
    document = soda("service", "show", "chat", "--json").document
    assert [(one["load_qps"], one["cpu"], one["gpu"]) for one in document["minutes"]] == [(10, 1, 0), (80, 1, 2)]
    assert (document["service"]["least"], document["service"]["most"]) == (1, 6)


def test_whose_service_is_meant(soda: Bench, board: ServiceBoard) -> None:
    tell(board)
    tell(board, owner="bob")
    assert "chat of alice" in soda("service", "show", "chat").out
    assert "chat of bob" in soda("service", "show", "chat", "--owner", "bob").out
    become(soda, 0)
    assert (
        "several users have a service chat: alice, bob; choose with --owner"
        in soda("service", "show", "chat", status=1).err
    )
    said = soda("service", "show", "chut", status=1).err
    assert "sodad knows no service chut (known: chat); it learns of one when its router reports" in said


def test_private_services_are_not_shown(soda: Bench, board: ServiceBoard, rights: FakeRights) -> None:
    rights.private = "jobs"
    tell(board)
    become(soda, 1001)
    assert soda("service", "list", "--json").document["services"] == []
    assert "sodad knows no service chat (known: none)" in soda("service", "show", "chat", status=1).err


def test_an_owner_scales(soda: Bench, board: ServiceBoard) -> None:
    tell(board, least=1, most=4)
    assert soda("service", "scale", "chat", "--most", "8").out == "chat: 1 to 8 instances, from sodad's next cycle on\n"
    document = soda("service", "scale", "chat", "--least", "0", "--json").document
    assert document == {"owner": "alice", "name": "chat", "least": 0, "most": 8}
    known = board.service(ServiceKey("alice", "chat"))
    assert known is not None
    assert (known.limits.least, known.limits.most) == (0, 8)


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["scale", "chat"], 2, "give --least, --most or both"),
        (["scale", "chat", "--least", "9"], 2, "least is 9, and most 4"),
        (["scale", "chat", "--least", "9", "--most", "8"], 2, "least is 9, and most 8"),
        (["scale", "chat", "--most", "1001"], 2, "1001 is not in the range"),
        (["scale", "chut", "--most", "8"], 1, "sodad knows no service chut of alice (known: chat)"),
        (
            ["scale", "chut", "--most", "8", "--least", "1"],
            1,
            "no router reports a service chut of alice; known are chat",
        ),
        (["drain", "chat"], 2, "give either --job ID or --all"),
        (["drain", "chat", "--all", "--job", "4"], 2, "give either --job ID or --all"),
        (["drain", "chat", "--job", "43"], 1, "has no instance 43; it has 41, 42"),
        (["drain", "chut", "--all"], 1, "no router reports a service chut of alice"),
    ],
)
def test_what_cannot_be_changed(soda: Bench, board: ServiceBoard, argv: list[str], status: int, said: str) -> None:
    tell(board, instances=[(41, "cpu", "ready"), (42, "gpu", "ready")])
    assert said in soda("service", *argv, status=status).err
    assert board.take_requests() == {}


def test_an_owner_drains(soda: Bench, board: ServiceBoard) -> None:
    tell(board, instances=[(41, "cpu", "ready"), (42, "gpu", "ready"), (43, "gpu", "ready")])
    done = soda("service", "drain", "chat", "--job", "41", "-j", "43")
    assert done.out == "chat: job 41, 43 drains from sodad's next cycle on\n"
    assert board.take_requests() == {("alice", "chat"): {41, 43}}
    assert soda("service", "drain", "chat", "--all", "--json").document == {"name": "chat", "drain": ["all"]}
    assert board.take_requests() == {("alice", "chat"): {41, 42, 43}}


def test_names_complete(soda: Bench, board: ServiceBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(board)
    tell(board, "words")
    monkeypatch.setenv("SODA_URL", load_settings(soda.config).api.url)
    ctx = click.Context(click.Command("show"), obj=CommandContext(munge=Munge(run=soda.munged)))
    argument = click.Argument(["name"])
    assert [one.value for one in SERVICE_NAME.shell_complete(ctx, argument, "c")] == ["chat"]
    assert [one.value for one in SERVICE_NAME.shell_complete(ctx, argument, "")] == ["chat", "words"]
    monkeypatch.setenv("SODA_URL", "http://127.0.0.1:1")
    assert SERVICE_NAME.shell_complete(ctx, argument, "") == []


def put_instance(directory: Path, job_id: int, **more: Any) -> Path:
    """What an instance writes."""
    fields = {"service": directory.name, "job_id": job_id, "host": "n1", "port": 9000, "device": "cpu", "state": "ready",
              "since_s": NOW_S - 60, "heartbeat_s": NOW_S - 1, **more}  # fmt: skip
    path = directory / "instances" / f"n1.{job_id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fields))
    return path


def test_with_sodad_dead_files_tell(soda: Bench, slurm: SlurmCommands, chat: Path) -> None:
    soda.config.write_text('[api]\nurl = "http://127.0.0.1:1"\n')
    directory = chat.parent / "services" / "chat"
    put_instance(directory, 41)
    put_instance(directory, 42, state="failed", reason="exited with status 1", heartbeat_s=NOW_S - 300, restarts=4)
    put_instance(directory.with_name("other"), 43, device="gpu")
    (directory / "instances" / "n1.44.json").write_text("{")
    (directory / "instances" / "n1.45.json").symlink_to(directory / "instances" / "n1.41.json")
    (directory / "instances" / ".n1.46.json.tmp").write_text("")
    done = soda("service", "show", "chat", "--file", str(chat), status=3)
    rows = [line.split() for line in done.out.splitlines()[1:]]
    assert rows[0] == ["chat", "41", "cpu", "ready", "n1:9000", "1", "min", "00", "s", "ago", "1.0", "s", "ago", "0"]
    assert rows[1][3:5] == ["failed,", "silent"]
    assert len(rows) == 2
    assert "sodad does not answer (http://127.0.0.1:1: " in done.err
    assert "instances that run go on serving" in done.err
    assert "n1.44.json: cannot be read as JSON" in done.err
    assert "n1.45.json is not a plain file of the service's owner" in done.err
    document = soda("service", "list", "--folder", str(directory.parent), "--json", status=3).document
    assert [(one["job_id"], one["silent"]) for one in document["instances"]] == [(41, False), (42, True), (43, False)]
    assert (document["source"], len(document["warnings"])) == ("files", 3)


def test_with_sodad_dead_and_no_folder_it_names_the_remedy(soda: Bench, slurm: SlurmCommands, tmp_path: Path) -> None:
    said = soda("service", "list", status=1).err
    assert "Slurm does not tell on which host sodad is" in said
    assert "--folder DIR shows what the instances say of themselves, `sodactl doctor` what is wrong" in said
    assert "--file FILE or --folder DIR" in soda("service", "show", "chat", status=1).err
    assert "sodad does not answer" in soda("service", "scale", "chat", "--least", "1", "--most", "2", status=1).err
    assert "cannot be read: No such file" in soda("service", "list", "--folder", str(tmp_path / "no"), status=1).err
    assert "no instance file in" in soda("service", "show", "chat", "--folder", str(tmp_path), status=3).out


def test_a_sodad_without_services_is_said_to_be_old(soda: Bench, slurm: SlurmCommands) -> None:
    clock = StoppedClock()
    writer = ReportWriter(soda.store, clock, on_close=lambda: None)
    api = load_settings(soda.config).api.model_copy(update={"host": "127.0.0.1", "port": 0})
    server = api_server(soda.store, writer, soda.munged, api, clock=clock)
    server.start()
    soda.config.write_text(f'[api]\nurl = "http://127.0.0.1:{server.port}"\n')
    assert "a sodad that knows no services; update it" in soda("service", "list", status=1).err
    server.close()
    writer.close()
