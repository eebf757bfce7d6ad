"""Dumps of four versions of Slurm in the style of each; the same expectations hold for all of them.

They are written by hand after each version's manual page: 22.05 with ISO times, Elapsed and Timelimit, and TRES without a
type where none was asked for; 23.11 with --parsable (a delimiter at the end) and the columns in another order; 24.11 with
Unix seconds, raw spans and Restarts; 26.05 without End, with SLUID.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from slurm_soda.simulator import whatif
from slurm_soda.simulator.cluster import UNCOUNTED
from slurm_soda.simulator.errors import SimulatorError, TraceError
from slurm_soda.simulator.traces.sacct.cluster_from_dump import cluster_from
from slurm_soda.simulator.traces.sacct.dump import SacctDump, read_sacct, read_sacct_dump
from slurm_soda.simulator.workload import Workload

DUMPS = Path(__file__).parent / "sacct"
VERSIONS = ("22.05", "23.11", "24.11", "26.05")
TIB = 1024 * 1024


def dump(version: str) -> SacctDump:
    return read_sacct_dump(DUMPS / f"{version}.txt", lenient=False)


def row(work: Workload, label: str) -> int:
    return work.label.index(label)


def read(tmp_path: Path, text: str | bytes, *, lenient: bool = False) -> SacctDump:
    path = tmp_path / "dump.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape"))
    return read_sacct_dump(path, lenient=lenient)


@pytest.mark.parametrize("version", VERSIONS)
def test_which_jobs_are_used_and_what_became_of_the_others(version: str) -> None:
    trace = dump(version).trace
    assert trace.workload.label == ("1001", "1002_3", "1003", "1004", "1007", "1008", "1009", "1011")
    assert trace.unused == {
        "job steps": 12,
        "still waiting when the dump was made": 6,  # tasks 4 to 9 of an array
        "cancelled before they started": 1,
        "still running when the dump was made": 1,
        "held parts of GPUs (gres/shard, gres/mps, gres/sharedgpu)": 1,
    }
    assert trace.skipped == ()
    assert trace.format == "sacct"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("label", "gpus", "nodes", "per_node", "cpus", "memory_mib", "limit_s"),
    [
        ("1001", 4, 1, 4, 16, 64 * 1024, 7200.0),
        ("1002_3", 1, 1, 1, 2, 8 * 1024, 3600.0),
        ("1003", 4, 2, 2, 8, 32 * 1024, math.inf),
        ("1004", 8, 2, 4, 32, 128 * 1024, 2 * 86400.0),
        ("1008", 0, 1, 0, 48, 180 * 1024, 7200.0),
        ("1009", 2, 1, 2, 8, 700, 5400.0),
        ("1011", 1, 1, 1, 4, TIB, math.inf),
    ],
)
def test_what_jobs_ask_for(
    version: str, label: str, gpus: int, nodes: int, per_node: int, cpus: int, memory_mib: int, limit_s: float
) -> None:
    work = dump(version).trace.workload
    at = row(work, label)
    found = (work.gpus[at], work.nodes[at], work.gpus_per_node[at], work.cpus[at], work.memory_mib[at])
    assert found == (gpus, nodes, per_node, cpus, memory_mib)
    assert work.time_limit_s[at] == limit_s


@pytest.mark.parametrize("version", VERSIONS)
def test_times(version: str) -> None:
    trace = dump(version).trace
    work = trace.workload
    assert work.origin_s == 1772438400
    assert work.submit_s.tolist() == [0, 5, 20, 30, 55, 60, 80, 400]  # the last one when it became eligible
    assert trace.observed_start_s is not None
    assert trace.observed_end_s is not None
    assert trace.observed_start_s.tolist() == [10, 10, 70, 40, 56, 100, 90, 410]
    assert trace.observed_end_s.tolist() == [3610, 70, 670, 90400, 56, 7300, 290, 460]
    assert work.run_s.tolist() == [3600, 60, 600, 500 + 300 + 86400, 1 / 3, 7200, 200, 50]  # 1004 three times


@pytest.mark.parametrize("version", VERSIONS)
def test_who_where_and_hints(version: str) -> None:
    work = dump(version).trace.workload
    at = row(work, "1001")
    assert (work.models[work.model[at]], work.categories[work.category[at]]) == ("resnet50", "cv")
    assert (work.batch_size[at], work.iterations[at]) == (64, 9000)
    assert [work.label[i] for i in range(len(work)) if work.preemptible[i]] == ["1001", "1004"]
    assert [work.users[code] for code in work.user] == ["alice", "bob", "carol", "bob", "bob", "carol", "dan", "dan"]
    assert [work.partitions[code] for code in work.partition] == [
        "gpu",
        "gpu",
        "gpu",
        "gpu",
        "gpu",
        "cpu",
        "gpu",
        "gpu",
    ]
    types = [work.gpu_types[code] if code >= 0 else "" for code in work.gpu_type]
    assert types == ["", "", "", "", "", "", "tesla_v100-sxm2", ""]  # a100 was got, not asked for


@pytest.mark.parametrize("version", VERSIONS)
def test_every_run_is_known(version: str) -> None:
    found = dump(version)
    at = row(found.trace.workload, "1004")
    runs = [run for run in found.runs if run.job == at]
    assert [(run.start_s, run.end_s, run.state) for run in runs] == [
        (40, 540, "REQUEUED"), (700, 1000, "PREEMPTED"), (4000, 90400, "COMPLETED"),
    ]  # fmt: skip
    assert runs[0].nodes == ("n4", "n5")
    (running,) = (run for run in found.runs if math.isinf(run.end_s))
    assert running.job == -1


def test_the_cluster_is_what_was_in_use_at_one_time() -> None:
    cluster, notes = cluster_from(dump("24.11"))
    assert cluster.node_names == ("c1", "c2", "n1", "n2", "n3", "n4", "n5", "v1")
    assert cluster.gpus.tolist() == [0, 0, 4, 1 + 2, 2 + 1, 4, 4, 2]
    assert [cluster.gpu_types[code] if code >= 0 else "" for code in cluster.gpu_type] == [
        "", "", "a100", "a100", "a100", "a100", "a100", "tesla_v100-sxm2",
    ]  # fmt: skip
    assert cluster.cpus.tolist()[:3] == [48, 48, UNCOUNTED]  # c1 and c2 look alike; only GPU jobs ran on n1
    assert cluster.partitions == ("cpu", "gpu")
    assert cluster.in_partition.tolist()[:3] == [[True, False], [True, False], [False, True]]
    assert any("3 with 4" in note for note in notes)


def test_the_demo_of_this_repository() -> None:
    """Thirty jobs on Slurm 24.11.5 under stock Slurm; the demo's own report said 63.2 s."""
    found = read_sacct_dump(Path(whatif.__file__).parent / "demo-stock.txt", lenient=False)
    trace = found.trace
    assert len(trace.workload) == 30
    assert trace.observed_end_s is not None
    assert (trace.observed_end_s - trace.workload.submit_s).mean() == pytest.approx(63.2)
    assert cluster_from(found)[0].gpus.tolist() == [4, 4]


