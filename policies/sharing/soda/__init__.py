"""The policy for a site that wants one: Gittins' order over learned run times, shared GPUs, priced preemption."""
