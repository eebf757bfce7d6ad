"""sodactl service start and stop: what Slurm is asked, and what is left if it refuses."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slurm_soda import services
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.write import start_leases
from slurm_soda.sodactl.service import submission
from tests.sodactl.conftest import Bench, record
from tests.sodactl.service.conftest import CHAT, SlurmCommands, put_profile


def tasks_of(array: int, service: str = "chat", **values: Any) -> list[SlurmJob]:
    """Two tasks of an array of alice's."""
    shared: dict[str, Any] = {
        "array_job_id": array,
        "hints": Hints(service=service),
        "name": f"{service}-cpu",
        **values,
    }
    running = record(array + 1, array_task="0", state="RUNNING", **shared)
    return [running, record(array, array_task="1-3", **shared)]


def test_both_arrays_are_submitted(
    soda: Bench, slurm: SlurmCommands, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", "/home/alice/venv")
    monkeypatch.setenv("SBATCH_WAIT", "1")
    put_profile(chat, {"device": "cpu"}, {"device": "gpu", "batch": 64, "cores": 2})
    directory = chat.parent / "services" / "chat"
    document = soda("service", "start", str(chat), "--json").document
    assert document["arrays"] == [
        {"array_job_id": 701, "device": "cpu", "tasks": 3},
        {"array_job_id": 702, "device": "gpu", "tasks": 3},
    ]
    assert [list(call) for call in slurm.calls] == [call["argv"] for call in document["calls"]]
    assert slurm.calls[0] == (
        "sbatch", "--parsable", "--array=0-2", "--requeue", "--begin=now+60", "--soda-service=chat",
        "--job-name=chat-cpu", "--nodes=1",
        "--ntasks=1", "--cpus-per-task=4", f"--chdir={chat.parent}", f"--output={directory}/logs/%A_%a.log",
        "--open-mode=append", "--partition=cpu",
    )  # fmt: skip
    assert slurm.calls[1][9] == "--cpus-per-task=2"
    assert slurm.calls[1][-3:] == ("--gres=gpu:1", "--partition", "gpu")
    assert slurm.environments[0]["VIRTUAL_ENV"] == "/home/alice/venv"
    assert "SBATCH_WAIT" not in slurm.environments[0]
    last = slurm.scripts[1].splitlines()[-1]
    assert shlex.split(last) == [
        "exec", "python3", f"{directory}/slurm_soda_serve.py", "--service", "chat", "--folder", str(directory.parent),
        "--device", "gpu", "--health", "/health", "--batch", "64", "--window-ms", "50", "--cores", "2", "--",
        "python model.py --port {port} --batch {batch} --name 'it is'",
    ]  # fmt: skip


def test_sodad_takes_the_first_wait_for_no_word_of_the_owners() -> None:
    assert 0 < submission.FIRST_WAIT_S <= start_leases.FIRST_WAIT_S


def test_the_program_is_where_nodes_find_it_and_nobody_else_may_write(
    soda: Bench, slurm: SlurmCommands, chat: Path
) -> None:
    directory = chat.parent / "services" / "chat"
    assert "array 701 on cpu: 3 tasks" in soda("service", "start", str(chat)).out
    own = Path(services.__file__).with_name("slurm_soda_serve.py")
    assert (directory / "slurm_soda_serve.py").read_bytes() == own.read_bytes()
    assert {path.name for path in directory.iterdir()} == {"logs", "slurm_soda_serve.py"}
    for path in (directory, directory / "logs", directory / "slurm_soda_serve.py"):
        assert path.stat().st_mode & 0o077 == 0


def test_the_batch_script_starts_the_real_program(soda: Bench, slurm: SlurmCommands, chat: Path) -> None:
    """With the shell, as slurmd runs it: quotes and spaces arrive."""
    soda("service", "start", str(chat))
    script = slurm.scripts[0].replace("--device cpu", "--device tpu")
    done = subprocess.run(["sh"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "slurm_soda_serve.py: error: argument --device: invalid choice: 'tpu'" in done.stderr


def test_a_dry_run_shows_the_calls_and_does_nothing(soda: Bench, slurm: SlurmCommands, chat: Path) -> None:
    soda.slurm.down, soda.uid = True, 0
    done = soda("service", "start", str(chat), "--tasks", "7", "--dry-run")
    assert done.out.count("--array=0-6 --requeue --begin=now+60 --soda-service=chat ") == 2
    assert f"'--chdir={chat.parent}'" in done.out
    assert "exec python3 " in done.out
    assert slurm.calls == []
    assert not (chat.parent / "services").exists()


def test_an_owners_own_way_to_ask_for_gpus_stays_alone(soda: Bench, slurm: SlurmCommands, chat: Path) -> None:
    chat.write_text(CHAT.replace('"--partition", "gpu"', '"--gres=gpu:a100:2"').replace("[gpu]", "[gpu]\ngpus = 2"))
    soda("service", "start", str(chat))
    assert [word for word in slurm.calls[1] if "gres" in word] == ["--gres=gpu:a100:2"]
    assert "--gpu-type a100 --" in slurm.scripts[1]


def test_each_gpu_type_gets_an_array(soda: Bench, slurm: SlurmCommands, chat: Path) -> None:
    """With cores and batch by its own profile, and none if it misses the target."""
    chat.write_text(CHAT.replace("[gpu]", '[gpu]\ngpus = 2\ntypes = ["a100", "t4", "old"]'))
    rows = (("a100", 64, 40.0, 2), ("t4", 16, 60.0, 3), ("old", 8, 400.0, 1))
    put_profile(
        chat,
        *(
            {"device": "gpu", "gpu_type": name, "batch": batch, "batch_ms": ms, "cores": cores}
            for name, batch, ms, cores in rows
        ),
    )
    done = soda("service", "start", str(chat))
    asked = [[call[6], call[9], next((one for one in call if "gres" in one), "")] for call in slurm.calls]
    assert asked == [
        ["--job-name=chat-cpu", "--cpus-per-task=1", ""],
        ["--job-name=chat-gpu-a100", "--cpus-per-task=2", "--gres=gpu:a100:2"],
        ["--job-name=chat-gpu-t4", "--cpus-per-task=3", "--gres=gpu:t4:2"],
    ]
    assert "--batch 64 " in slurm.scripts[1]
    assert "--gpu-type t4 --" in slurm.scripts[2]
    assert "gpu: no array of it is submitted, it does not meet the target: gpu old: 50 + 2 x 400" in done.err
    shown = soda("service", "check", str(chat)).out
    assert [line.split()[:2] for line in shown.splitlines() if line.startswith("gpu")] == [
        ["gpu", "a100"], ["gpu", "t4"], ["gpu", "old"],
    ]  # fmt: skip


def test_types_and_an_own_way_to_ask_for_gpus_exclude_each_other(soda: Bench, slurm: SlurmCommands, chat: Path) -> None:
    chat.write_text(CHAT.replace("[gpu]", '[gpu]\ntypes = ["a100"]').replace('"--partition", "gpu"', '"--gpus=2"'))
    for command in ("check", "start"):
        assert "remove one of the two" in soda("service", command, str(chat), status=1).err
    assert slurm.calls == []


def test_a_device_that_misses_the_target_gets_no_array(soda: Bench, slurm: SlurmCommands, chat: Path) -> None:
    put_profile(chat, {"device": "cpu", "batch": 0, "batch_ms": 400.0}, {"device": "gpu"})
    done = soda("service", "start", str(chat))
    assert [call[6] for call in slurm.calls] == ["--job-name=chat-gpu"]
    assert "cpu: no array is submitted, it does not meet the target: cpu: 50 + 2 x 400" in done.err


def test_a_target_that_nothing_meets_is_refused_before_slurm_is_asked(
    soda: Bench, slurm: SlurmCommands, chat: Path
) -> None:
    put_profile(chat, {"device": "cpu", "batch": 0}, {"device": "gpu", "batch": 0})
    assert "no device answers within target_ms 200" in soda("service", "start", str(chat), status=1).err
    assert slurm.calls == []


def test_a_second_start_is_refused(soda: Bench, slurm: SlurmCommands, chat: Path) -> None:
    soda.slurm.queue = tasks_of(40)
    said = soda("service", "start", str(chat), status=1).err
    assert "chat has arrays already: 40; `sodactl service stop chat` cancels them" in said
    assert slurm.calls == []


ENDED = record(41, array_job_id=40, array_task="0", state="TIMEOUT", hints=Hints(service="chat"))


@pytest.mark.parametrize(
    "queue",
    [tasks_of(40, service="chat-2"), tasks_of(40, uid=1001), tasks_of(40, hints=Hints()), [ENDED]],
    ids=["another service", "another user", "no service", "ended"],
)
def test_other_jobs_are_no_hindrance(soda: Bench, slurm: SlurmCommands, chat: Path, queue: list[SlurmJob]) -> None:
    soda.slurm.queue = queue
    soda("service", "start", str(chat))
    assert len(slurm.calls) == 2


def test_if_the_second_is_refused_the_first_is_cancelled(soda: Bench, slurm: SlurmCommands, chat: Path) -> None:
    slurm.refuse = {"gpu": (1, "sbatch: error: invalid partition specified: gpu")}
    said = soda("service", "start", str(chat), status=1).err
    assert "invalid partition specified: gpu; correct what it names" in said
    assert said.endswith("; array 701 (cpu), which had been submitted before it, was cancelled\n")
    assert slurm.calls[-1] == ("scancel", "701")


def test_if_that_fails_too_it_says_what_is_left(soda: Bench, slurm: SlurmCommands, chat: Path) -> None:
    slurm.refuse = {"gpu": (1, "no"), "701": (1, "scancel: error: Unable to contact slurm controller")}
    said = soda("service", "start", str(chat), status=1).err
    assert "array 701 (cpu) had been submitted and could not be cancelled (scancel 701 exited with status 1" in said


@pytest.mark.parametrize(
    ("status", "printed", "said"),
    [
        (1, "sbatch: unrecognized option '--soda-service=chat'", "does not know slurm-soda's flags on this host"),
        (None, "", "it may have been submitted all the same"),
        (127, "", "sbatch is not installed on this host"),
    ],
)
def test_why_slurm_took_nothing(
    soda: Bench, slurm: SlurmCommands, chat: Path, status: int | None, printed: str, said: str
) -> None:
    slurm.refuse = {"--job-name": (status, printed)}
    assert said in soda("service", "start", str(chat), status=1).err
    assert len(slurm.calls) == 1


def test_an_answer_that_is_no_job_id(soda: Bench, slurm: SlurmCommands, chat: Path) -> None:
    slurm.answer = "Submitted batch job 7\n"
    assert "sbatch printed 'Submitted batch job 7\\n'" in soda("service", "start", str(chat), status=1).err
    slurm.answer = "812;cluster\n"
    assert "array 812 on cpu" in soda("service", "start", str(chat)).out


def test_root_starts_no_service(soda: Bench, slurm: SlurmCommands, chat: Path) -> None:
    soda.uid = 0
    assert "a service runs as its owner, and this is root" in soda("service", "start", str(chat), status=1).err
    assert slurm.calls == []


def test_a_folder_that_is_a_file_or_a_link_is_refused(soda: Bench, slurm: SlurmCommands, chat: Path) -> None:
    folder = chat.parent / "services"
    folder.write_text("")
    assert f"set folder in {chat} to one" in soda("service", "start", str(chat), status=1).err
    folder.unlink()
    folder.mkdir()
    (chat.parent / "elsewhere").mkdir()
    (folder / "chat").symlink_to(chat.parent / "elsewhere")
    assert "cannot be written" in soda("service", "start", str(chat), status=1).err
    assert slurm.calls == []


def test_a_folder_in_which_others_could_put_another_program_is_refused(
    soda: Bench, slurm: SlurmCommands, chat: Path
) -> None:
    """The tasks run what lies there, as the service's owner."""
    folder = chat.parent / "services"
    folder.mkdir()
    folder.chmod(0o777)
    assert "can be written by others" in soda("service", "start", str(chat), status=1).err
    assert slurm.calls == []
    folder.chmod(0o755)
    (folder / "chat").mkdir()
    (folder / "chat").chmod(0o777)
    soda("service", "start", str(chat))
    assert (folder / "chat").stat().st_mode & 0o777 == 0o755


def test_a_folder_with_a_percent_sign_is_no_pattern_of_slurms(soda: Bench, slurm: SlurmCommands, chat: Path) -> None:
    chat.write_text(CHAT.replace("[replicas]", 'folder = "100%a"\n[replicas]'))
    soda("service", "start", str(chat))
    assert f"--output={chat.parent}/100%%a/chat/logs/%A_%a.log" in slurm.calls[0]
    assert (chat.parent / "100%a" / "chat" / "logs").is_dir()


def test_stop_asks_and_cancels_the_owners_own(
    soda: Bench, slurm: SlurmCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    soda.slurm.queue = [*tasks_of(40), *tasks_of(50), *tasks_of(60, uid=1001), *tasks_of(70, service="other")]
    read, write = os.pipe()
    os.write(write, b"n\n")
    monkeypatch.setattr("sys.stdin", os.fdopen(read))
    done = soda("service", "stop", "chat", status=130)
    assert "array 40 chat-cpu: 1 running, 1 waiting" in done.out
    assert slurm.calls == []
    assert soda("service", "stop", "chat", "--yes").out == "cancelled 40, 50\n"
    assert slurm.calls == [("scancel", "40", "50")]
    os.close(write)


def test_stop_for_scripts_and_without_arrays(soda: Bench, slurm: SlurmCommands) -> None:
    assert "add --yes" in soda("service", "stop", "chat", "--json", status=2).err
    assert "you have no array of service chat" in soda("service", "stop", "chat", status=1).err
    assert "no name of a service" in soda("service", "stop", "Chat!", status=2).err
    soda.slurm.queue = tasks_of(40)
    document = soda("service", "stop", "chat", "--json", "--yes").document
    cancelled: Mapping[str, object] = {"array_job_id": 40, "name": "chat-cpu", "running": 1, "waiting": 1}
    assert document == {"name": "chat", "cancelled": [cancelled]}