HEADER = "JobID|User|State|Submit|Start|End|AllocTRES|NodeList|Restarts"
GPU = "cpu=4,gres/gpu=2,mem=8G,node=1"


def line(job: str, state: str, submit: object, start: object, end: object, *rest: str) -> str:
    return "|".join([job, "u", state, str(submit), str(start), str(end), *(rest or (GPU, "n1", "0"))])


def text_of(*lines: str, header: str = HEADER) -> str:
    return "\n".join((header, *lines)) + "\n"


def test_an_id_that_slurm_gave_out_twice_is_two_jobs(tmp_path: Path) -> None:
    found = read(tmp_path, text_of(line("7", "COMPLETED", 100, 110, 120), line("7", "COMPLETED", 900, 910, 930)))
    assert found.trace.workload.label == ("7", "7")
    assert found.trace.workload.run_s.tolist() == [10, 20]


def test_without_restarts_the_state_says_whether_a_record_goes_on(tmp_path: Path) -> None:
    rows = [line("7", state, *times, GPU, "n1") for state, times in
            [("NODE_FAIL", (100, 110, 120)), ("COMPLETED", (121, 130, 150)), ("COMPLETED", (900, 910, 911))]]  # fmt: skip
    found = read(tmp_path, text_of(*rows, header=HEADER.removesuffix("|Restarts")))
    assert found.trace.workload.run_s.tolist() == [30, 1]


