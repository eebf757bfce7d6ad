"""Replies of real Slurms, one folder a version; the same expectations hold for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.snapshot import JobState
from slurm_soda.slurm_ext.cli_client import CliSlurmClient
from slurm_soda.slurm_ext.client import Allocation, SlurmJob
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.sacct import parse_accounting
from slurm_soda.slurm_ext.read.scontrol_allocation import parse_allocations
from slurm_soda.slurm_ext.read.scontrol_nodes import parse_nodes
from slurm_soda.slurm_ext.read.snapshot import build_snapshot
from slurm_soda.slurm_ext.read.sprio import parse_site_factors
from slurm_soda.slurm_ext.read.squeue_jobs import SqueueReader, squeue_environment
from slurm_soda.slurm_ext.write.scontrol_updates import parse_update_errors
from tests.sampling import examples

REPLIES = Path(__file__).parent / "replies"
VERSIONS = sorted(path.name for path in REPLIES.iterdir())
FRAMING = ReplyFraming("RecordedReply")
FIELDS = squeue_environment(FRAMING)["SQUEUE_FORMAT2"].split(",")

EVIL_NAME = "evil\udcff\udcfe 'q' \"dq\" |\n   Nodes=n9 CPU_IDs=0-1 GRES=gpu:9"
EVIL_TEXT = 'c\udc80|\n"x\t{} \\\\ \x1b[31m \x1f\x1e '

pytestmark = pytest.mark.parametrize("version", VERSIONS)


def reply(version: str, name: str) -> bytes:
    return (REPLIES / version / f"{name}.txt").read_bytes()


def by_name(version: str, name: str = "squeue") -> dict[str, SlurmJob]:
    return {job.name: job for job in SqueueReader().parse(reply(version, name), FRAMING)}


ASKED = {
    # name: gpus, gpus per node, type, nodes, cpus, MiB
    EVIL_NAME: (2, 1, "", 2, 6, 6000),
    "(null)": (6, 0, "", 2, 2, 2000),
    "a$(touch /tmp/x); x | y": (2, 2, "", 1, 1, 64000),
    "ünïcödé 漢字": (0, 0, "", 1, 3, 1500),
    "task": (3, 0, "", 1, 6, 1000),
    "socket": (6, 3, "a100", 2, 2, 2000),
    "typed": (8, 4, "a100", 2, 1, 1000),
    "array": (4, 0, "", 1, 1, 1000),
    "pinned": (4, 4, "a100", 1, 4, 2000),
    "big": (16, 0, "", 1, 16, 1600),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_jobs_ask_for_or_hold(version: str, name: str) -> None:
    job = by_name(version)[name]
    assert (job.gpus, job.gpus_per_node, job.gpu_type, job.nodes, job.cpus, job.memory_mib) == ASKED[name]


def test_hostile_text_comes_through_and_its_hints_too(version: str) -> None:
    job = by_name(version)[EVIL_NAME]
    assert job.comment.startswith(EVIL_TEXT)
    assert (job.hints.model, job.hints.checkpoint_signal, job.hints.checkpoint_grace_s) == ("resnet50", "USR1", 30)
    assert by_name(version)["(null)"].comment == ""


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("array", "PENDING", "Priority"),
        ("held", "PENDING", "JobHeldUser"),
        ("later", "PENDING", "BeginTime"),
        ("big", "PENDING", "ReqNodeNotAvail, May be reserved for other job"),
        (EVIL_NAME, "PENDING", "BeginTime"),
        ("ünïcödé 漢字", "RUNNING", "None"),
        ("(null)", "CANCELLED", "None"),
        ("ends", "FAILED", "NonZeroExitCode"),
    ],
)
def test_states_and_reasons(version: str, name: str, state: str, reason: str) -> None:
    job = by_name(version)[name]
    assert (job.state, job.reason) == (state, reason)


def test_arrays_are_one_record_and_heterogeneous_jobs_know_their_leader(version: str) -> None:
    jobs = SqueueReader().parse(reply(version, "squeue"), FRAMING)
    (array,) = (job for job in jobs if job.name == "array")
    assert (array.array_task, array.array_job_id) == ("0-5", array.job_id)
    leader, second = (job for job in jobs if job.name == "het" or job.het_job_id)
    assert leader.job_id == leader.het_job_id == second.het_job_id == second.job_id - 1


def test_times_limits_and_numbers(version: str) -> None:
    jobs = by_name(version)
    assert jobs["a$(touch /tmp/x); x | y"].time_limit_s == ((24 + 2) * 60 + 4) * 60  # Slurm rounds up to minutes
    assert jobs["later"].eligible_s - jobs["later"].submit_s == 3600
    assert math.isinf(jobs["task"].time_limit_s)
    assert math.isnan(jobs["held"].start_s)
    assert (jobs["lists"].partition, jobs["lists"].nice) == ("cpu,main", 7)
    assert (jobs["pinned"].req_node_names, jobs["pinned"].tres_per_node) == ("n3", "gres/gpu:a100:4")
    assert (jobs["task"].tasks, jobs["task"].cpus_per_task) == (3, 2)
    assert (jobs["ends"].exit_code, jobs[EVIL_NAME].restarts) == ("3:0", 1)
    assert all(job.user == "alice" and job.account == "acc" and job.qos == "normal" for job in jobs.values())


def test_nodes(version: str) -> None:
    nodes = parse_nodes(reply(version, "nodes"), FRAMING)
    assert [node.name for node in nodes] == ["c1", "n1", "n2", "n3", "n4"]
    assert [node.usable for node in nodes] == [True, True, True, True, False]
    assert [(node.gpus, node.gpu_type) for node in nodes] == [(0, ""), *[(4, "a100")] * 4]
    assert [(node.cpus, node.memory_mib, node.partitions) for node in nodes] == [
        (8, 8000, ("cpu",)), *[(28, 64000, ("main",))] * 4,
    ]  # fmt: skip


def allocation(version: str, job_id: int) -> Allocation:
    answer = parse_allocations(reply(version, f"allocation-{job_id}"), [job_id])[job_id]
    assert not isinstance(answer, SlurmReplyError)
    return answer


def test_nodes_and_running_jobs_agree(version: str) -> None:
    nodes = {node.name: node for node in parse_nodes(reply(version, "nodes"), FRAMING)}
    running = [job for job in SqueueReader().parse(reply(version, "squeue"), FRAMING) if job.state == "RUNNING"]
    held = [entry for job in running for entry in allocation(version, job.job_id)]
    assert {name: sum(on.gpus for on in held if on.node == name) for name in nodes} == {
        n.name: n.gpus_allocated for n in nodes.values()
    }
    assert {name: sum(on.cpus for on in held if on.node == name) for name in nodes} == {
        n.name: n.cpus_allocated for n in nodes.values()
    }
    for job in running:
        assert sum(on.gpus for on in allocation(version, job.job_id)) == job.gpus


def test_an_allocation_of_another_job_is_an_error(version: str) -> None:
    name = next(path.stem for path in (REPLIES / version).iterdir() if path.stem.startswith("allocation"))
    answer = parse_allocations(reply(version, name), [12345678])[12345678]
    assert isinstance(answer, SlurmReplyError)
    assert "job 12345678" in str(answer)


def test_allocations_of_many_jobs_come_one_after_the_other(version: str) -> None:
    names = sorted(path.stem for path in (REPLIES / version).iterdir() if path.stem.startswith("allocation"))
    ids = [int(name.partition("-")[2]) for name in names]
    echoed = b"".join(
        b"scontrol: show job %d\n" % job_id + reply(version, name) for job_id, name in zip(ids, names, strict=True)
    )
    together = parse_allocations(echoed + b"scontrol: ", ids)
    assert together == {job_id: allocation(version, job_id) for job_id in ids}
    cut = parse_allocations(echoed[: len(echoed) - len(reply(version, names[-1])) // 2], ids)
    assert [isinstance(cut[job_id], SlurmReplyError) for job_id in ids] == [*[False] * (len(ids) - 1), True]


def test_site_factors_before_and_after_our_updates(version: str) -> None:
    jobs = by_name(version)
    before, after = (parse_site_factors(reply(version, name), FRAMING) for name in ("sprio", "sprio-after"))
    assert set(before.values()) == {0}
    assert (after[jobs["socket"].job_id], after[jobs["array"].job_id]) == (777, -9)
    shown = by_name(version, "squeue-after")
    for name, factor in (("socket", 777), ("array", -9)):
        assert shown[name].priority - jobs[name].priority == factor


def test_each_update_has_its_own_outcome(version: str) -> None:
    found = parse_update_errors(reply(version, "update"), 7, FRAMING.nonce)
    assert [bool(error) for error in found] == [False, True, True, False, False, False, False]
    assert "Invalid job id" in str(found[1])
    assert "no longer pending" in str(found[2])


def test_rewrites_show(version: str) -> None:
    job = by_name(version, "squeue-after")["big"]
    assert (job.cpus, job.cpus_per_task) == (32, 2)
    assert by_name(version, "squeue-after")["typed"].req_node_names == "n[1-2]"


def test_the_snapshot_of_the_recorded_cluster(version: str) -> None:
    jobs = SqueueReader().parse(reply(version, "squeue"), FRAMING)
    nodes = parse_nodes(reply(version, "nodes"), FRAMING)
    evil = next(job for job in jobs if job.name == EVIL_NAME)
    snapshot = build_snapshot(evil.submit_s + 60, jobs, nodes, {}, {}, {}, requeued={evil.job_id})
    states = {job.name: snapshot.jobs.state[snapshot.jobs.row(job.job_id)] for job in jobs if job.state == "PENDING"}
    assert {name for name, state in states.items() if state == JobState.BLOCKED} == {"held", "later", "het"}
    assert states[EVIL_NAME] == JobState.PENDING


def test_accounting_run_by_run(version: str) -> None:
    jobs = by_name(version)
    found = parse_accounting(reply(version, "sacct"), FRAMING)
    evil, ends = found[jobs[EVIL_NAME].job_id], found[jobs["ends"].job_id]
    assert [(run.state, run.gpus, run.nodes) for run in evil.runs] == [("REQUEUED", 2, 2)]
    assert evil.submit_s < jobs[EVIL_NAME].submit_s
    assert (ends.state, ends.exit_code, ends.user) == ("FAILED", "3:0", "alice")
    assert ends.runs[0].end_s == jobs["ends"].end_s
    assert ends.runs[0].cpu_s >= 0
    assert found[jobs["array"].job_id].runs == ()


PARSERS: dict[str, Callable[[bytes], object]] = {
    "squeue": lambda raw: SqueueReader().parse(raw, FRAMING),
    "nodes": lambda raw: parse_nodes(raw, FRAMING),
    "sprio": lambda raw: parse_site_factors(raw, FRAMING),
    "sacct": lambda raw: parse_accounting(raw, FRAMING),
}


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_no_cut_of_a_real_reply_is_taken_for_a_shorter_one(version: str, name: str, data: st.DataObject) -> None:
    whole = reply(version, name)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(SlurmReplyError):
        PARSERS[name](whole[:cut])


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_a_damaged_reply_is_read_or_refused_but_never_crashes(version: str, name: str, data: st.DataObject) -> None:
    whole = bytearray(reply(version, name))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        PARSERS[name](bytes(whole))
    except SlurmReplyError:
        return


@dataclass
class Replayed:
    """Gives one reply, whatever is asked; notes what was."""

    stdout: bytes = b""
    stderr: bytes = b""
    status: int | None = 0
    seen: list[tuple[Sequence[str], Mapping[str, str]]] = field(default_factory=list)

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        self.seen.append((argv, env))
        return CompletedCommand(tuple(argv), self.status, self.stdout, self.stderr)


def test_one_process_lists_all_jobs_and_its_nonce_is_not_in_public_arguments(version: str) -> None:
    runner = Replayed(reply(version, "squeue"))
    assert len(CliSlurmClient(runner, nonce=lambda: FRAMING.nonce).jobs()) == len(by_name(version)) + 1
    ((argv, env),) = runner.seen
    assert FRAMING.nonce not in " ".join(argv)
    assert env["SQUEUE_FORMAT2"] == squeue_environment(FRAMING)["SQUEUE_FORMAT2"]
    assert env["SLURM_TIME_FORMAT"] == "%s"


def test_an_unchanged_job_is_the_same_object_in_the_next_cycle(version: str) -> None:
    client = CliSlurmClient(Replayed(reply(version, "squeue")), nonce=lambda: FRAMING.nonce)
    assert all(a is b for a, b in zip(client.jobs(), client.jobs(), strict=True))


def test_a_failed_command_is_an_error_even_with_output(version: str) -> None:
    for status in (1, None):
        client = CliSlurmClient(
            Replayed(reply(version, "squeue"), b"slurm_load_jobs error", status), nonce=lambda: FRAMING.nonce
        )
        with pytest.raises(SlurmCommandError, match="slurm_load_jobs error"):
            client.jobs()


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ((b"PENDING", b"DREAMING"), "DREAMING"),
        ((b"cpu=", b"cpu?"), "TRES"),
        ((b"UNLIMITED", b"SOMETIMES"), "SOMETIMES"),
    ],
)
def test_an_unknown_word_makes_its_job_unreadable_and_no_other(
    version: str, damage: tuple[bytes, bytes], text: str
) -> None:
    raw, unreadable = reply(version, "squeue"), list[str]()
    whole, reader = SqueueReader().parse(raw, FRAMING), SqueueReader(unreadable.append)
    rows = FRAMING.records(raw, len(FIELDS), "squeue's list")
    damaged = next(row[0] for row in rows if any(damage[0].decode() in cell for cell in row))
    for _ in range(3):
        left = reader.parse(raw.replace(*damage, 1), FRAMING)
        assert left == [job for job in whole if str(job.job_id) != damaged]
    (why,) = unreadable
    assert why.startswith(f"job {damaged} is left out: ")
    assert text in why


def test_a_reply_without_any_job_that_can_be_read_is_an_error(version: str) -> None:
    raw = reply(version, "squeue").replace(b"alice", b"alice\xff")
    assert len(SqueueReader().parse(raw, FRAMING)) == len(by_name(version)) + 1
    for state in (b"PENDING", b"RUNNING", b"CANCELLED", b"FAILED", b"COMPLETED", b"COMPLETING"):
        raw = raw.replace(state, b"DREAMING")
    with pytest.raises(SlurmReplyError, match="DREAMING"):
        SqueueReader().parse(raw, FRAMING)


def test_a_job_that_is_listed_twice_makes_the_reply_unreadable(version: str) -> None:
    raw = reply(version, "squeue")
    end = FRAMING.end.encode()
    with pytest.raises(SlurmReplyError, match="twice"):
        SqueueReader().parse(raw.removesuffix(end) + raw, FRAMING)


def test_an_unknown_node_state_makes_the_reply_unreadable(version: str) -> None:
    with pytest.raises(SlurmReplyError, match="DREAMING"):
        parse_nodes(reply(version, "nodes").replace(b"State=IDLE", b"State=DREAMING", 1), FRAMING)


@pytest.mark.parametrize(
    ("said", "version_found"), [(b"slurm 24.11.5\n", "24.11.5"), (b"slurm-wlm 22.05.8\n", "22.05.8")]
)
def test_the_version(version: str, said: bytes, version_found: str) -> None:
    assert version in VERSIONS
    assert CliSlurmClient(Replayed(said)).version() == version_found
