"""Records of who is on which GPU, by the hooks' own shell. What needs Slurm: tests/slurm/test_walls.py."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from slurm_soda.slurm_ext.sharing.guest_record import GuestRecord
from tests.prolog.conftest import EPILOG_ENV
from tests.prolog.walls_node import GUEST_ENV, Node, make_node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return make_node(tmp_path)


def extra(*, hosts: tuple[int, ...] = (10,), gpus: tuple[int, ...] = (0, 1), own: int = 0) -> str:
    undo = {"TresPerNode": "gres/gpu:2", "ReqNodeList": ""}
    return GuestRecord(
        hosts=hosts, gpus=gpus, own=own, sub_batch=32, steps=2, threads=50, memory_mib=800, undo=undo
    ).encode()


def test_a_job_with_gpus_is_recorded_until_it_ends(node: Node) -> None:
    assert "slurm-soda: " not in node.starts(10, "0-1,3")
    assert node.records() == {"gpus.10": ["0-1,3", "1000"]}
    assert node.shares.stat().st_mode & 0o777 == 0o700
    assert (node.shares / "gpus.10").stat().st_mode & 0o777 == 0o600
    node.run("epilog", EPILOG_ENV)
    assert node.records() == {}


def test_a_guest_on_its_host_gets_its_devices_in_both_ways_of_counting(node: Node) -> None:
    node.starts(9, "0")
    node.starts(10, "2,3")
    assert "slurm-soda: " not in node.run("prolog", {**GUEST_ENV, "SLURM_JOB_EXTRA": extra(gpus=(2, 3))})
    records = node.records()
    assert records["guest.11"] == ["uid=1000", "hosts=10", "gpus=2+3", "own=", "end"]
    lines = records["env.11"]
    assert lines[:2] == ["CUDA_VISIBLE_DEVICES=2,3", "~CUDA_VISIBLE_DEVICES=0,1"]
    assert {"SLURM_JOB_GPUS=2,3", "SODA_SUB_BATCH=32", "SODA_ACCUMULATION_STEPS=2", "-SLURM_TRES_PER_TASK"} < set(lines)
    node.run("epilog", {**EPILOG_ENV, "SLURM_JOB_ID": "11", "SLURM_JOB_GPUS": ""})
    assert set(node.records()) == {"gpus.9", "gpus.10"}


def test_a_guest_with_a_gpu_of_its_own_gets_all_in_ascending_order(node: Node) -> None:
    node.starts(10, "0,2")
    environ = {**GUEST_ENV, "SLURM_JOB_EXTRA": extra(gpus=(0, 2), own=1), "SLURM_JOB_GPUS": "1"}
    assert "slurm-soda: " not in node.run("prolog", environ)
    records = node.records()
    assert records["env.11"][:2] == ["CUDA_VISIBLE_DEVICES=0,1,2", "~CUDA_VISIBLE_DEVICES=0,1,2"]
    assert records["gpus.11"] == ["1", "1000"]


def command(node: Node, name: str, answers: dict[str, str]) -> None:
    """What a command of Slurm answers, by a word of the question; to any other it has no answer."""
    cases = "".join(f"*\"{word}\"*) printf '%s' '{answer}' ;;\n" for word, answer in answers.items())
    node.tool(name, f'case "$*" in\n{cases}*) exit 1 ;;\nesac')


def says(node: Node, tres: str, listed: str = "") -> None:
    """What squeue answers: what a job holds, and who is on the node."""
    command(node, "squeue", {"tres-alloc": tres, "%U": listed})


PLAIN = "cpu=1,mem=9M,node=2,gres/gpu=2,gres/gpu:a100=2"
OWNERS_OWN = {
    "more than its record has": (extra(gpus=(0,)), "2", ""),
    "more than its record has of its own": (extra(gpus=(0,), own=1), "2,3", ""),
    "as many": (extra(gpus=(0,), own=1), "2", f"11|{PLAIN}|\n"),
    "fewer": (extra(gpus=(0,), own=2), "2", f"9|x|\n11|{PLAIN}|\n"),
}


@pytest.mark.parametrize(("text", "gpus", "answer"), OWNERS_OWN.values(), ids=OWNERS_OWN)
def test_a_guest_that_its_owner_made_a_plain_job_is_none(node: Node, text: str, gpus: str, answer: str) -> None:
    """Its record may still be there when it starts."""
    says(node, answer)
    node.starts(10, "0,1")
    for name in ("env.11", "guest.11"):  # of an earlier run
        (node.shares / name).write_text("end\n")
    environ = {**GUEST_ENV, "SLURM_JOB_EXTRA": text, "SLURM_JOB_GPUS": gpus}
    assert "slurm-soda: " not in node.run("prolog", environ)
    assert node.records() == {"gpus.10": ["0,1", "1000"], "gpus.11": [gpus, "1000"]}


def test_it_holds_nothing_on_a_node_where_it_has_no_gpu(node: Node) -> None:
    says(node, f"11|{PLAIN}|\n")
    node.starts(10, "0,1")
    (node.shares / "gpus.11").write_text("3\n1000\n")
    environ = {**GUEST_ENV, "SLURM_JOB_EXTRA": extra(), "SLURM_JOB_NUM_NODES": "2"}
    assert "slurm-soda: " not in node.run("prolog", environ)
    assert set(node.records()) == {"gpus.10"}


@pytest.mark.parametrize(
    "answer",
    [
        "11|cpu=1,gres/gpu=1,gres/sharedgpu=1|\n",
        "11|cpu=1,node=1|\n",
        "",
        f"12|{PLAIN}|\n",
        f"1|{PLAIN}|\n",
        "slurm_load_jobs error",
    ],
)
def test_who_is_not_known_to_be_plain_is_a_guest(node: Node, answer: str) -> None:
    says(node, answer)
    node.starts(10, "0")
    environ = {**GUEST_ENV, "SLURM_JOB_EXTRA": extra(gpus=(0,), own=1), "SLURM_JOB_GPUS": "1"}
    assert "slurm-soda: " not in node.run("prolog", environ)
    assert set(node.records()) == {"gpus.10", "gpus.11", "guest.11", "env.11"}


REFUSED = {
    "no host": (extra(hosts=(12,)), "holds a GPU of it"),
    "a host holds less": (extra(gpus=(0, 1, 2)), "none of its hosts holds GPU 2"),
    "a stranger's GPU": (extra(gpus=(0, 1, 3)), "job 9 holds a GPU of it"),
    "another version": (extra().replace(":1,", ":2,"), "not the record"),
    "a key that is none": (extra().replace(",threads=50", ",thread=50"), "not the record"),
    "a command": (extra().replace("hosts=10", "hosts=$(touch /evil)"), "not the record"),
    "a path": (extra().replace("hosts=10", "hosts=../../x"), "not the record"),
    "a pattern": (extra().replace("gpus=0+1", "gpus=*"), "not the record"),
    "nothing": ("soda-guest:", "not the record"),
    "long": (extra() + "x" * 1100, "not the record"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_guest_that_may_not_start_sees_no_gpu(node: Node, case: str) -> None:
    text, reason = REFUSED[case]
    node.starts(9, "3")
    node.starts(10, "0,1")
    assert reason in node.run("prolog", {**GUEST_ENV, "SLURM_JOB_EXTRA": text})
    lines = node.records()["env.11"]
    assert lines[0] == "CUDA_VISIBLE_DEVICES="
    assert "-SLURM_GPUS" in lines
    assert lines[-1] == "end"


@pytest.mark.parametrize("gpus", ["GPU-1a", "0,", "0,,1", "1-", "00", "0;1", "1000", "*", "0 1", "0," * 600])
def test_gpus_that_cannot_be_read_are_all_gpus(node: Node, gpus: str) -> None:
    node.starts(10, gpus)
    assert "job 10 holds a GPU of it" in node.run(
        "prolog", {**GUEST_ENV, "SLURM_JOB_EXTRA": extra(hosts=(12,), gpus=(7,))}
    )


def test_what_an_earlier_run_left_is_removed(node: Node) -> None:
    node.starts(9, "0")
    node.starts(10, "0,1")
    assert set(node.records()) == {"gpus.10"}
    for name in ("env.10", "guest.10"):
        (node.shares / name).write_text("end\n")
    node.starts(10, "0,1")
    assert set(node.records()) == {"gpus.10"}


def test_a_directory_that_is_a_link_is_not_used(node: Node, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    node.shares.parent.mkdir()
    node.shares.symlink_to(target)
    node.starts(10, "0")
    said = node.run("prolog", {**GUEST_ENV, "SLURM_JOB_EXTRA": extra()})
    assert "not root's own directory" in said
    node.run("epilog", EPILOG_ENV)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "SLURM_JOB_UID", "SLURMD_NODENAME"])
@pytest.mark.parametrize("value", ["", "../x", "$(touch /evil)", "1;2", "9" * 300, "-1", "*"])
def test_variables_that_are_none_write_nothing(node: Node, name: str, value: str) -> None:
    node.shares.mkdir(parents=True, mode=0o700)
    if name == "SLURMD_NODENAME" and value in {"1;2", "9" * 300}:
        value = "n1\nn2"
    for hook in ("prolog", "epilog"):
        node.run(hook, {**EPILOG_ENV, "SLURM_JOB_EXTRA": extra(), name: value})
    assert node.records() == {}
    assert not Path("/evil").exists()


def test_a_job_that_starts_at_the_same_time_keeps_its_record(node: Node) -> None:
    """What is written to half only is no record of a job that is gone; one that has its end is."""
    node.starts(8, "3")
    for half in ("", "0", "0\n", "0\n10"):
        (node.shares / "gpus.9").write_text(half)
        node.starts(10, "0,1")
        assert set(node.records()) == {"gpus.8", "gpus.9", "gpus.10"}
    (node.shares / "gpus.9").write_text("0\n1000\n")
    node.starts(10, "0,1")
    assert set(node.records()) == {"gpus.8", "gpus.10"}
    node.starts(11, "no list")
    assert set(node.records()) == {"gpus.8", "gpus.10", "gpus.11"}


def test_a_directory_that_is_not_roots_stops_whom_nobody_can_guard(node: Node) -> None:
    elsewhere = node.shares.parent.parent / "elsewhere"
    elsewhere.mkdir()
    node.shares.parent.mkdir(exist_ok=True)
    node.shares.symlink_to(elsewhere)
    assert "is not root's own directory: it goes back into the queue" in node.starts(10, "0")
    guest = {**GUEST_ENV, "SLURM_JOB_EXTRA": extra()}
    assert "is not root's own directory: it goes back into the queue" in node.run("prolog", guest)
    assert "is not root's own directory" in node.run("epilog", EPILOG_ENV)
    assert not list(elsewhere.iterdir())


def shows(node: Node, *jobs: tuple[int, str]) -> None:
    """What Slurm knows of running jobs by id: what ``scontrol -o show job`` says behind ``JobName=``."""
    listed = "".join(f"{job} {job} 1000 RUNNING\n" for job, _ in jobs)
    command(node, "squeue", {"%U": listed, "--jobs=": ""})
    command(node, "scontrol", {f"show job {job}": f"JobId={job} JobName={text} Gpus=1\n" for job, text in jobs})


def lose(node: Node) -> None:
    if node.shares.exists():
        shutil.rmtree(node.shares.parent)


@pytest.mark.parametrize("kept", [True, False], ids=["all", "only its records"])
def test_the_records_of_guests_come_back_after_they_were_lost(node: Node, kept: bool) -> None:
    node.starts(10, "0,1")
    node.run("prolog", {**GUEST_ENV, "SLURM_JOB_EXTRA": extra(gpus=(0, 1))})
    before = node.records()
    if kept:
        lose(node)
    else:
        for path in node.shares.iterdir():
            path.unlink()
    shows(node, (10, "x"), (11, f"x Extra={extra(gpus=(0, 1))}"))
    node.starts(9, "3")
    after = node.records()
    assert {name: after[name] for name in ("guest.11", "env.11")} == {
        name: before[name] for name in ("guest.11", "env.11")
    }
    assert set(after) == {"gpus.9", "guest.11", "env.11"}
    assert node.shares.stat().st_mode & 0o777 == 0o700
    shows(node)
    node.starts(8, "2")
    assert set(node.records()) == {"gpus.8", "gpus.9", "guest.11", "env.11"}, "Slurm was asked once"


def test_an_epilog_finds_the_guests_of_its_job_where_records_were_lost(node: Node) -> None:
    shows(node, (11, f"x Extra={extra(gpus=(0, 1))}"), (12, f"x Extra={extra(hosts=(9,), gpus=(2,))}"))
    node.run("epilog", EPILOG_ENV)
    assert set(node.records()) == {"guest.11", "env.11", "guest.12", "env.12"}


FORGED = {
    "by its name": f"x Extra={extra(gpus=(7,))} Extra={extra()}",
    "by no record": "x Extra=soda-guest:2,hosts=1",
    "with GPUs of its own": f"x Extra={extra(own=1)}",
}


@pytest.mark.parametrize("case", FORGED)
def test_a_lost_record_that_cannot_be_made_again_makes_everybody_wait(node: Node, case: str) -> None:
    shows(node, (11, FORGED[case]))
    node.run("epilog", {**EPILOG_ENV, "SLURM_JOB_ID": "9"})
    assert "env.11" not in node.records()
    record = node.records()["guest.11"]
    assert record == [
        "uid=1000",
        *(["hosts=10", "gpus=0+1", "own=", "end"] if "own" in case else ["hosts=", "gpus=", "own=", ""]),
    ]


def test_nobody_starts_where_records_were_lost_and_slurm_does_not_tell(node: Node) -> None:
    lose(node)
    command(node, "squeue", {})
    assert "was lost, and Slurm does not tell" in node.starts(9, "3")
    assert {name: lines[0] for name, lines in node.records().items()} == {"env.9": "CUDA_VISIBLE_DEVICES="}
    (node.tools / "squeue").unlink()
    assert "slurm-soda: " not in node.starts(9, "3"), "nor are there guests where Slurm has no commands"
    assert set(node.records()) == {"gpus.9"}


def test_who_goes_back_without_records_waits_until_slurmd_has_heard_of_it(node: Node) -> None:
    """Slurm tells slurmd a moment after its answer to the requeue; until then slurmd would start the job."""
    node.shares.parent.mkdir(exist_ok=True)
    node.shares.symlink_to(node.shares.parent)
    node.tool("squeue", "echo 11 11 RUNNING")
    node.tool("scontrol", "")
    began_s = time.monotonic()
    assert "it goes back into the queue" in node.run("prolog", {**GUEST_ENV, "SLURM_JOB_EXTRA": extra()})
    assert time.monotonic() - began_s >= 2


PARTS = ("share-start", "share-records", "share-back", "share-walls", "share-guest", "share-end")


@pytest.mark.parametrize("damage", ["missing", "cut in a function", "cut between functions", "no shell"])
@pytest.mark.parametrize("part", PARTS)
def test_a_broken_part_neither_drains_the_node_nor_opens_a_wall(node: Node, part: str, damage: str) -> None:
    node.starts(10, "0,1")
    path = node.installed.prefix / "libexec" / part
    text = path.read_text()
    ends = [at for at in range(len(text)) if text.startswith("\n}\n", at)]
    if damage == "missing":
        path.unlink()
    else:
        kept = {"cut in a function": text[: ends[-1]], "cut between functions": text[: ends[0] + 3], "no shell": ")\n"}
        path.write_text(kept[damage])
    back = "a part of slurm-soda's prolog is missing or broken: it goes back into the queue"
    reads_it = {"guest": part in PARTS[:5], "host": part in PARTS[:2], "newcomer": part in PARTS[:4]}
    # Without share-back nobody is left to say it; such a node gets no guests, as its agent tells.
    told = {who: reads and part != "share-back" for who, reads in reads_it.items()}
    said = node.run("prolog", {**GUEST_ENV, "SLURM_JOB_EXTRA": extra()})
    assert (back in said) == told["guest"]
    assert (back in node.starts(9, "3")) == told["host"]
    if part in PARTS[:4]:
        (node.shares / "guest.12").write_text("uid=1000\nhosts=7\ngpus=2\nown=\nend\n")
        assert (back in node.starts(13, "2")) == told["newcomer"]
    node.run("epilog", EPILOG_ENV)


@pytest.mark.parametrize("part", ["share-start", "share-back", "share-end"])
def test_a_shell_that_is_killed_begins_again(node: Node, part: str) -> None:
    libexec = node.installed.prefix / "libexec"
    path, left = libexec / part, node.installed.prefix / "left"
    left.write_text("xxx")
    # The shell that reads the part is killed before it has done anything, three times.
    killed = f'read -r kills <{left} || :\nif [ -n "$kills" ]; then\n    printf %s "${{kills#x}}" >{left}\n'
    path.write_text(killed + "    /bin/sh -c 'kill -KILL $PPID'\nfi\n" + path.read_text())
    if part == "share-back":
        (libexec / "share-start").unlink()
    said = node.starts(10, "0,1")
    if part == "share-back":
        assert "it goes back into the queue" in said
        return
    assert node.records()["gpus.10"] == ["0,1", EPILOG_ENV["SLURM_JOB_UID"]]
    node.run("epilog", {**EPILOG_ENV, "SLURM_JOB_ID": "10"})
    assert "gpus.10" not in node.records()
    assert not left.read_text()


def test_a_group_that_slurm_left_behind_without_processes_keeps_nobody_waiting(node: Node) -> None:
    group = node.shares.parents[1] / "cgroup/freezer/slurm_n1/uid_1000/job_11"
    for name in (".", "step_batch"):
        (group / name).mkdir(parents=True, exist_ok=True)
        (group / name / "cgroup.procs").write_text("")
    node.starts(10, "0,1")
    (node.shares / "guest.11").write_text("uid=1000\nhosts=10\ngpus=1\nown=\nend\n")
    left = {**EPILOG_ENV, "SLURM_JOB_ID": "11", "SLURM_JOB_UID": "1000"}
    left.pop("SLURM_JOB_GPUS", None)
    (group / "step_batch/cgroup.procs").write_text("999999\n")
    assert "it cannot be killed: its GPUs stay taken" in node.run("epilog", left)
    assert "guest.11" in node.records()
    (group / "step_batch/cgroup.procs").write_text("")
    node.run("epilog", left)
    assert "guest.11" not in node.records()
