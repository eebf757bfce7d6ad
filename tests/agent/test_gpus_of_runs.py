"""What is recorded and told of the GPUs of each run."""

from __future__ import annotations

import json
from pathlib import Path

from slurm_soda.agent.reporting.run_records import (
    GPU_USE_EVERY_S,
    MAX_GPUS_PER_REPORT,
)
from slurm_soda.agent.sampling.gpu_use import GpuUseSums
from slurm_soda.agent.sampling.gpus import GpuReading
from slurm_soda.wire.core_tuning import GuestGpus
from slurm_soda.wire.gpu_use import MAX_GPU_USES
from slurm_soda.wire.records import MAX_REPORT_BYTES, NodeReport
from tests.agent.recorded_runs import Node, event


def test_a_guest_is_a_gpu_job_once_the_controller_says_on_which_gpus(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.take(event("open", 10, gpus=[1, 2]))
    node.take(event("open", 11, gpus=[], restart=1))
    node.take(event("open", 12, gpus=[3]))
    node.take(event("open", 13, gpus=[]))

    def gpus() -> dict[int, tuple[int, ...]]:
        return {run.key.job_id: run.opened.gpus for run in node.run_records.active() if run.opened is not None}

    told = [GuestGpus(11, 1, (1, 2)), GuestGpus(12, 0, (0,)), GuestGpus(13, 7, (0,)), GuestGpus(99, 0, (0,))]
    node.run_records.take_guests(told)
    assert gpus() == {10: (1, 2), 11: (1, 2), 12: (0, 3), 13: ()}, "another run of job 13 was meant"
    node.run_records.take_guests([])
    assert gpus()[11] == (1, 2), "a controller that has just started says nothing yet"


def read_gpus(node: Node, now_s: float, gpus: int = 1) -> None:
    """One sample of all runs, which are not closed."""
    readings = dict.fromkeys(range(gpus), GpuReading(0.123456, 12345.678, 40960.0, 123.456))
    for run in node.run_records.active():
        assert run.usage is not None
        run.usage.add_gpus(now_s, 0.123456, 12345.678, 6.0)
        run.usage.add_each_gpu(now_s, readings, 6.0)
        node.run_records.save(run, now_s)


def test_single_gpus_are_told_once_a_minute_and_at_the_end(tmp_path: Path) -> None:
    node = Node(tmp_path / "spool")
    node.take(event("open"))
    told_s = []
    for step in range(1, 81):
        read_gpus(node, 500.0 + 2 * step)
        batch = node.run_records.news()
        assert batch.usage
        told_s += [use.last_s - 500.0 for use in batch.gpu_uses]
        node.run_records.reported(batch)
    assert told_s == [2.0, 2.0 + GPU_USE_EVERY_S, 2.0 + 2 * GPU_USE_EVERY_S]
    node.take(event("close", at_s=660.0))
    node.end()
    (use,) = node.run_records.news().gpu_uses
    assert (use.last_s, use.gpus[0].readings, use.first_s) == (660.0, 80, 500.0)


def test_a_controller_that_was_away_is_told_of_single_gpus_again(tmp_path: Path) -> None:
    node = Node(tmp_path / "spool")
    node.take(event("open"))
    read_gpus(node, 502.0)
    assert len(node.run_records.news().gpu_uses) == 1
    read_gpus(node, 504.0)
    assert len(node.run_records.news().gpu_uses) == 1, "the first report was not taken"


def test_a_report_of_many_runs_with_many_gpus_is_one_that_the_controller_takes(tmp_path: Path) -> None:
    node = Node(tmp_path / "spool")
    runs = MAX_GPUS_PER_REPORT // MAX_GPU_USES + 5
    for job_id in range(1, runs + 1):
        node.take(event("open", job_id=job_id))
    gpu = GpuUseSums(read_s=500.0)
    for step in range(1, 140):
        gpu.take(GpuReading(0.98765 * (step % 8 > 3), 81234.5, 81920.0, 712.3), 500.0 + 4.87654 * step, 6.0)
    for run in node.run_records.active():
        assert run.usage is not None
        run.usage.gpus = dict.fromkeys(range(MAX_GPU_USES), gpu)
    reported = 0
    for _ in range(2):
        batch = node.run_records.news()
        report = NodeReport("n1", "a", 1, 1.0, batch.opened, batch.closed, batch.usage, gpu_uses=batch.gpu_uses)
        assert len(json.dumps(report.to_dict(), separators=(",", ":"))) < MAX_REPORT_BYTES / 2
        reported += len(batch.gpu_uses)
        node.run_records.reported(batch)
    assert reported == runs
