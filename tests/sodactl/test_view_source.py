"""Without rights on the store: the same answers from sodad, or one line that says why not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from slurm_soda.daemon.api import viewers
from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.api.view_json import ViewJsonError, decode_view
from slurm_soda.daemon.config import load_settings
from slurm_soda.daemon.learning.pair_view import PairView
from slurm_soda.daemon.store.cpu_fit import storable_text
from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow, CpuMeasurementRow, CpuProposalRow
from slurm_soda.daemon.store.tables.kind_profiles import ProfileValueRow
from slurm_soda.daemon.store.tables.scheduling import AdminSetting, AgentHeartbeat, JobNodeUsage, JobRun, Preemption
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.sodactl.live import view_source
from tests.daemon.api_server import FakeRights, api_server, signed

from .conftest import HOSTILE, NOW_S, SUBMIT_S, Bench, record, stored_job

NO_STORE = '[store]\nurl = "sqlite:////nonexistent/soda.db"\n'


class StoppedClock:
    """Sodactl's instant, for ever."""

    def now_s(self) -> float:
        return NOW_S

    def elapsed_s(self) -> float:
        return 0.0


@dataclass
class Scontrol:
    """Tells slurm.conf's SlurmctldHost lines, and nothing else."""

    hosts: Sequence[str]

    def __call__(
        self, argv: Sequence[str], *, stdin: bytes, timeout_s: float, env: Mapping[str, str]
    ) -> CompletedCommand:
        assert list(argv) == ["scontrol", "show", "config"]
        lines = [f"SlurmctldHost[{at}]        = {host}\n" for at, host in enumerate(self.hosts)]
        return CompletedCommand(tuple(argv), 0, "".join(lines).encode(), b"")


@pytest.fixture
def rights() -> FakeRights:
    """What Slurm says of privacy."""
    return FakeRights()


