"""Who runs beside whom, by what Slurm and the nodes tell."""

from __future__ import annotations

from slurm_soda.daemon.sharing.co_runners import GuestsByNode, find_co_runners
from slurm_soda.daemon.store.progress import CoRunners, RunId
from slurm_soda.slurm_ext.client import HeldOnNode
from slurm_soda.wire.mps import MpsJob
from tests.daemon.records import record


def test_co_runners_are_whoever_is_on_a_gpu_of_the_job() -> None:
    jobs = {
        job_id: record(job_id, state="RUNNING", gpus=gpus, node_names="n1", shared_gpus=shared, restarts=restarts)
        for job_id, gpus, shared, restarts in [(1, 2, 0, 0), (2, 1, 0, 0), (3, 1, 1, 4), (4, 1, 1, 0), (5, 0, 0, 0)]
    }
    held = {
        1: [HeldOnNode("n1", 2, 1, (0, 1))], 2: [HeldOnNode("n1", 1, 1, (2,))],
        3: [HeldOnNode("n1", 1, 1, (), (1,))], 4: [HeldOnNode("n1", 1, 1, (), (0,))],
    }  # fmt: skip
    one, guests = RunId(1, 0), (RunId(3, 4), RunId(4, 0))
    assert find_co_runners(jobs, held) == {one: guests, RunId(2, 0): (), guests[0]: (one,), guests[1]: (one,)}
    dark = {**held, 4: [HeldOnNode("n1", 1, 1)]}
    assert find_co_runners(jobs, dark) == {}, "nobody knows on whose GPU job 4 is"
    noted = GuestsByNode()
    noted.note(jobs, held, 10.0)
    noted.note(jobs, held, 20.0)
    assert noted.co_runners_of[one] == CoRunners(guests, 10.0)
    noted.note({**jobs, 3: record(3, state="COMPLETED")}, held, 30.0)
    assert noted.co_runners_of[one] == CoRunners(guests[1:], 30.0)


def test_who_shares_a_daemon_of_mps_shares_by_it_until_they_part() -> None:
    jobs = {
        job_id: record(job_id, state="RUNNING", gpus=1, node_names="n1", shared_gpus=shared)
        for job_id, shared in [(1, 0), (2, 1), (3, 0), (4, 1)]
    }
    held = {
        job_id: [HeldOnNode("n1", 1, 1, *((gpu,), ()) if job_id % 2 else ((), (gpu,)))]
        for job_id, gpu in [(1, 0), (2, 0), (3, 1), (4, 1)]
    }
    noted = GuestsByNode()

    def by_mps() -> dict[int, bool]:
        return {run.job_id: co_runners.mps for run, co_runners in noted.co_runners_of.items()}

    noted.note_mps(
        "n1", [MpsJob(1, "1000", (0,)), MpsJob(2, "1000", (0,)), MpsJob(3, "1000", (1,)), MpsJob(4, "7", (1,))]
    )
    noted.note(jobs, held, 10.0)
    assert by_mps() == {1: True, 2: True, 3: False, 4: False}, "jobs of two daemons take turns"
    noted.note_mps("n1", ())
    noted.note(jobs, held, 20.0)
    assert by_mps() == {1: True, 2: True, 3: False, 4: False}, "the node forgets a job before Slurm does"
    noted.note(
        {one: job for one, job in jobs.items() if one != 2}, {one: on for one, on in held.items() if one != 2}, 30.0
    )
    noted.note(jobs, held, 40.0)
    assert by_mps() == dict.fromkeys(jobs, False)
