"""Tiresias: two-dimensional attained service in discrete queues (Gu et al., NSDI 2019, Section 3.2)."""