@pytest.fixture
def sodad(soda: Bench, rights: FakeRights, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Sodad's HTTP side over the site's store; gives its address. Its configuration is the one that stands there by now."""
    monkeypatch.setattr(view_source, "TIMEOUT_S", 60.0)  # these tests are about what it says, on a busy machine too
    settings = load_settings(soda.config)
    clock = StoppedClock()
    writer = ReportWriter(soda.store, clock, on_close=lambda: None)
    soda.config.with_name("sodad.toml").write_text(soda.config.read_text())
    api = settings.api.model_copy(update={"host": "127.0.0.1", "port": 0})
    server = api_server(
        soda.store,
        writer,
        soda.munged,
        api,
        clock=clock,
        settings=lambda: load_settings(soda.config.with_name("sodad.toml")),
        slurm=rights,
    )
    server.start()
    yield f"http://127.0.0.1:{server.port}"
    server.close()
    writer.close()


def leave(soda: Bench, url: str) -> None:
    """From here on commands are typed on a login node."""
    soda.config.write_text(f'{NO_STORE}[api]\nurl = "{url}"\n')


def fill(soda: Bench, text: str = "train") -> None:
    """One of everything, with a user's text wherever one can be."""
    soda.daemon()
    soda.cycle(error=text, started_s=NOW_S - 70)
    soda.cycle(pending=3, timings_s={"observe": 0.25, "observe.jobs": 0.125}, facts={"problems": [text]})
    soda.add(AdminSetting(key="mode", value="enforce", changed_s=NOW_S))
    note = {"verdict": "wait", "queue": 1, "position": 3, "score": 12.5, "score_name": "attained_gpu_s"}
    job = stored_job(7, name=text, partition=text, reason=text, preemptions=1, executed_s=100, first_start_s=SUBMIT_S + 10,
                     hints={"checkpoint": "USR1@30"}, note=note)  # fmt: skip
    soda.add(job, stored_job(5, gpus=8, note={**note, "position": 1, "score": None}), stored_job(6, note={}))
    soda.add(
        JobRun(job_pk=job.id, restart=0, start_s=SUBMIT_S + 10, end_s=SUBMIT_S + 110, gpus=2, node_names=text),
        JobNodeUsage(job_id=7, restart=0, node="n1", first_s=SUBMIT_S + 10, last_s=SUBMIT_S + 110, samples=9, gpu_count=2,
              gpu_util_ratio=0.8, gpu_util_last_ratio=0.8, gpu_memory_peak_mib=9000, cpu_s=70, memory_peak_mib=512),
        Preemption(job_id=7, submit_s=SUBMIT_S, restart=0, phase="requeued", created_s=NOW_S - 4, deadline_s=NOW_S + 26,
                   updated_s=NOW_S, for_jobs=[5], reason=text),
        AgentHeartbeat(node="n1", agent_id="a", seq=1, seen_s=NOW_S - 3, gpu_count=4, faults=[text]),
    )  # fmt: skip
    soda.action(reason=text, error=text)
    soda.action(epoch_id=None, kind="undo", finished_s=None)
    soda.slurm.queue = [record(5), record(6), record(7, name=text, reason=text), record(8)]


COMMANDS = [["explain", "7"], ["explain", "8"], ["jobs"], ["status", "--timings"]]


@pytest.mark.sample(5)
@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("text", HOSTILE)
def test_sodad_tells_what_the_store_holds(soda: Bench, sodad: str, argv: list[str], text: str) -> None:
    fill(soda, text)
    at_home = [soda(*argv, "--json"), soda(*argv)]
    leave(soda, sodad)
    away = [soda(*argv, "--json"), soda(*argv)]
    assert away == at_home
    assert away[0].document["warnings"] == []


@pytest.mark.parametrize("ids", [("7", "5"), ("5", "7")])
def test_sodad_tells_of_a_pair_what_the_store_holds(soda: Bench, sodad: str, ids: tuple[str, str]) -> None:
    fill(soda)
    kind = {"gpu_type": "", "gpus": 1, "at_s": NOW_S, "source": 0}
    soda.add(
        *(
            ProfileValueRow(model="resnet50", batch=batch, quantity=quantity, value=value, error=0.5, **kind)
            for batch, quantity, value in [
                (64, "iteration_s", 0.5),
                (32, "iteration_s", 0.3),
                (64, "memory_mib", 9000.0),
                (32, "memory_mib", 5000.0),
            ]
        ),
        ProfileValueRow(model="lm", batch=0, quantity="memory_mib", value=4000.0, error=None, **kind),
        ProfileValueRow(model="", batch=0, quantity="device_mib", value=12_000.0, error=0.0, **kind),
        ProfileValueRow(
            model="lm", batch=0, quantity="xi", value=1.1, error=None, partner="resnet50", partner_batch=32, **kind
        ),
    )
    mine, its = Hints(model="ResNet-50", batch_size=64, iterations=900), Hints(model="lm", max_slowdown=1.5)
    soda.slurm.queue = [record(5, gpus=1, hints=its), record(7, gpus=1, hints=mine)]
    argv = ["explain", ids[0], "--with", ids[1]]
    at_home = [soda(*argv, "--json"), soda(*argv)]
    leave(soda, sodad)
    away = [soda(*argv, "--json"), soda(*argv)]
    assert away == at_home
    assert away[0].document["warnings"] == []
    assert len(away[0].document["decision"]["trials"]) == (7 if ids[0] == "7" else 1)


def test_a_pair_that_nobody_can_tell_of_is_one_line(soda: Bench) -> None:
    leave(soda, "http://127.0.0.1:1")
    soda.slurm.queue = [record(5, hints=Hints(model="a")), record(7, hints=Hints(model="b"))]
    shown = soda("explain", "7", "--with", "5", status=1)
    assert shown.err.count("\n") == 1
    assert "http://127.0.0.1:1" in shown.err


PAIR: dict[str, Any] = {"new": None, "running": None, "device_mib": None, "slowdowns": []}
ALONE = {"iteration_s": None, "memory_mib": None, "throughput": None, "footprint": None}


@pytest.mark.parametrize(
    "body",
    [
        {},
        PAIR,
        {**PAIR, "new": ALONE, "running": ALONE},
        {
            **PAIR,
            "new": {**ALONE, "iteration_s": {"value": None, "error": None, "source": "measured"}},
            "running": ALONE,
        },
        {
            **PAIR,
            "new": {**ALONE, "iteration_s": {"value": 1.0, "error": -1.0, "source": "measured"}},
            "running": ALONE,
        },
        {**PAIR, "new": {**ALONE, "iteration_s": {"value": 1.0, "error": 1.0, "source": "gossip"}}, "running": ALONE},
        {**PAIR, "new": {**ALONE, "throughput": {"fixed_s": -1.0, "per_sample_s": 0.0, "comm_s": 0.0, "overlap": 1.0}}},
    ],
)
def test_what_is_no_pair_is_not_believed(body: Any) -> None:
    with pytest.raises(ViewJsonError):
        decode_view(PairView, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("model=a&other_model=b", 200),
        ("model=a&other_model=b&batch=9999999&other_batch=1&gpus=4&gpu_type=v100", 200),
        ("model=a", 422),
        ("model=&other_model=b", 422),
        ("model=a&other_model=b&batch=-1", 422),
        ("model=a&other_model=b&batch=10000000", 422),
        ("model=a&other_model=b&gpus=0", 422),
        (f"model={'a' * 65}&other_model=b", 422),
    ],
)
def test_only_kinds_of_jobs_can_be_asked_for(soda: Bench, sodad: str, query: str, status: int) -> None:
    headers = signed(soda.munged, f"/v1/pair?{query}")
    answer = httpx.get(f"{sodad}/v1/pair?{query}", headers=headers, trust_env=False, verify=False)
    assert answer.status_code == status


