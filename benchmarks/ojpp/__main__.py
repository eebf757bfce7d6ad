"""Prints OJPP's evaluation: ``python -m benchmarks.ojpp`` (some ten minutes of two cores)."""

from __future__ import annotations

from benchmarks.ojpp.evaluation import evaluate_all
from benchmarks.reproduce.ojpp import cases, tables

if __name__ == "__main__":
    written = tables(evaluate_all(cases()))
    print("\n".join([*written.lines, *(claim.text for claim in written.claims)]))