def test_a_later_dump_that_was_appended_knows_better(tmp_path: Path) -> None:
    early = text_of(
        line("1", "COMPLETED", 100, 110, 120),
        line("2", "RUNNING", 100, 120, "Unknown"),
        line("3", "PENDING", 105, "Unknown", "Unknown"),
    )
    late = text_of(
        line("1", "COMPLETED", 100, 110, 120),
        line("2", "COMPLETED", 100, 120, 180),
        line("3", "COMPLETED", 105, 180, 190),
    )
    trace = read(tmp_path, early + late).trace
    assert (trace.workload.label, trace.workload.run_s.tolist()) == (("1", "2", "3"), [10, 60, 10])
    assert trace.unused == {"records that are in the dump twice": 3}


def test_a_requeued_job_whose_first_runs_are_missing_is_told(tmp_path: Path) -> None:
    found = read(tmp_path, text_of(line("7", "COMPLETED", 100, 110, 120, GPU, "n1", "2")))
    assert any("1 jobs had been requeued" in note for note in found.notes)


def test_a_job_that_was_requeued_and_never_seen_again_is_counted(tmp_path: Path) -> None:
    rows = line("6", "REQUEUED", 100, 110, 120), line("7", "COMPLETED", 100, 110, 120)
    assert read(tmp_path, text_of(*rows)).trace.unused == {"requeued, and their later runs are not in the dump": 1}


def test_a_start_before_the_submission_counts_as_the_submission(tmp_path: Path) -> None:
    found = read(tmp_path, text_of(line("7", "COMPLETED", 100, 90, 120), line("8", "COMPLETED", 95, 95, 120)))
    assert found.trace.workload.submit_s.tolist() == [0, 5]
    assert found.trace.workload.run_s.tolist() == [30, 25]
    assert any("before their submission" in note for note in found.notes)


def test_time_without_a_zone_and_with_one(tmp_path: Path) -> None:
    rows = [
        line("1", "COMPLETED", "2026-03-02T08:00:00", "2026-03-02T08:00:10", "2026-03-02T08:00:20"),
        line("2", "COMPLETED", "2026-03-02T10:00:05+0200", "2026-03-02T08:00:10Z", "1772438420"),
    ]
    work = read(tmp_path, text_of(*rows)).trace.workload
    assert (work.origin_s, work.submit_s.tolist(), work.run_s.tolist()) == (1772438400, [0, 5], [10, 10])


def test_time_suspended_is_no_run_time(tmp_path: Path) -> None:
    rows = text_of(
        line("1", "COMPLETED", 100, 110, 210, GPU, "60"),
        header="JobID|User|State|Submit|Start|End|AllocTRES|ElapsedRaw",
    )
    assert read(tmp_path, rows).trace.workload.run_s.tolist() == [60]