CORES = ["fit", "fit --user alice", "fit --job 7", "fit --jobs --limit 1", "fit --category nlp", "fit --since 1h"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("argv", [line.split() for line in CORES], ids=CORES)
@pytest.mark.parametrize("text", HOSTILE[::4])
def test_sodad_tells_of_cores_what_the_store_holds(soda: Bench, sodad: str, argv: list[str], text: str) -> None:
    fill(soda, text)
    figures = {"restart": 0, "node": "n1", "at_s": SUBMIT_S + 60, "search": 0, "cores": 3, "most_cores": 8, "gpus": 2,
               "utilisation_ratio": 0.5}  # fmt: skip
    soda.add(
        CpuProposalRow(
            job_id=7, submit_s=SUBMIT_S, at_s=NOW_S, asked_cores=20, cores=None, left_alone=storable_text(text, 255)
        ),
        CpuMeasurementRow(job_id=7, step=0, spread_ratio=0.1, samples=60, **figures),
        CpuFitRow(
            job_id=7,
            submit_s=SUBMIT_S,
            user="alice",
            nodes=1,
            asked_cores=20,
            start_cores=3,
            steps=0,
            start_ratio=0.5,
            reason="best_fit",
            **figures,
        ),
    )
    at_home = [soda(*argv, "--json"), soda(*argv)]
    leave(soda, sodad)
    assert [soda(*argv, "--json"), soda(*argv)] == at_home


def test_it_is_told_without_slurm_too(soda: Bench, sodad: str) -> None:
    fill(soda)
    soda.slurm.down = True
    at_home = [soda("explain", "7"), soda("jobs")]
    leave(soda, sodad)
    assert [soda("explain", "7"), soda("jobs")] == at_home


def test_sodads_configuration_counts_not_the_login_nodes(soda: Bench, sodad: str) -> None:
    fill(soda)
    with soda.store.write() as session:
        session.delete(session.get_one(AdminSetting, "mode"))
    own = 'mode = "advise"\n[policy]\nname = "tiresias-las"\nparameters = {thresholds_gpu_s = [200.0, 500.0]}\n'
    soda.config.with_name("sodad.toml").write_text(own)
    leave(soda, sodad)
    assert soda("status", "--json").document["mode"] == "advise"
    document = soda("explain", "7", "--json").document
    assert (document["mode"], document["numbers"]["leaves_queue_at_gpu_s"]) == ("advise", 500.0)


@pytest.mark.parametrize("how", ["SODA_URL", "slurm.conf", "slurm.conf, second host"])
def test_where_sodad_is_found(soda: Bench, sodad: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(soda)
    port = sodad.rsplit(":", 1)[1]
    soda.config.write_text(f"{NO_STORE}[api]\nport = {port}\n")
    if how == "SODA_URL":
        monkeypatch.setenv("SODA_URL", f"{sodad}/")
    else:
        away = ["backup(127.0.0.9)"] if "second" in how else []
        soda.commands = Scontrol([*away, "ctl(127.0.0.1)"])
    assert soda("status", "--json").document["daemon"]["alive"] is True


@pytest.mark.parametrize(
    "argv", [["mode", "advise"], ["policy", "fifo"], ["undo", "--last", "1"]], ids=lambda argv: argv[0]
)
def test_to_change_something_takes_the_store(soda: Bench, sodad: str, argv: list[str]) -> None:
    fill(soda)
    leave(soda, sodad)
    shown = soda(*argv, status=1)
    assert "does not exist" in shown.err
    assert shown.err.count("\n") == 1


def test_nobody_answers(soda: Bench) -> None:
    leave(soda, "http://127.0.0.1:1")
    shown = soda("status", status=1)
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    for part in ("http://127.0.0.1:1", "refused", "/nonexistent/soda.db does not exist"):
        assert part in shown.err
    soda.slurm.queue = [record(7)]
    for command in (["jobs", "--json"], ["explain", "7", "--json"]):
        (warning,) = soda(*command).document["warnings"]
        assert "http://127.0.0.1:1" in warning


@pytest.mark.parametrize(("hosts", "status"), [(["ctl"], 3), (["ctl.example.org"], 3), (["another"], 1)])
def test_a_store_that_is_not_at_home_is_nowhere(soda: Bench, hosts: list[str], status: int) -> None:
    soda.config.write_text(f"{NO_STORE}[api]\nport = 1\n")
    soda.commands = Scontrol([f"{host}(127.0.0.1)" for host in hosts])
    shown = soda("status", status=status)
    assert ("never started" in shown.out) == (status == 3)


HEAD = {
    "epoch": None,
    "daemon_alive": True,
    "stall": "",
    "mode": "observe",
    "policy": "fifo",
    "parameters": {},
    "private": [],
}


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"{", "not JSON"),
        (200, b"\xff", "not JSON"),
        (200, b"[" * 100_000, "not JSON"),
        (200, b"[]", "JobDetailView is no dict"),
        (200, b"{}", "JobDetailView has no head"),
        (200, json.dumps({"head": {**HEAD, "daemon_alive": 1}}).encode(), "JobDetailView.head.daemon_alive is no bool"),
        (200, json.dumps({"head": {**HEAD, "mode": None}}).encode(), "JobDetailView.head.mode is no str"),
        (200, json.dumps({"head": HEAD, "job": {"id": "x"}}).encode(), "JobDetailView.job.id is no int"),
        (200, json.dumps({"head": HEAD, "job": None, "runs": {}}).encode(), "JobDetailView.runs is no list"),
        (404, b"\x1b[31mnothing\nhere", "404 "),
        (302, b"", "302"),
    ],
)
def test_somebody_else_answers(soda: Bench, status: int, body: bytes, said: str) -> None:
    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Stranger)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        leave(soda, f"http://127.0.0.1:{server.server_port}")
        soda.slurm.down = True
        shown = soda("explain", "7", status=1)
    finally:
        server.shutdown()
        server.server_close()
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert "\x1b" not in shown.err


