"""The training emulator: speed, occupation, checkpoint and resume, by real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_soda.agent.sampling.progress_files import parse_progress

from .conftest import Hardware

FULL = {"SLURM_CPUS_ON_NODE": "28"}  # cores enough for every model
QUICK = ["--cpu-load", "0", "--report-s", "0"]


def run(hardware: Hardware, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [hardware.train, *QUICK, *options], env=hardware.env(**env), capture_output=True, text=True, check=False
    )


def start(hardware: Hardware, *options: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [hardware.train, *QUICK, *options], env=hardware.env(**env), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def wait_until(ready: Callable[[], object], limit_s: float = 20) -> None:
    end = time.monotonic() + limit_s
    while not ready():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


def uses(hardware: Hardware) -> dict[int, list[int]]:
    """GPU: memory, utilisation and demand, summed over the state files."""
    found: dict[int, list[int]] = {}
    for path in hardware.state.iterdir():
        if path.name.isdigit():
            for line in path.read_text().splitlines()[1:]:
                gpu, *numbers = map(int, line.split())
                found[gpu] = [a + b for a, b in zip(found.get(gpu, [0, 0, 0]), numbers[:3], strict=True)]
    return found


def saved_iteration(path: Path) -> float:
    return float(path.read_text().split()[4])


def test_it_finishes_and_leaves_nothing(hardware: Hardware, tmp_path: Path) -> None:
    done = run(hardware, "--model", "resnet50", "--iterations", "10", "--time-scale", "100",
               "--checkpoint-dir", str(tmp_path), SLURM_JOB_ID="7", CUDA_VISIBLE_DEVICES="0", **FULL)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "finished 10 iterations" in done.stdout
    assert not list(tmp_path.glob("*.ckpt*"))
    assert uses(hardware) == {}


def test_a_signal_saves_and_the_next_run_goes_on(hardware: Hardware, tmp_path: Path) -> None:
    options = ["--model", "vgg16", "--duration-s", "100000", "--time-scale", "1000", "--checkpoint-dir", str(tmp_path)]
    env = {"SLURM_JOB_ID": "41", "CUDA_VISIBLE_DEVICES": "0", **FULL}
    first = start(hardware, *options, **env)
    wait_until(lambda: uses(hardware).get(0, [0, 0, 0])[1] > 0)
    time.sleep(0.3)
    first.send_signal(signal.SIGTERM)
    output, _ = first.communicate()
    assert first.returncode == 75
    saved = saved_iteration(tmp_path / "41.ckpt")
    assert saved > 0
    assert f"saved at iteration {saved:.0f} " in output
    second = start(hardware, *options, SLURM_RESTART_COUNT="1", **env)
    assert second.stdout is not None
    second.stdout.readline()
    assert f"resuming at iteration {saved:.0f} " in second.stdout.readline()
    second.send_signal(signal.SIGTERM)
    second.communicate()
    assert second.returncode == 75
    assert saved_iteration(tmp_path / "41.ckpt") >= saved


def test_a_kill_during_the_save_leaves_the_old_state(hardware: Hardware, tmp_path: Path) -> None:
    options = ["--model", "bert", "--duration-s", "1e6", "--time-scale", "1000", "--checkpoint-dir", str(tmp_path)]
    env = {"SLURM_JOB_ID": "9", "CUDA_VISIBLE_DEVICES": "1", **FULL}
    first = start(hardware, *options, "--save-s", "0", **env)
    wait_until(lambda: uses(hardware).get(1, [0, 0, 0])[1] > 0)
    first.send_signal(signal.SIGTERM)
    first.communicate()
    old = (tmp_path / "9.ckpt").read_bytes()
    second = start(hardware, *options, "--save-s", "60000", "--load-s", "0", **env)  # a save of a real minute
    wait_until(lambda: uses(hardware).get(1, [0, 0, 0])[1] > 0)
    second.send_signal(signal.SIGTERM)
    part = tmp_path / "9.ckpt.new"
    wait_until(lambda: part.exists() and part.stat().st_size)
    second.kill()
    second.communicate()
    assert (tmp_path / "9.ckpt").read_bytes() == old
    assert 0 < part.stat().st_size < len(old) * 2 / 3
    third = start(hardware, *options, "--save-s", "0", "--load-s", "0", **env)
    assert third.stdout is not None
    third.stdout.readline()
    assert "resuming" in third.stdout.readline()
    third.send_signal(signal.SIGTERM)
    third.communicate()
    assert third.returncode == 75
    assert not part.exists()


@pytest.mark.parametrize(
    "content", [b"", b"soda-train 1 resnet50 64 5", b"soda-train 1 vgg16 64 5.000 00000000\n", b"\xff\x00"]
)
def test_a_damaged_checkpoint_is_refused_not_believed(hardware: Hardware, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "3.ckpt").write_bytes(content)
    done = run(hardware, "--model", "vgg16", "--iterations", "10", "--time-scale", "1000", "--batch-size", "64",
               "--checkpoint-dir", str(tmp_path), SLURM_JOB_ID="3", **FULL)  # fmt: skip
    assert done.returncode == 0
    assert "no checkpoint of this training" in done.stderr
    assert "resuming" not in done.stdout


SIGNALS = [("USR1", signal.SIGUSR1, 75), ("SIGUSR2", signal.SIGUSR2, 75), ("10", signal.SIGUSR1, 75),
           ("USR1", signal.SIGTERM, 143), ("USR1", signal.SIGINT, 143)]  # fmt: skip


@pytest.mark.parametrize(("option", "sent", "status"), SIGNALS)
def test_only_the_checkpoint_signal_saves(
    hardware: Hardware, tmp_path: Path, option: str, sent: signal.Signals, status: int
) -> None:
    process = start(hardware, "--model", "resnet50", "--duration-s", "1e6", "--time-scale", "1000", "--signal", option,
                    "--checkpoint-dir", str(tmp_path), "--name", "x", CUDA_VISIBLE_DEVICES="0", **FULL)  # fmt: skip
    wait_until(lambda: uses(hardware))
    process.send_signal(sent)
    process.communicate()
    assert process.returncode == status
    assert (tmp_path / "x.ckpt").exists() == (status == 75)


def test_signals_that_a_parent_ignores_still_count(hardware: Hardware) -> None:
    shell = [
        "sh",
        "-c",
        "trap '' TERM; exec \"$@\"",
        "sh",
        hardware.train,
        *QUICK,
        "--model",
        "bert",
        "--duration-s",
        "1e6",
    ]
    process = subprocess.Popen(shell, env=hardware.env(CUDA_VISIBLE_DEVICES="0"), stdout=subprocess.DEVNULL)
    wait_until(lambda: uses(hardware))
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143


def test_an_unwritable_checkpoint_says_so(hardware: Hardware, tmp_path: Path) -> None:
    process = start(hardware, "--model", "resnet50", "--duration-s", "1e6", "--time-scale", "1000",
                    "--checkpoint-dir", str(tmp_path / "absent"), CUDA_VISIBLE_DEVICES="0", **FULL)  # fmt: skip
    wait_until(lambda: uses(hardware))
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 74
    assert "cannot write" in errors


PLACES = {  # Slurm's variables: the devices really used
    "nothing said": ({}, []),
    "absolute": ({"SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "2,3"}, [2, 3]),
    "relative": ({"SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "0,1"}, [2, 3]),
    "relative, overlapping": ({"SLURM_JOB_GPUS": "1,3", "CUDA_VISIBLE_DEVICES": "0,1"}, [1, 3]),
    "a range": ({"SLURM_JOB_GPUS": "0-2", "CUDA_VISIBLE_DEVICES": "0,1,2"}, [0, 1, 2]),
    "the step's own": ({"SLURM_JOB_GPUS": "0,1", "SLURM_STEP_GPUS": "3", "CUDA_VISIBLE_DEVICES": "0"}, [3]),
    "no variable of CUDA": ({"SLURM_JOB_GPUS": "1"}, [1]),
    "CUDA alone": ({"CUDA_VISIBLE_DEVICES": "0,3"}, [0, 3]),
    "hidden": ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, []),
}


@pytest.mark.parametrize(("env", "gpus"), PLACES.values(), ids=PLACES)
def test_it_uses_exactly_its_gpus(hardware: Hardware, env: dict[str, str], gpus: list[int]) -> None:
    process = start(hardware, "--model", "resnet50", "--duration-s", "1e6", **env)
    assert process.stdout is not None
    assert f"{len(gpus)} GPUs" in process.stdout.readline()
    if gpus:
        wait_until(lambda: uses(hardware))
    assert sorted(uses(hardware)) == gpus
    process.kill()
    process.communicate()


def rate(hardware: Hardware, model: str, seconds: float = 1.0, **env: str) -> float:
    """Iterations of one run of so many nominal seconds, per second of real time on cores enough."""
    process = start(hardware, "--model", model, "--duration-s", "1e6", "--report-s", "0.2", **env)
    assert process.stdout is not None
    process.stdout.readline()
    line = process.stdout.readline()
    process.kill()
    process.communicate()
    found = re.search(r"([0-9.]+) samples/s", line)
    assert found, line
    return float(found[1])


def test_cores_decide_the_speed(hardware: Hardware) -> None:
    rates = [rate(hardware, "alexnet", SLURM_CPUS_ON_NODE=str(n), CUDA_VISIBLE_DEVICES="0") for n in (1, 3, 6, 8)]
    # one_core_ratio 0.17, cores_best 6, full speed at 256 samples in 6 + 256 * 0.39 ms
    full = 256 / 0.10584
    assert rates == pytest.approx([0.17 * full, (0.17 + 0.83 * 2 / 5) * full, full, full], rel=0.001)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two real cores to take one away")
def test_real_affinity_counts_where_the_node_is_honest(hardware: Hardware) -> None:
    env = hardware.env(SLURM_CPUS_ON_NODE="2", CUDA_VISIBLE_DEVICES="0")
    core = str(min(os.sched_getaffinity(0)))
    done = subprocess.run(["taskset", "-c", core, hardware.train, "--model", "bert", "--iterations", "1",
                           "--time-scale", "1000"], env=env, capture_output=True, text=True, check=True)  # fmt: skip
    assert "1 cores" in done.stdout


def test_jobs_on_one_gpu_slow_each_other(hardware: Hardware) -> None:
    env = {"CUDA_VISIBLE_DEVICES": "0", **FULL}
    alone = rate(hardware, "resnet50", **env)
    other = start(hardware, "--model", "deepspeech", "--duration-s", "1e6", **env)
    wait_until(lambda: uses(hardware).get(0, [0, 0, 0])[1] > 0)
    beside = rate(hardware, "resnet50", **env)
    elsewhere = rate(hardware, "resnet50", **{**env, "CUDA_VISIBLE_DEVICES": "1"})
    other.kill()
    other.communicate()
    assert elsewhere == pytest.approx(alone)
    assert alone / beside == pytest.approx((0.92 + 0.81) * 1.09, rel=0.01)


def test_shared_utilisation_stays_below_full(hardware: Hardware) -> None:
    pair = [
        start(hardware, "--model", "bert", "--duration-s", "1e6", CUDA_VISIBLE_DEVICES="2", **FULL) for _ in range(2)
    ]
    wait_until(lambda: uses(hardware).get(2, [0, 0, 0])[2] == 192)  # both want 96 %
    wait_until(lambda: 0 < uses(hardware)[2][1] <= 100)
    for process in pair:
        process.kill()
        process.communicate()


def test_ranks_share_one_checkpoint_and_end_together(hardware: Hardware, tmp_path: Path) -> None:
    options = ["--model", "resnet50", "--duration-s", "60", "--time-scale", "100", "--checkpoint-dir", str(tmp_path)]
    ranks = [
        start(hardware, *options, SLURM_JOB_ID="5", SLURM_PROCID=str(rank), SLURM_STEP_NUM_TASKS="2",
              SLURM_STEP_NUM_NODES="2", CUDA_VISIBLE_DEVICES=str(rank), SLURM_CPUS_ON_NODE=cores)
        for rank, cores in ((0, "28"), (1, "1"))
    ]  # fmt: skip
    outputs = [process.communicate()[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0]
    assert "finished" in outputs[0]
    assert outputs[1] == ""
    assert not (tmp_path / "5.ckpt").exists()


def test_a_suspended_training_makes_no_progress(hardware: Hardware, tmp_path: Path) -> None:
    process = start(hardware, "--model", "resnet50", "--duration-s", "1e6", "--time-scale", "10",
                    "--checkpoint-dir", str(tmp_path), "--name", "s", "--save-s", "0",
                    CUDA_VISIBLE_DEVICES="0", **FULL)  # fmt: skip
    wait_until(lambda: uses(hardware).get(0, [0, 0, 0])[1] > 0)
    process.send_signal(signal.SIGSTOP)
    time.sleep(3)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    process.communicate()
    iteration_s = (12 + 64 * 2.9) / 1000 / 10
    assert saved_iteration(tmp_path / "s.ckpt") < 2.5 / iteration_s


BAD = {
    "no model": (["--iterations", "5"], "--model"),
    "unknown model": (["--model", "x'; echo foo", "--iterations", "5"], "x'; echo foo"),
    "no length": (["--model", "bert"], "--duration-s"),
    "two lengths": (["--model", "bert", "--iterations", "5", "--duration-s", "5"], "--duration-s"),
    "zero batch": (["--model", "bert", "--iterations", "5", "--batch-size", "0"], "--batch-size"),
    "hostile batch": (["--model", "bert", "--iterations", "5", "--batch-size", "64; rm -rf /"], "64; rm -rf /"),
    "signal nobody can catch": (["--model", "bert", "--iterations", "5", "--signal", "KILL"], "KILL"),
    "no such signal": (["--model", "bert", "--iterations", "5", "--signal", "FOO"], "FOO"),
    "not a number": (["--model", "bert", "--iterations", "nan"], "nan"),
    "a path as name": (["--model", "bert", "--iterations", "5", "--name", "../x"], "../x"),
    "a stray word": (["--model", "bert", "--iterations", "5", "word"], "word"),
    "no such flag": (["--modle", "bert"], "--modle"),
    "no such file": (["--model", "bert", "--iterations", "5", "--profiles", "/nonexistent"], "/nonexistent"),
}


@pytest.mark.parametrize(("options", "named"), BAD.values(), ids=BAD)
def test_bad_command_lines_get_one_line(hardware: Hardware, options: list[str], named: str) -> None:
    done = run(hardware, *options)
    assert done.returncode == 64
    assert named in done.stderr
    assert done.stderr.count("\n") == 1


def test_it_tells_its_progress_and_its_checkpoint(hardware: Hardware, tmp_path: Path) -> None:
    progress = tmp_path / str(os.getuid()) / "7.2"
    progress.parent.mkdir()
    training = start(hardware, "--model", "resnet50", "--iterations", "100000", "--time-scale", "100", "--save-s", "0",
                     "--checkpoint-dir", str(tmp_path), SLURM_JOB_ID="7", SLURM_RESTART_COUNT="2",
                     SODA_PROGRESS_DIR=str(tmp_path), **FULL)  # fmt: skip
    wait_until(lambda: progress.exists() and not progress.read_text().startswith("iteration=0.0"))
    told = parse_progress(progress.read_bytes())
    assert told is not None
    assert (told.total, told.saved, told.batch) == (100000, -1, 64)
    training.send_signal(signal.SIGTERM)
    assert training.wait() == 75
    told = parse_progress(progress.read_bytes())
    assert told is not None
    assert told.saved == told.iteration == saved_iteration(tmp_path / "7.ckpt")
