"""Single sections of the reproduction: found by name, printed, and put into a document where they belong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import click
import pytest
from click.testing import CliRunner

from benchmarks.reproduce import soda_on_traces
from benchmarks.reproduce.__main__ import document, main, sections
from benchmarks.reproduce.document import SummaryClaim, Written
from benchmarks.reproduce.preface import MISSING, SPEED
from benchmarks.reproduce.simulation import Results
from benchmarks.reproduce.single_sections import choose, put_into

DOCUMENT = Path(__file__).parents[2] / "docs/reproduction.md"
PARTS = [(name, Written([f"old {name}", ""], [SummaryClaim(True, f"claim of {name}.")])) for name in ("A", "B", "C")]
ORDER = ("A", "B", "C", SPEED)


def test_names_choose_sections_by_any_part_of_their_titles() -> None:
    every = sections(data=True, pairs=True)
    assert [section.title for section in choose(["regret", "pollux"], every)] == [
        "Pollux' simulator", "What wrong slowdowns cost: regret",
    ]  # fmt: skip
    with pytest.raises(click.UsageError, match=r"'nobody' is part of no title; one of: .*; Lower bounds"):
        choose(["nobody"], every)
    with pytest.raises(click.UsageError, match=r"'Table' is part of several titles; one of: Tiresias'? ?.*Table"):
        choose(["Table"], every)


@pytest.mark.parametrize("title", ["A", "B", "C"])
def test_a_section_that_is_put_back_changes_nothing(title: str) -> None:
    whole = document(PARTS, "images")
    assert put_into(whole, ORDER, title, dict(PARTS)[title], "images") == whole


@pytest.mark.parametrize("title", ["A", "B", "C"])
def test_a_section_that_was_not_there_comes_to_its_place(title: str) -> None:
    without = document([part for part in PARTS if part[0] != title], "images")
    assert put_into(without, ORDER, title, dict(PARTS)[title], "images") == document(PARTS, "images")


def test_a_section_takes_the_place_of_the_old_one_with_all_of_its_claims() -> None:
    new = Written(["new B", ""], [SummaryClaim(False, "one."), SummaryClaim(None, "two.")])
    text = put_into(document(PARTS, "images"), ORDER, "B", new, "images")
    assert text == document([PARTS[0], ("B", new), PARTS[2]], "images")
    assert "- **Does not hold.** one. [Section](#b)\n- two. [Section](#b)\n" in text


def test_what_is_no_such_document_is_refused() -> None:
    with pytest.raises(click.UsageError, match="names no document of `make reproduce`"):
        put_into("# Notes\n\n## Else\n", ORDER, "B", dict(PARTS)["B"], "images")
    older = document(PARTS, "images").replace(" [Section](#c)", "")
    with pytest.raises(click.UsageError, match="leads to no section"):
        put_into(older, ORDER, "B", dict(PARTS)["B"], "images")


def test_the_document_has_its_sections_in_order_so_that_each_can_be_put_back() -> None:
    text = DOCUMENT.read_text()
    order = [section.title for section in sections(data=True, pairs=True)]
    titles = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert [title for title in titles if title in order] == order
    emptied = put_into(
        text, [*order, "Interference that must be predicted", SPEED], "Lower bounds", Written([]), "images"
    )
    assert "- **Holds.** Lower bounds:" in text
    assert "- **Holds.** Lower bounds:" not in emptied
    assert titles[-1] == MISSING


def test_a_single_section_is_printed_and_the_document_left_alone(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--section", "chapter 6", "--generated", "--workers", "1"])
    assert done.exit_code == 0, done.output
    assert "## Co-location, Chapter 6: best and worst case\n" in done.stdout
    wrong = CliRunner().invoke(main, ["--section", "regret", "--generated"])
    assert wrong.exit_code == 2
    assert "'regret' is part of no title" in wrong.stderr
    absent = CliRunner().invoke(main, ["--section", "chapter 6", "--generated", "--out", str(tmp_path / "none.md")])
    assert absent.exit_code == 1
    assert "none.md" in absent.stderr


def _found(avg_s: float, makespan_s: float = 60_000.0, preemptions: int = 10) -> SimpleNamespace:
    summary = SimpleNamespace(avg_jct_s=avg_s, makespan_s=makespan_s, preemptions=preemptions, jobs=10)
    return SimpleNamespace(avg_s=avg_s, run=SimpleNamespace(summary=summary))


@pytest.mark.parametrize(
    ("soda_s", "makespan_s", "preemptions", "holds"),
    [
        (5_000.0, 61_500.0, 30, [True, True, True, True, True, True, True, True, True, True]),
        (5_000.0, 61_501.0, 30, [False, True, True, True, True, True, True, True, True, True]),
        (5_000.0, 61_500.0, 31, [True, True, True, True, True, True, False, False, False, False]),
        (6_600.0, 61_500.0, 30, [True, True, False, True, False, False, True, True, True, True]),
        (12_500.0, 61_500.0, 30, [False, True, False, False, False, False, False, False, False, False]),
    ],
)
def test_soda_on_traces_says_what_was_missed(
    soda_s: float, makespan_s: float, preemptions: int, holds: list[bool]
) -> None:
    """Tiresias is at 10 000 s on Pollux' workloads and at 6 000 s on Philly."""
    part = soda_on_traces.section()
    found = {
        line: _found(soda_s, makespan_s, preemptions)
        if "--policy soda" in line
        else _found(10_000.0 if "pollux" in line else 6_000.0)
        for line in part.commands
    }
    written = part.write(cast(Results, found))
    assert [claim.holds for claim in written.claims] == holds
    assert all(line in "\n".join(written.lines) for line in part.commands)
