"""Bounded waiting: after a finite wait no later job passes or delays a job, whatever the policy."""
