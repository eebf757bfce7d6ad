"""Prints co-location's Chapter 6: ``python -m benchmarks.chapter6`` (seconds)."""

from __future__ import annotations

from benchmarks.reproduce.chapter6 import tables

if __name__ == "__main__":
    written = tables()
    print("\n".join([*written.lines, *(claim.text for claim in written.claims)]))
