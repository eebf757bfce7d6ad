"""The tables of prediction errors, on a small table; and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

# The benchmarks are no part of the package, so they are found by their place.
from benchmarks.interference import (
    MemoryFitFigures,
    MethodFigures,
    Part,
    PredictionFigures,
    Report,
    Roughness,
    Transfer,
    aip_of,
    judge,
    memory,
    roughness,
    transfer,
)
from benchmarks.reproduce.interference import lines, write
from tests.learning.tables import table, written


def test_without_a_table_the_section_says_so(tmp_path: Path) -> None:
    found = write(tmp_path, lambda _: None)
    assert found.claims == []
    assert found.lines[0] == "Skipped: no `gavel/throughputs.json` in the folder of the traces."


def test_methods_and_memory_are_judged(tmp_path: Path) -> None:
    pairs = written(table(noise=0.02), tmp_path / "pairs.json")
    mean, svr = (judge(pairs, "fast", method) for method in ("mean", "svr"))
    assert svr.pairs.of_slowdown < mean.pairs.of_slowdown
    told = memory(table(noise=0.02), "fast")
    assert told.missed + told.refused < told.apart < told.pairs
    assert told.doubted < told.pairs / 10


@pytest.mark.thorough
def test_neighbours_say_how_rough_a_table_is(tmp_path: Path) -> None:
    smooth, rough = (roughness(written(table(noise=noise), tmp_path / f"{noise}.json"), "fast") for noise in (0.0, 0.2))
    assert smooth.pairs == rough.pairs > 20
    assert smooth.halfway.of_xi < rough.halfway.of_xi / 2
    assert smooth.predicted.of_xi < rough.predicted.of_xi


@pytest.mark.thorough
def test_what_two_types_of_gpu_have_in_common_is_carried_over(tmp_path: Path) -> None:
    found = transfer(written(table(noise=0.02), tmp_path / "pairs.json"), "fast", "slow")
    assert found.carried.of_xi < found.turns.of_xi  # the same structure on both, apart from noise
    assert found.few[-1][1].of_xi < found.few[0][1].of_xi


def test_the_document_marks_the_choice_of_aip() -> None:
    good, bad = PredictionFigures(0.05, 0.1, 0.6, 0.9), PredictionFigures(0.4, 0.8, 0.6, 0.9)
    part = Part(
        "v100",
        10,
        0.9,
        (MethodFigures("linear", bad, bad), MethodFigures("tree", good, bad)),
        MemoryFitFigures(50, 5, 2, 1, 4),
        Roughness(8, bad, good),
    )
    assert aip_of(part).method == "tree"
    text = "\n".join(lines(Report((part,), (Transfer("v100", "k80", bad, good, ((7, good),)),))))
    assert "| AIP: decision tree (AIP's choice) | 5.0% | 10.0% | 40.0% | 80.0% | 60% | 90% |" in text
    assert "3 wrong (6.0%), of them 2 that do not fit though predicted to; 4 are in doubt" in text
    assert "8 of these slowdowns have measured neighbours" in text
    assert (
        "is off by 40.0% of xi, 80.0% of xi - 1; the Gaussian process, of the same ones, by 5.0% and 10.0%."
        in text.replace("\n", " ")
    )
    assert "| 7 pairs, three draws: learned anew, on the others | 5.0% | 10.0% |" in text
