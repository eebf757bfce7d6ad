"""The helper that users copy: what it writes is what the agent reads, and nothing that goes wrong reaches the training."""

from __future__ import annotations

import ast
import importlib.util
import os
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.agent.sampling.progress_files import ProgressFiles, ProgressLine
from slurm_soda.wire.records import JobOpened

FILE = Path(__file__).parents[2] / "progress" / "slurm_soda_progress.py"
OPENED = JobOpened(7, 2, "n1", os.getuid(), "alice", "gpu", 1000.0, (0,), 4)


@pytest.fixture
def helper() -> Any:
    """A copy of its own: it keeps nothing, but tests change it."""
    spec = importlib.util.spec_from_file_location("slurm_soda_progress", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgressFiles:
    """This process is the first one of job 7, restarted twice."""
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2", "SODA_PROGRESS_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    files = ProgressFiles(str(tmp_path))
    files.prepare(OPENED)
    return files


def told(job: ProgressFiles) -> ProgressLine:
    line = job.read(OPENED)
    assert line is not None
    return line


def test_what_it_writes_the_agent_reads(helper: Any, job: ProgressFiles) -> None:
    progress = helper.Progress(total=5000, batch=64, signals=())
    progress.step()
    first = told(job)
    assert (first.iteration, first.total, first.saved, first.batch) == (1, 5000, -1, 64)
    progress.step()
    assert told(job) == first  # not written again within a second
    progress.saved()
    assert (told(job).iteration, told(job).saved) == (2, 2)
    assert told(job).seconds >= first.seconds
    progress.resumed(0)
    assert "saved" not in progress.line(), "the first run begins with nothing"
    progress.resumed(1500.5)
    assert (told(job).iteration, told(job).saved) == (1500.5, 1500.5)


def test_a_second_later_it_is_written_again(helper: Any, job: ProgressFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    progress, now_s = helper.Progress(signals=()), 100.0
    monkeypatch.setattr(helper.time, "monotonic", lambda: now_s)
    progress.step(3)
    now_s = 100.9
    progress.step(4)
    assert told(job).iteration == 3
    now_s = 101.0
    progress.step(5)
    assert told(job) == ProgressLine(5.0, 101.0)


@pytest.mark.parametrize(
    "env", [{"SLURM_JOB_ID": ""}, {"SLURM_JOB_ID": "../x"}, {"SODA_PROGRESS_DIR": "/nowhere"}, {"RANK": "1"}]
)
def test_outside_a_job_without_agent_and_in_other_processes_nothing_happens(
    helper: Any, job: ProgressFiles, monkeypatch: pytest.MonkeyPatch, env: dict[str, str]
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    helper.Progress(signals=()).saved(5)
    assert job.read(OPENED) is None


def test_the_signal_asks_for_a_checkpoint(helper: Any) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    try:
        progress = helper.Progress(signals=("USR1",), path="")
        assert not progress.should_stop()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert progress.should_stop()
        assert progress.any_should_stop()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_it_is_python_of_3_8_and_imports_only_the_standard_library() -> None:
    tree = ast.parse(FILE.read_text(), feature_version=(3, 8))
    top = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    top |= {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert top <= set(sys.stdlib_module_names)
    subprocess.run([sys.executable, "-IS", "-W", "error", str(FILE)], check=True)


class Strategy:
    @staticmethod
    def reduce_boolean_decision(decision: bool, all: bool = True) -> bool:  # noqa: A002
        assert not all
        return decision


def test_transformers_callback(helper: Any, job: ProgressFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.ModuleType("transformers")
    library.TrainerCallback = type("TrainerCallback", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", library)
    progress = helper.Progress(signals=())
    callback = helper.transformers_callback(progress)
    args = types.SimpleNamespace(per_device_train_batch_size=8)
    state = types.SimpleNamespace(global_step=100, max_steps=400)
    control = types.SimpleNamespace(should_save=False, should_training_stop=False)
    callback.on_train_begin(args, state, control, model=None)
    assert (told(job).iteration, told(job).saved, told(job).total, told(job).batch) == (100, 100, 400, 8)
    state.global_step = 101
    assert callback.on_step_end(args, state, control) is control
    assert not control.should_training_stop
    progress._take_signal(15, None)
    callback.on_step_end(args, state, control)
    assert (control.should_save, control.should_training_stop) == (True, True)
    callback.on_save(args, state, control)
    assert told(job).saved == 101


@pytest.mark.parametrize("name", ["lightning", "pytorch_lightning"])
def test_lightning_callback(helper: Any, job: ProgressFiles, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, "lightning", None)
    library = types.ModuleType(name)
    library.Callback = type("Callback", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, library)
    progress, saved = helper.Progress(signals=()), []
    callback = helper.lightning_callback(progress, "last.ckpt")
    trainer = types.SimpleNamespace(
        global_step=0, estimated_stepping_batches=float("inf"), strategy=Strategy(), should_stop=False,
        save_checkpoint=saved.append,
    )  # fmt: skip
    callback.on_train_start(trainer, None)
    trainer.global_step = 12
    callback.on_train_batch_end(trainer, None, None, None, 11)
    assert (told(job).iteration, told(job).total, trainer.should_stop) == (12, 0, False)
    progress._take_signal(15, None)
    callback.on_train_batch_end(trainer, None, None, None, 11)
    assert (saved, trainer.should_stop, told(job).saved) == (["last.ckpt"], True, 12)