@pytest.mark.parametrize(
    ("columns", "cells", "expected"),
    [
        ("ReqTRES", "billing=8,cpu=8,gres/gpu=4,mem=64G,node=2", (4, 2, 2, 8, 65536)),
        ("AllocTRES|ReqTRES", "cpu=8,gres/gpu=4,mem=1.50G,node=2|cpu=4,gres/gpu=4,mem=1G,node=1", (4, 1, 0, 8, 1536)),
        ("AllocTRES|ReqTRES", "cpu=8,gres/gpu=4,gres/sharedgpu=4,node=1|cpu=1,gres/gpu=1,node=1", (4, 1, 4, 8, 0)),
        ("AllocTRES", "cpu=2,gres/gpu:tesla_v100-sxm2=2,mem=512K,node=1", (2, 1, 2, 2, 0)),
        ("AllocTRES|NCPUS|ReqMem", "node=2,gres/gpu:a=1,gres/gpu:b=2|6|4Gn", (3, 2, 0, 6, 8192)),
        ("AllocGRES|NNodes|NCPUS|ReqMem", "gpu:4|1|8|2Gc", (4, 1, 4, 8, 16384)),
        ("AllocGRES|NNodes|AllocCPUS", "gres:gpu:a100:4|2|8", (4, 2, 2, 8, 0)),
        ("ReqGRES|NNodes|ReqCPUS|ReqNodes", "gpu:2,craynetwork:1|2|8|2", (4, 2, 2, 8, 0)),
        ("AllocCPUS|ReqMem", "3|4000M", (0, 1, 0, 3, 4000)),
        ("AllocTRES", "cpu=1.50K,node=10,mem=1T", (0, 10, 0, 1500, TIB)),
    ],
)  # fmt: skip
def test_words_for_resources(tmp_path: Path, columns: str, cells: str, expected: tuple[int, ...]) -> None:
    work = read(tmp_path, f"JobID|State|Submit|Start|End|{columns}\n1|COMPLETED|100|110|120|{cells}\n").trace.workload
    assert (work.gpus[0], work.nodes[0], work.gpus_per_node[0], work.cpus[0], work.memory_mib[0]) == expected


def test_every_state_that_ends_a_job_is_used_and_every_other_one_named(tmp_path: Path) -> None:
    ended = ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED by 1000", "CANCELLED+", "NODE_FAIL", "OUT_OF_MEMORY",
             "PREEMPTED", "DEADLINE", "BOOT_FAIL"]  # fmt: skip
    live = ["RUNNING", "SUSPENDED", "COMPLETING", "STOPPED"]
    rows = [line(str(at), state, 100, 110, 120) for at, state in enumerate([*ended, *live], start=1)]
    rows.append(line("90", "DEADLINE", 100, "Unknown", 120))
    trace = read(tmp_path, text_of(*rows)).trace
    assert len(trace.workload) == len(ended)
    assert trace.unused == {"still running when the dump was made": 4, "never started (DEADLINE)": 1}


def test_consent_to_sharing_is_read(tmp_path: Path) -> None:
    text = (DUMPS / "24.11.txt").read_text().replace("iterations=9000", "iterations=9000,share=no,max_slowdown=1.25", 1)
    work = read(tmp_path, text).trace.workload
    assert (work.shares[row(work, "1001")], work.max_slowdown[row(work, "1001")]) == (False, 1.25)
    others = np.arange(len(work)) != row(work, "1001")
    assert work.shares[others].all()
    assert np.isinf(work.max_slowdown[others]).all()


def test_without_a_tag_every_job_is_preemptible(tmp_path: Path) -> None:
    found = read(tmp_path, text_of(line("1", "COMPLETED", 100, 110, 120)))
    assert found.trace.workload.preemptible.tolist() == [True]
    assert any("unless --can-checkpoint says how many are" in note for note in found.notes)


def test_nodes_must_be_known_for_a_cluster(tmp_path: Path) -> None:
    found = read(tmp_path, text_of(line("1", "COMPLETED", 100, 110, 120, GPU, "None assigned", "0")))
    with pytest.raises(SimulatorError, match="NodeList"):
        cluster_from(found)


GOOD = line("1", "COMPLETED", 100, 110, 120)


