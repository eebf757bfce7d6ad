"""Scheduling policies: pure functions from a cluster snapshot to a plan.

Data flows one way: :mod:`.snapshot` (what is) → a :class:`.policy.Policy` → :mod:`.plan` (what should be). Nothing in
this package does I/O, reads a clock, draws random numbers or logs; the daemon and the simulator run the same objects.
"""