def test_a_url_that_is_none(soda: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    soda.config.write_text(NO_STORE)
    monkeypatch.setenv("SODA_URL", "ctl:6830")
    shown = soda("status", status=1)
    assert "ctl:6830" in shown.err
    assert shown.err.count("\n") == 1


def test_a_wrong_url_in_the_file_is_said(soda: Bench, tmp_path: Path) -> None:
    leave(soda, "ctl:6830")
    assert "api.url = 'ctl:6830'" in soda("status", status=1).err


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (14, "made with another key, or altered; give all hosts the same munge.key"),
        (15, "has expired; check the clocks"),
        (16, "comes from the future; check the clocks"),
        (17, "was used before"),
        (6, "sodad cannot check credentials: unmunge exited with status 6"),
    ],
)
def test_why_sodad_does_not_believe_a_credential_is_one_line(soda: Bench, sodad: str, refusal: int, said: str) -> None:
    fill(soda)
    leave(soda, sodad)
    soda.munged.refusal = refusal
    shown = soda("status", status=1)
    assert shown.err.count("\n") == 1
    assert said in shown.err
    (warning,) = soda("jobs", "--json").document["warnings"]
    assert said in warning


def test_without_munged_on_this_host_sodad_is_not_asked(soda: Bench, sodad: str) -> None:
    fill(soda)
    leave(soda, sodad)
    soda.munged.is_silent = True
    shown = soda("status", status=1)
    assert shown.err.count("\n") == 1
    assert "check that munged runs on this host" in shown.err


def test_a_host_with_too_many_false_credentials_is_told_when_to_come_again(soda: Bench, sodad: str) -> None:
    fill(soda)
    leave(soda, sodad)
    soda.munged.refusal = 14
    for _ in range(20):
        soda("status", status=1)
    soda.munged.refusal = 0
    assert "too many false credentials came from 127.0.0.1; ask again in" in soda("status", status=1).err


def test_jobs_that_slurm_keeps_private(
    soda: Bench, sodad: str, rights: FakeRights, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(soda)
    soda.add(stored_job(9, user="bob"))
    leave(soda, sodad)
    rights.private, soda.munged.uid, soda.slurm.down = "jobs,nodes", 1000, True
    monkeypatch.setattr(viewers, "_user_name", lambda uid: "alice")
    assert soda("explain", "7", "--json").document["job"]["user"] == "alice"
    assert {job["user"] for job in soda("jobs", "--json").document["jobs"]} == {"alice"}
    refused = soda("explain", "9", status=1)
    assert "sodad knows no job 9 of alice; Slurm's PrivateData keeps those of others private" in refused.err
    assert soda("status", "--json").document["private"] == ["jobs", "nodes"]
    assert "jobs, nodes of others are not shown (PrivateData of slurm.conf)" in soda("status").out
    assert soda("fit", "--user", "bob", status=1).err.count("PrivateData") == 1
