"""What runs did with each GPU, on each database: kept once, short, and the way from and to the version before."""

from __future__ import annotations

import json
from dataclasses import replace

from alembic import command
from alembic.config import Config
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import inspect, text

from slurm_soda.daemon.store.agent_reports import count_records, split_report, store_report, without_records
from slurm_soda.daemon.store.engine import MIGRATIONS, Store, version_of
from slurm_soda.daemon.store.gpu_uses import gpu_use_of, gpu_uses_by_job, stored_gpu_use
from slurm_soda.daemon.store.migrations.versions import r0005_job_reports as revision
from slurm_soda.daemon.store.tables.scheduling import Job
from slurm_soda.wire.gpu_use import GpuUse, IdleSpan, RunGpuUse
from slurm_soda.wire.records import NodeReport

USE = GpuUse(
    3, 900, 1800.0, 0.75, 1.0, 31_000.0, 40_960.0, 250.5, 400.0, 12.5, 1799.0, 260.0, 2, 250.0,
    (IdleSpan(0.0, 12.5), IdleSpan(600.0, 237.5)), 20.0, "00ffc8",
)  # fmt: skip
UNUSED = GpuUse(0, 900, 1800.0, 0.0, 0.0, 500.0)
RUN = RunGpuUse(7, 0, "n1", 100.0, 1900.0, (UNUSED, USE))


def report(*uses: RunGpuUse, seq: int = 1) -> NodeReport:
    return NodeReport("n1", "a", seq, 1.0, gpu_uses=uses)


def test_the_newest_record_of_a_run_stays(store: Store) -> None:
    older = replace(RUN, last_s=1000.0, gpus=(UNUSED,))
    other = replace(RUN, job_id=0xFFFF_FFFF, restart=1)
    for seq, uses in enumerate([(older,), (RUN, other), (RUN,), (older,)]):
        with store.write() as session:
            store_report(session, report(*uses, seq=seq), 1.0)
    with store.read() as session:
        found = gpu_uses_by_job(session, [7, 8, 0xFFFF_FFFF])
        (row,), (also,) = found[7], found[0xFFFF_FFFF]
        assert (row.last_s, [gpu_use_of(gpu) for gpu in row.gpus]) == (1900.0, [UNUSED, USE])
        assert (also.restart, 8 in found) == (1, False)


@given(st.lists(st.integers(1, 300), max_size=5), st.booleans())
def test_whatever_a_use_is_it_comes_back(lengths: list[int], told: bool) -> None:
    spans = tuple(IdleSpan(float(10 * place), float(length)) for place, length in enumerate(lengths))
    use = replace(USE, spans=spans, idle_spans=len(spans), power_w=250.0 * told, busy_from_s=12.5 if told else -1.0)
    assert gpu_use_of(json.loads(json.dumps(stored_gpu_use(use)))) == use
    assert gpu_use_of({**stored_gpu_use(use), "later": 1}) == use


def test_they_count_as_records_and_go_with_them() -> None:
    whole = report(*(replace(RUN, job_id=job_id) for job_id in range(1, 8)))
    assert (count_records(whole), count_records(without_records(whole))) == (7, 0)
    parts = [part.gpu_uses for part in split_report(whole, 3)]
    assert [len(part) for part in parts] == [3, 3, 1]
    assert tuple(use for part in parts for use in part) == whole.gpu_uses


def test_the_table_comes_to_a_store_of_the_release_before_and_goes_again(store: Store) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with store.write() as session:
        session.add(
            Job(job_id=7, submit_s=1.0, user="alice", state="PENDING", memory_mib=1 << 40, waits={"reason": "x"})
        )
    steps = [(command.downgrade, revision.down_revision), (command.upgrade, revision.revision)]
    for move, version in [*steps, steps[0]]:
        with store.engine.begin() as connection:
            config.attributes["connection"] = connection
            move(config, version)
        assert version_of(store.engine) == version
        is_new = version == revision.revision
        columns = {column["name"] for column in inspect(store.engine).get_columns("job")}
        assert ("job_gpu_use" in inspect(store.engine).get_table_names()) is is_new
        assert ({"memory_mib", "waits"} <= columns) is is_new
        with store.read() as session:
            assert session.execute(text('SELECT job_id, "user" FROM job')).all() == [(7, "alice")]
