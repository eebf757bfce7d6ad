"""Random load and random faults on a real cluster, with what must hold looked at after each: ``python -m benchmarks.campaign``."""
