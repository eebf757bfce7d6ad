"""Preemptions under way: the state machine of one, and all that are active."""
