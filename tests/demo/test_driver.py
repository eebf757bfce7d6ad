"""The driver on the controller, with a clock that jumps and a Slurm of a few lines."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence

import pytest

from slurm_soda.demo import job_driver
from slurm_soda.demo.job_driver import CommandReply, DriverEnvironment, submit_and_watch


class Slurm:
    """Jobs run `run_s` from their submission on; a submission takes `sbatch_s`."""

    def __init__(self, run_s: float = 5.0, sbatch_s: float = 0.1) -> None:
        self.time_s, self.run_s, self.sbatch_s = 1000.0, run_s, sbatch_s
        self.submitted: list[tuple[float, str, tuple[str, ...], str]] = []
        self.foreign = "999|RUNNING\n"
        self.sbatch = CommandReply(0, "", "")
        self.broken_looks = 0

    def now(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.time_s += seconds + 0.001

    def run(self, argv: Sequence[str], user: str | None, stdin: str) -> CommandReply:
        if argv[0] == "squeue":
            assert user is None
            self.time_s += 0.02
            if self.broken_looks:
                self.broken_looks -= 1
                return CommandReply(1, "", "slurm_load_jobs error:\nConnection refused")
            rows = [f"{i + 1}|RUNNING" for i, (at, *_) in enumerate(self.submitted) if at + self.run_s > self.time_s]
            return CommandReply(0, self.foreign + "\n".join(rows) + "\n", "")
        self.time_s += self.sbatch_s
        if self.sbatch.status:
            return self.sbatch
        self.submitted.append((self.time_s, str(user), tuple(argv), stdin))
        return CommandReply(0, f"{self.sbatch.stdout}{len(self.submitted)}\n", "")

    @property
    def world(self) -> DriverEnvironment:
        return DriverEnvironment(self.now, self.sleep, self.run)


def order(at_s: float, user: str = "alice") -> dict[str, object]:
    return {"at_s": at_s, "user": user, "argv": ["sbatch", "x"], "script": "#!/bin/sh\n"}


def test_jobs_are_submitted_at_their_times_as_their_users() -> None:
    slurm = Slurm()
    events = list(submit_and_watch(slurm.world, [order(0), order(2, "bob"), order(7.5)], 1.0, 100))
    times = [event["at_s"] - 1000 for event in events if event["event"] == "submitted"]
    assert times == pytest.approx([0, 2, 7.5], abs=0.05)
    assert [user for _, user, _, _ in slurm.submitted] == ["alice", "bob", "alice"]
    assert events[-1] == {"event": "done"}


def test_a_slow_submission_does_not_shift_the_next_ones() -> None:
    slurm = Slurm(sbatch_s=1.5)
    events = list(submit_and_watch(slurm.world, [order(0), order(1), order(10)], 1.0, 100))
    times = [event["at_s"] - 1000 for event in events if event["event"] == "submitted"]
    assert times[1] == pytest.approx(1.5, abs=0.1)
    assert times[2] == pytest.approx(10, abs=0.1)


def test_only_our_own_jobs_count() -> None:
    slurm = Slurm(run_s=3)
    looks = [event for event in submit_and_watch(slurm.world, [order(0)], 0.5, 100) if event["event"] == "queue"]
    assert any(look["states"] == {"1": "RUNNING"} for look in looks)
    assert looks[-1]["states"] == {}


def test_warnings_before_the_job_id_do_no_harm() -> None:
    slurm = Slurm()
    slurm.sbatch = CommandReply(0, "sbatch: warning: something\n", "")
    (submitted,) = [
        event for event in submit_and_watch(slurm.world, [order(0)], 1.0, 100) if event["event"] == "submitted"
    ]
    assert submitted["job_id"] == 1


def test_a_refusal_is_told_on_one_line_and_the_rest_goes_on() -> None:
    slurm = Slurm()
    slurm.sbatch = CommandReply(1, "", "sbatch: error: --soda-model:\n 'x' is not allowed")
    events = list(submit_and_watch(slurm.world, [order(0), order(1)], 1.0, 100))
    refused = [event for event in events if event["event"] == "refused"]
    assert [event["index"] for event in refused] == [0, 1]
    assert refused[0]["error"] == "sbatch: error: --soda-model: 'x' is not allowed"


def test_a_silent_slurmctld_ends_nothing() -> None:
    slurm = Slurm(run_s=1)
    slurm.broken_looks = 8
    events = list(submit_and_watch(slurm.world, [order(0)], 1.0, 100))
    assert [event["event"] for event in events].count("unreadable") == 8
    assert events[-1]["event"] == "done"
    assert slurm.time_s > 1007


def test_jobs_that_never_end_end_the_driver() -> None:
    slurm = Slurm(run_s=1e9)
    assert list(submit_and_watch(slurm.world, [order(0)], 1.0, 50))[-1] == {"event": "timeout"}
    assert slurm.time_s < 1060


def test_a_real_process_gets_its_input_and_says_what_it_said() -> None:
    reply = job_driver._run(("sh", "-c", "cat; echo oops >&2; exit 3"), None, "hello")
    assert (reply.status, reply.stdout, reply.stderr) == (3, "hello", "oops\n")


def test_it_speaks_json_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    (tmp_path / "squeue").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"orders": [], "poll_s": 1, "limit_s": 10})))
    job_driver.main()
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == ["queue", "done"]