@pytest.mark.parametrize(
    ("text", "at", "told"),
    [
        ("", 0, "is empty; make the dump with: SLURM_TIME_FORMAT=%s sacct"),
        ("\n\n", 0, "is empty"),
        (GOOD, 1, "no header"),
        ("JobID  State  Submit\n------ ------ ------\n", 1, "aligned with spaces"),
        ("JobID|State|Start|End|AllocTRES\n", 1, "there is no column Submit; make the dump with"),
        ("JobID|Submit|Start|End|AllocTRES\n", 1, "no column State"),
        ("JobID|Submit|Start|State|AllocTRES\n", 1, "no column End or Elapsed or ElapsedRaw"),
        ("User|Submit|Start|End|State|AllocTRES\n", 1, "no header with a column JobID"),
        ("JobID|Submit|Start|End|State\n", 1, "no column AllocTRES or ReqTRES"),
        (text_of(header=HEADER), 0, "no job in it can be simulated (it has a header and nothing else)"),
        (text_of(line("1", "PENDING", 100, "Unknown", "Unknown")), 0, "1 still waiting"),
        (text_of(GOOD, header=HEADER.replace("User", "Colour")), 1, "'colour' is no column of sacct"),
        (text_of("1|u|COMPLETED|100"), 2, "4 cells, not 9: '1|u|COMPLETED|100'"),
        (text_of(GOOD, GOOD + "|x"), 3, "10 cells, not 9"),
        (text_of(line("1", "COMPLETED", 100, 120, 110)), 2, "job 1 has its End 10 s before its Start"),
        (text_of(line("1", "COMPLETED", "Unknown", 110, 120)), 2, "job 1 has no Submit time"),
        (text_of(line("1", "COMPLETED", "Ystday 10:03", 110, 120)), 2, "run sacct with SLURM_TIME_FORMAT=%s"),
        (text_of(line("1", "COMPLETED", 100, 110, "-5")), 2, "End is '-5', no time"),
        (text_of(line("x", "COMPLETED", 100, 110, 120)), 2, "JobID 'x' is no job id"),
        (text_of(line("1", "FINE", 100, 110, 120)), 2, "State is 'FINE', which is no state of Slurm"),
        (text_of(line("1", "COMPLETED", 100, 110, 120, "four GPUs", "n1", "0")), 2, "TRES 'four GPUs' cannot be read"),
        (text_of(line("1", "COMPLETED", 100, 110, 120, f"gres/gpu={10**20}", "n1", "0")), 2, f"read at '{10**20}'"),
        ("JobID|Cluster|State|Submit|Start|End|NCPUS\n1|a|COMPLETED|1|2|3|4\n2|b|COMPLETED|1|2|3|4\n", 3,
         "job 2 is of cluster 'b', those before it of 'a'; run sacct with --clusters=a"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line(tmp_path: Path, text: str, at: int, told: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(tmp_path, text)
    assert caught.value.line == at
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "dump.txt") in str(caught.value)


def test_an_unreadable_record_comes_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no state of Slurm; correct it, or leave such lines out with --lenient"):
        read(tmp_path, text_of(GOOD, line("2", "FINE", 100, 110, 120)))


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_sacct(tmp_path / "nowhere.txt", lenient=False)


def test_lenient_reading_lists_what_it_left_out(tmp_path: Path) -> None:
    rows = text_of(GOOD, "2|u|COMPLETED", line("3", "FINE", 100, 110, 120), line("4", "COMPLETED", 100, 110, 121))
    trace = read(tmp_path, rows, lenient=True).trace
    assert trace.workload.label == ("1", "4")
    assert [(skip.line, skip.value[:6]) for skip in trace.skipped] == [(3, "2|u|CO"), (4, "3|u|FI")]
    assert "no state of Slurm" in trace.skipped[1].reason


def test_lenient_reading_passes_an_unknown_column_over(tmp_path: Path) -> None:
    trace = read(tmp_path, text_of(GOOD, header=HEADER.replace("User", "Colour")), lenient=True).trace
    assert [(skip.line, skip.value) for skip in trace.skipped] == [(1, "colour")]
    assert len(trace.workload) == 1
