"""sodactl whatif: a dump in, a page out."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.simulator.traces.sacct.columns import SACCT_COMMAND
from slurm_soda.sodactl.main import run
from slurm_soda.sodactl.simulation.whatif import _demo_dump
from tests.sampling import thorough

DOCS = Path(__file__).parents[2] / "docs"
WhatIf = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.usefixtures("few_variants")


@pytest.fixture
def whatif(capsys: pytest.CaptureFixture[str]) -> WhatIf:
    def whatif(*options: object) -> dict[str, Any]:
        assert run(["whatif", "--json", "--workers", "1", *map(str, options)]) == 0
        return dict(json.loads(capsys.readouterr().out))

    return whatif


def head(path: Path, lines: int) -> Path:
    """A dump of the first jobs only."""
    path.write_text("\n".join(_demo_dump().read_text().splitlines()[:lines]) + "\n")
    return path


def test_without_arguments_it_shows_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["whatif"]) == 0
    shown = capsys.readouterr().out
    for words in ("30 jobs of the demo of slurm-soda on what they ran on (2 nodes, 8 GPUs)", "observed ",
                  "backfill (stands for the present)", "srsf (knows all run times)",
                  " if no job could checkpoint, ", "Average JCT over that of backfill, with 95 % intervals",
                  "For sodad's configuration:", "[policy.parameters]", "What to bear in mind:",
                  "Taken for granted:"):  # fmt: skip
        assert words in shown


def test_what_is_not_simulated_is_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dump = head(tmp_path / "dump.txt", 8)
    lines = dump.read_text().splitlines()
    waits = lines[-1].replace("COMPLETED", "PENDING").split("|")
    dump.write_text("\n".join([*lines, "|".join(["99", "99", *waits[2:]])]) + "\n")
    assert run(["whatif", "--sacct", str(dump)]) == 0
    assert "Not simulated: 1 still waiting when the dump was made" in " ".join(capsys.readouterr().out.split())


def test_every_key_is_documented(whatif: WhatIf, tmp_path: Path) -> None:
    found = whatif("--sacct", head(tmp_path / "dump.txt", 8))
    section = (DOCS / "commands.md").read_text().partition("## sodactl whatif")[2].partition("\n## ")[0]
    for key in (*found, *found["present"], *found["worse"], *found["worse"]["groups"][0], *found["observed"]):
        assert f"`{key}`" in section, key


def test_what_a_person_says_counts(whatif: WhatIf, tmp_path: Path) -> None:
    dump = head(tmp_path / "dump.txt", 10)
    found = whatif(
        "--sacct", dump, "--cluster", "3x4", "--restart-cost-s", 7, "--policy", "gandiva",
        "--set", "gandiva.quantum_s=5", "--set", "tiresias-las.thresholds_gpu_s=3,9",
    )  # fmt: skip
    assert (found["cluster"], found["gpus"], found["restart_s"], found["restart_is_guessed"]) == ("3x4", 12, 7, False)
    rows = {row["label"]: row for row in found["policies"]}
    assert rows["gandiva"]["parameters"]["quantum_s"] == 5
    assert rows["tiresias-las"]["parameters"]["thresholds_gpu_s"] == [3, 9]
    assert "tiresias-las (tuned)" not in rows
    assert found["present"]["times_better"] == 1


def test_only_the_latest_jobs_are_simulated(whatif: WhatIf, tmp_path: Path) -> None:
    rows = [f"{at}|COMPLETED|{at}00|{at}10|{at}{20 + at}|gres/gpu=1,node=1|n1" for at in range(1, 9)]
    dump = tmp_path / "dump.txt"
    dump.write_text("\n".join(["JobID|State|Submit|Start|End|AllocTRES|NodeList", *rows]))
    found = whatif("--sacct", dump, "--jobs", 3)
    assert found["jobs"] == 3
    assert any(doubt.startswith("Of 8 jobs in the dump the latest 3 were simulated") for doubt in found["doubts"])


def test_a_dump_that_cannot_be_read_ends_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = head(tmp_path / "dump.txt", 6)
    dump.write_text(dump.read_text().replace("COMPLETED", "SPLENDID", 2))
    assert run(["whatif", "--sacct", str(dump)]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"{dump}:2: State is 'SPLENDID'" in told


def test_lenient_reading_lists_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = head(tmp_path / "dump.txt", 8)
    dump.write_text(dump.read_text().replace("COMPLETED", "SPLENDID", 2))
    assert run(["whatif", "--sacct", str(dump), "--lenient"]) == 0
    shown = capsys.readouterr().out
    assert "Left out, because it cannot be used:" in shown
    assert "line 3: State is 'SPLENDID'" in shown


@pytest.mark.parametrize(
    ("options", "status", "told"),
    [
        (["--cluster", "nonsense"], 2, "is not a group of nodes"),
        (["--cluster", "1x4"], 1, "demo of slurm-soda"),
        (["--set", "speed=9"], 2, "no parameter 'speed' here"),
        (["--restart-cost-s", "-1"], 2, "--restart-cost-s"),
        (["--sacct", "/nowhere"], 1, "/nowhere: cannot be read: No such file"),
    ],
)
def test_slips_are_told(options: list[str], status: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["whatif", *options]) == status
    assert told in capsys.readouterr().err


def test_the_page_says_the_same(tmp_path: Path, whatif: WhatIf) -> None:
    dump = head(tmp_path / "dump.txt", 8)
    found = whatif("--sacct", dump, "--html", tmp_path / "answer.html")
    page = (tmp_path / "answer.html").read_text()
    assert found["headline"] in page
    assert "What to bear in mind" in page
    assert page.count("<h2>Average JCT over that of backfill") == 1
    assert 'aria-label="Average JCT over that of backfill' in page
    assert [point["can_checkpoint"] for point in found["gain"][0]["points"]] == [0.0, 0.1, 0.3, 0.6, 1.0]
    assert "http" not in page.replace("http-equiv", "")


def test_the_manual_gives_the_command_that_is_recommended() -> None:
    assert SACCT_COMMAND in (DOCS / "whatif.md").read_text()


def test_a_policy_is_there_once_in_each_role(whatif: WhatIf, tmp_path: Path) -> None:
    dump = head(tmp_path / "dump.txt", 12)
    found = whatif("--sacct", dump, "--policy", "fifo", "--policy", "srsf", "--policy", "backfill")
    rows = [(row["policy"], row["role"]) for row in (found["present"], *found["policies"])]
    assert len(set(rows)) == len(rows)
    assert found["present"]["role"] == "slurm"
    assert rows[-1] == ("srsf", "bound")
    assert {("fifo", "slurm"), ("fifo", "tried"), ("backfill", "slurm"), ("backfill", "tried"), ("srsf", "tried"),
            ("soda", "tried"), ("tiresias-las", "tried"), ("tiresias-gittins", "tried")} < set(rows)  # fmt: skip
    assert {row["role"] for row in found["policies"] if row["label"] == "tiresias-las (tuned)"} <= {"tuned"}


def test_a_narrow_terminal_gets_the_columns_that_matter(tmp_path: Path) -> None:
    reader, writer = pty.openpty()
    subprocess.run(
        [
            Path(sys.executable).parent / "sodactl",
            "whatif",
            "--workers",
            "1",
            "--sacct",
            head(tmp_path / "dump.txt", 16 if thorough() else 10),
        ],
        stdout=writer,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
        check=True,
    )
    os.close(writer)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", os.read(reader, 65536).decode())
    os.close(reader)
    rows = shown.replace("\r", "").split("\n\n")[1].splitlines()
    assert rows[0].split()[:5] == ["policy", "avg", "JCT", "times", "better"]
    assert any(row.startswith("backfill (stands for the present) ") for row in rows)
    assert len(rows) == 10
    assert max(map(len, rows)) <= 80


def test_policies_that_share_gpus_are_shown_and_not_recommended(whatif: WhatIf, tmp_path: Path) -> None:
    found = whatif("--sacct", head(tmp_path / "dump.txt", 16), "--policy", "sjf-bsbf", "--pair-slowdown", "1.01")
    soda, row = [row for row in found["policies"] if row["role"] == "sharing"]
    assert (soda["policy"], soda["label"]) == ("soda", "soda (jobs share GPUs)")
    assert row["policy"] == "sjf-bsbf"
    assert row["times_better"] > 1
    assert found["recommended"]["role"] != "sharing"
    assert any("nobody knows yet which users will agree to share" in doubt for doubt in found["doubts"])


def stretched(path: Path, ratio: int) -> Path:
    """The same jobs in so many times the time: those of the demo end before a minute has taught anything of the first."""
    header, *rows = (line.split("|") for line in path.read_text().splitlines())
    first_s = int(rows[0][header.index("Submit")])
    for row in rows:
        for name in ("Submit", "Eligible", "Start", "End"):
            at = header.index(name)
            row[at] = str(first_s + ratio * (int(row[at]) - first_s))
        for name in ("ElapsedRaw", "TimelimitRaw"):
            at = header.index(name)
            row[at] = str(ratio * int(row[at])) if row[at] else ""
    path.write_text("\n".join("|".join(line) for line in (header, *rows)) + "\n")
    return path


def test_jobs_share_as_slurm_can_unless_asked_otherwise(whatif: WhatIf, tmp_path: Path) -> None:
    dump = stretched(head(tmp_path / "dump.txt", 16), 60)

    def shared(*options: str) -> tuple[dict[str, Any], str]:
        found = whatif("--sacct", dump, "--policy", "sjf-bsbf", "--pair-slowdown", "1.01", *options)
        return next(row for row in found["policies"] if row["policy"] == "sjf-bsbf"), " ".join(found["notes"])

    plain, told = shared()
    ideal, told_of_ideal = shared("--mechanism", "ideal")
    assert plain["avg_jct_s"] != ideal["avg_jct_s"]
    assert "is requeued and loses all that it did beside it (--checkpoint-every-s)" in told
    assert "as Slurm cannot do it (--mechanism ideal)" in told_of_ideal
    saving, told_of_saving = shared("--checkpoint-every-s", "60")
    assert saving["avg_jct_s"] != plain["avg_jct_s"]
    assert "every 60.0 s of work" in told_of_saving


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--mechanism", "slurm"), "--mechanism slurm needs --pairs or --pair-slowdown"),
        (("--checkpoint-every-s", "600"), "--checkpoint-every-s needs --pairs or --pair-slowdown"),
        (("--seed", "3"), "--seed is for --can-checkpoint and --consent"),
    ],
)
def test_options_without_effect_are_refused(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["whatif", *options]) == 2
    assert said in capsys.readouterr().err


def test_the_site_file_that_help_names_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["whatif", "--print-site"]) == 0
    assert "[priority]" in capsys.readouterr().out


def test_what_a_scope_brings(whatif: WhatIf, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dump = head(tmp_path / "dump.txt", 9)
    gain = whatif("--sacct", dump, "--in-scope", "users=alice")["scope"]
    assert gain["in_scope"]["jobs"] + gain["others"]["jobs"] == 8
    assert gain["in_scope"]["jobs"] > 0
    assert gain["policy"] in ("soda", "tiresias-las", "tiresias-gittins")
    assert whatif("--sacct", dump)["scope"] is None
    for wrong in ("accounts=ml", "users=", "users"):
        assert run(["whatif", "--sacct", str(dump), "--in-scope", wrong]) == 2
        assert "KEY is partitions, qos, users" in capsys.readouterr().err


def test_a_job_that_the_concluded_cluster_cannot_hold_is_named(
    whatif: WhatIf, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its nodes cannot be read, so nothing shows where its GPUs are."""
    dump = head(tmp_path / "dump.txt", 8)
    title, *rows = dump.read_text().splitlines()
    at = [
        title.split("|").index(name)
        for name in ("JobID", "JobIDRaw", "NodeList", "AllocTRES")
        if name in title.split("|")
    ]
    cells = rows[-1].split("|")
    for place, value in zip(at[-2:], ("n[1-", "cpu=1,gres/gpu=64,node=1"), strict=True):
        cells[place] = value
    dump.write_text("\n".join([title, *rows[:-1], "|".join(cells)]) + "\n")
    assert run(["whatif", "--sacct", str(dump)]) == 1
    told = capsys.readouterr().err
    assert f"dump.txt:8: job '{cells[at[0]]}' is larger than the cluster" in told
    assert "it needs 64 GPUs, but there are" in told
    assert whatif("--sacct", dump, "--lenient")["jobs"] == 6


