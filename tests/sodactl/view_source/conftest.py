"""A login node: sodactl without rights on the store, and sodad's HTTP side over it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.settings.config_file import load_settings
from slurm_soda.daemon.store.tables.scheduling import AdminSetting, AgentHeartbeat, JobNodeUsage, JobRun, Preemption
from slurm_soda.sodactl.live import sodad_http
from tests.daemon.api_server import FakeRights, api_server
from tests.sodactl.conftest import NOW_S, SUBMIT_S, Bench, record, stored_job

NO_STORE = '[store]\nurl = "sqlite:////nonexistent/soda.db"\n'


class StoppedClock:
    """Sodactl's instant, for ever."""

    def now_s(self) -> float:
        return NOW_S

    def elapsed_s(self) -> float:
        return 0.0


@pytest.fixture
def rights() -> FakeRights:
    """What Slurm says of privacy."""
    return FakeRights()


@pytest.fixture
def sodad(soda: Bench, rights: FakeRights, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Sodad's HTTP side over the site's store; gives its address. Its configuration is the one that stands there by now."""
    monkeypatch.setattr(sodad_http, "TIMEOUT_S", 60.0)  # these tests are about what it says, on a busy machine too
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
