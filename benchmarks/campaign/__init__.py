"""Random load and random faults on a real cluster, and what must hold all the time: ``python -m benchmarks.campaign``."""