@pytest.mark.parametrize(
    ("scope", "told"),
    [
        (["users=nobody-here"], "no job in the dump has 'nobody-here' of users; there are: alice"),
        (["partitions=gpu,gppu"], "no job in the dump has 'gppu' of partitions; there are: gpu"),
    ],
)
def test_a_scope_without_jobs_is_a_mistake(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, scope: list[str], told: str
) -> None:
    dump = head(tmp_path / "dump.txt", 8)
    argv = ["whatif", "--sacct", str(dump), *(word for one in scope for word in ("--in-scope", one))]
    assert run(argv) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_lists_that_no_job_is_in_together_are_a_mistake(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = ["1|COMPLETED|a|p|100|110|120|gres/gpu=1,node=1|n1", "2|COMPLETED|b|q|100|110|120|gres/gpu=1,node=1|n1"]
    dump = tmp_path / "dump.txt"
    dump.write_text("\n".join(["JobID|State|User|Partition|Submit|Start|End|AllocTRES|NodeList", *rows]) + "\n")
    argv = ["whatif", "--sacct", str(dump), "--in-scope", "users=a", "--in-scope", "partitions=q"]
    assert run(argv) == 2
    assert "no job that is simulated is in all of these lists" in " ".join(capsys.readouterr().err.split())


def test_jobs_that_took_no_time_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [f"{at}|FAILED|{at}00|{at}00|{at}00|gres/gpu=1,node=1|n1" for at in range(1, 4)]
    dump = tmp_path / "dump.txt"
    dump.write_text("\n".join(["JobID|State|Submit|Start|End|AllocTRES|NodeList", *rows]) + "\n")
    for more in ([], ["--cluster", "1x2"]):
        assert run(["whatif", "--sacct", str(dump), *more]) == 1
        told = capsys.readouterr().err
        assert "every job of dump.txt ended in the second in which it was submitted" in told
        assert len(told.splitlines()) == 1
